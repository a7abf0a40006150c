"""The harness itself: planted faults are reported, and a small choice of its cases holds."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from .__main__ import chosen, report, table
from .cases import Case, NotHeldError, Result, Shown, UntriedError, is_clean, try_cases
from .workshop import IN_PLACE, Workshop


def _holds(_: Path) -> None:
    pass


def _breaks(_: Path) -> None:
    raise NotHeldError("the promise")


def _is_wrong(_: Path) -> None:
    raise KeyError("of the harness")


def _hangs(folder: Path) -> None:
    child = subprocess.Popen(["sleep", "600"])
    (folder.parent / "child").write_text(str(child.pid))
    time.sleep(600)


def _crashes(_: Path) -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


def _exits(_: Path) -> None:
    os._exit(0)


def _takes_memory(_: Path) -> None:
    block = bytearray(2_200_000_000)
    block[:: 1 << 12] = b"x" * len(block[:: 1 << 12])


def _cannot(_: Path) -> None:
    raise UntriedError("no second user")


def _try(folder: Path, *checks: object) -> list[Result]:
    cases = [Case("planted", check.__name__, check, 2.0) for check in checks]  # type: ignore[attr-defined, arg-type]
    results = list(try_cases(cases, folder, processes=1, until=time.monotonic() + 60))
    assert [result.case for result in results] == cases
    return results


def test_planted_faults_are_not_held(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    results = _try(tmp_path, _holds, _breaks, _is_wrong, _hangs, _crashes, _exits, _cannot)
    assert [(r.outcome, r.why) for r in results] == [
        ("held", ""),
        ("not held", "the promise"),
        ("not held", "KeyError: 'of the harness'"),
        ("not held", "took longer than 2 s"),
        ("not held", "its process died (-11)"),
        ("not held", "its process died (0)"),
        ("untried", "no second user"),
    ]
    child = int((tmp_path / "child").read_text())
    assert not psutil.pid_exists(child) or psutil.Process(child).status() == "zombie"
    assert report(results, 3) == 1
    shown = capsys.readouterr().out
    assert "NOT HELD  --only='planted/_breaks'\n    the promise" in shown
    assert "3 cases were left" in shown
    assert table(results)[1].split() == ["planted", "6", "1", "2"]
    assert report(results[:1], 0) == 0
    assert report([], 0) == 1  # nothing tried is nothing shown


def test_memory_has_a_limit(tmp_path: Path) -> None:
    cases = [Case("planted", "memory", _takes_memory, 60.0)]
    (result,) = try_cases(cases, tmp_path, processes=1, until=time.monotonic() + 60)
    assert result.outcome == "not held"
    assert re.fullmatch(r"took \d+\.\d GB of memory", result.why)


def test_no_case_begins_when_the_time_is_over(tmp_path: Path) -> None:
    cases = [Case("planted", "x", _holds)]
    assert list(try_cases(cases, tmp_path, processes=1, until=time.monotonic())) == []


def test_only() -> None:
    cases = [
        Case("a kind", "1", _holds),
        Case("a kind", "12", _holds),
        Case("another", "1", _holds),
    ]
    assert chosen(cases, ["a kind/1"], None) == cases[:1]
    assert chosen(cases, ["a kind"], None) == cases[:2]
    assert chosen(cases, [], 1) == cases[:1]


@pytest.mark.parametrize(
    "shown",
    [
        Shown(1, "Traceback (most recent call last)\n  x\nrecordmill: why\n"),
        Shown(0, "Traceback (most recent call last)\n"),
        Shown(1, "killed\n"),
        Shown(1, ""),
        Shown(3, "recordmill: why\n"),
        Shown(1, "recordmill: '<' not supported between instances of 'str' and 'int'\n"),
        Shown(-9, ""),
    ],
)
def test_unclean_ends(shown: Shown) -> None:
    with pytest.raises(NotHeldError):
        is_clean(shown)


def test_a_power_loss_takes_what_was_not_synced(tmp_path: Path) -> None:
    # A process of its own: the shim replaces functions of Python.
    program = f"""
