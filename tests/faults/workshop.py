"""The jobs that faults are tried on: tiny inputs, made once, and what undisturbed runs write."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from recordmill.records.manifest import RUN_PATHS

from ..conftest import bert_text, make_documents, make_vocabulary
from ..pictures import jpeg
from ..transforms.examples.record_files import example, write_records
from .cases import Shown, hold, is_clean, run_main

_FLAGS = {
    "text": ("--vocab_file={input}/vocab", "--max_seq_length=64", "--max_predictions_per_seq=10",
             "--dupe_factor=1", "--num_shards=2", "--warnings=none"),
    "images": ("--image_size=24x32", "--num_shards=2", "--warnings=none"),
    "examples": ("--num_shards=2", "--warnings=none"),
}  # fmt: skip
_PATTERNS = {"text": "*.txt", "images": "*/*.jpg", "examples": "*.tfrecord"}


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


@dataclass(frozen=True)
class Workshop:
    """A folder with the input of each job, `NAME`, and its dataset, `NAME-ds`."""

    root: Path

    def input(self, job: str) -> Path:
        return self.root / job

    def dataset(self, job: str) -> Path:
        return self.root / f"{job}-ds"

    def arguments(
        self, job: str, output: Path, *more: str, source: Path | None = None
    ) -> list[str]:
        """Returns the command line of a job."""
        folder = source or self.input(job)
        flags = (each.format(input=self.input(job)) for each in _FLAGS[job])
        return [
            job, f"--input={folder}/{_PATTERNS[job]}", f"--output={output}",
            "--direct_num_workers=1", *flags, *more,
        ]  # fmt: skip

    def make(self) -> None:
        """Fills the folder."""
        for job in _FLAGS:
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
        for job in _FLAGS:
            shown = run_main(self.root, self.arguments(job, self.dataset(job)))
            hold(shown.status == 0, f"the undisturbed run of {job}: {shown.text}")

    def finishes(self, job: str, folder: Path, output: Path, *more: str) -> None:
        """Checks that the same command finishes a run that was cut short, to the same bytes."""
        again = run_main(folder, self.arguments(job, output, *more))
        is_clean(again)
        hold(again.status == 0, f"the next run: {again.last_line}")
        self.is_whole(job, output)

    def is_whole(self, job: str, output: Path) -> None:
        """Checks that a dataset is that of the undisturbed run, with nothing stray."""
        hold(shard_bytes(output) == shard_bytes(self.dataset(job)), "other bytes than undisturbed")
        # A kill behind `_SUCCESS` leaves a complete dataset without what a run tells of itself.
        stray = (names(output) ^ names(self.dataset(job))) - set(RUN_PATHS)
        hold(not stray, f"stray or missing files: {sorted(stray)[:5]}")

    def is_there(self, job: str, output: Path) -> None:
        """Checks that nothing of a dataset is missing."""
        hold(shard_bytes(output) == shard_bytes(self.dataset(job)), "other bytes than undisturbed")
        missing = names(self.dataset(job)) - names(output) - set(RUN_PATHS)
        hold(not missing, f"missing files: {sorted(missing)[:5]}")

    def copy(self, job: str, folder: Path) -> Path:
        """Returns a copy of a job's dataset in a folder."""
        shutil.copytree(self.dataset(job), folder / "ds")
        return folder / "ds"


def accounts(folder: Path, shown: Shown, output: Path) -> None:
    """Checks a run on any input: it ends cleanly, and what it calls done is free of defects."""
    is_clean(shown)
    if shown.status == 0 and (output / "_SUCCESS").exists():
        verified = run_main(folder, ["verify", str(output), "--workers=1"])
        is_clean(verified, reports=True)
        hold(verified.status == 0, f"verify finds defects: {verified.last_line}")
