"""Specs: an option is declared once, as a field of a frozen struct that checks itself.

    class Masked(Spec, frozen=True, kw_only=True):
        masked_lm_prob: Annotated[float, option("The share of masked tokens.", gt=0, lt=1)] = 0.15

`Masked(masked_lm_prob=1.5)` raises "masked_lm_prob must be in (0, 1), got 1.5". A command's spec is
a struct of such structs, and `options_of` finds their options; a field whose type is a union of
tagged structs is an option too, which chooses one of them. From that, `pipelines/faces.py` makes
flags, help, completion, configuration files, signatures, tables and templates.

Checks name options as flags (`--masked_lm_prob`). Where no command makes the spec, the message is
turned into the words of the Python API: the name of the argument, or what `python` says.
"""

from __future__ import annotations

import functools
import inspect
import math
import os
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from numbers import Integral, Real
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    ClassVar,
    Literal,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import msgspec
from msgspec.structs import asdict, force_setattr

from recordmill.records.errors import RunError, UsageError, did_you_mean, hide_passwords, one_of

SpecT = TypeVar("SpecT", bound="Spec")
_Function = TypeVar("_Function", bound=Callable[..., Any])
_MOST_SHOWN = 80  # characters of a value in a message
_MAX_INT = (1 << 63) - 1
_BOOLEANS = {
    **dict.fromkeys(("true", "t", "yes", "y", "1"), True),
    **dict.fromkeys(("false", "f", "no", "n", "0"), False),
}
_WORDS = {
    str: "a string", int: "a whole number", float: "a number", bool: "True or False",
}  # fmt: skip
_MANY = {str: "strings", int: "whole numbers", float: "numbers"}
_LOST_SLASH = re.compile(r"[a-z][a-z0-9+.-]+:/(?!/)")  # of gs://…


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """What `option` says of an option beside its help and its range.

    Attributes:
      flag: its name on the command line and in configuration files; "" is the field's.
      aliases: other names of the flag, which mean the same.
      shown: the one of its names that short help and examples use; "" is its own.
      group: the title under which help shows it; "" is that of its struct.
      short: its meaning in `--help`, in a few words; "" where its choices say it, None where only
        `--help-all` shows it.
      value: what stands for its value in help, such as "GLOB".
      choices: the values that there are, where they are the names of a table.
      needs: the option of the same struct without which it has no effect.
      parse: text -> value, of a value that text stands for.
      split: how a list is written: "comma" between values, "repeat" the flag, or "words" for both
        several words and repeating.
      positional: it is given without a name.
      inverts: the flag is given to make the field False.
      negative: the name of the flag that means no; "" is `--no-NAME`.
      path: "file" or "folder" where its value is a path.
      of_run: it says where or how a run works, so no dataset's configuration has it.
      fingerprint: it decides bytes of shards.
      python: what it is called in messages of users' own pipelines, where not by its name.
      python_values: the same, of the flag with a value: (value, words).
      default: of the flag, as text or in words, where the field's value does not show it.
      example: a flag with a value, for the documentation.
      pattern: of its value, for the form of a Flex Template.
      picker: of the same form.
    """

    flag: str = ""
    aliases: tuple[str, ...] = ()
    shown: str = ""
    group: str = ""
    short: str | None = None
    value: str = ""
    choices: tuple[Any, ...] = ()
    needs: str = ""
    parse: Callable[[str], Any] | None = None
    split: Literal["", "comma", "repeat", "words"] = ""
    positional: bool = False
    inverts: bool = False
    negative: str = ""
    path: Literal["", "file", "folder"] = ""
    of_run: bool = False
    fingerprint: bool = True
    python: str = ""
    python_values: tuple[tuple[str, str], ...] = ()
    default: str = ""
    example: str = ""
    pattern: str = ""
    picker: str = ""


def option(
    text: str,
    *,
    ge: float | None = None,
    gt: float | None = None,
    le: float | None = None,
    lt: float | None = None,
    **more: Any,
) -> msgspec.Meta:
    """Declares an option: the metadata of an annotated field.

    Args:
      text: its help, whole sentences.
      ge, gt, le, lt: its range.
      more: see `Declared`.
    """
    bounds: dict[str, Any] = {
        name: bound
        for name, bound in (("ge", ge), ("gt", gt), ("le", le), ("lt", lt))
        if bound is not None
    }
    meta: msgspec.Meta = msgspec.Meta(
        description=text, extra={"declared": Declared(**more)}, **bounds
    )
    return meta


