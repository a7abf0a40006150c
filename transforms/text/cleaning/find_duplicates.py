"""The stages that find duplicates, before scatter reads the documents that are kept."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

from recordmill.transforms.dataset.stages import Done, OnceStage, Phase, Stage
from recordmill.transforms.sources.document_spec import READ_LIMITS, DocumentLimits
from recordmill.transforms.sources.work_item_files import read_work_item
from recordmill.transforms.storage import files
from recordmill.transforms.text.cleaning.duplicates import (
    PART_BYTES,
    DuplicateFiles,
    collect_duplicates,
    compare_part,
    count_parts,
)
from recordmill.transforms.text.cleaning.fingerprinting import Fingerprinter
from recordmill.transforms.text.text_job import TextJob


class SearchCost(NamedTuple):
    """What it took to find duplicates: the bytes of all hashes, and seconds of processor time."""

    hash_bytes: int
    hash_seconds: float
    compare_seconds: float


def find_duplicates(job: TextJob, work_items: int) -> SearchCost:
    """Finds the duplicates of a corpus in this process, one work item after the other.

    It writes the files that the stages write. A job whose documents are not compared costs
    nothing.

    Raises:
      RunError: a file of hashes is missing or damaged.
    """
    if not job.clean.deduplicates:
        return SearchCost(0, 0.0, 0.0)
    began = time.process_time()
    fingerprinter = Fingerprinter(job)
    for item in range(work_items):
        fingerprinter.run(item)
    hashed = time.process_time()
    for part in range(count_parts(job, work_items, PART_BYTES)):
        compare_part(job, work_items, part)
    collect_duplicates(job)
    compared = time.process_time()
    size = sum(files.list_files(DuplicateFiles(job).fingerprints_folder).values())
    return SearchCost(size, hashed - began, compared - hashed)


class Fingerprint(Stage[TextJob]):
    """Writes the hashes of the documents of each work item to files, sorted.

    Memory: 32 MiB of hashes and a block of text.
    """

    name = "Fingerprint"

    def __init__(
        self,
        job: TextJob,
        work_items: int,
        limits: DocumentLimits = READ_LIMITS,
        input_bytes: int = 0,
    ) -> None:
        super().__init__(job)
        self._work_items = work_items
        self._limits = limits
        self._input_bytes = input_bytes

    @cached_property
    def _fingerprinter(self) -> Fingerprinter:
        return Fingerprinter(self.job, self._limits)

    def items(self) -> int:
        """Returns the number of work items."""
        return self._work_items

    def do(self, item: int) -> Done:
        """Hashes the documents of a work item."""
        self._fingerprinter.run(item)
        return Done()

    def describe(self, item: int) -> str:
        """Returns the name of its first file."""
        return read_work_item(self.job.workspace.inputs_folder, item)[0].name

    def phases(self) -> Iterator[Phase]:
        """Yields the work items that are described."""
        done = files.count(DuplicateFiles(self.job).fingerprints_folder, ".json")
        yield Phase("fingerprint", done, self._work_items, self._input_bytes)


class Compare(Stage[TextJob]):
    """Compares the documents of a range of hashes at a time, and writes which repeat which.

    Memory: the rows of a range in a few copies, 16 MiB each, more beyond 16 GB of rows.
    """

    name = "Compare"

    def __init__(self, job: TextJob, work_items: int) -> None:
        super().__init__(job)
        self._work_items = work_items

    def items(self) -> int:
        """Returns the number of ranges; it is decided once, and kept."""
        return count_parts(self.job, self._work_items, PART_BYTES)

    def do(self, item: int) -> Done:
        """Compares a range."""
        compare_part(self.job, self._work_items, item)
        return Done()

    def phases(self) -> Iterator[Phase]:
        """Yields the ranges that are described."""
        held = DuplicateFiles(self.job)
        yield Phase("compare", files.count(held.parts_folder, ".json"), held.part_count() or 1)


class CollectDuplicates(OnceStage[TextJob]):
    """Decides which documents are dropped: of those that are alike, the first of the input stays.

    Memory: for near duplicates 16 bytes for each document that is similar to another.
    """

    name = "CollectDuplicates"

    def do(self, item: int) -> Done:
        """Joins the pairs of all ranges."""
        collect_duplicates(self.job)
        return Done()
