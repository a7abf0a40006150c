"""The one error of a file that is no tokenizer, and those of libraries that panic."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from recordmill.records.errors import UsageError


def unusable(source: str, why: object) -> UsageError:
    """Returns the error for a file that was recognized, and cannot be used.

    Args:
      source: its path.
      why: what is wrong with it; made one line.
    """
    return UsageError(f"--tokenizer {source} cannot be used: {' '.join(str(why).split())}")


class LibraryPanicError(ValueError):
    """A library written in Rust has met a fault of its own, or of its file."""


@contextmanager
def panics_as_errors() -> Iterator[None]:
    """Makes a panic an error: it is no Exception of Python, so nothing else would handle it.

    Raises:
      LibraryPanicError: what is within the block has panicked.
    """
    try:
        yield
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        raise LibraryPanicError(" ".join(str(error).split())) from error
