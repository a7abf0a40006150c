"""Which documents are dropped before they become examples, and how their text is normalized."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

from recordmill.records.errors import UsageError, at_least, one_of

Normalization = Literal["none", "nfc", "nfkc", "ftfy"]
Deduplication = Literal["none", "exact", "near"]
NORMALIZATIONS: tuple[str, ...] = get_args(Normalization)
DEDUPLICATIONS: tuple[str, ...] = get_args(Deduplication)
USUAL_THRESHOLD = 0.8

# Why documents are dropped, and what it means to the person who reads it.
DROP_REASONS = {
    "map": "a function of --map returned None, or no document",
    "duplicate": "the text equals that of an earlier document; see --deduplicate=exact",
    "near_duplicate": "the text is almost that of an earlier document; see --deduplicate=near",
    "too_short": "the document has fewer tokens than --min_tokens",
    "too_long": "the document has more tokens than --max_tokens",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanSpec:
    """How a corpus is cleaned.

    Attributes:
      normalize: the form that text is brought to before anything else looks at it.
      min_tokens, max_tokens: documents with fewer or more are dropped; those without any are
        counted apart.
      deduplicate: "exact" keeps the first of documents of equal text, "near" of similar ones.
      near_threshold: the Jaccard similarity of word 5-grams from which documents are similar.
      list_dropped: whether the dropped documents are listed.

    Raises:
      UsageError: a value is not valid.
    """

    normalize: str = "none"
    min_tokens: int = 0
    max_tokens: int | None = None
    deduplicate: str = "none"
    near_threshold: float = USUAL_THRESHOLD
    list_dropped: bool = False

    def __post_init__(self) -> None:
        one_of("--normalize", self.normalize, NORMALIZATIONS)
        one_of("--deduplicate", self.deduplicate, DEDUPLICATIONS)
        at_least("--min_tokens", self.min_tokens, 0)
        if self.max_tokens is not None and self.max_tokens < max(1, self.min_tokens):
            raise UsageError(
                f"--max_tokens must be at least 1 and not below --min_tokens, got "
                f"{self.max_tokens} with --min_tokens={self.min_tokens}"
            )
        if not 0.1 <= self.near_threshold <= 1:
            raise UsageError(f"--near_threshold must be in [0.1, 1], got {self.near_threshold}")

    @property
    def limits_length(self) -> bool:
        """Whether the number of tokens decides on a document."""
        return self.min_tokens > 0 or self.max_tokens is not None

    @property
    def deduplicates(self) -> bool:
        """Whether documents are compared with each other."""
        return self.deduplicate != "none"

    @property
    def drops(self) -> bool:
        """Whether documents may be dropped at all."""
        return self.limits_length or self.deduplicates

    def fingerprint_options(self) -> dict[str, Any]:
        """Returns the options that differ from the default: earlier releases have none of them."""
        return {
            name: getattr(self, name)
            for name, field in type(self).__dataclass_fields__.items()
            if getattr(self, name) != field.default
        }
