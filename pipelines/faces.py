"""All faces of an option, made from its declaration in a spec (`records/spec.py`).

A command's specs become its flags, `--help` and `--help-all`, what shells complete, the keys of
`--config` and their JSON Schema, the arguments of functions for notebooks, the form of a Flex
Template and the tables of the documentation. Nothing here names an option. Nothing heavier than
msgspec is imported, so help and wrong usage answer at once.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from textwrap import wrap
from typing import Any, NoReturn, TypeVar

from recordmill.records.errors import UsageError, did_you_mean
from recordmill.records.spec import (
    Option,
    Spec,
    build,
    convert,
    name_arguments,
    naming_flags,
    options_of,
    parse_boolean,
    unknown_option,
)

SpecT = TypeVar("SpecT", bound=Spec)
_WIDTH, _FLAG_WIDTH = 80, 27
_MOST_DEFAULT = 16  # characters


def merged(kinds: Iterable[type[Spec]]) -> dict[str, Option]:
    """Returns the options of several specs, in order; the first declaration of a name counts."""
    found: dict[str, Option] = {}
    for kind in kinds:
        for name, option in options_of(kind).items():
            found.setdefault(name, option)
    return found


def aliases_of(options: Mapping[str, Option]) -> dict[str, str]:
    """Returns every name by which an option is called -> its own."""
    names = {name: name for name in options}
    for name, option in options.items():
        names |= dict.fromkeys(option.declared.aliases, name)
    return names


def default_text(option: Option) -> str:
    """Returns the default of an option as a user would write it, "" where there is none to name."""
    default = option.default
    if default in (None, "", ()):
        return ""
    if isinstance(default, bool):
        return str(default).lower()
    if option.declared.parse and option.declared.default:
        return option.declared.default
    if isinstance(default, tuple):
        return " ".join(f"{v:g}" if isinstance(v, float) else str(v) for v in default)
    return str(default)


def value_name(option: Option) -> str:
    """Returns what stands for the value of an option in help; "" for one that is true or false."""
    if option.field.is_boolean:
        return ""
    choices = ",".join(str(choice) for choice in option.choices if choice != "")
    usual = {int: "N", float: "X"}.get(option.field.kind, option.name.upper())
    return option.declared.value or (f"{{{choices}}}" if choices else usual)


def flag_names(option: Option) -> list[str]:
    """Returns the names of its flag, the one that means no last; [] for one without a name."""
    if option.declared.positional:
        return []
    names = [f"--{name}" for name in (option.name, *option.declared.aliases)]
    if option.field.is_boolean:
        negative, is_no = option.declared.negative, option.name.startswith("no_")
        opposite = option.name.removeprefix("no_") if is_no else f"no-{option.name}"
        names += [*([f"--{negative}"] if negative else []), f"--{opposite}"]
    return names


# Flags


class _Flag(argparse.Action):
    """A flag that is true or false: `--flag`, `--no-flag`; other names mean false."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        """Sets the value that goes with the name which was given."""
        setattr(namespace, self.dest, option_string == self.option_strings[0])


class Parser(argparse.ArgumentParser):
    """The parser of a command: its errors are one line, and flags are never abbreviated."""

    def __init__(self, **more: Any) -> None:
        super().__init__(**{"allow_abbrev": False, "add_help": False, **more})
        self.known: dict[str, Option] = {}  # every name of every flag

    def error(self, message: str) -> NoReturn:
        """Raises instead of printing the usage of a hundred flags.

        Raises:
          UsageError: always.
        """
        raise UsageError(message)

    def add_options(self, options: Mapping[str, Option]) -> None:
        """Adds a flag for each option; a flag that is not given sets nothing."""
        groups: dict[str, Any] = {}
        for option in options.values():
            title = option.group
            if title not in groups:
                groups[title] = self.add_argument_group(title) if title else self
            names = flag_names(option)
            self.known |= dict.fromkeys(names, option)
            settings: dict[str, Any] = {"default": argparse.SUPPRESS, "help": _help(option)}
            if names:
                settings["dest"] = option.name
            if option.field.is_boolean:
                settings |= {"action": _Flag, "nargs": 0}
            else:
                settings["metavar"] = value_name(option)
                if option.declared.split:
                    settings["action"] = "append"
                if option.declared.split == "words":
                    settings["nargs"] = "*" if option.field.kind == tuple[float, ...] else "+"
            groups[title].add_argument(*(names or [option.name]), **settings)

    def parse_values(self, arguments: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
        """Parses a command line.

        Returns:
          What is given: option -> text, a list of texts, True or False; and what is no flag of
          ours.

        Raises:
          UsageError: one line: the flag, the rule, and what was found; or a flag is given under two
            of its names.
        """
        given = list(arguments)
        end = given.index("--") if "--" in given else len(given)
        given[:end] = map(self._without_value, given[:end])
        namespace, rest = self.parse_known_args(given)
        names: dict[str, str] = {}
        for name in (argument.partition("=")[0] for argument in given[:end]):
            option = self.known.get(name)
            if option is None or option.field.is_boolean:
                continue
            if names.setdefault(option.name, name) != name:  # the last would win in silence
                raise UsageError(
                    f"{names[option.name]} and {name} are two names of one flag; give one"
                )
        values = vars(namespace)
        for option in self.known.values():
            if option.name in values:
                values[option.name] = option.in_its_case(values[option.name])
        return values, rest

    def _without_value(self, argument: str) -> str:
        """Returns a boolean flag that has a value as the name that means this value."""
        flag, equals, text = argument.partition("=")
        option = self.known.get(flag)
        if not equals or option is None or not option.field.is_boolean:
            return argument
        name, *negative = flag_names(option)
        if flag != name:
            raise UsageError(f"{flag} takes no value, got {text!r}; write {name} or {flag}")
        return name if parse_boolean(flag, text) else negative[-1]


def _help(option: Option) -> str:
    default = default_text(option) or option.declared.default
    shown = f" (default: {default})" if default and default != "required" else ""
    return (option.help + shown).replace("%", "%%")


def refuse_unknown(rest: Sequence[str], known: Iterable[str]) -> None:
    """Refuses what is no flag.

    Raises:
      UsageError: names the first of them and the nearest flag.
    """
    if not rest:
        return
    flag = rest[0].partition("=")[0]
    if not flag.startswith("-"):
        raise UsageError(
            f"unexpected argument {rest[0]!r}; write quotes around a glob, and see --help"
        )
    raise UsageError(f"unknown flag {rest[0]}{did_you_mean(flag, known, otherwise='see --help')}")


@dataclass
class Given:
    """What a user gave for the options of a command, before specs are made of it.

    Attributes:
      values: option -> text, or a value of YAML or Python.
      places: option -> where it was given, such as "job.yaml, line 3"; of a command line nothing.
      beam: flags that are Beam's.
      is_python: a program gives them, as arguments of a function.
    """

    values: dict[str, Any]
    places: dict[str, str] = field(default_factory=dict)
    beam: list[str] = field(default_factory=list)
    is_python: bool = False

    def make(self, kind: type[SpecT], values: Mapping[str, Any] | None = None) -> SpecT:
        """Returns a spec of its own options among these.

        Args:
          kind: of the spec.
          values: instead of those that were given.

        Raises:
          UsageError: see `build`.
        """
        known = options_of(kind)
        values = self.values if values is None else values
        with naming_flags():
            return build(kind, {name: v for name, v in values.items() if name in known})

    def worded(self, message: str) -> str:
        """Returns a message in which options are called as their user wrote them."""
        if self.is_python:
            turned = name_arguments(message, {})
            return turned.replace("run the pipeline again", "call the function again")
        named = re.search(r"(?<![\w/-])--(?:no-)?([a-z]\w*)", message)
        place = self.places.get(named[1]) if named else None
        if not place:
            return message
        for name in self.places:
            message = re.sub(rf"(?<![\w/-])--{name}(?=\W|$)", name, message)
        return f"{place}: {message}"


# Values of YAML and Python


def checked_values(
    settings: Mapping[str, Any], options: Mapping[str, Option], where: str
) -> dict[str, Any]:
    """Returns settings by the options' own names; None is an option that is not given.

    Args:
      settings: name -> value of YAML or Python.
      options: that there are.
      where: they are from, for messages.

    Raises:
      UsageError: a name is no option's, or a value has the wrong form.
    """
    names = aliases_of(options)
    values: dict[str, Any] = {}
    for name, value in settings.items():
        if name not in names:
            raise UsageError(f"{where} {unknown_option(str(name), names)}")
        if value is None:
            continue
        own = names[name]
        if own in values:
            raise UsageError(f"{where} {name} and {own} are two names of one option; give one")
        values[own] = _plain_value(f"{where} {name}", value, options[own])
    return values


def _plain_value(named: str, value: Any, option: Option) -> Any:
    if hasattr(value, "dtype") and hasattr(value, "item") and not getattr(value, "shape", ()):
        value = value.item()  # a number of numpy
    if option.field.is_boolean != isinstance(value, bool):
        kind = "true or false" if option.field.is_boolean else "a word or number"
        raise UsageError(f"{named} must be {kind}, got {str(value).lower()}")
    is_text = not option.declared.split and isinstance(value, list | tuple)
    if is_text and not all(isinstance(each, str | int | float) for each in value):
        raise UsageError(f"{named} must be a list of words or numbers, got {value}")
    return option.in_its_case(value)


# Help


@dataclass(frozen=True, kw_only=True)
class HelpPage:
    """What the short help of a command says beside its flags.

    Attributes:
      usage: behind `recordmill`.
      sentence: what it does.
      example: a command line; each item is a line of it.
      more: what the last line adds.
    """

    usage: str
    sentence: str
    example: tuple[str, ...] = ()
    more: str = ""


def page_help(page: HelpPage, options: Mapping[str, Option]) -> str:
    """Returns the short help of a command: the options that most jobs need, by groups."""
    lines = [f"usage: recordmill {page.usage}", "", page.sentence]
    listed = {name: option for name, option in options.items() if option.declared.short is not None}
    for title, shown in groups_of(listed):
        lines += ["", f"{title.capitalize()}:"]
        for option in shown:
            lines += _short_lines(option)
    if page.example:
        lines += ["", "Example:", *(f"  {line}" for line in page.example)]
    more = f"; {page.more}" if page.more else ""
    return "\n".join([*lines, "", f"--help-all shows all flags{more}."])


def _short_lines(option: Option) -> list[str]:
    declared = option.declared
    value = declared.value or "" if option.field.is_boolean else value_name(option)
    if value.startswith("{"):
        value = option.name.upper()
    shown = f"--{declared.shown or option.name}" + (f"={value}" if value else "")
    text = declared.short or ", ".join(str(choice) for choice in option.choices if choice != "")
    default = default_text(option)
    if default != "false" and 0 < len(default) <= _MOST_DEFAULT:
        text += f" [{default}]"
    first, *rest = wrap(text, _WIDTH - _FLAG_WIDTH - 3) or [""]
    lines = [f"  {shown:<{_FLAG_WIDTH}} {first}"]
    return lines + [f"  {'':<{_FLAG_WIDTH}} {line}" for line in rest]


def full_help(
    page: HelpPage, description: str, options: Mapping[str, Option], *, engine: bool
) -> str:
    """Returns the help of all flags of a command.

    Args:
      page: its short help.
      description: sentences in the place of the page's own, if any.
      options: of the command.
      engine: Beam's own flags pass through.
    """
    text = (description or page.sentence) + (" Beam's own flags pass through." if engine else "")
    parser = Parser(prog=f"recordmill {page.usage.split(' ')[0]}", description=text)
    parser.usage = f"recordmill {page.usage}"
    parser.add_options(options)
    return parser.format_help().rstrip("\n")


# Completion, documentation, templates and schemas


def completed_values(option: Option) -> Any:
    """Returns what a shell completes behind a flag: "none", "text", "file", "folder" or a list."""
    if option.field.is_boolean:
        return "none"
    if option.choices:
        return [str(choice) for choice in option.choices if choice != ""]
    return option.declared.path or "text"


def first_sentence(option: Option) -> str:
    """Returns the beginning of an option's help."""
    return option.help.partition(". ")[0].rstrip(".")


