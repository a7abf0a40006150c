"""Arguments of the Python API, held against their annotations where they are given.

A value of another type would fail later, in words that name no argument, or after the whole input
was read. What the values may be is checked by those who use them.
"""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields
from functools import cache, wraps
from numbers import Integral, Real
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Literal,
    ParamSpec,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

import numpy as np

from recordmill.records.errors import UsageError, hide_passwords
from recordmill.transforms.dataset.argument_names import naming_arguments

# What some arguments are, in words: of others their types say enough.
_SHARES = "names with shares, such as {'train': 0.9, 'validation': 0.1}"
Shares = Annotated[Mapping[str, float], _SHARES]
SharesOrNames = Annotated[
    Mapping[str, float] | Sequence[str], f"{_SHARES}, or names, such as ['train', 'test']"
]
ShardCounts = Annotated[
    int | Mapping[str, int], "a whole number, or one for each split, such as {'train': 80}"
]
KeptFields = Annotated[str, "a string such as 'caption,year:int'"]

_WORDS = {
    str: "a string", int: "a whole number", float: "a number", bool: "True or False",
}  # fmt: skip
_MANY = {str: "strings", int: "whole numbers", float: "numbers"}
_MOST_SHOWN = 80
_LOST_SLASH = re.compile(r"[a-z][a-z0-9+.-]+:/(?!/)")  # of gs://…

P = ParamSpec("P")
R = TypeVar("R")
CheckT = TypeVar("CheckT", bound=Callable[[Any], None])


class _OtherTypeError(Exception):
    """A value is not of the type that is asked for; its text, if any, says what it must be."""


def checked_arguments(names: Mapping[str, str]) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorates a function whose users are programs: it gets values of the types it asks for.

    Whole numbers of numpy are given to it as int, and paths as str. Errors of users, raised within,
    name arguments, as `naming_arguments` says.

    Args:
      names: one of the tables of `argument_names.py`.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        signature = inspect.signature(function)

        @wraps(function)
        def checked(*args: P.args, **kwargs: P.kwargs) -> R:
            try:
                bound = signature.bind(*args, **kwargs)
            except TypeError:
                return function(*args, **kwargs)  # whose own error names it
            hints = _hints(function)
            with naming_arguments(names):
                for name, value in bound.arguments.items():
                    if name not in hints:  # self and cls
                        continue
                    if signature.parameters[name].kind is inspect.Parameter.VAR_POSITIONAL:
                        given = tuple(check_type(name, each, hints[name]) for each in value)
                        bound.arguments[name] = given
                    else:
                        bound.arguments[name] = check_type(name, value, hints[name])
                return function(*bound.args, **bound.kwargs)

        return checked

    return decorate


def checked_fields(names: Mapping[str, str]) -> Callable[[CheckT], CheckT]:
    """Decorates `__post_init__` of a frozen dataclass, as `checked_arguments` does a function.

    Args:
      names: one of the tables of `argument_names.py`.
    """

    def decorate(check: CheckT) -> CheckT:
        @wraps(check)
        def checked(spec: Any) -> None:
            with naming_arguments(names):
                _check_fields(spec)
                check(spec)

        return cast(CheckT, checked)

    return decorate


def _check_fields(spec: Any) -> None:
    kind: Any = type(spec)
    hints = _hints(kind)
    for each in fields(spec):
        value = getattr(spec, each.name)
        found = check_type(f"{kind.__name__}.{each.name}", value, hints.get(each.name, Any))
        if found is not value:
            object.__setattr__(spec, each.name, found)


def check_type(name: str, value: object, hint: Any) -> Any:
    """Returns a value as its annotation has it: int for numpy's, str for a path, tuple for a list.

    Args:
      name: of the argument, for the message.
      value: that is given.
      hint: the annotation.

    Raises:
      UsageError: the value is of another type.
    """
    try:
        return _convert(value, hint)
    except _OtherTypeError as error:
        shown = hide_passwords(" ".join(repr(value).split()))
        if len(shown) > _MOST_SHOWN:
            shown = f"{shown[:_MOST_SHOWN]}…"
        raise UsageError(f"{name} must be {str(error) or _describe(hint)}, got {shown}") from None


