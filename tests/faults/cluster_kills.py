"""Random kills of Flink's task managers, and of launchers of its jobs, on one cluster kept up.

python -m tests.faults.cluster_kills --what=launcher --kills=100 --seed=1
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from ..pipelines.clusters import ENDED, Flink, flink_cluster
from .__main__ import load
from .cases import Case, NotHeldError, Result, Shown, hold, is_clean
from .workshop import Workshop

_SETTINGS = (
    "--set=restart-strategy.fixed-delay.attempts=1000",
    "--set=restart-strategy.fixed-delay.delay=500 ms",
)
_LIMIT_SECONDS = 900.0  # of a busy machine; a run takes 15 of an idle one
_LAUNCH_SHARE = 0.9  # of an undisturbed run's time, in which kills fall


@dataclass
class Cluster:
    """A Flink cluster whose processes may be killed.

    Attributes:
      flink: the cluster.
      undisturbed_seconds: of the job's command.
    """

    flink: Flink
    undisturbed_seconds: float = 0.0

    def await_no_job(self) -> None:
        """Waits until no job runs; a launcher's death does not end its job."""
        until = time.monotonic() + _LIMIT_SECONDS
        while any(job["state"] not in ENDED for job in self.flink.get("/jobs/overview")["jobs"]):
            hold(time.monotonic() < until, "a job of a killed launcher does not end")
            time.sleep(0.3)


def _line(workshop: Workshop, cluster: Cluster, output: Path) -> list[str]:
    arguments = workshop.arguments("text", output, *cluster.flink.flags)
    arguments.remove("--direct_num_workers=1")
    return [sys.executable, "-m", "recordmill.pipelines", *arguments]


def _run(line: list[str], folder: Path) -> Shown:
    with open(folder / "shown", "wb") as shown:
        process = subprocess.run(line, stdout=shown, stderr=shown, timeout=_LIMIT_SECONDS)
    return Shown(process.returncode, (folder / "shown").read_text(errors="replace"))


def _finishes(workshop: Workshop, cluster: Cluster, folder: Path, output: Path) -> None:
    again = _run(_line(workshop, cluster, output), folder)
    is_clean(again)
    hold(again.status == 0, f"the next run: {again.last_line}")
    workshop.is_whole("text", output)


class TooLateError(Exception):
    """The job had ended before something was to be killed."""


def _kill_at_random(
    workshop: Workshop, cluster: Cluster, output: Path, rng: random.Random, victim: Victim
) -> Shown:
    """Runs a job, in which a process is killed at a random moment; returns how it ended."""
    folder = output.parent
    with open(folder / "shown", "wb") as shown:
        process = subprocess.Popen(_line(workshop, cluster, output), stdout=shown, stderr=shown)
    try:
        time.sleep(rng.uniform(0.0, _LAUNCH_SHARE * cluster.undisturbed_seconds))
        if process.poll() is not None:
            raise TooLateError
        os.kill(victim(cluster, process.pid, rng), signal.SIGKILL)
        cluster.flink.await_end(process, _LIMIT_SECONDS, needed=1)
    except subprocess.TimeoutExpired:
        raise NotHeldError(f"it had not ended after {_LIMIT_SECONDS:.0f} s") from None
    finally:
        process.kill()
        process.wait()
    return Shown(process.returncode, (folder / "shown").read_text(errors="replace"))


Victim = Callable[[Cluster, int, random.Random], int]


def _launcher(_: Cluster, process: int, __: random.Random) -> int:
    return process


def _task_manager(cluster: Cluster, _: int, rng: random.Random) -> int:
    """Chooses one that has workers, if any has."""
    pids = sorted(cluster.flink.task_managers())
    working = [pid for pid in pids if psutil.Process(pid).children()]
    return rng.choice(working or pids)


def _check(workshop: Workshop, cluster: Cluster, what: str, seed: int, folder: Path) -> None:
    """Kills once, and checks what is left when the same command has run."""
    output = folder / "ds"
    rng = random.Random(f"{what}{seed}")
    cluster.flink.revive()  # where Flink has ended one since the last kill
    shown = _kill_at_random(workshop, cluster, output, rng, VICTIMS[what])
    if what == "launcher":
        hold(shown.status in (0, -signal.SIGKILL), shown.text[-400:])
        _finishes(workshop, cluster, folder, output)
        cluster.await_no_job()  # what the first job did late must leave nothing stray
        workshop.is_whole("text", output)
        return
    cluster.flink.revive()
    is_clean(shown)
    if shown.status:
        _finishes(workshop, cluster, folder, output)
    workshop.is_whole("text", output)


