"""A case is a fault that is tried in a process and a folder of its own, under a time limit."""

from __future__ import annotations

import json
import os
import re
import resource
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_MOST_BYTES = 2_000_000_000  # of memory, for each process
_SHOWN_CHARACTERS = 400
_POLL_SECONDS = 0.5
# Of errors that nobody expected: no file, no position, no field.
_PYTHONS_WORDS = re.compile(
    r"not supported between|object is not|object cannot be|has no attribute|unhashable|NoneType|"
    r"index out of range|invalid literal for|unsupported operand|__init__\(\)|"
    r"indices must be|must be str, not|positional argument|cannot convert float|too large to conv"
)


class NotHeldError(AssertionError):
    """A promise was broken."""


class UntriedError(Exception):
    """This machine cannot try it: there is no root, no second user, …."""


@dataclass(frozen=True)
class Case:
    """One fault.

    Attributes:
      kind: the line of the table that it is counted in.
      name: with the kind, what `--only` finds it by.
      check: tries it in an empty folder; raises NotHeldError or UntriedError.
      limit_seconds: the longest that it may take.
    """

    kind: str
    name: str
    check: Callable[[Path], None]
    limit_seconds: float = 120.0  # of a busy machine; few take more than 10

    @property
    def label(self) -> str:
        return f"{self.kind}/{self.name}"


@dataclass(frozen=True)
class Result:
    """What became of a case: "held", "not held" or "untried", and why."""

    case: Case
    outcome: str
    why: str
    seconds: float


@dataclass(frozen=True)
class Shown:
    """What a command printed, and its exit status (negative: the signal)."""

    status: int
    text: str

    @property
    def last_line(self) -> str:
        return self.text.splitlines()[-1] if self.text.strip() else ""


def hold(is_held: bool, why: str) -> None:
    """Raises NotHeldError if a promise is broken."""
    if not is_held:
        raise NotHeldError(why)


def _redirect(path: Path) -> None:
    out = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    os.dup2(out, 1)
    os.dup2(out, 2)
    os.close(out)


def run_forked(folder: Path, call: Callable[[], int]) -> Shown:
    """Calls a function in a fork of this process, which has loaded all that it needs."""
    shown = folder / f"shown-{time.monotonic_ns()}"
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if not child:
        status = 70
        try:
            _redirect(shown)
            status = call()
        except BaseException as error:
            import traceback

            traceback.print_exception(error)
        with suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)
    _, status = os.waitpid(child, 0)
    text = shown.read_text(encoding="utf-8", errors="replace")
    shown.unlink()
    return Shown(os.waitstatus_to_exitcode(status), text)


def run_main(folder: Path, arguments: list[str]) -> Shown:
    """Runs a command of `recordmill` in a fork of this process."""
    from recordmill.pipelines.command_line import main

    return run_forked(folder, lambda: main(arguments))


def is_clean(shown: Shown, *, reports: bool = False) -> None:
    """Checks how a command may end: done, or with one line of ours that says why not.

    Args:
      shown: how it ended.
      reports: it may also end with a report of more lines, as `verify` does.
    """
    tail = shown.text[-_SHOWN_CHARACTERS:]
    hold("Traceback (most recent call last)" not in shown.text, f"a traceback: {tail}")
    hold(shown.status in (0, 1, 2), f"exit status {shown.status}: {tail}")
    raw = _PYTHONS_WORDS.search(shown.text)
    hold(not (shown.status and raw), f"Python's words, which tell a user nothing: {tail}")
    if shown.status and not (reports and shown.text.strip()):
        ours = shown.last_line.startswith("recordmill: ") and len(shown.last_line) < 4000
        hold(ours, f"no line of ours at the end: {tail}")


def _report(case: Case, folder: Path, pipe: int) -> None:
    os.setsid()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    temporary = folder / "t"
    temporary.mkdir(parents=True)
    os.environ["TMPDIR"] = tempfile.tempdir = str(temporary)
    os.chdir(folder)
    try:
        case.check(folder)
        answer = ["held", ""]
    except NotHeldError as error:
        answer = ["not held", str(error)]
    except UntriedError as error:
        answer = ["untried", str(error)]
    except BaseException as error:  # the harness itself: never counted as held
        answer = ["not held", f"{type(error).__name__}: {error}"]
    os.write(pipe, json.dumps(answer).encode()[:60_000])


class _Running:
    """A case in its process."""

    def __init__(self, case: Case, folder: Path) -> None:
        self.case, self.began = case, time.monotonic()
        self.pipe, end = os.pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        self.process = os.fork()
        if not self.process:
            os.close(self.pipe)
            with suppress(BaseException):
                _report(case, folder, end)
            os._exit(0)
        os.close(end)

    @property
    def is_late(self) -> bool:
        return time.monotonic() - self.began > self.case.limit_seconds

    def end(self) -> Result:
        """Ends the process and all that it has started, and returns what it said."""
        late = self.is_late
        if late:
            self._kill_all()
        said = b""
        while block := os.read(self.pipe, 1 << 16):
            said += block
        os.close(self.pipe)
        _, status, usage = os.wait4(self.process, 0)
        self._kill_all()
        seconds = time.monotonic() - self.began
        if late:
            why = f"took longer than {self.case.limit_seconds:.0f} s"
            return Result(self.case, "not held", why, seconds)
        if not said:
            why = f"its process died ({os.waitstatus_to_exitcode(status)})"
            return Result(self.case, "not held", why, seconds)
        outcome, why = json.loads(said)
        if outcome == "held" and usage.ru_maxrss * 1024 > _MOST_BYTES:
            outcome, why = "not held", f"took {usage.ru_maxrss / 1e6:.1f} GB of memory"
        return Result(self.case, outcome, why, seconds)

    def _kill_all(self) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process, signal.SIGKILL)


def try_cases(
    cases: Iterable[Case], root: Path, *, processes: int, until: float
) -> Iterator[Result]:
    """Tries cases, some at once; yields each result when it is there.

    Args:
      cases: in their order.
      root: a folder for theirs; a folder stays if its case did not hold.
      processes: how many at once.
      until: on the clock `time.monotonic`: afterwards no case begins.
    """
    waiting = iter(enumerate(cases))
    running: dict[int, tuple[_Running, Path]] = {}
    more = True
    while more or running:
        while more and len(running) < processes and time.monotonic() < until:
            number, case = next(waiting, (0, None))
            if case is None:
                more = False
                break
            folder = root / str(number)
            folder.mkdir(parents=True)
            each = _Running(case, folder)
            running[each.pipe] = each, folder
        if time.monotonic() >= until:
            more = False
        ready, _, _ = select.select(list(running), [], [], _POLL_SECONDS)
        for pipe in list(running):
            each, folder = running[pipe]
            if pipe in ready or each.is_late:
                del running[pipe]
                result = each.end()
                _unmount_below(folder)
                if result.outcome != "not held":
                    remove_tree(folder)
                yield result


def _unmount_below(folder: Path) -> None:
    """Unmounts the disks that a case left which was ended."""
    with suppress(OSError):
        for line in Path("/proc/mounts").read_text().splitlines():
            if line.split()[1].startswith(f"{folder.resolve()}/"):
                subprocess.run(["umount", "--lazy", line.split()[1]], capture_output=True)


def remove_tree(folder: Path) -> None:
    """Removes a folder, also where its modes do not allow it."""
    import shutil

    def allow(function: Callable[..., Any], path: str, _: object) -> None:
        with suppress(OSError):
            os.chmod(os.path.dirname(path), 0o700)
            function(path)

    shutil.rmtree(folder, onerror=allow)
