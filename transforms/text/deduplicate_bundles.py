"""The stages that drop duplicates from the run files of bundles, before these are merged."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace

import apache_beam as beam
import msgspec
import numpy as np

from recordmill.records.arrays import Int64s
from recordmill.records.errors import RunError
from recordmill.records.hashing import U64
from recordmill.transforms.dataset import counters
from recordmill.transforms.dataset.bundles import Written, bundle_path, runs_folder
from recordmill.transforms.dataset.run_state import DamagedStateError
from recordmill.transforms.dataset.run_task import RunTask
from recordmill.transforms.shuffle.run_files import (
    MAX_HASH,
    DamagedRunFileError,
    RunFileInfo,
    RunFileReader,
    read_run_file,
)
from recordmill.transforms.storage import files
from recordmill.transforms.text.bundle_results import BundleResult
from recordmill.transforms.text.chunk_records import decode_chunks
from recordmill.transforms.text.chunk_runs import TextTools
from recordmill.transforms.text.chunks import Chunks, select
from recordmill.transforms.text.cleaning.drop_lists import (
    dropped_line,
    repeated_line,
    write_lines,
)
from recordmill.transforms.text.cleaning.element_duplicates import ElementDuplicates
from recordmill.transforms.text.cleaning.element_hashes import KEPT, REASONS, names_path
from recordmill.transforms.text.text_job import TextJob
from recordmill.transforms.text.text_state import ScatterResult


class DuplicateDropper:
    """Writes run files anew, without the documents that are dropped; not thread-safe.

    Memory: one run file.

    Args:
      job: the job.
    """

    def __init__(self, job: TextJob) -> None:
        self._job = job
        self._tools = TextTools(job)
        self._duplicates = ElementDuplicates(job)
        self._repeats = "near_duplicate" if job.clean.deduplicate == "near" else "duplicate"
        self._reasons = {**REASONS, -1: self._repeats}

    def run(self, number: int, bundle: BundleResult) -> BundleResult:
        """Returns what is left of a run file.

        Args:
          number: of the run file.
          bundle: it, and what is known of its bundle beside run files.

        Raises:
          RunError: a file is missing or damaged.
        """
        run, documents, dropped = self._duplicates.documents(number)
        keys, splits, fates = documents[:, 0], documents[:, 1], documents[:, 2].astype(np.int64)
        fates[dropped.astype(np.int64)] = -1
        (info,) = bundle.scatter.runs
        if info.name != f"{run.rpartition('/')[2]}.bin":
            raise DamagedStateError(f"{info.name} is not of this run; run the pipeline again")
        parts = [[self._kept(info, s, keys, fates)] for s in range(len(self._job.splits))]
        labels = self._labels(parts)
        base = bundle_path(self._job)
        written, sizes = self._tools.write(f"{base}.bin", parts)
        lines = self._lines(number, run, fates)
        listed = (write_lines(f"{base}.lines", lines),) if lines else ()
        by_reason: Counter[tuple[str, int]] = Counter()
        for fate, reason in self._reasons.items():
            for split in splits[fates == fate].tolist():
                by_reason[reason, split] += 1
        of_splits = range(len(self._job.splits))
        scatter = msgspec.structs.replace(
            bundle.scatter, runs=(written,), chunks=tuple(size[0] for size in sizes),
            tokens=tuple(size[1] for size in sizes), documents_used=int((fates == KEPT).sum()),
            labels=tuple(sorted(labels)),
            dropped={
                reason: [by_reason[reason, split] for split in of_splits]
                for reason in sorted({reason for reason, _ in by_reason})
            },
        )  # fmt: skip
        counters.count("documents_written", scatter.documents_used)
        return msgspec.structs.replace(bundle, scatter=scatter, lines=listed)

    def _lines(self, number: int, run: str, fates: Int64s) -> list[bytes]:
        """Returns the lines of the documents that are dropped, and of those that others repeat."""
        if not self._job.clean.list_dropped:
            return []
        path = names_path(run)
        names = files.read_bytes(path).split(b"\n")[:-1] if files.exists(path) else []
        if len(names) != len(fates):
            raise RunError(f"{path} is missing or cut; run the pipeline again")
        lines = []
        for row in self._duplicates.listed(number):
            name = names[int(row[0])]
            is_dropped = bool(row[3])
            lines.append(
                dropped_line(name, self._repeats, row[1:3]) if is_dropped else repeated_line(name)
            )
        for fate, reason in REASONS.items():
            lines += [dropped_line(names[i], reason) for i in np.flatnonzero(fates == fate)]
        return lines

    def _kept(self, info: RunFileInfo, split: int, keys: U64, fates: object) -> Chunks:
        """Returns the chunks of a split that are kept, with the keys of their documents."""
        try:
            token, folder = self._job.workspace.token, runs_folder(self._job)
            run = read_run_file(folder, info, token=token, histograms=False)
            data = RunFileReader(run, split).read(0, MAX_HASH)
        except DamagedRunFileError as error:
            raise RunError(f"{error}; run the pipeline again, from its beginning") from error
        chunks = decode_chunks(
            [data], [0], [MAX_HASH], self._tools.words_per_id,
            has_fields=self._job.documents.row.is_carried,
        )  # fmt: skip
        numbers = chunks.documents.astype(np.int64)
        kept = select(chunks, np.asarray(fates)[numbers] == KEPT)
        return replace(kept, documents=keys[kept.documents.astype(np.int64)])

    def _labels(self, parts: list[list[Chunks]]) -> set[str]:
        """Returns the labels of the chunks that are kept, where these become classes."""
        label = self._job.documents.row.label
        if label is None or label.is_number or label.names:
            return set()
        fields = [chunks.fields for (chunks,) in parts if chunks.fields]
        rows = (row for each in fields for row in each.texts(np.arange(len(each.counts))))
        return {row[0] for row in rows}


class _ListHashesDoFn(RunTask[TextJob]):
    """All descriptions -> the numbers of ranges of hashes."""

    def work(self, bundles: list[Written]) -> Iterator[int]:
        self._job.workspace.check_own()
        found = sorted(text for _, text in bundles)
        folder = runs_folder(self._job)
        runs = [each for text in found for each in BundleResult.parse(text, folder).hashes]
        yield from range(ElementDuplicates(self._job).list_runs(runs))


class _CompareDoFn(RunTask[TextJob]):
    """Numbers of ranges -> the same, each once one function has compared what lies in it."""

    def __init__(self, job: TextJob, compare: Callable[[ElementDuplicates, int], None]) -> None:
        super().__init__(job)
        self._compare = compare
        self._duplicates: ElementDuplicates | None = None

    def work(self, part: int) -> Iterator[int]:
        if self._duplicates is None:
            self._duplicates = ElementDuplicates(self._job)
        self._compare(self._duplicates, part)
        yield part


class _CollectTextsDoFn(RunTask[TextJob]):
    def work(self, finished: int) -> Iterator[int]:
        del finished  # its arrival means that all hashes are compared
        yield from range(ElementDuplicates(self._job).collect_texts())


class _ListRunsDoFn(RunTask[TextJob]):
    """All descriptions -> those of each run file alone, with its number."""

    def work(self, bundles: list[Written]) -> Iterator[tuple[int, str]]:
        number = 0
        for text in sorted(text for _, text in bundles):
            whole = BundleResult.parse(text, runs_folder(self._job))
            rest = whole
            for run in whole.scatter.runs:
                scatter = msgspec.structs.replace(rest.scatter, runs=(run,))
                alone = msgspec.structs.replace(rest, scatter=scatter, hashes=())
                yield number, alone.written().text
                number += 1
                # What is known of the bundle goes with its first run file.
                rest = BundleResult(_nothing(len(whole.scatter.chunks)))


def _nothing(splits: int) -> ScatterResult:
    zeros = (0,) * splits
    return ScatterResult(
        runs=(), chunks=zeros, tokens=zeros, documents_read=0, documents_used=0, rejected={},
        rejected_file=(0, 0),
    )  # fmt: skip


class _DropDuplicatesDoFn(RunTask[TextJob]):
    def __init__(self, job: TextJob) -> None:
        super().__init__(job)
        self._dropper: DuplicateDropper | None = None

    def work(self, numbered: tuple[int, str]) -> Iterator[Written]:
        number, text = numbered
        with counters.work_item():
            if self._dropper is None:
                self._dropper = DuplicateDropper(self._job)
            bundle = BundleResult.parse(text, runs_folder(self._job))
            yield self._dropper.run(number, bundle).written()


class DeduplicateBundles(beam.PTransform[beam.PCollection[Written], beam.PCollection[Written]]):
    """What bundles have written -> the same without the documents that repeat others.

    Memory: ranges of hashes, see `duplicates.py`, and one run file. Doing anything of it twice, or
    twice at once, changes nothing.

    Args:
      job: the job.
    """

    def __init__(self, job: TextJob) -> None:
        super().__init__()
        self._job = job

    def expand(self, written: beam.PCollection[Written]) -> beam.PCollection[Written]:
        """Compares hashes, then identities, and writes run files anew."""
        job = self._job
        to_list = beam.combiners.ToListCombineFn()
        count = beam.combiners.CountCombineFn()
        texts = beam.ParDo(_CompareDoFn(job, ElementDuplicates.compare_texts))
        elements = beam.ParDo(_CompareDoFn(job, ElementDuplicates.compare_elements))
        bundles = written | "ListHashes" >> beam.CombineGlobally(to_list)
        compared = (
            bundles
            | "ListTextParts" >> beam.ParDo(_ListHashesDoFn(job)).with_output_types(int)
            | "SpreadTextParts" >> beam.Reshuffle()
            | "CompareTexts" >> texts.with_output_types(int)
            | "AwaitTexts" >> beam.CombineGlobally(count)
            | "CollectTexts" >> beam.ParDo(_CollectTextsDoFn(job)).with_output_types(int)
            | "SpreadElementParts" >> beam.Reshuffle()
            | "CompareElements" >> elements.with_output_types(int)
            | "AwaitElements" >> beam.CombineGlobally(count)
        )
        list_runs = beam.ParDo(_ListRunsDoFn(job), beam.pvalue.AsSingleton(compared))
        drop = beam.ParDo(_DropDuplicatesDoFn(job))
        return (
            bundles
            | "ListRuns" >> list_runs.with_output_types(tuple[int, str])
            | "SpreadRuns" >> beam.Reshuffle()
            | "DropDuplicates" >> drop.with_output_types(Written)
        )
