"""Translate the errors of storage services into those that Python raises for local files."""

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
    """Translates the errors that the block raises for a remote file into errors of one line.

    Args:
      done: the past participle of the operation, for messages, such as "read".
      path: the path of the file.

    Raises:
      FileNotFoundError: the file or its bucket does not exist.
      PermissionError: the service refuses the request.
      RunError: the service failed in another way. Requests whose errors may pass have been repeated
        for minutes before.
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
    """Returns the original error, which Beam or Google's retries may have wrapped in others."""
    details = getattr(error, "exception_details", None)
    below = next(iter(details.values())) if details else getattr(error, "cause", None)
    return _cause(below) if isinstance(below, BaseException) else error


def _status(error: BaseException) -> int:
    """Returns the HTTP status of the service's response, 0 if there was no response."""
    response: Any = getattr(error, "response", None)
    for status in (
        getattr(error, "code", None),
        getattr(error, "status_code", None),
        getattr(response, "status_code", None),
    ):
        if isinstance(status, int):
            return int(status)
    return 0


def why(error: BaseException) -> str:
    """Returns the reason for an error in a few words."""
    status = _status(error)
    if status in HTTPStatus.__members__.values():
        return f"{status} {HTTPStatus(status).phrase}"
    text = " ".join(str(error).split()) or type(error).__name__
    if isinstance(error, (ConnectionError, TimeoutError)) or "onnection" in type(error).__name__:
        text = f"the connection was lost ({text})"
    return text if len(text) <= _MOST_CHARACTERS else f"{text[:_MOST_CHARACTERS]}…"
