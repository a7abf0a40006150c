"""The errors that a user can cause, each one line that says what to do."""

import difflib
import re
import unicodedata
from collections.abc import Callable, Iterable

_URL_PASSWORD = re.compile(r"(\w+://[^\s/:@]*):[^\s/]*@")
_PARAMETER = re.compile(r"\b((?:ssl)?password)=[^&\s'\"]*")
_SHOWN_NAMES, _SHOWN_CHARACTERS = 20, 40  # of a list in a message


class UsageError(ValueError):
    """Wrong flags, missing input, an output that must not be touched: exit status 2."""


class RunError(RuntimeError):
    """The run cannot go on: rejects over the budget, a full disk, a broken file: exit status 1.

    Attributes:
      leaves_threads: whether threads are left that may never end, so that a process must not wait
        for them at its exit.
    """

    leaves_threads = False


class WrongElementError(TypeError):
    """An element of a user's own pipeline is none that can be written."""


def hide_passwords(text: str) -> str:
    """Returns a text in which stars stand for the passwords of URLs."""
    return _PARAMETER.sub(r"\1=***", _URL_PASSWORD.sub(r"\1:***@", text))


def visible(text: str) -> str:
    """Returns text as one line: what inputs and names hold may end lines, or command a terminal.

    >>> visible("a\\x1b[31mb")
    'a\\\\x1b[31mb'
    """
    return "".join(map(_escaped, text)) if not text.isprintable() else text


def _escaped(character: str) -> str:
    is_command = unicodedata.category(character) in ("Cc", "Zl", "Zp")
    return character.encode("unicode_escape").decode() if is_command else character


def did_you_mean(
    wrong: str, valid: Iterable[str], *, otherwise: str = "", show: Callable[[str], str] = str
) -> str:
    """Returns the end of a message: a hint at the nearest valid word.

    Args:
      wrong: the word that was given.
      valid: the words that there are.
      otherwise: the hint where none of them is near.
      show: gives the text that stands for the nearest.
    """
    near = difflib.get_close_matches(wrong, list(valid), n=1)
    hint = f"did you mean {show(near[0])}?" if near else otherwise
    return f"; {hint}" if hint else ""


def listed(names: Iterable[str]) -> str:
    """Returns names for a message: an input may have a thousand, and any text for one."""
    shown = [
        name[: _SHOWN_CHARACTERS - 1] + "…" if len(name) > _SHOWN_CHARACTERS else name or repr(name)
        for name in names
    ]
    more = len(shown) - _SHOWN_NAMES
    return ", ".join(shown[:_SHOWN_NAMES]) + (f" and {more} more" if more > 0 else "")


def one_of(name: str, value: str, valid: Iterable[str]) -> str:
    """Returns `value` if it is valid.

    Raises:
      UsageError: names the valid values and the nearest one.
    """
    names = sorted(valid)
    if value in names:
        return value
    hint = did_you_mean(value, names, show=repr)
    raise UsageError(f"{name} must be one of {listed(names)}, got {value!r}{hint}")


def at_least(name: str, value: int, least: int) -> int:
    """Returns `value` if it is not below `least`.

    Raises:
      UsageError: it is.
    """
    if value < least:
        raise UsageError(f"{name} must be at least {least}, got {value}")
    return value
