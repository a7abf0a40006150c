"""Damage of what recordmill has written: datasets, the state of a cut run, caches."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from recordmill.records.manifest import RUN_PATHS

from .cases import Case, Shown, hold, is_clean, run_forked, run_main
from .interruptions import run_shimmed
from .mutations import mutated, mutated_json
from .shim import kill
from .workshop import IN_PLACE, Workshop, shard_bytes

_DAMAGED_STATES = {"text": 150, "images": 150, "examples": 100, IN_PLACE: 60}  # 20 of others
_WRITTEN = ("text", "images")
_DATASET_FILES = {
    "damaged shards": (_WRITTEN, "train/*.tfrecords", 90),
    "damaged manifests": (_WRITTEN, "_meta/manifest.json", 100),
    "damaged indexes": (_WRITTEN, "_meta/index/train/*.idx", 40),
    "damaged metadata": (_WRITTEN, "*.json", 40),
    "damaged _SUCCESS": (_WRITTEN, "_SUCCESS", 20),
    "damaged metadata in place": ((IN_PLACE,), "_meta/**/*.*", 40),
    "damaged manifests in place": ((IN_PLACE,), "_meta/manifest.json", 40),
    "damaged shards in place": ((IN_PLACE,), "*.tfrecord-*", 20),
}


def read_all(output: Path) -> int:
    """Reads every record, as a user's program does; what a library may raise is no defect."""
    from recordmill.reader import RecordTable
    from recordmill.records.errors import RunError, UsageError

    try:
        table = RecordTable(output, "train")
        for _ in table:
            pass
    except (RunError, UsageError) as error:
        print(f"recordmill: {' '.join(str(error).split())}")
        return 1
    return 0


def _damaged(workshop: Workshop, kind: str, seed: int) -> Callable[[Path], None]:
    def check(folder: Path) -> None:
        rng = random.Random(f"{kind}{seed}")
        jobs, pattern, _ = _DATASET_FILES[kind]
        job = rng.choice(jobs)
        output = workshop.copy(job, folder)
        runs = {output / name for name in RUN_PATHS}  # of a run, not of its result
        path = rng.choice(sorted(p for p in output.glob(pattern) if p.is_file() and p not in runs))
        before = path.read_bytes()
        if path.name == "manifest.json" and seed % 3:
            after = mutated_json(json.loads(before), rng)
            if seed % 3 == 2:  # as who edits it does: with the right checksum in _SUCCESS
                from recordmill.records.manifest import success_bytes

                (output / "_SUCCESS").write_bytes(success_bytes(after))
        else:
            after = mutated(before, rng)
        path.write_bytes(after)
        workshop.keep(job, output)
        if path.suffix == ".json" and _same_json(before, after):
            return
        if before == after:
            return
        shown = run_main(folder, ["verify", str(output), "--workers=1"])
        is_clean(shown, reports=True)
        hold(shown.status != 0 or seed % 3 == 2, "verify finds nothing")
        is_clean(run_forked(folder, lambda: read_all(output)))
        overwritten = run_forked(folder, lambda: workshop.run(job, output, "--overwrite"))
        is_clean(overwritten)
        workshop.keeps(output)
        is_input = path.name in workshop.kept.get(output, {})
        is_ours = job == IN_PLACE and not is_input and path.name != "manifest.json"
        hold(not is_ours or overwritten.status == 0, overwritten.last_line)
        if overwritten.status == 0 and not is_input:
            workshop.is_there(job, output)
        outside = sorted(set(os.listdir(folder)) - {"ds", "t"})
        hold(not outside, f"files outside of the output: {outside}")

    return check


def _same_json(before: bytes, after: bytes) -> bool:
    try:
        return bool(json.loads(before) == json.loads(after))
    except (ValueError, RecursionError):
        return False


