"""Flags in a file: `--config=FILE.yaml` as one, and a job's own, `_meta/config.yaml`.

A file has the names of flags, without dashes. A list is a flag that is given several times, or has
commas between its values; `{train: 0.9, validation: 0.1}` is train:0.9,validation:0.1.
"""

from __future__ import annotations

import argparse
import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import yaml
from apache_beam.io.filesystem import BeamIOError

from recordmill.pipelines.arguments import OneLineParser, is_boolean
from recordmill.pipelines.beam_internals import grouped_actions, is_repeated, option_actions
from recordmill.records.errors import UsageError
from recordmill.transforms.dataset.argument_types import plain_value
from recordmill.transforms.dataset.user_functions import UserFunction
from recordmill.transforms.dataset.writable import reason
from recordmill.transforms.storage import files

_MOST_BYTES = 1 << 20
# What a file of settings does not have: the same dataset may be written elsewhere, by any engine.
_OF_THE_RUN = ("output", "output_file", "overwrite", "temp_dir", "config", "help")
_OF_PROGRAM = "functions_of_program"  # no flag: only the program has them
_ENGINE = "engine"  # the group of the engine's flags
_PASSWORD = re.compile(r"(\w://[^/@:\s]*):[^@/\s]*@")
_SECRET = re.compile(
    r"([?&][^=&]*(?:password|passwd|secret|token|signature|sig|key)=)[^&\s]*", re.I
)


def with_config(
    parser: argparse.ArgumentParser, arguments: Sequence[str], *, has_functions: bool = False
) -> list[str]:
    """Returns arguments with those of `--config` before them; flags that are given again win.

    Args:
      parser: of the flags.
      arguments: of a command line.
      has_functions: a program gives functions instead of --map.

    Raises:
      UsageError: one line: the file cannot be read, or names no flag; or the functions are missing
        that a program gave to the job that wrote it.
    """
    before = OneLineParser(add_help=False, allow_abbrev=False)
    before.add_argument("--config")
    end = list(arguments).index("--") if "--" in arguments else len(arguments)
    path = before.parse_known_args(arguments[:end])[0].config
    if not path:
        return list(arguments)
    actions = option_actions(parser)
    names = (argument.partition("=")[0] for argument in arguments[:end])
    given = {actions[name].dest for name in names if name in actions}
    settings = _read(path)
    functions = settings.pop(_OF_PROGRAM, None)
    if functions and not has_functions and "map" not in given:
        raise UsageError(
            f"--config {path}: a program gave functions to the job that wrote it ({functions}), "
            "and must give them again as map=…; give --map=FILE.py:FUNCTION for the same of a "
            f"file, or remove the line {_OF_PROGRAM} to do without them"
        )
    added = setting_arguments(parser, settings, f"--config {path}:", leave_out=given)
    return [*added, *arguments]


def setting_arguments(
    parser: argparse.ArgumentParser,
    settings: Mapping[str, Any],
    where: str,
    *,
    leave_out: set[str] | frozenset[str] = frozenset(),
) -> list[str]:
    """Returns settings as the arguments of a command line.

    Args:
      parser: that has the flags.
      settings: name of a flag -> value; None is a flag that is not given.
      where: they are from, for messages.
      leave_out: flags that are not wanted.

    Raises:
      UsageError: a name is no flag's, or a value has the wrong form.
    """
    actions = option_actions(parser)
    arguments: list[str] = []
    for name, value in settings.items():
        action = actions.get(f"--{name}")
        if action is None or action.dest == "help":
            known = {flag[2:] for flag in actions if flag.startswith("--")}
            near = difflib.get_close_matches(str(name), known, n=1)
            hint = f"did you mean {near[0]}?" if near else "--help-all lists all flags"
            raise UsageError(f"{where} there is no flag named {name}; {hint}")
        if value is None or action.dest in leave_out:
            continue
        value = plain_value(f"{where} {name}", value)
        arguments += _arguments(f"--{name}", action, value, where)
    return arguments


def _arguments(flag: str, action: argparse.Action, value: Any, where: str) -> Iterator[str]:
    if isinstance(value, Mapping):
        value = [f"{key}:{inner}" for key, inner in value.items()]
    if isinstance(value, list | tuple):
        if not all(isinstance(each, str | int | float) for each in value):
            raise UsageError(f"{where} {flag[2:]} must be a list of words or numbers, got {value}")
        values = list(value) if is_repeated(action) else [",".join(map(str, value))]
    else:
        values = [value]
    for each in values:
        if is_boolean(action) != isinstance(each, bool):
            kind = "true or false" if is_boolean(action) else "a word or number"
            raise UsageError(f"{where} {flag[2:]} must be {kind}, got {str(each).lower()}")
        if not isinstance(each, str | int | float):
            raise UsageError(f"{where} {flag[2:]} must be a word or number, got {each!r}")
        yield f"{flag}={str(each).lower() if isinstance(each, bool) else each}"


def _read(path: str) -> dict[str, Any]:
    try:
        content = yaml.safe_load(files.read_limited(path, _MOST_BYTES).decode("utf-8"))
    except (OSError, BeamIOError) as error:
        raise UsageError(f"--config {path} cannot be read: {reason(error)}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"--config {path} cannot be read: it is no UTF-8") from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        at = f"line {mark.line + 1}: " if mark else ""
        problem = getattr(error, "problem", None) or " ".join(str(error).split())
        raise UsageError(f"--config {path} is no YAML: {at}{problem}") from error
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise UsageError(
            f"--config {path} must have a line `name: value` for each flag, and is a "
            f"{type(content).__name__}"
        )
    return content


def settings_text(
    command: str,
    parser: argparse.ArgumentParser,
    options: argparse.Namespace,
    functions: Sequence[UserFunction] = (),
) -> str:
    """Returns the settings of a job as a file, without those of the run and without credentials.

    Args:
      command: of the job.
      parser: of its flags.
      options: what the parser gave.
      functions: that a program gave instead of --map.
    """
    given: frozenset[str] = getattr(options, "given_flags", frozenset())
    settings: dict[str, Any] = {}
    for group, action in grouped_actions(parser):
        name, value = action.dest, getattr(options, action.dest, None)
        if group == _ENGINE or name in _OF_THE_RUN or value is None:
            continue
        if value == action.default and name not in given:
            continue
        if isinstance(value, list):  # of --input a list of lists
            value = [v for each in value for v in (each if isinstance(each, list) else [each])]
        settings[name] = _without_secrets(value)
    lines = [
        f"# Settings of recordmill {command}; all others have their defaults. The same again:\n",
        f"# recordmill {command} --config=FILE --output=FOLDER\n",
    ]
    names = [each.name for each in functions]
    if any(each.pickled for each in functions):
        settings[_OF_PROGRAM] = ", ".join(names)
    elif names:
        settings["map"] = names
    text = yaml.safe_dump(settings, sort_keys=False, allow_unicode=True, width=1 << 16)
    return "".join(lines) + (text if settings else "{}\n")


def _without_secrets(value: Any) -> Any:
    if isinstance(value, list):
        return [_without_secrets(each) for each in value]
    if not isinstance(value, str):
        return value
    return _SECRET.sub(r"\1", _PASSWORD.sub(r"\1@", value))