def plain_value(name: str, value: Any) -> Any:
    """Returns a setting with paths as text, and numbers of numpy as Python's.

    Args:
      name: of the setting, for the message.
      value: that is given, or several in a list or dict.

    Raises:
      UsageError: a path was a URL.
    """
    if isinstance(value, os.PathLike):
        return check_type(name, value, os.PathLike[str])
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, list | tuple):
        return [plain_value(name, each) for each in value]
    if isinstance(value, Mapping):
        return {key: plain_value(name, each) for key, each in value.items()}
    return value


def as_strings(
    paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
) -> tuple[str, ...]:
    """Returns paths, or one, as text."""
    if isinstance(paths, str | os.PathLike):
        return (os.fspath(paths),)
    return tuple(os.fspath(path) for path in paths)


@cache
def _hints(kind: Any) -> dict[str, Any]:
    for each in getattr(kind, "__mro__", (kind,)):
        with suppress(NameError):  # of a user's subclass: a name that only its type checker knows
            return get_type_hints(each, include_extras=True)
    return {}


def _convert(value: Any, hint: Any) -> Any:
    """Returns a value as an annotation has it.

    Raises:
      _OtherTypeError: it is of another type.
    """
    origin, inner = get_origin(hint), get_args(hint)
    if origin is None:
        return _convert_plain(value, hint)
    if origin is Annotated:
        return _convert(value, inner[0])
    if origin in (Union, UnionType):
        return _convert_first(value, inner)
    if origin is Literal:  # which of them it may be, is checked where it is used
        return _convert_first(value, tuple({type(each): None for each in inner}))
    if origin is Mapping and isinstance(value, Mapping):
        return {_convert(k, inner[0]): _convert(v, inner[1]) for k, v in value.items()}
    if origin in (Sequence, tuple) and _has_order(value):
        value = list(value)
        kinds = inner
        if origin is Sequence or inner[-1] is Ellipsis:
            kinds = inner[:1] * len(value)
        if len(kinds) == len(value):
            return tuple(map(_convert, value, kinds))
    if origin is os.PathLike and isinstance(value, os.PathLike):
        path = _convert(os.fspath(value), str)
        if _LOST_SLASH.match(path):
            raise _OtherTypeError("a string to be a URL, of which a Path loses a slash")
        return path
    if origin is Callable and callable(value):
        return value
    raise _OtherTypeError


def _has_order(value: Any) -> bool:
    """Tells whether a value can stand for a list: an array, a generator, the keys of a dict."""
    no_list = (str, bytes, Mapping, set, frozenset)
    return isinstance(value, Iterable) and not isinstance(value, no_list)


def _convert_first(value: Any, hints: tuple[Any, ...]) -> Any:
    problem = ""
    for hint in hints:
        try:
            return _convert(value, hint)
        except _OtherTypeError as error:
            problem = problem or str(error)
    raise _OtherTypeError(problem)


def _convert_plain(value: Any, kind: Any) -> Any:
    if type(value) is kind or kind is Any:
        return value
    if kind is bool and isinstance(value, np.bool_):
        return bool(value)
    if not isinstance(value, bool):  # which is an int to Python
        if kind in (int, float) and isinstance(value, Integral):
            return int(value)
        if kind is float and isinstance(value, Real):
            return float(value)
    if kind not in (int, float) and isinstance(value, kind):
        return str.__str__(value) if kind is str else value
    raise _OtherTypeError


def _describe(hint: Any) -> str:
    """Returns what an annotation asks for, in words."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return str(inner[1])
    if origin in (Union, UnionType):  # None is what needs not be given
        *most, last = (_describe(each) for each in inner if each is not NoneType)
        return f"{', '.join(most)} or {last}" if most else last
    if origin is Literal:
        return f"one of {', '.join(str(each) or repr(each) for each in inner)}"
    if origin is Mapping:
        return f"a dict from {_describe_many(inner[0])} to {_describe_many(inner[1])}"
    if origin is tuple and inner[-1] is not Ellipsis:
        return f"({', '.join(map(_describe, inner))})"
    if origin in (Sequence, tuple):
        return f"a list of {_describe_many(inner[0])}"
    if origin is os.PathLike:
        return "a path"
    if origin is Callable:
        return "a function"
    return _WORDS.get(hint) or f"{hint.__name__}(…)"


def _describe_many(hint: Any) -> str:
    return _MANY.get(hint) or _describe(hint)