def _damaged_state(workshop: Workshop, job: str, step: int, seed: int) -> Callable[[Path], None]:
    def check(folder: Path) -> None:
        rng = random.Random(f"state{job}{seed}")
        output = folder / "out" / "ds"
        workshop.prepare(job, output)
        run_shimmed(workshop, job, folder, output, step, kill)
        state = sorted(p for p in output.rglob("*") if p.is_file() and not p.is_symlink())
        before = workshop.kept.get(output, {})
        state = [path for path in state if str(path.relative_to(output)) not in before]
        if not state:
            return
        path = rng.choice(state)
        data = path.read_bytes()
        digits = [at for at, byte in enumerate(data) if byte in b"0123456789"]
        if path.suffix == ".json" and digits and seed % 4 == 0:
            at = rng.choice(digits)
            path.write_bytes(
                data[:at] + rng.choice(b"123456789").to_bytes(1, "big") + data[at + 1 :]
            )
        elif path.suffix == ".json" and seed % 2:
            try:
                path.write_bytes(mutated_json(json.loads(path.read_bytes()), rng))
            except (ValueError, IndexError):
                path.write_bytes(b"[]")
        else:
            path.write_bytes(mutated(path.read_bytes(), rng) if seed % 3 else b"")
        was_done = (output / "_SUCCESS").exists()
        victim = folder / "victim.txt"
        victim.write_text("of the user")
        again = run_forked(folder, lambda: workshop.run(job, output))
        is_clean(again)
        workshop.keeps(output)
        if again.status == 0:
            same = shard_bytes(output) == shard_bytes(workshop.dataset(job))
            # A finished dataset is not read again: a flipped bit in it is what `verify` is for.
            hold(same or was_done, "other bytes than undisturbed")
            verified = run_main(folder, ["verify", str(output), "--workers=1"])
            is_clean(verified, reports=True)
            hold(same or verified.status != 0, "other bytes, and verify finds nothing")
            hold(was_done or verified.status == 0, f"verify: {verified.text}")
        else:
            over = run_forked(folder, lambda: workshop.run(job, output, "--overwrite"))
            is_clean(over)
            _, advice, others = over.last_line.partition("; finish that, or delete this folder")
            if job == IN_PLACE and advice:  # by its marker of a command that replaces shards
                shutil.rmtree(output / "_tmp")
                if "/_meta" in others:
                    shutil.rmtree(output / "_meta")
                if "/_SUCCESS" in others:
                    (output / "_SUCCESS").unlink()
                workshop.keeps(output)
                over = run_forked(folder, lambda: workshop.run(job, output, "--overwrite"))
            hold(over.status == 0, f"--overwrite does not work: {over.last_line}")
            workshop.is_whole(job, output)
        hold(victim.exists(), "a file outside of the output is gone")

    return check


def _damaged_kernels(workshop: Workshop, seed: int) -> Callable[[Path], None]:
    """A cut or empty file in the cache of compiled kernels: they are compiled again."""

    def check(folder: Path) -> None:
        rng = random.Random(f"kernels{seed}")
        home = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
        cached = folder / "cache"
        if (home / "recordmill").is_dir():
            shutil.copytree(home / "recordmill", cached / "recordmill")
        stored = sorted(p for p in cached.rglob("*.nb*") if p.is_file())
        for path in rng.sample(stored, min(2, len(stored))):
            path.write_bytes(b"" if seed % 2 else path.read_bytes()[: path.stat().st_size // 2])
        line = workshop.arguments("text", folder / "ds")
        shown = subprocess.run(
            [sys.executable, "-m", "recordmill.pipelines", *line],
            env={**os.environ, "XDG_CACHE_HOME": str(cached)},
            capture_output=True,
            text=True,
        )
        is_clean(Shown(shown.returncode, shown.stderr))
        hold(shown.returncode == 0, shown.stderr)
        workshop.is_whole("text", folder / "ds")

    return check


def stored(workshop: Workshop, seed: int, steps: dict[str, int]) -> Iterator[Case]:
    """Yields all cases of this module.

    Args:
      workshop: made.
      seed: of every draw.
      steps: how many steps of each job change the disk.
    """
    for kind, (_, _, count) in _DATASET_FILES.items():
        for n in range(count):
            yield Case(kind, str(n), _damaged(workshop, kind, seed + n))
    rng = random.Random(seed)
    for job, most in steps.items():
        for n in range(_DAMAGED_STATES.get(job, 20)):
            check = _damaged_state(workshop, job, rng.randint(1, most), seed + n)
            yield Case("damaged state of a run", f"{job}-{n}", check)
    for n in range(4):
        yield Case("damaged cache of kernels", str(n), _damaged_kernels(workshop, seed + n), 300)
