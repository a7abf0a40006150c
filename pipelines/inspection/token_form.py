"""Which features of a dataset are rows of tokens, and which ids are sentinels, by its manifest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from recordmill.records.manifest import Manifest
from recordmill.records.noise import default_sentinel_ids
from recordmill.transforms.text.written_objective import objective_options

# Form of T5's records -> the features with the inputs and with the targets.
_SPAN_ROWS = {
    "seqio": ("inputs", "targets"),
    "cerebras": ("encoder_input_ids", "labels"),
}
_LABELS_ARE_TOKENS = ("gpt", "t5", "ul2")


@dataclass(frozen=True, slots=True)
class TokenForm:
    """What the configuration of a dataset says of its rows of tokens.

    Attributes:
      rows: whether the features that may be rows of tokens are: True, or None where nobody says,
        and their values have to.
      labels: whether `labels` is such a row, where `rows` is True.
      span_rows: the features with the inputs and the targets of T5; () in other datasets, and where
        nobody says.
      sentinels: the ids of the first span of a row, the second, …; () where nobody says.
      kept: fields of the input, which are no rows of tokens whatever their names are.
    """

    rows: bool | None = None
    labels: bool = False
    span_rows: tuple[str, ...] = ()
    sentinels: tuple[int, ...] = ()
    kept: frozenset[str] = frozenset()


UNKNOWN_FORM = TokenForm()


def form_of(manifest: Manifest | None, vocabulary: Sequence[str] | None) -> TokenForm:
    """Returns what is known of the rows of a dataset.

    Args:
      manifest: of the dataset; None of TFRecords of another tool.
      vocabulary: the token of each id, of which some may be spelled as sentinels; None if unknown.
    """
    config = manifest.config if manifest else {}
    objective = objective_options(config)
    if not objective:
        return UNKNOWN_FORM
    name = objective.get("name")
    fields = _part(_part(config, "documents"), "row").get("keep_fields")
    fields = fields if isinstance(fields, list) else []
    kept = frozenset(str(field.get("name")) for field in fields if isinstance(field, dict))
    known = TokenForm(True, name in _LABELS_ARE_TOKENS, kept=kept)
    rows = _SPAN_ROWS.get(str(objective.get("format")), ())
    if name not in ("t5", "ul2") or not rows:
        return known
    return TokenForm(True, True, rows, _sentinels(objective, config, vocabulary), kept)


def _sentinels(
    objective: dict[str, Any], config: dict[str, Any], vocabulary: Sequence[str] | None
) -> tuple[int, ...]:
    first = objective.get("first_sentinel_id")
    if isinstance(first, int):
        return tuple(range(first, -1, -1))
    if vocabulary:
        from recordmill.transforms.subwords.tokenizer import SpecialTokens

        named = SpecialTokens.find({token: i for i, token in enumerate(vocabulary)}).sentinel_ids
        if named:
            return named
    size = config.get("vocabulary_size")
    return default_sentinel_ids(size) if isinstance(size, int) else ()


def _part(content: dict[str, Any], name: str) -> dict[str, Any]:
    found = content.get(name)
    return found if isinstance(found, dict) else {}
