"""Flags of the text job for cleaning a corpus: normalizing its text, dropping documents."""

from __future__ import annotations

from collections.abc import Set

from recordmill.pipelines.arguments import BooleanFlag
from recordmill.pipelines.beam_internals import FlagGroup
from recordmill.pipelines.flags import TextFlags
from recordmill.records.errors import UsageError
from recordmill.transforms.text.cleaning.clean_spec import (
    DEDUPLICATIONS,
    NORMALIZATIONS,
    USUAL_THRESHOLD,
    CleanSpec,
)


def add_clean_arguments(group: FlagGroup) -> None:
    """Adds the flags."""
    group.add_argument(
        "--normalize", default="none", choices=NORMALIZATIONS,
        help="Bring text to a Unicode form before all but --map: nfc, nfkc, or what ftfy makes "
        "of it, which repairs wrongly decoded characters and HTML entities.",
    )  # fmt: skip
    group.add_argument(
        "--min_tokens", type=int, default=0, metavar="N",
        help="Drop documents with fewer tokens; 0 drops none.",
    )  # fmt: skip
    group.add_argument(
        "--max_tokens", type=int, metavar="N",
        help="Drop documents with more tokens; by default none.",
    )  # fmt: skip
    group.add_argument(
        "--deduplicate", default="none", choices=DEDUPLICATIONS,
        help="exact: of documents with the same text, the first of the input is kept; near: of "
        "similar ones too, found by MinHash of word 5-grams.",
    )  # fmt: skip
    group.add_argument(
        "--near_threshold", type=float, default=USUAL_THRESHOLD,
        help="--deduplicate=near: the Jaccard similarity from which documents are similar.",
    )  # fmt: skip
    group.add_argument(
        "--list_dropped", action=BooleanFlag,
        help="List the dropped documents in _meta/dropped, with the reason and what each repeats.",
    )  # fmt: skip


def clean_spec(options: TextFlags, given: Set[str], *, maps: bool) -> CleanSpec:
    """Returns what the flags say of cleaning.

    Args:
      options: of the text job.
      given: those that have not their default value.
      maps: whether functions of the user's own may drop documents.

    Raises:
      UsageError: one line: the rule, what was found, what to do.
    """
    spec = CleanSpec(
        normalize=options.normalize, min_tokens=options.min_tokens, max_tokens=options.max_tokens,
        deduplicate=options.deduplicate, near_threshold=options.near_threshold,
        list_dropped=options.list_dropped,
    )  # fmt: skip
    if "list_dropped" in given and not (spec.drops or maps):
        raise UsageError(
            "--list_dropped has no effect where no document is dropped; add --min_tokens, "
            "--max_tokens, --deduplicate or --map, or leave it out"
        )
    if "near_threshold" in given and spec.deduplicate != "near":
        raise UsageError(
            "--near_threshold has no effect without --deduplicate=near; add it, or leave this out"
        )
    return spec