class Spec(msgspec.Struct, frozen=True):
    """Options that belong together; made, it is valid.

    Raises:
      UsageError: one line: the option, the rule and what was found.
    """

    group: ClassVar[str] = ""  # of its options in help, where they name no other
    qualified: ClassVar[bool] = False  # messages call an argument CLASS.FIELD
    words: ClassVar[Mapping[str, str]] = {}  # option of another spec -> what messages call it

    def __post_init__(self) -> None:
        with naming_arguments(python_names(type(self))):
            for each in declared_fields(type(self)):
                value = getattr(self, each.name)
                found = each.checked(value, type(self))
                if found is not value:
                    force_setattr(self, each.name, found)
            for each in declared_fields(type(self)):
                self._check_needed(each)
            self.check()

    def check(self) -> None:
        """Checks what ranges do not say: values against each other.

        Raises:
          UsageError: names the options as flags.
        """

    def _check_needed(self, each: Field) -> None:
        needs = each.declared.needs if each.declared else ""
        if needs and getattr(self, each.name) != each.default and not getattr(self, needs):
            raise UsageError(
                f"--{each.flag} has no effect without --{_flag_of(type(self), needs)}; leave it out"
            )

    def given(self) -> dict[str, Any]:
        """Returns flag -> value of the struct's own options that differ from their defaults."""
        return {
            each.flag: getattr(self, each.name)
            for each in declared_fields(type(self))
            if each.declared and getattr(self, each.name) != each.default
        }


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a spec, as its annotation declares it.

    Attributes:
      name: of the field.
      flag: its name as an option; "" for a field that is none.
      hint: its type, without what is declared.
      text: its help.
      declared: see there; None for a field that is no option.
      default: `msgspec.NODEFAULT` where there is none.
      low, high: its range, and whether the bounds are part of it.
    """

    name: str
    flag: str
    hint: Any
    text: str
    declared: Declared | None
    default: Any
    low: tuple[float, bool] | None = None
    high: tuple[float, bool] | None = None

    @property
    def specs(self) -> tuple[type[Spec], ...]:
        """The structs that its value may be, () where it is no struct."""
        kinds = [kind for kind in _parts(self.hint) if kind is not NoneType]
        return tuple(kinds) if all(_is_spec(kind) for kind in kinds) else ()

    @property
    def kind(self) -> Any:
        """Its type without None."""
        kinds = [kind for kind in _parts(self.hint) if kind is not NoneType]
        return kinds[0] if len(kinds) == 1 else Union[tuple(kinds)]  # noqa: UP007 - at run time

    @property
    def is_boolean(self) -> bool:
        """Whether it is true or false."""
        return self.kind is bool

    @property
    def choices(self) -> tuple[Any, ...]:
        """The values that there are, () for any."""
        if self.declared and self.declared.choices:
            return self.declared.choices
        if self.specs and len(self.specs) > 1:
            return tuple(tag_of(each) for each in self.specs)
        return get_args(self.kind) if get_origin(self.kind) is Literal else ()

    def checked(self, value: Any, owner: type[Spec], named: str = "") -> Any:
        """Returns a value as the field has it.

        Args:
          value: that is given.
          owner: the struct.
          named: what a message calls the option, where it is not its flag.

        Raises:
          UsageError: it is of another type, or not in range.
        """
        if not named:
            is_option = self.flag or not owner.qualified
            named = f"--{self.flag or self.name}" if is_option else f"{owner.__name__}.{self.name}"
        if value is None and None in (self.default, *_nones(self.hint)):
            return None
        value = check_type(named, value, self.hint)
        if self.choices and not self.specs and value is not None and value != self.default:
            _check_choice(named, value, self.choices)
        for each in value if isinstance(value, tuple) else (value,):
            self._check_value(named, each)
        return value

    def _check_value(self, named: str, value: Any) -> None:
        if isinstance(value, float) and math.isnan(value):
            raise UsageError(f"{named} must be {self.range or 'a number'}, got nan")
        if not isinstance(value, int | float) or isinstance(value, bool):
            return
        if isinstance(value, int) and abs(value) > _MAX_INT and not self.high:
            raise UsageError(f"{named} must be at most {_MAX_INT}, got {value:.3e}")
        low, high = self.low, self.high
        below = low and (value < low[0] or (value == low[0] and not low[1]))
        above = high and (value > high[0] or (value == high[0] and not high[1]))
        if below or above:
            raise UsageError(f"{named} must be {self.range}, got {value}")

    @property
    def range(self) -> str:
        """Its range in words, "" where there is none."""
        low, high = self.low, self.high
        if low and high:
            if float not in _parts(self.hint) and low[1] and high[1]:
                return f"from {low[0]} to {high[0]}"
            opening, closing = "[" if low[1] else "(", "]" if high[1] else ")"
            return f"in {opening}{low[0]:g}, {high[0]:g}{closing}"
        if low:
            return f"at least {low[0]}" if low[1] else f"above {low[0]:g}"
        if high:
            return f"at most {high[0]}" if high[1] else f"below {high[0]:g}"
        return ""


def _parts(hint: Any) -> tuple[Any, ...]:
    return get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)


def _nones(hint: Any) -> list[None]:
    return [None] if NoneType in _parts(hint) else []


def _is_spec(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Spec)


def tag_of(kind: type[Spec]) -> str:
    """Returns the name by which an option chooses a struct."""
    return str(kind.__struct_config__.tag)


@cache
def declared_fields(kind: type[Spec]) -> tuple[Field, ...]:
    """Returns the fields of a spec, in order."""
    hints = get_type_hints(kind, include_extras=True)
    found = []
    for info in msgspec.structs.fields(kind):
        hint, meta = hints[info.name], None
        if get_origin(hint) is Annotated:
            hint, *metas = get_args(hint)
            meta = next((each for each in metas if isinstance(each, msgspec.Meta)), None)
            for words in (each for each in metas if isinstance(each, str)):
                hint = Annotated[hint, words]  # which messages say of the type
        declared = (meta.extra or {}).get("declared") if meta else None
        default = info.default
        if info.default_factory is not msgspec.NODEFAULT:
            default = info.default_factory()
        found.append(
            Field(
                info.name,
                (declared.flag or info.name) if declared else "",
                hint,
                (meta.description or "") if meta else "",
                declared,
                default,
                _bound(meta.ge, meta.gt) if meta else None,
                _bound(meta.le, meta.lt) if meta else None,
            )
        )
    return tuple(found)


def _bound(closed: float | None, opened: float | None) -> tuple[float, bool] | None:
    if closed is not None:
        return closed, True
    return None if opened is None else (opened, False)


def _flag_of(kind: type[Spec], name: str) -> str:
    return next(each.flag for each in declared_fields(kind) if each.name == name)


def _check_choice(named: str, value: Any, choices: Sequence[Any]) -> None:
    if value not in choices:
        one_of(named, str(value), map(str, choices))


# Options of a spec, and of the specs in it


@dataclass(frozen=True, slots=True)
class Place:
    """Where an option stands: a field of a struct in a struct.

    Attributes:
      path: the fields that lead to its struct.
      owner: the struct.
      field: its field.
      chosen: option -> the value that it must have, for the struct to be there.
    """

    path: tuple[str, ...]
    owner: type[Spec]
    field: Field
    chosen: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Option:
    """An option of a spec, by its flag.

    Attributes:
      name: of the flag, without dashes.
      places: where it stands; several where structs that exclude each other have it.
    """

    name: str
    places: tuple[Place, ...]

    @property
    def field(self) -> Field:
        """The field of its first place."""
        return self.places[0].field

    @property
    def declared(self) -> Declared:
        """What is declared of it."""
        found = self.field.declared
        assert found is not None
        return found

    @property
    def group(self) -> str:
        """The title under which help shows it."""
        return self.declared.group or self.places[0].owner.group

    @property
    def choices(self) -> tuple[Any, ...]:
        """The values that there are, () for any."""
        return tuple(dict.fromkeys(c for place in self.places for c in place.field.choices))

    def in_its_case(self, value: Any) -> Any:
        """Returns a choice as it is declared, in whatever case it is given; or else the value."""
        if not isinstance(value, str) or value in self.choices:
            return value
        names = (c for c in self.choices if isinstance(c, str))
        return next((name for name in names if name.lower() == value.lower()), value)

    @property
    def default(self) -> Any:
        """Its default; None where there is none, or where structs have different ones."""
        found = [place.field.default for place in self.places]
        value = found[0]
        if any(other != value for other in found) or value is msgspec.NODEFAULT:
            return None
        if isinstance(value, Spec):
            return tag_of(type(value)) if self.field.choices else None
        return not value if self.declared.inverts else value

    @property
    def is_required(self) -> bool:
        """Whether there is no default."""
        return all(place.field.default is msgspec.NODEFAULT for place in self.places)

    @property
    def help(self) -> str:
        """Its help, of all places where they differ."""
        return " ".join(dict.fromkeys(place.field.text for place in self.places))


@cache
def options_of(kind: type[Spec]) -> Mapping[str, Option]:
    """Returns flag -> option, of a spec and the specs in it, in order."""
    found: dict[str, list[Place]] = {}
    for place in _places(kind, (), ()):
        found.setdefault(place.field.flag, []).append(place)
    return {name: Option(name, tuple(places)) for name, places in found.items()}


def _places(
    kind: type[Spec], path: tuple[str, ...], chosen: tuple[tuple[str, str], ...]
) -> Iterator[Place]:
    for each in declared_fields(kind):
        if each.declared:
            yield Place(path, kind, each, chosen)
        many = len(each.specs) > 1
        for spec in each.specs:
            added = ((each.flag, tag_of(spec)),) if many else ()
            yield from _places(spec, (*path, each.name), (*chosen, *added))


def build(kind: type[SpecT], values: Mapping[str, Any]) -> SpecT:
    """Returns a spec made of options by their flags; others have their defaults.

    Args:
      kind: of the spec.
      values: flag -> text of a command line, or a value of Python or YAML.

    Raises:
      UsageError: there is no such option, a value is wrong, or an option has no effect beside what
        the others choose, and has not its default value.
    """
    known = options_of(kind)
    for name in values:
        if name not in known:
            raise UsageError(unknown_option(name, known))
    used: set[str] = set()
    _check_choices(values, known)
    made = _build(kind, values, used)
    for name in values:
        if name not in used and not _is_default(known[name], values[name]):
            raise UsageError(_without_effect(known[name], values, known))
    return made


def _check_choices(values: Mapping[str, Any], known: Mapping[str, Option]) -> None:
    """Refuses a value that only structs have which are not chosen.

    Raises:
      UsageError: says which value another option must have for it.
    """
    for name, value in values.items():
        for place in known[name].places if len(known[name].places) > 1 else ():
            is_chosen = all(_chosen(values, known, n) == tag for n, tag in place.chosen)
            if not is_chosen or not place.field.choices or value in place.field.choices:
                continue
            others = [p for p in known[name].places if value in p.field.choices]
            for (chooser, _), *_ in (other.chosen for other in others[:1]):
                tags = " or ".join(dict(other.chosen)[chooser] for other in others)
                own = " or ".join(map(str, place.field.choices))
                raise UsageError(
                    f"--{name}={value} is for --{chooser}={tags}; give {own}, or leave it out"
                )


def _chosen(values: Mapping[str, Any], known: Mapping[str, Option], chooser: str) -> Any:
    return values.get(chooser, known[chooser].default)


def _build(kind: type[SpecT], values: Mapping[str, Any], used: set[str]) -> SpecT:
    arguments: dict[str, Any] = {}
    for each in declared_fields(kind):
        if len(each.specs) > 1:
            tag = each.default if isinstance(each.default, str) else tag_of(type(each.default))
            if each.flag in values:
                used.add(each.flag)
                tag = one_of(f"--{each.flag}", str(values[each.flag]), each.choices)
            chosen = next(spec for spec in each.specs if tag_of(spec) == tag)
            arguments[each.name] = _build(chosen, values, used)
        elif each.specs:
            arguments[each.name] = _build(each.specs[0], values, used)
        elif each.declared and each.flag in values:
            used.add(each.flag)
            arguments[each.name] = convert(each, values[each.flag])
        elif each.default is msgspec.NODEFAULT:
            raise UsageError(f"--{each.flag or each.name} is required")
    return kind(**arguments)


def _is_default(option: Option, value: Any) -> bool:
    """Whether a value is one that an option has where it is not given: templates give all."""
    for place in option.places:
        default = place.field.default
        if isinstance(default, Spec):
            default = tag_of(type(default))
        try:
            if convert(place.field, value) in (default, None):
                return True
        except UsageError:
            continue
    return False


def _without_effect(option: Option, values: Mapping[str, Any], known: Mapping[str, Option]) -> str:
    """Returns why an option has no effect: another one chooses a struct that has it not."""
    for chooser, _ in option.places[0].chosen:
        fitting = {tag for place in option.places for name, tag in place.chosen if name == chooser}
        chosen = _chosen(values, known, chooser)
        if chosen not in fitting:
            return f"--{option.name} has no effect with --{chooser}={chosen}; leave it out"
    return f"--{option.name} has no effect here; leave it out"


def unknown_option(name: str, known: Iterable[str]) -> str:
    """Returns the message about an option that there is not."""
    hint = did_you_mean(name, known, otherwise="--help-all lists all flags")
    return f"there is no flag named {name}{hint}"


# Values


def convert(each: Field, value: Any) -> Any:
    """Returns a value of a command line, of YAML or of Python as a field has it.

    Raises:
      UsageError: it stands for no value of the field.
    """
    named = f"--{each.flag}"
    declared = each.declared or Declared()
    if value is None:
        return each.default
    if declared.inverts:
        return not _from_text(named, each, value) if isinstance(value, str) else not value
    if isinstance(value, Mapping) and not _takes(each.kind, Mapping):
        value = ",".join(f"{key}:{inner}" for key, inner in value.items())
    if _takes(each.kind, tuple) and not declared.parse:
        return _list(named, each, declared, value)
    if isinstance(value, list | tuple) and str in _parts(each.hint):
        value = ",".join(map(str, value))
    if isinstance(value, str):
        return _from_text(named, each, value)
    if _takes(each.kind, str) and isinstance(value, int | float) and not isinstance(value, bool):
        return _from_text(named, each, str(value))  # a number in YAML, such as a name of a column
    if declared.parse and isinstance(value, int | float) and not isinstance(value, bool):
        return declared.parse(str(value))
    return value


def _takes(kind: Any, wanted: type) -> bool:
    found = get_origin(kind) or kind
    return isinstance(found, type) and issubclass(found, wanted)


def _list(named: str, each: Field, declared: Declared, value: Any) -> tuple[Any, ...]:
    inner = get_args(each.kind)[0]
    items = list(value) if isinstance(value, list | tuple) else [value]
    if declared.split == "words":  # of a command line a list of lists
        items = [v for item in items for v in (item if isinstance(item, list) else [item])]
    if declared.split == "comma":
        parts = [
            p for item in items for p in (item.split(",") if isinstance(item, str) else [item])
        ]
        items = [part.strip() if isinstance(part, str) else part for part in parts]
        if items == [""]:
            items = []
    is_once = "" not in items and len(set(map(str, items))) == len(items)
    if declared.split != "words" and not is_once:
        raise UsageError(f"{named} must name each once, got {','.join(map(str, items))}")
    return tuple(_number(named, item, inner) if isinstance(item, str) else item for item in items)


def _from_text(named: str, each: Field, text: str) -> Any:
    if each.declared and each.declared.parse:
        return each.declared.parse(text)
    kinds = [kind for kind in _parts(each.hint) if kind is not NoneType]
    if bool in kinds:
        return parse_boolean(named, text)
    if each.choices:
        for choice in each.choices:
            if text == str(choice):
                return choice
        _check_choice(named, text, each.choices)
    if kinds == [str] and not text and each.default not in ("", None, msgspec.NODEFAULT):
        raise UsageError(f"{named} must not be empty; leave it out for {each.default!r}")
    return _number(named, text, kinds[0])


def _number(named: str, text: str, kind: Any) -> Any:
    """Reads a number, if one is wanted.

    Raises:
      UsageError: it is none.
    """
    if kind not in (int, float):
        return text
    try:
        return int(text) if kind is int else float(text)
    except ValueError:
        raise UsageError(f"{named} must be {_WORDS[kind]}, got {text!r}") from None


def parse_boolean(flag: str, text: str) -> bool:
    """Reads the value of a flag that is true or false, in any of the usual words for it.

    Raises:
      UsageError: it is none of them; names the nearest one.
    """
    if text.lower() in _BOOLEANS:
        return _BOOLEANS[text.lower()]
    hint = did_you_mean(text.lower(), ("true", "false"))
    raise UsageError(f"{flag} must be true or false, got {text!r}{hint}")


class _OtherTypeError(Exception):
    """A value is not of the type that is asked for; its text, if any, says what it must be."""


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


def check_paths(patterns: Iterable[str | os.PathLike[str]]) -> tuple[str, ...]:
    """Returns the patterns of a transform that reads, as text.

    Raises:
      UsageError: one is neither text nor a path.
    """
    return tuple(check_type("patterns", each, str | os.PathLike[str]) for each in patterns)


def _convert(value: Any, hint: Any) -> Any:
    """Returns a value as an annotation has it.

    Raises:
      _OtherTypeError: it is of another type.
    """
    origin, inner = get_origin(hint), get_args(hint)
    if origin is None:
        return _convert_plain(value, hint)
    if origin is Annotated:
        try:
            return _convert(value, inner[0])
        except _OtherTypeError:
            raise _OtherTypeError(next((w for w in inner[1:] if isinstance(w, str)), "")) from None
    if origin in (Union, UnionType):
        return _convert_first(value, inner)
    if origin is Literal:  # which of them it may be, is checked where it is used
        return _convert_first(value, tuple({type(each): None for each in inner}))
    if _takes(hint, Mapping) and isinstance(value, Mapping):
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
    if kind is bool and type(value).__name__ in ("bool", "bool_"):  # numpy's
        return bool(value)
    if kind is str and isinstance(value, os.PathLike):
        return _convert(value, os.PathLike[str])
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
        return next((w for w in inner[1:] if isinstance(w, str)), _describe(inner[0]))
    if origin in (Union, UnionType):  # None is what needs not be given
        *most, last = dict.fromkeys(_describe(each) for each in inner if each is not NoneType)
        return f"{', '.join(most)} or {last}" if most else last
    if origin is Literal:
        return f"one of {', '.join(str(each) or repr(each) for each in inner)}"
    if _takes(hint, Mapping):
        return f"a dict from {_describe_many(inner[0])} to {_describe_many(inner[1])}"
    if origin is tuple and inner[-1] is not Ellipsis:
        return f"({', '.join(map(_describe, inner))})"
    if origin in (Sequence, tuple):
        return f"a list of {_describe_many(inner[0])}"
    if origin is os.PathLike:
        return "a path"
    if origin is Callable:
        return "a function"
    if _is_spec(hint) and hint.__struct_config__.tag:
        return f"{hint.__name__}()"
    return _WORDS.get(hint) or f"{hint.__name__}(…)"


def _describe_many(hint: Any) -> str:
    if get_origin(hint) is Callable:
        return "functions"
    return _MANY.get(hint) or _describe(hint)


# Names in messages

_FLAG = re.compile(r"(?<![\w/-])--(no-)?([a-z]\w*)(?:=((?:[^\s;:,.()'\"]|[:,.](?=[^\s]))+))?")
_NUMBER = re.compile(r"-?\d+(\.\d+)?")
_ARGUMENT = re.compile(r"[A-Za-z_]\w*(\.[a-z_]\w*)*")
_ELEMENTS = ("Document.", "Image.")  # attributes of elements, of which flags name the fields

_names_flags: ContextVar[bool] = ContextVar("names_flags", default=False)


@cache
def python_names(kind: type[Spec]) -> Mapping[str, str]:
    """Returns flag, or flag and value -> what messages of the Python API call it."""
    names: dict[str, str] = {}
    for option in options_of(kind).values():
        place = option.places[0]
        field_name = place.field.name
        qualified = f"{place.owner.__name__}.{field_name}" if place.owner.qualified else field_name
        names[option.name] = option.declared.python or qualified
        for value, words in option.declared.python_values:
            names[f"{option.name}={value}"] = words
        if len(place.field.specs) > 1:
            for spec in place.field.specs:
                names[f"{option.name}={tag_of(spec)}"] = f"{names[option.name]}={spec.__name__}()"
    return {**names, **kind.words}


def name_arguments(message: str, names: Mapping[str, str]) -> str:
    """Returns a message that names arguments in the place of flags.

    Args:
      message: of a check.
      names: see `python_names`.
    """

    def turn(found: re.Match[str]) -> str:
        negated, flag, value = found.groups()
        if negated:
            return f"{flag}=False"
        name = names.get(f"{flag}={value}")
        if name:
            return name
        name = names.get(flag, flag)
        argument = name.partition("=")[0]
        if message.startswith(" must be", found.end()) and name == f"{flag}=True":
            return argument  # of which the message says the type
        # A phrase takes no value, and that of an element's attribute is the name of a field.
        if value is None or name.startswith(_ELEMENTS) or not _ARGUMENT.fullmatch(argument):
            return name
        return f"{argument}={value}" if _NUMBER.fullmatch(value) else f"{argument}={value!r}"

    turned = _FLAG.sub(turn, message)
    return turned.replace("run the same command again", "run the pipeline again")


@contextmanager
def naming_arguments(names: Mapping[str, str]) -> Iterator[None]:
    """Errors of users, raised within, name arguments, but those of commands.

    It can also decorate a function, as `naming_flags` can.
    """
    try:
        yield
    except (UsageError, RunError) as error:
        if _names_flags.get():
            raise
        error.args = (name_arguments(str(error), names), *error.args[1:])
        raise


@contextmanager
def naming_flags() -> Iterator[None]:
    """What is checked within are flags of a command, of which specs of the Python API are made."""
    token = _names_flags.set(True)
    try:
        yield
    finally:
        _names_flags.reset(token)


# What is written of a spec


def plain(value: Any, *, fingerprint: bool = False) -> Any:
    """Returns a spec, or a dataclass that holds specs, as what JSON can hold.

    Args:
      value: a spec, a dataclass, or what their fields hold.
      fingerprint: leaves out what has its default value, and what decides no byte of shards.
    """
    if isinstance(value, Spec):
        tag = tag_of(type(value)) if type(value).__struct_config__.tag is not None else ""
        found: dict[str, Any] = {"name": tag} if tag else {}
        for each in declared_fields(type(value)):
            inner = getattr(value, each.name)
            decides = each.declared is None or each.declared.fingerprint
            if not fingerprint or (decides and inner != each.default):
                found[each.name] = plain(inner, fingerprint=fingerprint)
        return found
    if is_dataclass(value) and not isinstance(value, type):
        return {
            each.name: plain(getattr(value, each.name), fingerprint=fingerprint)
            for each in fields(value)
        }
    if isinstance(value, msgspec.Struct):
        return {name: plain(inner) for name, inner in asdict(value).items()}
    if isinstance(value, Mapping):
        return {str(key): plain(inner, fingerprint=fingerprint) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner, fingerprint=fingerprint) for inner in value]
    return value


# Functions that take the options of a spec

_WIDTH = 100  # of a docstring
_OPTIONS_LINE = re.compile(r"^( *)options: .*$", re.MULTILINE)


def takes(kind: type[Spec]) -> Callable[[_Function], _Function]:
    """Makes a function of `**options` one that takes a spec's options as keyword arguments.

    The options of structs in the spec are arguments too; `from_arguments` makes the spec of them.
    Its signature names them, with types and defaults, and of its docstring's arguments the line
    "options: …" becomes their helps. It gets them by the names of fields, also where they are given
    by an alias; those that are not given are left out. `takes` of the function is the spec.

    Raises:
      TypeError: of the function: an unknown argument, with the nearest one, or one that is needed
        is not given.
      UsageError: of the function: an argument is given by two names.
    """

    def decorate(function: _Function) -> _Function:
        *outer, name = function.__qualname__.split(".")
        called = outer[-1] if name == "__init__" else name
        own = {
            p.name
            for p in inspect.signature(function).parameters.values()
            if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
        }

        @functools.wraps(function)
        def call(*args: Any, **given: Any) -> Any:
            values, used = _by_field(kind, called, given, own)
            try:
                return function(*args, **values)
            except UsageError as error:  # its message names the argument that was given
                message = str(error)
                name = message.partition(" ")[0]
                error.args = (used.get(name, name) + message[len(name) :], *error.args[1:])
                raise

        decorated: Any = call
        decorated.__signature__ = signature_of(function, _arguments(kind))
        decorated.__doc__ = _with_options(function.__doc__ or "", kind)
        decorated.takes = kind
        found: _Function = decorated
        return found

    return decorate


def names_of(each: Field) -> tuple[str, ...]:
    """Returns what an option is called as an argument: the field's name and its aliases."""
    aliases = each.declared.aliases if each.declared else ()
    return tuple(dict.fromkeys((each.name, *aliases)))


