"""Pages of all flags, made from the declarations of their options, so that they cannot go stale."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator

from recordmill.pipelines.command_table import COMMANDS
from recordmill.pipelines.faces import (
    Given,
    Parser,
    default_text,
    example_of,
    flag_names,
    groups_of,
    value_name,
)
from recordmill.records.spec import Option, convert

_PLAN_GROUP = "plan"


def _names(option: Option) -> list[str]:
    return flag_names(option) or [value_name(option)]


def _default(option: Option) -> str:
    if option.declared.positional:
        return "required"
    if isinstance(option.default, bool):
        return "on" if option.default else "off"
    text = default_text(option)
    return f"`{text}`" if text else option.declared.default


def _escape(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;").replace("\n", " ")


def _meaning(option: Option) -> str:
    if not option.help:
        raise ValueError(f"{option.name} has no help: add it to its declaration")
    parts = [_escape(option.help)]
    if choices := [str(choice) for choice in option.choices if choice != ""]:
        parts.append("One of " + ", ".join(f"`{choice}`" for choice in choices) + ".")
    return " ".join(parts)


def check_example(option: Option) -> None:
    """Parses the example of an option.

    Raises:
      ValueError: it does not parse, or its value is none of the option's.
    """
    arguments = shlex.split(example_of(option))
    parser = Parser()
    parser.add_options({option.name: option})
    values, rest = parser.parse_values(arguments)
    if rest or set(Given(values).values) != {option.name}:
        raise ValueError(f"the example of {option.name} is no example of it: {arguments}")
    if not option.field.specs:
        convert(option.field, values[option.name])


def _table(options: Iterable[Option]) -> str:
    lines = ["| flag | default | meaning | example |", "|---|---|---|---|"]
    for option in options:
        check_example(option)
        names = "<br>".join(f"`{name}`" for name in _names(option))
        example = _escape(example_of(option))
        lines.append(f"| {names} | {_default(option)} | {_meaning(option)} | `{example}` |")
    return "\n".join(lines)


def _sections(command: str, only: str = "", level: str = "##") -> Iterator[str]:
    for title, options in groups_of(COMMANDS[command].options()):
        if not only or title == only:
            heading = title or "Flags"
            yield f"{level} {heading.capitalize()}\n\n{_table(options)}\n"


def page(command: str) -> str:
    """Returns the page of a command in Markdown.

    Raises:
      ValueError: an option has no help, or an example that is none.
    """
    if command == "plan":
        return (
            "# Flags of `recordmill plan`\n\n`recordmill plan text`, `recordmill plan images` and "
            "`recordmill plan examples` take every flag of [`recordmill text`](flags-text.md), "
            "[`recordmill images`](flags-images.md) and "
            "[`recordmill examples`](flags-examples.md), and these:\n\n"
            + "\n".join(_sections("plan text", _PLAN_GROUP))
        )
    passed_on = (
        "Flags that recordmill does not know are Beam's and are passed on; an unknown one is an "
        "error.\n\n"
        if COMMANDS[command].has_engine
        else ""
    )
    return f"# Flags of `recordmill {command}`\n\n{passed_on}" + "\n".join(_sections(command))