def example_of(option: Option) -> str:
    """Returns a flag with a value, as an example of how it is written."""
    declared = option.declared
    if declared.positional or declared.example.startswith("--"):
        return declared.example or "ds"
    name = f"--{declared.shown or option.name}"
    if option.field.is_boolean:
        return (
            name if option.default is not True else f"--{declared.negative or f'no-{option.name}'}"
        )
    if declared.example:
        joint = " " if declared.split == "words" and option.name != "input" else "="
        return f"{name}{joint}{declared.example}"
    other = [c for c in option.choices if c not in ("", option.default)]
    value = other[0] if other else default_text(option) or "1"
    return f"{name}={value}"


def config_schema(command: str, options: Mapping[str, Option]) -> dict[str, Any]:
    """Returns the JSON Schema of a command's configuration file, which editors complete by."""
    properties = {}
    for name, option in options.items():
        if option.declared.positional:
            continue
        shape: dict[str, Any] = {"description": option.help}
        kinds = {bool: "boolean", int: "integer", float: "number"}
        if option.choices:
            shape["enum"] = [choice for choice in option.choices if choice != ""]
        elif option.field.kind in kinds:
            shape["type"] = kinds[option.field.kind]
        elif option.declared.split:
            shape["type"] = ["string", "array"]
        else:
            shape["type"] = ["string", "number", "array", "object"]
        for bounds, closed, opened in (
            (option.field.low, "minimum", "exclusiveMinimum"),
            (option.field.high, "maximum", "exclusiveMaximum"),
        ):
            if bounds:
                shape[closed if bounds[1] else opened] = bounds[0]
        if option.default not in (None, "", ()):
            shape["default"] = option.default
        properties[name] = shape
        for alias in option.declared.aliases:
            properties[alias] = shape
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"Options of recordmill {command}",
        "type": "object",
        "additionalProperties": False,
        "properties": properties,
    }


