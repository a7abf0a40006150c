"""The stages that find duplicates, before scatter reads the documents that are kept."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import NamedTuple

import apache_beam as beam

from recordmill.transforms.dataset.run_task import RunTask
from recordmill.transforms.sources.document_spec import READ_LIMITS, DocumentLimits
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

    It writes the files that `FindDuplicates` writes. A job whose documents are not compared costs
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


class _FingerprintDoFn(RunTask[TextJob]):
    def __init__(self, job: TextJob, limits: DocumentLimits) -> None:
        super().__init__(job)
        self._limits = limits
        self._fingerprinter: Fingerprinter | None = None

    def work(self, item: int) -> Iterator[int]:
        if self._fingerprinter is None:
            self._fingerprinter = Fingerprinter(self._job, self._limits)
        self._fingerprinter.run(item)
        yield item


class _ListPartsDoFn(RunTask[TextJob]):
    def __init__(self, job: TextJob, work_items: int) -> None:
        super().__init__(job)
        self._work_items = work_items

    def work(self, finished: int) -> Iterator[int]:
        del finished  # its arrival means that all hashes are written
        parts = count_parts(self._job, self._work_items, PART_BYTES)
        yield from range(parts)


class _ComparePartDoFn(RunTask[TextJob]):
    def __init__(self, job: TextJob, work_items: int) -> None:
        super().__init__(job)
        self._work_items = work_items

    def work(self, part: int) -> Iterator[int]:
        compare_part(self._job, self._work_items, part)
        yield part


class _CollectDoFn(RunTask[TextJob]):
    def __init__(self, job: TextJob, work_items: int) -> None:
        super().__init__(job)
        self._work_items = work_items

    def work(self, finished: int) -> Iterator[int]:
        del finished  # its arrival means that all parts are compared
        collect_duplicates(self._job)
        yield from range(self._work_items)


class FindDuplicates(beam.PTransform[beam.PCollection[int], beam.PCollection[int]]):
    """Numbers of work items -> the same numbers, once it is known which documents are dropped.

    Where documents are not compared, the numbers pass unchanged. Hashes of documents go to files,
    sorted; ranges of them are compared part by part. Memory: 32 MiB of hashes, and for near
    duplicates, in one worker, 16 bytes for each document that is similar to another. Deterministic:
    the first document in the order of the input is kept, however it is cut into work items.
    Doing anything of it twice, or twice at once, writes the same bytes.
    """

    def __init__(self, job: TextJob, work_items: int, limits: DocumentLimits = READ_LIMITS) -> None:
        super().__init__()
        self._job = job
        self._work_items = work_items
        self._limits = limits

    def expand(self, work_items: beam.PCollection[int]) -> beam.PCollection[int]:
        """Writes hashes, compares them, and writes the dropped documents."""
        job, count = self._job, self._work_items
        if not job.clean.deduplicates:
            return work_items
        fingerprint = _FingerprintDoFn(job, self._limits)
        return (
            work_items
            | "Fingerprint" >> beam.ParDo(fingerprint).with_output_types(int)
            | "AwaitFingerprints" >> beam.CombineGlobally(beam.combiners.CountCombineFn())
            | "ListParts" >> beam.ParDo(_ListPartsDoFn(job, count)).with_output_types(int)
            | "SpreadParts" >> beam.Reshuffle()
            | "Compare" >> beam.ParDo(_ComparePartDoFn(job, count)).with_output_types(int)
            | "AwaitParts" >> beam.CombineGlobally(beam.combiners.CountCombineFn())
            | "Collect" >> beam.ParDo(_CollectDoFn(job, count)).with_output_types(int)
            | "SpreadKept" >> beam.Reshuffle()
        )
