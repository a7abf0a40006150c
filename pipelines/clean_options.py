"""Flags of the text job for cleaning a corpus: normalizing its text, dropping documents."""

from __future__ import annotations

from collections.abc import Set

from recordmill.pipelines.arguments import BooleanFlag
from recordmill.pipelines.compat import FlagGroup
from recordmill.pipelines.flags import TextFlags
from recordmill.records.errors import UsageError
from recordmill.transforms.text.cleaning.clean_spec import NORMALIZATIONS, CleanSpec


def add_clean_arguments(group: FlagGroup) -> None:
    """Adds the flags."""
    group.add_argument(
        "--normalize", default="none", choices=NORMALIZATIONS,
        help="Bring text to a Unicode form before all else: nfc, nfkc, or what ftfy makes of it, "
        "which repairs wrongly decoded characters and HTML entities.",
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
        "--list_dropped", action=BooleanFlag,
        help="List the dropped documents in _meta/dropped, with the reason.",
    )  # fmt: skip


def clean_spec(options: TextFlags, given: Set[str]) -> CleanSpec:
    """Returns what the flags say of cleaning.

    Args:
      options: of the text job.
      given: those that have not their default value.

    Raises:
      UsageError: one line: the rule, what was found, what to do.
    """
    spec = CleanSpec(
        options.normalize, options.min_tokens, options.max_tokens,
        list_dropped=options.list_dropped,
    )  # fmt: skip
    if "list_dropped" in given and not spec.drops:
        raise UsageError(
            "--list_dropped has no effect where no document is dropped; add --min_tokens or "
            "--max_tokens, or leave it out"
        )
    return spec
