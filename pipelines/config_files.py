"""Options in a file: `--config=FILE.yaml` as one, and a dataset's own, `_meta/config.yaml`.

A file has the names of flags, without dashes. A list is a flag that is given several times, or has
commas between its values; `{train: 0.9, validation: 0.1}` is train:0.9,validation:0.1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from recordmill.pipelines.faces import Given, checked_values, own_settings
from recordmill.records.errors import UsageError
from recordmill.records.spec import Option
from recordmill.transforms.dataset.user_functions import UserFunction
from recordmill.transforms.dataset.writable import reason
from recordmill.transforms.storage import files

_MOST_BYTES = 1 << 20
_MOST_LEVELS = 20
_MOST_REPEATED = 1000  # values that aliases stand for
_MOST_DIGITS = 1000  # numbers such as 1:30:00 take long
_MOST_VALUES = 50_000  # a second for 16,000
_OF_PROGRAM = "functions_of_program"  # no option: only the program has them


def add_config(given: Given, options: Mapping[str, Option], *, has_functions: bool = False) -> None:
    """Adds the options of the file that `config` names, if any; what is given already wins.

    Args:
      given: of a command; it is changed.
      options: that the command has.
      has_functions: a program gives functions instead of --map.

    Raises:
      UsageError: one line: the file cannot be read, or names no option; or the functions are
        missing that a program gave to the job that wrote it.
    """
    path = given.values.get("config")
    if not path:
        return
    where = f"--config {path}"
    settings, lines = _read(str(path))
    functions = settings.pop(_OF_PROGRAM, None)
    if functions and not has_functions and "map" not in given.values:
        raise UsageError(
            f"{where}: a program gave functions to the job that wrote it ({functions}), "
            "and must give them again as map=…; give --map=FILE.py:FUNCTION for the same of a "
            f"file, or remove the line {_OF_PROGRAM} to do without them"
        )
    if has_functions:
        settings.pop("map", None)
    values = checked_values(settings, options, f"{where}:")
    names = {alias: name for name in options for alias in options[name].declared.aliases}
    for written, line in lines.items():
        name = names.get(written, written)
        if name in values and name not in given.values:
            given.places[name] = f"{where}, line {line}"
    given.values |= {name: v for name, v in values.items() if name not in given.values}


def _read(path: str) -> tuple[dict[str, Any], dict[str, int]]:
    """Returns the settings of a file, and the line of each."""
    try:
        text = files.read_limited(path, _MOST_BYTES).decode("utf-8")
        _check_extent(text, f"--config {path}")
        content = yaml.safe_load(text)
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except OSError as error:
        raise UsageError(f"--config {path} cannot be read: {reason(error)}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"--config {path} cannot be read: it is no UTF-8") from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        at = f"line {mark.line + 1}: " if mark else ""
        problem = getattr(error, "problem", None) or " ".join(str(error).split())
        problem = problem.replace("found unhashable key", "a list or a mapping cannot be a name")
        raise UsageError(f"--config {path} is no YAML: {at}{problem}") from error
    except UsageError:
        raise
    except ValueError as error:  # of a date
        raise UsageError(f"--config {path} has a value that YAML cannot read: {error}") from error
    if content is None:
        return {}, {}
    if not isinstance(content, dict):
        raise UsageError(
            f"--config {path} must have a line `name: value` for each flag, and is a "
            f"{type(content).__name__}"
        )
    return content, {str(key.value): key.start_mark.line + 1 for key, _ in node.value}


def _check_extent(text: str, named: str) -> None:
    """Checks how deep and large a file is, also what its aliases stand for: it may be a billion.

    Raises:
      UsageError: it is too deep or too large, or has tags: errors of their values are no YAMLError.
      yaml.YAMLError: it is no YAML.
    """
    extents: dict[str, tuple[int, int]] = {}  # anchor -> the values and levels that it stands for
    opened: list[list[Any]] = [["", 0, 0]]  # anchor, values and levels of each open collection
    repeated = total = 0
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        values, levels = 0, 0
        where = f"{named}, line {event.start_mark.line + 1}"
        if getattr(event, "tag", None):
            raise UsageError(f"{where}: values must have no tags, got {event.tag!r}; remove it")
        if isinstance(event, yaml.AliasEvent):
            is_open = any(event.anchor == anchor for anchor, *_ in opened)  # it would be in itself
            values, levels = extents.get(event.anchor, (0, 0))
            repeated += values + is_open * _MOST_REPEATED
        elif isinstance(event, yaml.CollectionStartEvent):
            opened.append([event.anchor, 1, 1])
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, values, levels = opened.pop()
            extents[anchor] = values, levels
        elif isinstance(event, yaml.ScalarEvent):
            values = 1
            extents[event.anchor] = 1, 0
            if len(event.value) > _MOST_DIGITS and not event.value.strip("0123456789_.:+-"):
                raise UsageError(f"{named}: a number must have at most {_MOST_DIGITS} digits")
        else:
            continue
        total += not isinstance(event, yaml.CollectionEndEvent)
        opened[-1][1] += values
        opened[-1][2] = max(opened[-1][2], levels + 1)
        if len(opened) + levels > _MOST_LEVELS:
            raise UsageError(f"{where}: values must be at most {_MOST_LEVELS} levels deep")
        if total > _MOST_VALUES:
            raise UsageError(
                f"{where}: there must be at most {_MOST_VALUES} values; use globs such as *.txt"
            )
        if repeated >= _MOST_REPEATED:
            raise UsageError(
                f"{where}: aliases (*) must stand for fewer than {_MOST_REPEATED} values in all; "
                "write the values out"
            )


def settings_text(
    command: str,
    given: Given,
    options: Mapping[str, Option],
    functions: Sequence[UserFunction] = (),
) -> str:
    """Returns the settings of a job as a file, without those of the run and without credentials.

    Args:
      command: of the job.
      given: by its user.
      options: that the job has.
      functions: that a program gave instead of --map.
    """
    settings = own_settings(given, options)
    place = "--output=FOLDER" if "output" in options else "DIR"
    lines = [
        f"# Settings of recordmill {command}; all others have their defaults. The same again:\n",
        f"# recordmill {command} --config=FILE {place}\n",
    ]
    names = [each.name for each in functions]
    if any(each.pickled for each in functions):
        settings[_OF_PROGRAM] = ", ".join(names)
    elif names:
        settings["map"] = names
    text = yaml.safe_dump(settings, sort_keys=False, allow_unicode=True, width=1 << 16)
    return "".join(lines) + (text if settings else "{}\n")
