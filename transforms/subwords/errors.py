"""The one error of a file that is no tokenizer."""

from __future__ import annotations

from recordmill.records.errors import UsageError


def unusable(source: str, why: object) -> UsageError:
    """Returns the error for a file that was recognized, and cannot be used.

    Args:
      source: its path.
      why: what is wrong with it; made one line.
    """
    return UsageError(f"--tokenizer {source} cannot be used: {' '.join(str(why).split())}")
