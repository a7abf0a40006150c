"""Kills, full disks, power losses and changing inputs, at each step that changes the disk."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from ..pipelines.full_disk import fill, small_disk
from .cases import Case, Shown, UntriedError, hold, is_clean, run_forked, run_main
from .shim import Shim, kill, lose, lose_power
from .workshop import IN_PLACE, Workshop, accounts

_FULL_DISK_SECONDS = 30


def run_shimmed(
    workshop: Workshop,
    job: str,
    folder: Path,
    output: Path,
    after: int,
    act: Callable[[Shim], None],
    *,
    source: Path | None = None,
    at_end: Callable[[Shim], None] | None = None,
) -> Shown:
    """Runs a job in which something happens after a step."""

    def call() -> int:
        shim = Shim(output.parent, after, act)
        shim.install()
        status = workshop.run(job, output, source=source)
        if at_end:
            at_end(shim)
        (folder / "steps").write_text(str(shim.steps))
        return status

    return run_forked(folder, call)


def count_steps(workshop: Workshop, job: str) -> int:
    """Returns how many steps of an undisturbed run change the disk."""
    folder = workshop.root / f"{job}-steps"
    workshop.prepare(job, folder / "ds")
    shown = run_shimmed(workshop, job, folder, folder / "ds", 0, lambda _: None)
    hold(shown.status == 0, shown.text)
    return int((folder / "steps").read_text())


def _killed(workshop: Workshop, job: str, step: int) -> Callable[[Path], None]:
    def check(folder: Path) -> None:
        output = folder / "out" / "ds"
        workshop.prepare(job, output)
        shown = run_shimmed(workshop, job, folder, output, step, kill)
        hold(shown.status in (0, -signal.SIGKILL), shown.text)
        workshop.finishes(job, folder, output)
        left = [name for name in os.listdir(output.parent) if name != "ds"]
        hold(not left, f"stray beside the output: {left}")

    return check


def _powerless(workshop: Workshop, job: str, step: int, lost: str) -> Callable[[Path], None]:
    def check(folder: Path) -> None:
        output = folder / "out" / "ds"
        workshop.prepare(job, output)
        run_shimmed(workshop, job, folder, output, step, lose_power(lost))
        workshop.finishes(job, folder, output)

    return check


def _powerless_when_done(workshop: Workshop, job: str, lost: str) -> Callable[[Path], None]:
    def check(folder: Path) -> None:
        output = folder / "out" / "ds"
        workshop.prepare(job, output)
        shown = run_shimmed(
            workshop, job, folder, output, 0, kill, at_end=lambda shim: lose(shim, lost)
        )
        hold(shown.status == 0, shown.text)
        workshop.is_whole(job, output)  # exit status 0 is a promise: nothing may be lost

    return check


def _on_a_full_disk(workshop: Workshop, job: str, step: int) -> Callable[[Path], None]:
    def check(folder: Path) -> None:
        with small_disk("8m") as disk:
            if disk is None:
                raise UntriedError("a file system in memory cannot be mounted")
            output = disk / "out" / "ds"
            workshop.prepare(job, output)
            began = time.monotonic()
            shown = run_shimmed(workshop, job, folder, output, step, lambda _: _fill(disk))
            seconds = time.monotonic() - began
            is_clean(shown)
            if shown.status:
                hold("space" in shown.last_line, f"not a word of space: {shown.last_line}")
            hold(seconds < _FULL_DISK_SECONDS, f"it took {seconds:.0f} s")
            _fill_end(disk)
            workshop.finishes(job, folder, output)

    return check


def _fill(disk: Path) -> None:
    # In a process of its own: in this one the shim would count its steps.
    child = os.fork()
    if not child:
        with suppress(BaseException):
            descriptor = os.open(disk / "filler", os.O_WRONLY | os.O_CREAT)
            for size in (1 << 20, 1 << 12, 1):
                with suppress(OSError):
                    while True:
                        os.write(descriptor, b"x" * size)
        os._exit(0)
    os.waitpid(child, 0)


def _fill_end(disk: Path) -> None:
    (disk / "filler").unlink(missing_ok=True)


def _beside_another_writer(workshop: Workshop, job: str, seed: int) -> Callable[[Path], None]:
    """Another process takes all room at a random moment, and all that is given back."""

    def check(folder: Path) -> None:
        with small_disk("8m") as disk:
            if disk is None:
                raise UntriedError("a file system in memory cannot be mounted")
            output = disk / "ds"
            workshop.prepare(job, output)
            process = _started(workshop, job, folder, output)
            time.sleep(random.Random(seed).uniform(1.0, 6.0))
            until = time.monotonic() + 2 * _FULL_DISK_SECONDS
            while process.poll() is None and time.monotonic() < until:
                fill(disk)
                time.sleep(0.05)
            hold(process.poll() is not None, "the run hangs on a full disk")
            is_clean(Shown(process.returncode, (folder / "shown").read_text()))
            _fill_end(disk)
            workshop.finishes(job, folder, output)

    return check


def _started(workshop: Workshop, job: str, folder: Path, output: Path) -> subprocess.Popen[bytes]:
    """Starts a job as a program of its own, which prints to the file `shown` of a folder."""
    with open(folder / "shown", "wb") as shown:
        line = workshop.line(job, output)
        return subprocess.Popen(line, stdout=shown, stderr=shown, cwd=output.parent)


def _killed_at_random(workshop: Workshop, job: str, seed: int) -> Callable[[Path], None]:
    """Kills the program, or a process that it has started."""

    def check(folder: Path) -> None:
        rng = random.Random(f"{job}{seed}")
        output = folder / "ds"
        workshop.prepare(job, output)
        process = _started(workshop, job, folder, output)
        time.sleep(rng.uniform(0.5, 8.0))
        with suppress(psutil.Error):
            others = psutil.Process(process.pid).children(recursive=True)
            victim = rng.choice([psutil.Process(process.pid), *others])
            victim.kill()
        process.wait()
        shown = Shown(process.returncode, (folder / "shown").read_text())
        if shown.status != -signal.SIGKILL:
            is_clean(shown)
            told = "run the same command again" in shown.last_line
            hold(told or not shown.status, f"not a word of what to do: {shown.last_line}")
        workshop.finishes(job, folder, output)

    return check


# The files of which the last one changes meanwhile; a user's pipeline has no input but elements.
_VICTIMS = {"text": "*.txt", "images": "*.jpg", "examples": "*.tfrecord", IN_PLACE: "*.tfrecord-*"}


def _change(path: Path, how: str) -> None:
    if how == "vanishes":
        path.unlink()
    elif how == "is cut":
        os.truncate(path, path.stat().st_size // 2)
    elif how == "grows":
        with open(path, "ab") as handle:
            handle.write(b"one more line\n" * 20)
    else:
        path.write_bytes(path.read_bytes()[::-1])


def _while_the_input_changes(
    workshop: Workshop, job: str, step: int, how: str
) -> Callable[[Path], None]:
    def check(folder: Path) -> None:
        import shutil

        source, output = folder / "in", folder / "out" / "ds"
        shutil.copytree(workshop.input(job), source)
        workshop.prepare(job, output, source)
        victim = sorted((output if job == IN_PLACE else source).rglob(_VICTIMS[job]))[-1]
        late = folder / "late"

        def change(_: Shim) -> None:
            if (output / "_meta" / "manifest.json").exists():
                late.touch()
            _change(victim, how)

        shown = run_shimmed(workshop, job, folder, output, step, change, source=source)
        if job == IN_PLACE and late.exists():  # a part of the dataset, damaged when it was done
            is_clean(shown)
            verified = run_main(folder, ["verify", str(output), "--workers=1"])
            is_clean(verified, reports=True)
            hold(shown.status != 0 or verified.status != 0, "verify finds nothing")
        else:
            accounts(folder, shown, output)
        workshop.keeps(output, but=victim.name)

    return check


@dataclass(frozen=True)
class _Counts:
    """How many cases of a job are tried.

    Attributes:
      killed: steps after which it is killed, at most.
      steps: at which the power fails, and at which the disk is full.
      others: that fill the disk at a random moment.
      kills: at random moments.
      changes: of the input, of each sort.
    """

    killed: int
    steps: int
    others: int
    kills: int
    changes: int


_COUNTS = {
    "text": _Counts(killed=500, steps=30, others=6, kills=100, changes=6),
    "images": _Counts(killed=500, steps=25, others=6, kills=100, changes=6),
    "examples": _Counts(killed=100, steps=20, others=4, kills=30, changes=5),
    IN_PLACE: _Counts(killed=500, steps=20, others=4, kills=40, changes=5),
    "WriteText": _Counts(killed=110, steps=12, others=4, kills=30, changes=0),
    "WriteExamples": _Counts(killed=80, steps=12, others=4, kills=30, changes=0),
}


def interruptions(workshop: Workshop, seed: int, all_steps: dict[str, int]) -> Iterator[Case]:
    """Yields all cases of this module, for jobs of so many steps that change the disk."""
    rng = random.Random(seed)
    for job, steps in all_steps.items():
        counts = _COUNTS[job]
        for step in sorted(rng.sample(range(1, steps + 1), min(counts.killed, steps))):
            yield Case(f"kill after each step, {job}", str(step), _killed(workshop, job, step))
        for step in sorted(rng.sample(range(1, steps + 1), min(counts.steps, steps))):
            for lost in ("contents", "names"):
                check = _powerless(workshop, job, step, lost)
                yield Case(f"power loss, {job}", f"{lost}-{step}", check)
            full = _on_a_full_disk(workshop, job, step)
            yield Case(f"full disk, {job}", str(step), full, 90)
        for lost in ("contents", "names"):
            check = _powerless_when_done(workshop, job, lost)
            yield Case(f"power loss, {job}", f"{lost}-done", check)
        for number in range(counts.others):
            check = _beside_another_writer(workshop, job, seed + number)
            yield Case(f"full disk by another process, {job}", str(number), check, 180)
        for number in range(counts.kills):
            check = _killed_at_random(workshop, job, seed + number)
            yield Case(f"kill at random, {job}", str(number), check, 180)
        for how in ("vanishes", "is cut", "grows", "is replaced"):
            for step in sorted(rng.sample(range(1, steps + 1), counts.changes)):
                changing = _while_the_input_changes(workshop, job, step, how)
                yield Case(f"input changes, {job}", f"{how}-{step}", changing)
