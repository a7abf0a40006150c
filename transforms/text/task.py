"""What all objectives as arguments have in common: see `tasks.py`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from recordmill.records.errors import UsageError
from recordmill.transforms.dataset.argument_names import TEXT_ARGUMENTS
from recordmill.transforms.dataset.argument_types import checked_fields
from recordmill.transforms.dataset.labels import read_labels
from recordmill.transforms.sources.kept_fields import KeptField, parse_fields
from recordmill.transforms.sources.row_fields import LabelSpec, RowSpec
from recordmill.transforms.text.objective_spec import ObjectiveSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class TextTask(ABC):
    """What examples are made of documents.

    Attributes:
      max_seq_length: the tokens of an example, special ones included.
    """

    name: ClassVar[str]
    max_seq_length: int = 128

    @checked_fields(TEXT_ARGUMENTS)
    def __post_init__(self) -> None:
        _ = self.spec  # a value that is not valid fails here

    @property
    @abstractmethod
    def spec(self) -> ObjectiveSpec:
        """The options by what they are for.

        Raises:
          UsageError: a value is not valid.
        """

    @property
    def splitter(self) -> str:
        """The default of `DocumentSpec.sentence_splitter`."""
        return "none"

    def row(self, keep_fields: str) -> RowSpec:
        """Returns what documents have beside their text, under the names of their attributes.

        Args:
          keep_fields: as in --keep_fields.

        Raises:
          UsageError: a value is not valid, or has no meaning for the task.
        """
        kept = parse_fields(keep_fields)
        check_kept_fields(self.spec, kept)
        return RowSpec(keep_fields=kept)


def label_spec(name: str, labels: str) -> LabelSpec:
    """Returns where labels are and what they are.

    Args:
      name: of the field.
      labels: "auto", "number", or the path of a file of labels.

    Raises:
      UsageError: the file cannot be read, or names a label twice.
    """
    names: tuple[str, ...] = ()
    if labels not in ("auto", "number"):
        names = read_labels(labels, kinds="auto, number")
        if len(set(names)) != len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise UsageError(f"--labels must name each label once, got {twice!r} twice")
    return LabelSpec(name, labels == "number", names)


def check_kept_fields(objective: ObjectiveSpec, fields: Sequence[KeptField]) -> None:
    """Refuses kept fields where a record holds several documents, or cannot hold fields.

    Raises:
      UsageError: says why.
    """
    if not fields:
        return
    if objective.name == "bert":
        raise UsageError(
            "--keep_fields has no meaning for --task=bert, whose records hold segments of two "
            "documents; leave it out, or give --task=mlm"
        )
    if objective.window.cross_documents:
        raise UsageError(
            "--keep_fields has no meaning with --allow_cross_document_examples, where a record "
            "holds several documents; leave one of them out"
        )
    if objective.name == "mlm_tokens" and objective.record_type != "example":
        raise UsageError(
            "--keep_fields needs --record_type=example for --task=mlm_tokens, because a "
            "SequenceExample has lists of tokens alone"
        )
    if objective.packing != "none":
        raise UsageError(
            f"--keep_fields has no meaning with --packing={objective.packing}, where a record "
            "holds several documents; leave it out, or give --packing=none"
        )
