"""JSON files as typed values: whoever wrote a file, what leaves here has the types of its schema.

The schema of a file is a dataclass (or any type of msgspec), whose field types are enforced: text
is not a number, 1.0 not an integer, and numbers have bounds. The error names the field.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterable
from typing import Annotated, Any, TypeVar

import msgspec

T = TypeVar("T")

MAX_INT64 = (1 << 63) - 1
Count = Annotated[int, msgspec.Meta(ge=0, le=MAX_INT64)]
Uint32 = Annotated[int, msgspec.Meta(ge=0, le=(1 << 32) - 1)]

_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_FIELD = re.compile(r"(.*?) - at `\$\.?(.*)`", re.DOTALL)
_KINDS = {
    "`int`": "an integer", "`float`": "a number", "`str`": "text", "`bool`": "true or false",
    "`null`": "null", "`array`": "a list", "`object`": "an object", "`bytes`": "text",
}  # fmt: skip
_MOST_CHARACTERS = 300
_known: set[Any] = set()
_learning = threading.Lock()


class FormatError(ValueError):
    """A file has not the form that its schema says: one line that names the field or position."""


def decode(data: bytes, kind: type[T]) -> T:
    """Reads JSON, as Python writes it (with NaN), of one of our own files.

    Raises:
      FormatError: it is no JSON, or not of this kind.
    """
    try:
        content = json.loads(data)
        if _SURROGATE.search(data):
            json.dumps(content, ensure_ascii=False).encode()
    except RecursionError as error:
        raise FormatError("it is nested too deeply") from error
    except UnicodeEncodeError as error:
        raise FormatError("it has half of a surrogate pair, which no text has") from error
    except ValueError as error:  # a UnicodeDecodeError too
        raise FormatError(f"it is cut or no JSON: {error}") from error
    return convert(content, kind)


def convert(content: Any, kind: type[T]) -> T:
    """Returns what JSON was read to as a value of some kind.

    Raises:
      FormatError: it is not of this kind.
    """
    try:
        if kind not in _known:
            _learn(kind)
        return msgspec.convert(content, kind)
    except (msgspec.ValidationError, ValueError, TypeError, RecursionError) as error:
        raise FormatError(explain(error)) from error


def _learn(kind: Any) -> None:
    """Lets msgspec find out what a kind has, in one thread.

    It does so at the first use of a class, and until it is done another thread that uses the class
    ends the process by a segmentation fault (msgspec 0.22).
    """
    with _learning:
        if kind not in _known:
            msgspec.json.Decoder(kind)
            _known.add(kind)


def explain(error: Exception) -> str:
    """Returns an error of msgspec in our words, in one line: the field, and what is wrong there."""
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    text = " ".join(str(error).split())
    found = _FIELD.fullmatch(text)
    message, field = (found[1], found[2]) if found else (text, "")
    if expected := re.fullmatch(r"Expected (.*), got (`\w+`)(.*)", message):
        wanted = " or ".join(_KINDS.get(f"`{part}`", part) for part in _parts(expected[1]))
        message = f"must be {wanted}, and is {_KINDS.get(expected[2], expected[2])}{expected[3]}"
    elif missing := re.fullmatch(r"Object missing required field `(.*)`", message):
        field, message = f"{field}.{missing[1]}".lstrip("."), "is missing"
    elif message:
        message = message[0].lower() + message[1:]
    if len(message) > _MOST_CHARACTERS:
        message = f"{message[:_MOST_CHARACTERS]}…"
    return f"{field or 'the whole'} {message}"


def _parts(expected: str) -> Iterable[str]:
    return expected.strip("`").split(" | ")