def _is_part(each: Field) -> bool:
    return not each.declared and len(each.specs) == 1


def arguments_of(kind: type[Spec]) -> Iterator[tuple[type[Spec], Field]]:
    """Yields the options of a spec, and of the structs in it, with the struct of each."""
    for each in declared_fields(kind):
        if _is_part(each):
            yield from arguments_of(each.specs[0])
        elif each.declared:
            yield kind, each


def from_arguments(kind: type[SpecT], given: Mapping[str, Any]) -> SpecT:
    """Returns a spec, with the structs in it, made of what a function that `takes` it gets."""
    values = {
        each.name: from_arguments(each.specs[0], given) if _is_part(each) else given[each.name]
        for each in declared_fields(kind)
        if _is_part(each) or each.name in given
    }
    return kind(**values)


def python_help(each: Field, kind: type[Spec]) -> str:
    """Returns the help of an option, with arguments in the place of flags."""
    return name_arguments(each.text, python_names(kind))


def _by_field(
    kind: type[Spec], called: str, given: Mapping[str, Any], own: set[str]
) -> tuple[dict[str, Any], dict[str, str]]:
    """Returns what a function is given by the names of fields, and the names that gave it."""
    arguments = [each for _, each in arguments_of(kind)]
    names = {name: each for each in arguments for name in names_of(each)}
    values: dict[str, Any] = {}
    used: dict[str, str] = {}  # field -> the name that gives it
    for name, value in given.items():
        if name in own:
            values[name] = value
            continue
        if name not in names:
            hint = did_you_mean(name, (*own, *names))
            raise TypeError(f"{called}() has no argument named {name}{hint}")
        each = names[name]
        if value is each.default and each.name in values:
            continue
        if each.name in used:
            raise UsageError(f"{used[each.name]} and {name} are the same: give one of them")
        values[each.name] = value
        if value is not each.default:
            used[each.name] = name
    for each in arguments:
        if each.default is msgspec.NODEFAULT and each.name not in values:
            raise TypeError(f"{called}() needs the argument {each.name}")
    return values, used


