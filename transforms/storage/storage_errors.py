"""What a storage service says when something fails, as the errors that Python's own files raise."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from typing import Any

from recordmill.records.errors import RunError, UsageError

_MOST_CHARACTERS = 300


@contextmanager
def reporting(done: str, path: str) -> Iterator[None]:
    """Raises what goes wrong with a remote file as an error with one line.

    Args:
      done: what was to be done, such as "read".
      path: of the file.

    Raises:
      FileNotFoundError: there is no such file or bucket.
      PermissionError: the service does not allow it.
      RunError: anything else; whatever may pass has been tried again for minutes by then.
    """
    try:
        yield
    except (RunError, UsageError, FileNotFoundError, PermissionError):
        raise
    except Exception as error:
        raise _translated(error, done, path) from error


def _translated(error: Exception, done: str, path: str) -> Exception:
    cause = _cause(error)
    status = _status(cause)
    if status == HTTPStatus.NOT_FOUND:
        return FileNotFoundError(errno.ENOENT, "no such file or bucket", path)
    reason = why(cause)
    if status == HTTPStatus.UNAUTHORIZED:
        reason += "; sign in with `gcloud auth application-default login` or give a service account"
        return PermissionError(errno.EACCES, reason, path)
    if status == HTTPStatus.FORBIDDEN:
        return PermissionError(errno.EACCES, f"{reason}; check the account's rights", path)
    return RunError(
        f"{path} cannot be {done}: {reason}; check the storage and run the same command again"
    )


def _cause(error: BaseException) -> BaseException:
    """Returns what lies below Beam's collection of errors, or below that of retries."""
    details = getattr(error, "exception_details", None)
    below = next(iter(details.values())) if details else getattr(error, "cause", None)
    return _cause(below) if isinstance(below, BaseException) else error


def _status(error: BaseException) -> int:
    """Returns the status of the answer, 0 where there was none."""
    answer: Any = getattr(error, "response", None)
    for found in (
        getattr(error, "code", None),
        getattr(error, "status_code", None),
        getattr(answer, "status_code", None),
    ):
        if isinstance(found, int):
            return int(found)
    return 0


def why(error: BaseException) -> str:
    """Returns in a few words what went wrong."""
    status = _status(error)
    if status in HTTPStatus.__members__.values():
        return f"{status} {HTTPStatus(status).phrase}"
    text = " ".join(str(error).split()) or type(error).__name__
    if isinstance(error, (ConnectionError, TimeoutError)) or "onnection" in type(error).__name__:
        text = f"the connection was lost ({text})"
    return text if len(text) <= _MOST_CHARACTERS else f"{text[:_MOST_CHARACTERS]}…"
