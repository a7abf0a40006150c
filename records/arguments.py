"""Command lines whose errors are one line."""

from __future__ import annotations

import argparse
import re
from typing import Any, NoReturn

from recordmill.records.errors import UsageError, one_of


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors are one line."""

    def error(self, message: str) -> NoReturn:
        """Raises instead of printing the usage of a hundred flags.

        Raises:
          UsageError: always.
        """
        given = re.fullmatch(r"argument (\S+): ignored explicit argument (.*)", message)
        if given:
            flags = given[1].split("/")
            message = f"{flags[0]} takes no value, got {given[2]}; write {' or '.join(flags)}"
        raise UsageError(message)

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            name = action.option_strings[0] if action.option_strings else action.dest
            one_of(name, str(value), map(str, action.choices))