def _arguments(kind: type[Spec]) -> Iterator[tuple[str, Any, Any]]:
    """Yields what `signature_of` takes."""
    for owner, each in arguments_of(kind):
        hint = get_type_hints(owner)[each.name]  # without words for messages
        yield from ((name, each.default, hint) for name in names_of(each))


def signature_of(
    function: Callable[..., Any], arguments: Iterable[tuple[str, Any, Any]]
) -> inspect.Signature:
    """Returns the signature that notebooks show and complete.

    Args:
      function: whose `**options` the arguments are.
      arguments: name, default and type of each; `msgspec.NODEFAULT` for one that is needed.
    """
    signature = inspect.signature(function)
    own = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
    options = [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if default is msgspec.NODEFAULT else default,
            annotation=hint,
        )
        for name, default, hint in arguments
    ]
    return signature.replace(parameters=[*own, *options])


def _with_options(text: str, kind: type[Spec]) -> str:
    def listed(found: re.Match[str]) -> str:
        indent = found[1]
        return "\n".join(
            line
            for _, each in arguments_of(kind)
            for line in textwrap.wrap(
                f"{', '.join(names_of(each))}: {python_help(each, kind)}", _WIDTH,
                initial_indent=indent, subsequent_indent=f"{indent}  ", break_long_words=False,
            )
        )  # fmt: skip

    return _OPTIONS_LINE.sub(listed, text)
