"""The jobs that faults are tried on: tiny inputs, made once, and what undisturbed runs write.

Three are commands that write a dataset, one is the command that makes metadata of shards which stay
where they are, and two are pipelines of users' own (`user_programs.py`).
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from recordmill.records.manifest import RUN_PATHS

from ..conftest import bert_text, make_documents, make_vocabulary
from ..pictures import jpeg
from ..transforms.examples.record_files import example, write_records
from . import user_programs
from .cases import Shown, hold, is_clean, run_forked, run_main

COMMANDS = ("text", "images", "examples")  # that write a dataset
IN_PLACE = "in place"  # metadata of shards that another tool wrote
JOBS = (*COMMANDS, IN_PLACE, *user_programs.TRANSFORMS)

_ROOT = Path(__file__).parents[2]
_FLAGS = {
    "text": ("--vocab_file={input}/vocab", "--max_seq_length=64", "--max_predictions_per_seq=10",
             "--dupe_factor=1", "--num_shards=2", "--warnings=none"),
    "images": ("--image_size=24x32", "--num_shards=2", "--warnings=none"),
    "examples": ("--num_shards=2", "--warnings=none"),
    IN_PLACE: ("--in_place_metadata", "--warnings=none"),
}  # fmt: skip
_PATTERNS = {"text": "*.txt", "images": "*/*.jpg", "examples": "*.tfrecord"}
_STARTED = "import sys; sys.path.insert(0, sys.argv.pop(1)); from tests.faults import user_programs"

Files = Mapping[str, tuple[bytes, int, int]]


def shard_bytes(output: Path) -> dict[str, bytes]:
    """Returns name -> content of all shards."""
    found = sorted(output.glob("*/*.tfrecords"))
    return {str(path.relative_to(output)): path.read_bytes() for path in found}


def names(output: Path) -> set[str]:
    """Returns the names of all files and folders below a folder."""
    return {
        os.path.relpath(os.path.join(folder, name), output)
        for folder, folders, files in os.walk(output)
        for name in (*folders, *files)
    }


def _contents(output: Path) -> dict[str, bytes]:
    """Returns name -> content of all files that a job decides."""
    found = (path for path in sorted(output.rglob("*")) if path.is_file())
    contents = {str(path.relative_to(output)): path.read_bytes() for path in found}
    return {name: content for name, content in contents.items() if name not in RUN_PATHS}


def _state(output: Path) -> Files:
    """Returns name -> content, time of the last change and inode of all files."""
    found = (path for path in sorted(output.rglob("*")) if path.is_file())
    return {
        str(path.relative_to(output)): (
            path.read_bytes(), path.stat().st_mtime_ns, path.stat().st_ino
        )
        for path in found
    }  # fmt: skip


@dataclass(frozen=True)
class Workshop:
    """A folder with the input of each job, `NAME`, and its dataset, `NAME-ds/ds`.

    Attributes:
      root: the folder.
      kept: output -> what lay there before its job, and must stay as it is.
    """

    root: Path
    kept: dict[Path, Files] = field(default_factory=dict)

    def input(self, job: str) -> Path:
        return self.root / ("text" if job in user_programs.TRANSFORMS else job)

    def dataset(self, job: str) -> Path:
        return self.root / f"{job}-ds" / "ds"

    def prepare(self, job: str, output: Path, source: Path | None = None) -> None:
        """Makes the folder that an output is in, and what lies at the output before the job."""
        output.parent.mkdir(parents=True, exist_ok=True)
        if job == IN_PLACE:
            shutil.copytree(source or self.input(job), output)
            self.keep(job, output)

    def keep(self, job: str, output: Path) -> None:
        """Remembers how what was at an output before its job is now."""
        if job == IN_PLACE:
            before = {path.name for path in self.input(job).iterdir()}
            self.kept[output] = {n: each for n, each in _state(output).items() if n in before}

    def arguments(
        self, job: str, output: Path, *more: str, source: Path | None = None
    ) -> list[str]:
        """Returns the command line of a job that is a command; it runs beside its output."""
        flags = (each.format(input=self.input(job)) for each in _FLAGS[job])
        if job == IN_PLACE:  # relative: the pattern is part of the metadata
            places = ["examples", f"--input={output.name}/*.tfrecord-*"]
        else:
            folder = source or self.input(job)
            places = [job, f"--input={folder}/{_PATTERNS[job]}", f"--output={output}"]
        return [*places, "--direct_num_workers=1", *flags, *more]

    def run(self, job: str, output: Path, *more: str, source: Path | None = None) -> int:
        """Runs a job in this process; returns its exit status."""
        os.chdir(output.parent)
        if job in user_programs.TRANSFORMS:
            return user_programs.run(
                job, source or self.input(job), output, overwrite="--overwrite" in more
            )
        from recordmill.pipelines.command_line import main

        return main(self.arguments(job, output, *more, source=source))

    def line(self, job: str, output: Path) -> list[str]:
        """Returns what starts a job as a program beside its output; a command has two workers."""
        if job in user_programs.TRANSFORMS:
            started = f"{_STARTED}; sys.exit(user_programs.main(*sys.argv[1:]))"
            return [
                sys.executable, "-c", started, str(_ROOT), job, str(self.input(job)), str(output)
            ]  # fmt: skip
        line = self.arguments(job, output)
        line[line.index("--direct_num_workers=1")] = "--direct_num_workers=2"
        return [sys.executable, "-m", "recordmill.pipelines", *line]

    def make(self) -> None:
        """Fills the folder."""
        for job in (*COMMANDS, IN_PLACE):
            self.input(job).mkdir(parents=True)
        vocabulary = "\n".join(make_vocabulary()) + "\n"
        (self.input("text") / "vocab").write_text(vocabulary, encoding="utf-8")
        for i in range(2):
            text = bert_text(make_documents(12, seed=i))
            (self.input("text") / f"{i}.txt").write_text(text, encoding="utf-8")
        for i in range(8):
            path = self.input("images") / "ab"[i % 2] / f"{i}.jpg"
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(jpeg(40 + i, 32, seed=i))
        for i in range(2):
            records = [example(id=i, text="word " * number) for number in range(30)]
            write_records(self.input("examples") / f"{i}.tfrecord", records)
            write_records(self.input(IN_PLACE) / f"train.tfrecord-{i:05d}-of-00002", records)
        # Of another tool too: a file that TFDS reads, and one that is nothing to us.
        (self.input(IN_PLACE) / "dataset_info.json").write_text('{"name": "old"}')
        (self.input(IN_PLACE) / "LICENSE").write_text("of the author")
        for job in JOBS:
            self.prepare(job, self.dataset(job))
            shown = run_forked(self.root, lambda job=job: self.run(job, self.dataset(job)))
            hold(shown.status == 0, f"the undisturbed run of {job}: {shown.text}")

    def finishes(self, job: str, folder: Path, output: Path, *more: str) -> None:
        """Checks that the same command finishes a run that was cut short, to the same bytes.

        A user's own pipeline begins anew, and is refused where the other was cut short behind the
        end of its dataset; with `overwrite` it then removes what is left.
        """
        again = run_forked(folder, lambda: self.run(job, output, *more))
        is_clean(again)
        if job in user_programs.TRANSFORMS and "holds a dataset" in again.last_line:
            self.is_there(job, output)
            again = run_forked(folder, lambda: self.run(job, output, "--overwrite"))
            is_clean(again)
        hold(again.status == 0, f"the next run: {again.last_line}")
        self.is_whole(job, output)

    def is_whole(self, job: str, output: Path) -> None:
        """Checks that a dataset is that of the undisturbed run, with nothing stray."""
        # A kill behind `_SUCCESS` leaves a complete dataset without what a run tells of itself.
        stray = (names(output) ^ names(self.dataset(job))) - set(RUN_PATHS)
        hold(not stray, f"stray or missing files: {sorted(stray)[:5]}")
        self.is_there(job, output)

    def is_there(self, job: str, output: Path) -> None:
        """Checks that nothing of a dataset is missing, and nothing of its files is other."""
        expected, found = _contents(self.dataset(job)), _contents(output)
        missing = sorted(set(expected) - set(found))
        hold(not missing, f"missing files: {missing[:5]}")
        other = [name for name, content in expected.items() if found[name] != content]
        hold(not other, f"other bytes than undisturbed: {other[:5]}")
        self.keeps(output)

    def keeps(self, output: Path, *, but: str = "") -> None:
        """Checks that what lay at an output before its job is as it was, one file excepted."""
        now = _state(output)
        for name, state in self.kept.get(output, {}).items():
            hold(name == but or now.get(name) == state, f"{name} of another tool is not as it was")

    def copy(self, job: str, folder: Path) -> Path:
        """Returns a copy of a job's dataset in a folder."""
        output = folder / "ds"
        shutil.copytree(self.dataset(job), output)
        self.keep(job, output)
        return output


def accounts(folder: Path, shown: Shown, output: Path) -> None:
    """Checks a run on any input: it ends cleanly, and what it calls done is free of defects."""
    is_clean(shown)
    if shown.status == 0 and (output / "_SUCCESS").exists():
        verified = run_main(folder, ["verify", str(output), "--workers=1"])
        is_clean(verified, reports=True)
        hold(verified.status == 0, f"verify finds defects: {verified.last_line}")
