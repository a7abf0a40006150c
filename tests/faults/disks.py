"""Power loss on a real file system: an ext4 of its own in a file, copied while a run writes to it.

What the run has handed to the file system, but not synced, is in the memory of this machine alone:
the copy has the device as it is at one moment, and the file system recovers from its journal when
the copy is mounted. It takes root and loop devices. A device that loses its own cache is not tried.
"""

from __future__ import annotations

import os
import random
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from .cases import Case, UntriedError, hold
from .interruptions import run_shimmed
from .shim import Shim, kill
from .workshop import Workshop

_DISK_BYTES = 24 << 20
_MOST_COPIES = 50
_STEPS = {"text": 25, "images": 20, "examples": 15}  # at which the power fails; 10 of other jobs


def _make_disk(image: Path) -> None:
    try:
        with open(image, "wb") as handle:
            handle.truncate(_DISK_BYTES)
        subprocess.run(["mkfs.ext4", "-q", "-F", image], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise UntriedError("there is no mkfs.ext4") from error


@contextmanager
def mounted(image: Path, folder: Path) -> Iterator[None]:
    """Mounts a file system that is in a file, by a loop device.

    Raises:
      UntriedError: this process may not.
    """
    folder.mkdir(exist_ok=True)
    line = ["mount", "-t", "ext4", "-o", "loop", image, folder]
    try:
        subprocess.run(line, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise UntriedError("a file cannot be mounted as a disk") from error
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


def _copy(image: Path, to: Path) -> None:
    """Copies a device at one moment: two reads of it are the same."""
    before = b""
    for _ in range(_MOST_COPIES):
        data = image.read_bytes()
        if data == before:
            to.write_bytes(data)
            return
        before = data
    raise TimeoutError(f"{image} never stands still")


def _lost_at(workshop: Workshop, job: str, step: int) -> Callable[[Path], None]:
    """The power fails after a step; 0: after exit status 0."""

    def check(folder: Path) -> None:
        image, after, disk = folder / "disk", folder / "after", folder / "mnt"
        output = disk / "out" / "ds"
        _make_disk(image)

        def fail(_: Shim) -> None:
            _copy(image, after)

        def fail_and_kill(shim: Shim) -> None:
            fail(shim)
            kill(shim)

        with mounted(image, disk):
            workshop.prepare(job, output)
            os.sync()  # the user's own folder is older than the run
            shown = run_shimmed(
                workshop, job, folder, output, step, fail_and_kill,
                at_end=None if step else fail,
            )  # fmt: skip
            if not after.exists():
                fail_at = "its end" if not step else f"step {step}"
                hold(step > 0 and shown.status == 0, f"{fail_at} was not reached: {shown.text}")
                return
        with mounted(after, disk):
            if not step:  # exit status 0 is a promise; only what was to be deleted may be there
                workshop.is_there(job, output)
            workshop.finishes(job, folder, output)

    return check


def disks(workshop: Workshop, seed: int, all_steps: dict[str, int]) -> Iterator[Case]:
    """Yields all cases of this module, for jobs of so many steps that change the disk."""
    rng = random.Random(seed)
    for job, steps in all_steps.items():
        for step in [0, *sorted(rng.sample(range(1, steps + 1), _STEPS.get(job, 10)))]:
            check = _lost_at(workshop, job, step)
            yield Case(f"power loss of a mounted disk, {job}", str(step or "done"), check)
