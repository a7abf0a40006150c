"""What processes write for each other, as JSON: each description is one `msgspec.Struct`.

The struct is the schema: whoever wrote a file, what leaves here has its types. Text is not a
number, 1.0 not an integer, and numbers have bounds. The error names the field. Keys that a struct
does not have are passed over, and fields with defaults may lack, so that releases read each other.
"""

from __future__ import annotations

import json
import re
import threading
from collections import Counter
from collections.abc import Iterable
from typing import Annotated, Any, TypeVar, get_origin

import msgspec

T = TypeVar("T")

MAX_INT64 = (1 << 63) - 1
Count = Annotated[int, msgspec.Meta(ge=0, le=MAX_INT64)]
Uint32 = Annotated[int, msgspec.Meta(ge=0, le=(1 << 32) - 1)]
FileSum = tuple[Count, Uint32]  # the bytes of a file and their crc32c

_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_FIELD = re.compile(r"(.*?) - at (`key` in )?`\$\.?(.*)`", re.DOTALL)
_KINDS = {
    "`int`": "an integer", "`float`": "a number", "`str`": "text", "`bool`": "true or false",
    "`null`": "null", "`array`": "a list", "`object`": "an object", "`bytes`": "text",
}  # fmt: skip
_MOST_CHARACTERS = 300
_decoders: dict[Any, msgspec.json.Decoder[Any]] = {}
_learning = threading.Lock()


class FormatError(ValueError):
    """A file has not the form that its schema says: one line that names the field or position."""


def encode(value: Any, *, indent: int | None = 1) -> bytes:
    """Returns a struct, or lists, dicts and dataclasses with some in them, as stable JSON.

    Args:
      value: equal ones give equal bytes.
      indent: of nested values, for files that people read; None puts all in one line.
    """
    # Not msgspec's own encoder, which writes some floats as other text, and NaN as null.
    text = json.dumps(value, indent=indent, sort_keys=True, ensure_ascii=False, default=_json_of)
    return f"{text}\n".encode()


def _json_of(value: Any) -> Any:
    if isinstance(value, msgspec.Struct):
        return msgspec.structs.asdict(value)
    return msgspec.to_builtins(value)  # such as a dataclass


def decode(data: bytes | str, kind: type[T]) -> T:
    """Reads JSON, as Python writes it (with NaN), of one of our own files.

    Raises:
      FormatError: it is no JSON, or not of this kind.
    """
    try:
        return _decoder(kind).decode(data)
    except (ValueError, TypeError, RecursionError):
        return convert(_parsed(data), kind)  # which takes NaN, or says what is wrong


def _parsed(data: bytes | str) -> Any:
    """Returns what JSON says."""
    data = data.encode() if isinstance(data, str) else data
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
    return content


def convert(content: Any, kind: type[T]) -> T:
    """Returns what JSON was read to as a value of some kind.

    Raises:
      FormatError: it is not of this kind.
    """
    try:
        _decoder(kind)
        return msgspec.convert(content, kind, dec_hook=_counter, str_keys=True)
    except (msgspec.ValidationError, ValueError, TypeError, RecursionError) as error:
        raise FormatError(explain(error)) from error


def _decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    """Returns what decodes a kind, made in one thread.

    msgspec finds out what a class has at its first use, and until it is done another thread that
    uses the class ends the process by a segmentation fault (msgspec 0.22).
    """
    if kind not in _decoders:
        with _learning:
            _decoders[kind] = msgspec.json.Decoder(kind, dec_hook=_counter)
    return _decoders[kind]


def _counter(kind: Any, content: Any) -> Any:
    """Returns a Counter, which msgspec does not know, of counts that are 0 or more."""
    if kind is object:
        return content
    if get_origin(kind) is not Counter:
        raise TypeError(f"{kind} cannot be read")
    try:
        return Counter(convert(content, dict[str, Count]))
    except FormatError as error:  # msgspec adds the field
        raise ValueError(str(error).removeprefix("the whole ")) from error


def explain(error: Exception) -> str:
    """Returns an error of msgspec in our words, in one line: the field, and what is wrong there."""
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    text = " ".join(str(error).split())
    found = _FIELD.fullmatch(text)
    message, field = (found[1], found[3]) if found else (text, "")
    if found and found[2]:
        field = f"a key of {field or 'the whole'}"
    if expected := re.fullmatch(r"Expected (.*), got (`\w+`)(.*)", message):
        wanted = " or ".join(_KINDS.get(f"`{part}`", part) for part in _parts(expected[1]))
        message = f"must be {wanted}, and is {_KINDS.get(expected[2], expected[2])}{expected[3]}"
    elif missing := re.fullmatch(r"Object missing required field `(.*)`", message):
        field, message = f"{field}.{missing[1]}".lstrip("."), "is missing"
    elif message:
        message = message[0].lower() + message[1:]
    if len(message) > _MOST_CHARACTERS:
        message = f"{message[:_MOST_CHARACTERS]}…"
    if not field and not message.startswith(("must be", "expected")):
        return message  # a check of the struct itself, which names its fields
    return f"{field or 'the whole'} {message}"


def _parts(expected: str) -> Iterable[str]:
    return expected.strip("`").split(" | ")