VICTIMS: dict[str, Victim] = {"launcher": _launcher, "task manager": _task_manager}


def _state(cluster: Cluster) -> str:
    """Returns what the cluster tells of why a job does not end."""
    jobs = cluster.flink.get("/jobs/overview")["jobs"]
    states = [(job["state"], job["tasks"]) for job in jobs if job["state"] not in ENDED]
    living = len(cluster.flink.task_managers())
    return f"{living} task managers, jobs {states}, ended by Flink: {cluster.flink.own_ends()}"


def _clear(cluster: Cluster) -> None:
    """Makes the cluster fit for the next kill, whatever this one has left."""
    cluster.flink.revive()
    cluster.flink.cancel_jobs(_LIMIT_SECONDS)
    cluster.flink.revive()  # where Flink has ended one whose tasks did not stop


def try_kills(
    workshop: Workshop, cluster: Cluster, what: str, seeds: Sequence[int], until: float
) -> Iterator[Result]:
    """Tries kills one after the other; yields those that came before the job's end."""
    for seed in seeds:
        if time.monotonic() > until:
            return
        folder = Path(tempfile.mkdtemp(prefix="kill-", dir=cluster.flink.folder.parent))
        case, began = Case(f"kill of a {what}", str(seed), lambda _: None), time.monotonic()
        outcome, why = "held", ""
        try:
            _check(workshop, cluster, what, seed, folder)
        except TooLateError:
            outcome = "untried"
        except NotHeldError as error:
            outcome, why = "not held", str(error)
        except (OSError, subprocess.SubprocessError, psutil.Error) as error:
            outcome, why = "not held", f"{type(error).__name__}: {error}"
        if outcome == "not held":
            with suppress(OSError, subprocess.SubprocessError):  # there may be no cluster
                why += f"; {_state(cluster)}"
                _clear(cluster)
        if outcome != "not held":
            shutil.rmtree(folder)
        yield Result(case, outcome, why, time.monotonic() - began)


def _measure(workshop: Workshop, cluster: Cluster) -> None:
    """Runs the job twice without a fault; the first run starts what later ones find started."""
    for number in range(2):
        folder = Path(tempfile.mkdtemp(prefix="whole-", dir=cluster.flink.folder.parent))
        began = time.monotonic()
        shown = _run(_line(workshop, cluster, folder / "ds"), folder)
        cluster.undisturbed_seconds = time.monotonic() - began
        hold(shown.status == 0, shown.text[-1000:])
        workshop.is_whole("text", folder / "ds")
        print(f"undisturbed run {number}: {cluster.undisturbed_seconds:.1f} s", flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns 0 if all kills held, else 1."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.cluster_kills")
    parser.add_argument("--what", choices=(*VICTIMS, "both"), default="both")
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=120.0, help="afterwards no kill begins")
    options = parser.parse_args(arguments)
    until = time.monotonic() + options.minutes * 60
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the cluster is stopped
    load()
    status = 0
    with tempfile.TemporaryDirectory(prefix="rm-", ignore_cleanup_errors=True) as name:
        root = Path(name)
        workshop = Workshop(root / "workshop")
        workshop.make()
        with flink_cluster(root / "cluster", *_SETTINGS) as flink:
            cluster = Cluster(flink)
            _measure(workshop, cluster)
            kinds = list(VICTIMS) if options.what == "both" else [options.what]
            seeds = range(options.seed, options.seed + options.kills)
            tries = [try_kills(workshop, cluster, what, seeds, until) for what in kinds]
            counts = {what: dict.fromkeys(("held", "not held", "untried"), 0) for what in kinds}
            while tries:  # in turn, so that a part of them is fair
                each = tries.pop(0)
                result = next(each, None)
                if result is None:
                    continue
                tries.append(each)
                what = result.case.kind.removeprefix("kill of a ")
                counts[what][result.outcome] += 1
                if result.outcome == "not held":
                    status = 1
                    print(f"not held: {result.case.label}: {result.why[:1000]}", flush=True)
                print(f"{result.seconds:5.1f} s  {counts}", flush=True)
    for what, numbers in counts.items():
        print(f"{what}: {numbers['held'] + numbers['not held']} tried, {numbers['held']} held")
    return status


if __name__ == "__main__":
    sys.exit(main())
