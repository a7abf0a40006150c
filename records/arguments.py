"""Command lines whose errors are one line."""

from __future__ import annotations

import argparse
from typing import NoReturn

from recordmill.records.errors import UsageError


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors are one line."""

    def error(self, message: str) -> NoReturn:
        """Raises instead of printing the usage of a hundred flags.

        Raises:
          UsageError: always.
        """
        raise UsageError(message)