import os, sys
sys.path.insert(0, {str(Path(__file__).parents[2])!r})
from pathlib import Path
from tests.faults.shim import Shim, lose
root = Path({str(tmp_path)!r})
(root / "before").write_bytes(b"the command")
shim = Shim(root, 0, lambda _: None)
shim.install()
for name in ("synced", "not", "late"):
    with open(root / name, "wb") as handle:
        handle.write(b"content")
        handle.flush()
        if name != "not":
            os.fsync(handle.fileno())
        if name == "late":
            handle.write(b", and more")
folder = os.open(root, os.O_RDONLY)
os.fsync(folder)
os.rename(root / "synced", root / "renamed")
print(shim.steps)
lose(shim, sys.argv[1])
"""
    for lost, left in [
        ("contents", {"renamed": b"content", "not": b"", "late": b"", "before": b"the command"}),
        ("names", {"not": b"", "late": b"", "before": b"the command"}),
    ]:
        line = [sys.executable, "-c", program, lost]
        shown = subprocess.run(line, check=True, capture_output=True, text=True)
        assert int(shown.stdout) >= 10
        assert {p.name: p.read_bytes() for p in tmp_path.iterdir() if p.name in left} == (
            left
            if lost == "contents"
            else {"not": b"content", "late": b"content, and more", "before": b"the command"}
        )
        assert (tmp_path / "renamed").exists() == (lost == "contents")


def _touch(path: Path) -> None:
    os.utime(path, (1, 1))


def _write_anew(path: Path) -> None:
    status = path.stat()
    copy = path.with_name("copy")
    copy.write_bytes(path.read_bytes())
    copy.replace(path)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


@pytest.mark.parametrize("act", [_touch, _write_anew, Path.unlink])
def test_what_another_tool_wrote_must_stay(tmp_path: Path, act: Callable[[Path], None]) -> None:
    workshop = Workshop(tmp_path)
    workshop.input(IN_PLACE).mkdir()
    for name in "ab":
        (workshop.input(IN_PLACE) / name).write_text("of another tool")
    output = tmp_path / "case" / "ds"
    workshop.prepare(IN_PLACE, output)
    (output / "_SUCCESS").write_text("ours")
    workshop.keeps(output)
    act(output / "b")
    with pytest.raises(NotHeldError, match="b of another tool is not as it was"):
        workshop.keeps(output)
    workshop.keeps(output, but="b")


@pytest.mark.slow
def test_a_run_that_syncs_nothing_loses_its_dataset_on_a_mounted_disk() -> None:
    program = (
        "import os, sys\n"
        "os.fsync = os.fdatasync = lambda _: None\n"
        "from tests.faults.__main__ import main\n"
        "sys.exit(main(['--only=power loss of a mounted disk, text/done', '--processes=1']))\n"
    )
    root = Path(__file__).parents[2]
    line = [sys.executable, "-c", program]
    shown = subprocess.run(line, cwd=root, capture_output=True, text=True, timeout=300).stdout
    if "not tried: " in shown:
        pytest.skip(shown.splitlines()[0])
    assert "NOT HELD" in shown
    assert re.search("other bytes than undisturbed|missing files", shown)


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind",
    [
        "kill after each step, text",
        "kill after each step, images",
        "kill after each step, in place",
        "kill after each step, WriteText",
        "full disk, WriteExamples",
        "power loss, text",
        "power loss of a mounted disk",
        "full disk, text",
        "fuzzed JSON lines",
        "fuzzed images",
        "fuzzed COCO JSON",
        "damaged shards",
        "damaged manifests",
        "odd files",
        "damaged state",
        "damaged metadata in place",
        "a second user",
    ],
)
def test_a_small_choice_holds(kind: str) -> None:
    line = [sys.executable, "-m", "tests.faults", f"--only={kind}", "--most=2", "--processes=1"]
    root = Path(__file__).parents[2]
    shown = subprocess.run(line, cwd=root, capture_output=True, text=True, timeout=500)
    assert shown.returncode == 0, shown.stdout + shown.stderr
