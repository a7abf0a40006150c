"""Commands that look at local files load neither Beam nor TensorFlow, which take seconds."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest

from .conftest import Written

_PROGRAM = """
import sys
from recordmill.pipelines.command_line import main
try:
    status = main(sys.argv[2:])
except SystemExit as end:
    status = end.code
print("loaded:", *(name for name in sys.argv[1].split(",") if name in sys.modules))
sys.exit(status)
"""


@pytest.fixture(scope="module")
def dataset(written: Callable[[str, str], Written]) -> str:
    return str(written("text", "small").dataset)


@pytest.mark.parametrize(
    ("arguments", "late"),
    [
        (["--help"], "apache_beam,tensorflow,numba,numpy"),
        (["--version"], "apache_beam,tensorflow,numba,numpy"),
        (["inspect", "DATASET"], "apache_beam,tensorflow,numba,matplotlib"),
        (["inspect", "--help"], "apache_beam,tensorflow,numba,matplotlib"),
        (["report", "--help"], "apache_beam,tensorflow,numba,matplotlib"),
        (["diff", "--help"], "apache_beam,tensorflow,numba,matplotlib"),
        (["verify", "DATASET"], "apache_beam,tensorflow,matplotlib"),
    ],
)
def test_what_is_slow_to_load_is_not_loaded(arguments: list[str], late: str, dataset: str) -> None:
    given = [dataset if argument == "DATASET" else argument for argument in arguments]
    line = [sys.executable, "-c", _PROGRAM, late, *given]
    ended = subprocess.run(line, capture_output=True, text=True, timeout=120, check=True)
    assert ended.stdout.splitlines()[-1] == "loaded:"