# A dataset's own configuration file

_PASSWORD = re.compile(r"(\w://[^/@:\s]*):[^@/\s]*@")
_SECRET = re.compile(
    r"([?&][^=&]*(?:password|passwd|secret|token|signature|sig|key)=)[^&\s]*", re.I
)


def own_settings(given: Given, options: Mapping[str, Option]) -> dict[str, Any]:
    """Returns what was given as a configuration file has it: without credentials, and without what
    says where and how a run works."""
    settings: dict[str, Any] = {}
    for name, option in options.items():
        if name not in given.values or option.declared.of_run:
            continue
        value = given.values[name]
        if isinstance(value, list | tuple):  # of a command line some are lists of lists
            value = [v for each in value for v in (each if isinstance(each, list) else [each])]
        elif not option.declared.parse and not option.declared.split and not option.field.specs:
            value = convert(option.field, value)
        settings[name] = _without_secrets(value)
    return settings


def _without_secrets(value: Any) -> Any:
    if isinstance(value, list):
        return [_without_secrets(each) for each in value]
    if not isinstance(value, str):
        return value
    return _SECRET.sub(r"\1", _PASSWORD.sub(r"\1@", value))


# A command line of one spec, for programs beside the commands


def parse(kind: type[SpecT], arguments: Sequence[str] | None = None, *, program: str = "") -> SpecT:
    """Returns the spec of a command line, all of whose flags must be the spec's.

    Args:
      kind: of the spec.
      arguments: of a command line; None for those of this process.
      program: its name, for help.

    Raises:
      UsageError: a flag is unknown, or its value is wrong.
    """
    parser = Parser(prog=program or None, add_help=True)
    parser.add_options(options_of(kind))
    values, rest = parser.parse_values(sys.argv[1:] if arguments is None else list(arguments))
    refuse_unknown(rest, parser.known)
    return Given(values).make(kind)


def groups_of(options: Mapping[str, Option]) -> Iterator[tuple[str, list[Option]]]:
    """Yields the title of each group with its options, in the order of help."""
    groups: dict[str, list[Option]] = {}
    for option in options.values():
        groups.setdefault(option.group, []).append(option)
    yield from groups.items()
