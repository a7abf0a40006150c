"""Where the labels of documents are, and what they may be."""

from __future__ import annotations

from recordmill.records.errors import UsageError
from recordmill.transforms.dataset.labels import read_labels
from recordmill.transforms.sources.row_fields import LabelSpec


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
