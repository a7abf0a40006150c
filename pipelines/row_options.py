"""Flags of the text job for what a record has beside its text: a label, a pair, kept fields."""

from __future__ import annotations

from recordmill.pipelines.beam_internals import FlagGroup
from recordmill.pipelines.flags import TextFlags
from recordmill.records.errors import UsageError
from recordmill.transforms.sources.kept_fields import parse_fields
from recordmill.transforms.sources.row_fields import RowSpec
from recordmill.transforms.text.task import label_spec

_LABEL_FIELD = "label"


def add_row_arguments(group: FlagGroup) -> None:
    """Adds the flags."""
    group.add_argument(
        "--text_pair_field", default="", metavar="FIELD",
        help="classify: the field of the second text of a pair, by default none.",
    )  # fmt: skip
    group.add_argument(
        "--label_field", metavar="FIELD",
        help=f"classify: the field of the label, by default {_LABEL_FIELD}.",
    )  # fmt: skip
    group.add_argument(
        "--labels", default="auto", metavar="auto | number | FILE",
        help="classify: auto numbers the labels that occur, sorted; whole numbers from 0 on stay "
        "as they are. number: the label is a number to be predicted, a float, and no class. A file "
        "has all labels, one a line in order of their ids: rows with others are rejected.",
    )  # fmt: skip
    group.add_argument(
        "--prompt_field", default="", metavar="FIELD",
        help="gpt: the field of the prompt that stands before the text; by default none.",
    )  # fmt: skip
    group.add_argument(
        "--keep_fields", default="", metavar="FIELD[:int|:float],…",
        help="mlm, mlm_tokens, classify; with --packing=none gpt, t5, t5_tokens, ul2: fields of "
        "all but plain text that are carried into the records, as features of their "
        "names: text as bytes, or numbers, as id,url,year:int. By default none.",
    )  # fmt: skip


def row_spec(options: TextFlags) -> RowSpec:
    """Returns what the flags say of a record beside its text.

    Raises:
      UsageError: one line: the rule, what was found, what to do.
    """
    kept = parse_fields(options.keep_fields)
    if options.task != "classify":
        return RowSpec(keep_fields=kept, prompt_field=options.prompt_field)
    if options.text_pair_field == options.text_field:
        raise UsageError(
            f"--text_pair_field must be another field than --text_field={options.text_field}"
        )
    label = label_spec(options.label_field or _LABEL_FIELD, options.labels)
    return RowSpec(label, options.text_pair_field, kept)
