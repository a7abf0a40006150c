"""Command lines: errors of one line, flags that are true or false, and help that names defaults."""

from __future__ import annotations

import argparse
import difflib
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from recordmill.pipelines.beam_internals import OpenHelpFormatter, OpenParser, option_actions
from recordmill.records.errors import UsageError, one_of

# What absl takes for true and false, and what people write besides.
_BOOLEANS = {
    **dict.fromkeys(("true", "t", "yes", "y", "1"), True),
    **dict.fromkeys(("false", "f", "no", "n", "0"), False),
}


class BooleanFlag(argparse.Action):
    """A flag that is true or false: `--flag`, `--no-flag`, and in a `Parser` `--flag=false` too.

    The first name is the flag's own; other names, such as `--no_wait`, mean false.
    """

    def __init__(
        self,
        option_strings: Sequence[str],
        dest: str,
        default: bool | None = False,
        required: bool = False,
        help: str | None = None,  # noqa: A002
    ) -> None:
        name = option_strings[0]
        names = [*option_strings, f"--no-{name.removeprefix('--')}"]
        super().__init__(names, dest, nargs=0, default=default, required=required, help=help)

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        """Sets the value that goes with the name which was given."""
        setattr(namespace, self.dest, option_string == self.option_strings[0])


def is_boolean(action: argparse.Action) -> bool:
    """Returns whether a flag is true or false, and can be written without a value."""
    return isinstance(action, (BooleanFlag, argparse.BooleanOptionalAction))


def parse_boolean(flag: str, text: str) -> bool:
    """Reads the value of a flag that is true or false, in any of the usual words for it.

    Raises:
      UsageError: it is none of them; names the nearest one.
    """
    if text.lower() in _BOOLEANS:
        return _BOOLEANS[text.lower()]
    near = difflib.get_close_matches(text.lower(), ["true", "false"], n=1)
    hint = f"; did you mean {near[0]}?" if near else ""
    raise UsageError(f"{flag} must be true or false, got {text!r}{hint}")


def default_text(action: argparse.Action) -> str:
    """Returns the default of a flag as a user would write it, "" where there is none to name."""
    if action.default in (None, "", argparse.SUPPRESS):
        return ""
    if isinstance(action.default, bool):
        return str(action.default).lower()
    if isinstance(action.default, (list, tuple)):
        return " ".join(f"{value:g}" for value in action.default)
    return str(action.default)


class _HelpFormatter(OpenHelpFormatter):
    """Names the default at the end of a flag's help."""

    def help_text(self, action: argparse.Action) -> str:
        # Some releases of Python append it to the help of argparse's own boolean flags.
        text = (action.help or "").removesuffix(" (default: %(default)s)")
        default = default_text(action).replace("%", "%%")
        return f"{text} (default: {default})" if default else text


class OneLineParser(OpenParser):
    """An argument parser whose errors are one line."""

    def error(self, message: str) -> NoReturn:
        """Raises instead of printing the usage of a hundred flags.

        Raises:
          UsageError: always.
        """
        raise UsageError(message)

    def check_choice(self, action: argparse.Action, value: Any) -> None:
        """Checks a value against the choices of its flag.

        Raises:
          UsageError: names all choices and the nearest one.
        """
        if action.choices is not None and value not in action.choices:
            name = action.option_strings[0] if action.option_strings else action.dest
            one_of(name, str(value), map(str, action.choices))


class Parser(OneLineParser):
    """The parser of a command of ours: flags are never abbreviated."""

    def __init__(self, **options: Any) -> None:
        options.setdefault("allow_abbrev", False)
        options.setdefault("formatter_class", _HelpFormatter)
        super().__init__(**options)
        # So that every flag without a value takes `=true` and `=false`, wherever it is added.
        self.register("action", "store_true", BooleanFlag)

    def add_full_help(self) -> None:
        """Adds `--help-all`, for commands whose `--help` shows the most used flags alone."""
        self.add_argument("--help-all", action="help", dest="help", help="Show all flags.")

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parses arguments, all of which must be of this command.

        Raises:
          UsageError: one is not; names the nearest flag.
        """
        options, rest = self.parse_known_args(args, namespace)
        if rest:
            flag = rest[0].partition("=")[0]
            if not flag.startswith("-"):
                raise UsageError(
                    f"unexpected argument {rest[0]!r}; write quotes around a glob, and see --help"
                )
            near = difflib.get_close_matches(flag, option_actions(self), n=1)
            hint = f"; did you mean {near[0]}?" if near else "; see --help"
            raise UsageError(f"unknown flag {rest[0]}{hint}")
        return options

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parses arguments, in which boolean flags may have a value, as absl takes them.

        Raises:
          UsageError: one line: the flag, the rule, and what was found; or a flag is given under two
            of its names.
        """
        given = list(sys.argv[1:] if args is None else args)
        end = given.index("--") if "--" in given else len(given)
        given[:end] = map(self._without_value, given[:end])
        options, rest = super().parse_known_args(given, namespace)
        actions = option_actions(self)
        names: dict[argparse.Action, str] = {}
        for name in (argument.partition("=")[0] for argument in given[:end]):
            action = actions.get(name)
            if action and names.setdefault(action, name) != name and not is_boolean(action):
                # The last of them would win in silence.
                raise UsageError(f"{names[action]} and {name} are two names of one flag; give one")
        # Also flags that are given with their default value, which the values do not show.
        options.given_flags = frozenset(action.dest for action in names)
        return options, rest

    def _without_value(self, argument: str) -> str:
        """Returns a boolean flag that has a value as the name that means this value."""
        flag, equals, text = argument.partition("=")
        action = option_actions(self).get(flag)
        if not equals or action is None or not is_boolean(action):
            return argument
        name, *negative = action.option_strings
        if flag != name:
            raise UsageError(f"{flag} takes no value, got {text!r}; write {name} or {flag}")
        return name if parse_boolean(flag, text) else negative[0]
