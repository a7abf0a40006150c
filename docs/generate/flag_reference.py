"""Pages of all flags, made from the argument parsers themselves, so that they cannot go stale.

Every flag needs an example in `flag_examples.py`, which must parse.
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Iterator
from importlib import import_module

from flag_examples import DEFAULTS, EXAMPLES, MEANINGS

from recordmill.pipelines.engines.choice import add_engine_arguments

# The commands, and the jobs of `recordmill plan`, which has a parser for each.
COMMANDS = {
    "text": [], "images": [], "examples": [], "vocab": [],
    "plan text": ["text"], "plan images": ["images"], "plan examples": ["examples"],
    "bench": [], "inspect": [], "report": [], "diff": [], "verify": [], "doctor": [],
    "completion": [],
}  # fmt: skip
_PLAN_GROUP = "plan"
_ENGINE_COMMANDS = ("text", "images", "examples", "vocab", "plan")


def parser_of(command: str) -> argparse.ArgumentParser:
    """Returns the parser of a command, with the engine's flags where it has them."""
    module = import_module(f"recordmill.pipelines.commands.{command.split()[0]}")
    parser: argparse.ArgumentParser = module.make_parser(*COMMANDS[command])
    if command.split()[0] in _ENGINE_COMMANDS:
        add_engine_arguments(parser)
    return parser


def _groups(parser: argparse.ArgumentParser) -> Iterator[tuple[str, list[argparse.Action]]]:
    """Yields groups of one title together, in the order of their first flags."""
    groups: dict[str, list[argparse.Action]] = {}
    for group in parser._action_groups:
        actions = [a for a in group._group_actions if a.dest != "help"]
        if actions:
            groups.setdefault(str(group.title), []).extend(actions)
    yield from groups.items()


def _name(action: argparse.Action) -> str:
    return " ".join(action.option_strings) or str(action.metavar or action.dest)


def _key(action: argparse.Action) -> str:
    """Names a flag as the tables of examples do: two flags may share a destination."""
    return action.option_strings[0].lstrip("-") if action.option_strings else action.dest


def _default(action: argparse.Action) -> str:
    if not action.option_strings:
        return "required"
    if _key(action) in DEFAULTS:
        return DEFAULTS[_key(action)]
    if isinstance(action.default, bool):
        is_set = action.default if action.const is None else action.default == action.const
        return "on" if is_set else "off"
    if action.default in (None, ""):
        return ""
    if isinstance(action.default, (list, tuple)):
        return f"`{' '.join(map(str, action.default))}`"
    return f"`{action.default}`"


def _escape(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;").replace("\n", " ")


def _meaning(action: argparse.Action) -> str:
    text = (
        (action.help or MEANINGS.get(_key(action), ""))
        .replace("%%", "%")
        .replace("%(default)s", "")
    )
    if not text:
        raise ValueError(f"{_name(action)} has no help: add it there, or to MEANINGS")
    parts = [_escape(text)]
    if action.choices:
        parts.append("One of " + ", ".join(f"`{choice}`" for choice in action.choices) + ".")
    return " ".join(parts)


def example_of(command: str, action: argparse.Action) -> str:
    """Returns the example of a flag.

    Raises:
      ValueError: there is none.
    """
    for key in (command, command.split()[-1], ""):
        if _key(action) in EXAMPLES.get(key, {}):
            return EXAMPLES[key][_key(action)]
    raise ValueError(f"recordmill {command} {_name(action)} has no example in flag_examples.py")


def check_example(command: str, parser: argparse.ArgumentParser, action: argparse.Action) -> None:
    """Parses the example of a flag.

    Raises:
      ValueError: it does not parse, or sets something else than this flag.
    """
    arguments = shlex.split(example_of(command, action))
    positional = [a for a in parser._actions if not a.option_strings]
    given = [*("x" for other in positional if other is not action), *arguments]
    _, unknown = parser.parse_known_args(given)
    names = {argument.partition("=")[0] for argument in arguments}
    if unknown or (action.option_strings and not names & set(action.option_strings)):
        raise ValueError(f"the example of {_name(action)} is no example of it: {arguments}")


def unused_examples() -> list[str]:
    """Returns the names of examples whose flags are gone."""
    flags = {
        command: {_key(action) for _, actions in _groups(parser_of(command)) for action in actions}
        for command in COMMANDS
    }
    everywhere = set().union(*flags.values())
    return [
        f"{key} {name}"
        for key, examples in EXAMPLES.items()
        for name in examples
        if name not in flags.get(key, everywhere)
    ]


def _table(command: str, parser: argparse.ArgumentParser, actions: list[argparse.Action]) -> str:
    lines = ["| flag | default | meaning | example |", "|---|---|---|---|"]
    for action in actions:
        check_example(command, parser, action)
        names = "<br>".join(f"`{name}`" for name in action.option_strings) or f"`{_name(action)}`"
        example = _escape(example_of(command, action))
        lines.append(f"| {names} | {_default(action)} | {_meaning(action)} | `{example}` |")
    return "\n".join(lines)


def _sections(command: str, only: str = "", level: str = "##") -> Iterator[str]:
    parser = parser_of(command)
    for title, actions in _groups(parser):
        if not only or title == only:
            heading = {"positional arguments": "Argument", "options": "Flags"}.get(title, title)
            yield f"{level} {heading.capitalize()}\n\n{_table(command, parser, actions)}\n"


def page(command: str) -> str:
    """Returns the page of a command in Markdown.

    Raises:
      ValueError: a flag has no meaning or no example.
    """
    if command == "plan":
        return (
            "# Flags of `recordmill plan`\n\n`recordmill plan text` and `recordmill plan images` "
            "take every flag of [`recordmill text`](flags-text.md) and "
            "[`recordmill images`](flags-images.md), and these:\n\n"
            + "\n".join(_sections("plan text", _PLAN_GROUP))
        )
    beam = "engine" in dict(_groups(parser_of(command)))
    passed_on = (
        "Flags that recordmill does not know are Beam's and are passed on; an unknown one is an "
        "error.\n\n"
        if beam
        else ""
    )
    return f"# Flags of `recordmill {command}`\n\n{passed_on}" + "\n".join(_sections(command))
