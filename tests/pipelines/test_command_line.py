"""`recordmill` itself: help, version, and an output that nobody reads to its end."""

from __future__ import annotations

import io
import json
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
from recordmill.pipelines.engines.error_text import one_line
from recordmill.pipelines.inspection.json_text import json_text
from recordmill.transforms.dataset.limits import check_limits

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


_LIMITED = """
import resource, sys
limit = getattr(resource, sys.argv[1])
resource.setrlimit(limit, (int(sys.argv[2]), int(sys.argv[2])))
from recordmill.pipelines.command_line import main
sys.exit(main(sys.argv[3:]))
"""
_TEXT = ["text", "--input=.", "--output=ds", "--task=mlm", "--vocab_file=none"]


@pytest.mark.parametrize(
    ("limit", "value", "said"),
    [
        ("RLIMIT_AS", 300_000_000, "not enough memory; see the limits of this machine (ulimit -v)"),
        ("RLIMIT_NOFILE", 20, "too many open files; raise their limit (ulimit -n)"),
    ],
)
def test_a_low_limit_is_one_line(limit: str, value: int, said: str) -> None:
    line = [sys.executable, "-c", _LIMITED, limit, str(value), *_TEXT, "--direct_num_workers=2"]
    done = subprocess.run(line, capture_output=True, text=True)
    assert done.returncode == 1
    (shown,) = done.stderr.splitlines()
    assert said in shown


def test_too_few_threads_are_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    started: list[object] = []

    def start(*_: object) -> None:
        if len(started) == 25:
            raise RuntimeError("can't start new thread")
        started.append(None)

    monkeypatch.setattr("_thread.start_new_thread", start)
    assert main([*_TEXT, "--direct_num_workers=2"]) == 1
    (shown,) = capsys.readouterr().err.splitlines()
    assert shown.startswith("recordmill: fewer than 40 threads can be started: ")
    assert "(ulimit -u, -v, or that of the container)" in shown


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OSError(24, "Too many open files"), "too many open files; raise"),
        (BlockingIOError(11, "Resource temporarily unavailable"), "no more threads or processes"),
        (RuntimeError("can't start new thread"), "no more threads or processes"),
        (ImportError("libx.so: failed to map segment from shared object"), "not enough memory"),
    ],
)
def test_what_the_system_refuses_later_is_one_line(
    error: Exception,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    def fail(arguments: list[str]) -> int:
        raise error

    monkeypatch.setattr(command_line, "_run", fail)
    assert main(["text"]) == 1
    (shown,) = capfd.readouterr().err.splitlines()
    assert shown.startswith(f"recordmill: {said}")


def test_kernels_are_compiled_or_refused() -> None:
    line = [sys.executable, "-c", "import recordmill.records.codec.jit"]
    environment = {**os.environ, "NUMBA_DISABLE_JIT": "1"}
    done = subprocess.run(line, capture_output=True, text=True, env=environment)
    assert "UsageError: NUMBA_DISABLE_JIT is set, " in done.stderr.splitlines()[-1]


def test_names_that_a_terminal_cannot_show_are_escaped(tmp_path: Path) -> None:
    for label in ("b", "\u044f"):
        (tmp_path / "in" / label).mkdir(parents=True)
        (tmp_path / "in" / label / "0.jpg").write_bytes(jpeg(8, 8))
    flags = [f"--input={tmp_path}/in", f"--output={tmp_path}/ds", "--task=classification"]
    line = [sys.executable, "-m", "recordmill.pipelines", "images", *flags]
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    done = subprocess.run(line, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    assert "classes of train: 2: b 1, \\u044f 1" in done.stdout


def test_only_what_loads_kernels_is_asked_for_its_limits() -> None:
    line = [sys.executable, "-c", _LIMITED, "RLIMIT_AS", "700000000", "completion", "bash"]
    assert subprocess.run(line, capture_output=True).returncode == 0


def test_a_soft_limit_of_files_is_raised() -> None:
    code = (
        "import resource\n"
        "from recordmill.transforms.dataset.limits import check_limits\n"
        "hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (20, hard))\n"
        "check_limits(8, 1)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_parent_that_ignores_its_children_is_no_limit() -> None:
    code = (
        "import signal\n"
        "from recordmill.transforms.dataset.limits import check_limits\n"
        "signal.signal(signal.SIGCHLD, signal.SIG_IGN)\n"
        "check_limits(1, 1)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_memory_is_asked_for_64_cores_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr("recordmill.transforms.dataset.limits.check_memory", asked.append)
    check_limits(1, 256)
    assert asked == [800_000_000 + 64 * 64_000_000]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("Traceback\nConnectionError: Resource temporarily unavailable", None),
        ("app.MemoryErrorBudget was spent\nValueError: x", "ValueError: x"),
        (
            "No space left on device\nOSError: [Errno 28] No space left on device: '/tmp/a'",
            "OSError: [Errno 28] No space left on device: '/tmp/a'; free some space, or choose "
            "another --temp_dir",
        ),
        ("a\nMemoryError", "MemoryError; give workers more memory, or use fewer on a machine"),
    ],
)
def test_what_an_engine_lacked_is_told_beside_its_error(text: str, said: str | None) -> None:
    assert one_line(RuntimeError(text)) == (said or text.splitlines()[-1])


def test_json_is_ascii_where_the_output_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(io.BytesIO(), "ascii"))
    text = json_text({"ä\U0001f600": "é"})
    assert text.isascii()
    assert json.loads(text) == {"ä\U0001f600": "é"}
