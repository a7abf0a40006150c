"""Commands on local files load neither Beam nor TensorFlow, which take seconds."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from .conftest import Written
from .jobs import shard_bytes

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


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("text --inptu=x", "unknown flag --inptu=x; did you mean --input?"),
        ("images --input=a b", "no flag before b; for a second input write --input again"),
        ("verify a b", "unexpected argument 'b'; write quotes around a glob, and see --help"),
        ("plan examples --tmep_location=x", "did you mean --temp_location?"),  # Beam's
        ("verify ds --project p --wrkers=2", "unknown flag --wrkers=2; did you mean --workers?"),
    ],
)
def test_a_mistyped_flag_is_told_before_anything_is_loaded(line: str, message: str) -> None:
    program = [sys.executable, "-c", _PROGRAM, "apache_beam,tensorflow,numba,numpy", *line.split()]
    ended = subprocess.run(program, capture_output=True, text=True, timeout=120)
    assert (ended.returncode, ended.stdout) == (2, "loaded:\n")
    assert ended.stderr.count("\n") == 1
    assert message in ended.stderr


@pytest.fixture
def without_beam(tmp_path: Path) -> Path:
    """A folder for a program's path in which Beam notes that it is imported, and cannot be."""
    package = tmp_path / "path/apache_beam"
    package.mkdir(parents=True)
    note = f"open({str(tmp_path / 'imported')!r}, 'a').write(' '.join(sys.argv))"
    (package / "__init__.py").write_text(f"import sys\n{note}\nraise ImportError('Beam')\n")
    return package.parent


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("name", ["text", "images", "examples", "index", "vocab"])
def test_jobs_of_this_machine_load_no_beam(
    written: Callable[[str, str], Written], without_beam: Path, tmp_path: Path, name: str,
    workers: int,
) -> None:  # fmt: skip
    """Neither here nor in a worker, or in the process that workers are forked from."""
    job = written({"index": "examples", "vocab": "text"}.get(name, name), "small")
    arguments = job.case.arguments(job.source, tmp_path / "ds", workers=workers)
    if name == "index":
        shutil.copytree(job.source, tmp_path / "ds")
        arguments = [str(tmp_path / "ds"), f"--direct_num_workers={workers}"]
    if name == "vocab":
        arguments = [*arguments[:3], "--kind=bpe", "--vocab_size=300"]
    line = [sys.executable, "-m", "recordmill.pipelines.command_line"]
    line += [name if name in ("index", "vocab") else job.case.command, *arguments]
    path = os.pathsep.join(filter(None, [str(without_beam), os.environ.get("PYTHONPATH", "")]))
    subprocess.run(line, timeout=120, check=True, env={**os.environ, "PYTHONPATH": path})
    assert not (tmp_path / "imported").exists(), (tmp_path / "imported").read_text()
    if name == job.case.name:
        assert shard_bytes(tmp_path / "ds") == job.shards
