"""`recordmill` itself: help, version, and an output that nobody reads to its end."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from recordmill.pipelines import command_line
from recordmill.pipelines.command_line import main
from recordmill.pipelines.command_table import COMMANDS
from recordmill.pipelines.completion import make_table

from ..pictures import jpeg

PAGES = ["text", "images", "examples", "vocab", "plan text", "plan images", "plan examples"]


@pytest.mark.parametrize("arguments", [["help"], ["--help"], ["-h"]])
def test_help_lists_the_commands(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 0
    text = capsys.readouterr().out
    assert text.startswith("usage: recordmill COMMAND")
    for name in "text images examples index vocab plan bench verify doctor".split():
        assert f"  {name} " in text


def test_no_command_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert capsys.readouterr().out.startswith("usage: recordmill COMMAND")
    assert main(["txt"]) == 2
    assert "did you mean 'text'?" in capsys.readouterr().err


def test_an_error_that_repeats_a_long_input_is_cut(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = tmp_path / "labels.csv"
    table.write_text("path,label\n0.jpg,1\n")
    (tmp_path / "0.jpg").write_bytes(jpeg(8, 8))
    flags = [f"--input={tmp_path}/*.jpg", f"--annotations={table}", f"--output={tmp_path}/ds"]
    flags += ["--direct_num_workers=1", f"--label_field={'[' * 50_000}"]
    assert main(["images", *flags]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("recordmill: --label_field must be a column of ")
    assert line.endswith("['")
    assert re.search(r"\[ \[… 4\d{4} characters …\] \[", line)
    assert len(line) < 3100


@pytest.mark.parametrize("character", ["\x1b", "\x85", "\u2028", "\x0c", "\r", "\x1c"])
def test_an_error_with_names_of_an_input_is_one_line(
    character: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = tmp_path / "labels.csv"
    with open(table, "w", encoding="utf-8", newline="") as handle:
        handle.write(f'"filenam{character}[2J","l{character}bel"\n0.jpg,1\n')
    (tmp_path / "0.jpg").write_bytes(jpeg(8, 8))
    flags = [f"--input={tmp_path}/*.jpg", f"--annotations={table}", f"--output={tmp_path}/ds"]
    assert main(["images", *flags, "--direct_num_workers=1", "--image_size=8"]) == 2
    error = capsys.readouterr().err
    (line,) = error.splitlines()
    assert line.startswith("recordmill: --path_field must name the column of ")
    assert line.endswith(f"l{character.encode('unicode_escape').decode()}bel")


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"recordmill {version('recordmill')}\n"


@pytest.mark.parametrize("arguments", [["plan", "--help"], ["plan", "-h"], ["help", "plan"]])
def test_help_of_plan_names_the_jobs(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 0
    assert capsys.readouterr().out.startswith("usage: recordmill plan text | images")


def test_plan_of_what(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan"]) == 2
    assert "must be one of examples, images, text, got ''" in capsys.readouterr().err
    assert main(["plan", "txt"]) == 2
    assert "must be one of examples, images, text, got 'txt'" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["index", "bench", "verify", "doctor", "inspect", "completion"])
def test_help_of_a_command(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["help", name]) == 0
    assert capsys.readouterr().out.startswith(f"usage: recordmill {name} ")


@pytest.mark.parametrize("name", PAGES)
def test_help_of_a_job_fits_a_screen(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    command = name.split()
    for arguments in (["help", *command], [*command, "--help"], [*command, "--input=x", "-h"]):
        assert main(arguments) == 0
        lines = capsys.readouterr().out.splitlines()
        assert lines[0].startswith(f"usage: recordmill {name} --input=")
        assert 24 <= len(lines) <= 40
        assert not [line for line in lines if len(line) > 80]
    assert main([*command, "--help-all"]) == 0
    everything = capsys.readouterr().out
    assert "--random_seed" in everything or name == "vocab"
    assert all(flag in everything for flag in re.findall(r"^  (--[a-z_]+)", "\n".join(lines), re.M))
    assert len(everything.splitlines()) > 2 * len(lines)


@pytest.mark.parametrize("name", PAGES)
def test_the_example_of_a_help_page_parses(name: str) -> None:
    lines = " ".join(COMMANDS[name].example).replace("\\", "").split("recordmill ")
    assert lines[0] == ""
    assert len(lines) > 1
    for line in lines[1:]:
        words = shlex.split(line)
        count = len(name.split())
        assert " ".join(words[:count]) == name
        assert {word.partition("=")[0] for word in words[count:]} <= make_table()[name].keys()


def test_help_fits_a_screen(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--help"])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= 30
    assert not [line for line in lines if len(line) > 80]


def test_the_package_is_the_command() -> None:
    line = [sys.executable, "-m", "recordmill.pipelines", "--version"]
    ended = subprocess.run(line, capture_output=True, text=True, timeout=60, check=True)
    assert ended.stdout == f"recordmill {version('recordmill')}\n"


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        (["--help"], 141),
        (["--version"], 141),
        (["text", "--help"], 141),
        (["text", "--help-all"], 141),
    ],
)
def test_a_reader_that_closes_the_output(arguments: list[str], status: int) -> None:
    read, write = os.pipe()
    os.close(read)
    line = [sys.executable, "-m", "recordmill.pipelines", *arguments]
    ended = subprocess.run(line, stdout=write, stderr=subprocess.PIPE, text=True, timeout=60)
    os.close(write)
    assert ended.stderr == ""
    assert ended.returncode == status


def test_every_exit_status_is_documented() -> None:
    page = Path(__file__).parents[2] / "docs/guides/errors.md"
    described = command_line.__doc__ or ""
    statuses = re.findall(r"\b(\d|1\d\d)\b", described.partition("Exit status")[2])
    assert {"0", "1", "2", "129", "130", "141", "143"} == set(statuses)
    text = page.read_text(encoding="utf-8").partition("## Rejects")[0]
    assert [status for status in statuses if not re.search(rf"\b{status}\b", text)] == []


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("arguments", [["--version"], ["verify", "--help"], ["doctor"]])
def test_a_full_standard_output_is_one_line(unbuffered: str, arguments: list[str]) -> None:
    with open("/dev/full", "w") as full:
        ended = subprocess.run(
            [sys.executable, "-m", "recordmill.pipelines", *arguments],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONUNBUFFERED": unbuffered},
        )
    assert ended.returncode == 1
    assert ended.stderr.splitlines()[-1].startswith(
        "recordmill: standard output cannot be written: No space left on device; "
    )
    assert "Traceback" not in ended.stderr


def test_a_closed_standard_output_is_none() -> None:
    line = f"exec {sys.executable} -m recordmill.pipelines --version >&-"
    ended = subprocess.run(["bash", "-c", line], stderr=subprocess.PIPE, text=True)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_too_little_memory_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(_: list[str]) -> int:
        raise MemoryError

    monkeypatch.setattr(command_line, "_run", fail)
    assert command_line.main(["verify"]) == 1
    assert capsys.readouterr().err.startswith("recordmill: not enough memory; see the limits")
