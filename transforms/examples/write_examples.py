"""`WriteExamples`: any PCollection of records to a dataset, with the promises of the commands."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from msgspec import structs

from recordmill.records.codec.content_hash import hash_contents
from recordmill.records.codec.framing import FOOTER_BYTES, HEADER_BYTES
from recordmill.records.errors import UsageError
from recordmill.records.hashing import U64, mix64, seed_for
from recordmill.records.spec import from_arguments, naming_arguments, python_names, takes
from recordmill.records.state import decode, encode
from recordmill.transforms.dataset import counters
from recordmill.transforms.dataset.bundles import (
    BundleWriter,
    WriteElements,
    Written,
    bundle_path,
)
from recordmill.transforms.dataset.commit import CommitSpec
from recordmill.transforms.dataset.pipeline_run import commit_spec, pipeline_job
from recordmill.transforms.dataset.splits import choose_splits
from recordmill.transforms.examples.build_examples import RecordShardBuilder
from recordmill.transforms.examples.example_elements import (
    Key,
    Record,
    encode_elements,
    hash_keys,
    size_of,
)
from recordmill.transforms.examples.examples_job import ExamplesJob
from recordmill.transforms.examples.examples_shard_plan import RecordTotals, plan_record_shards
from recordmill.transforms.examples.examples_spec import (
    ExamplesSpec,
    RecordOptions,
    WriteExamplesSpec,
)
from recordmill.transforms.examples.examples_state import ReadResult
from recordmill.transforms.examples.record_writer import RunWriter
from recordmill.transforms.examples.run_records import KeyedRecords
from recordmill.transforms.examples.scatter import ORDER_PURPOSE
from recordmill.transforms.examples.schema_survey import SchemaSurvey
from recordmill.transforms.shuffle.gathered_runs import RunFileSink
from recordmill.transforms.shuffle.merge_tree import MergeTree
from recordmill.transforms.shuffle.regroup import merge_run_files
from recordmill.transforms.shuffle.run_files import RunFileInfo
from recordmill.transforms.shuffle.shard_ranges import SplitShards

_COUNTS = ("records_read", "repeated", "sampled_out", "duplicates")


class _RecordBundles(BundleWriter):
    """Elements -> run files of framed records."""

    def __init__(self, sink: _RecordSink) -> None:
        self._sink = sink
        self._seed = np.uint64(seed_for(sink.job.seed, ORDER_PURPOSE))
        self._shares = [split.share for split in sink.job.splits]

    def begin(self) -> None:
        """Begins a bundle."""
        self._writer = _new_writer(self._sink.job, self._sink.merge_size)
        self._survey = SchemaSurvey()
        self._read = 0

    def add(self, elements: list[Record]) -> None:
        """Encodes elements and gives them keys."""
        self._read += len(elements)
        for data, offsets, positions in encode_elements(elements):
            begins, ends = offsets[:-1], offsets[1:]
            self._survey.add(data, begins, ends)
            contents = hash_contents(data, begins + HEADER_BYTES, ends - FOOTER_BYTES)
            groups = contents[:, 0]
            if self._sink.key is not None:
                groups = hash_keys((elements[position] for position in positions), self._sink.key)
            keys = mix64(groups ^ self._seed)
            self._put(KeyedRecords(data, begins, ends, keys, contents[:, 1]), groups)

    def _put(self, records: KeyedRecords, groups: U64) -> None:
        splits = choose_splits(groups, self._shares)
        for split in np.unique(splits).tolist():
            mine = splits == split
            self._writer.add(split, records if mine.all() else records.take(mine))

    def end(self) -> Written:
        """Writes what is held."""
        self._writer.write()
        counters.count("records_read", self._read)
        writer = self._writer
        counts = Counter({"records_read": self._read, "duplicates": writer.duplicates})
        totals = RecordTotals(len(writer.records), counts=counts, survey=self._survey)
        totals.records, totals.sizes = writer.records, writer.sizes
        return _describe(_result(writer.runs, totals))


def _new_writer(job: ExamplesJob, run_bytes: int) -> RunWriter:
    return RunWriter(
        partial(_run_path, bundle_path(job)), len(job.splits), job.workspace.token, run_bytes,
        job.records.deduplicate,
    )  # fmt: skip


def _run_path(base: str, number: int) -> str:
    return f"{base}-{number}.bin"


def _result(runs: Iterable[RunFileInfo], totals: RecordTotals) -> ReadResult:
    """Returns run files and sums as the result of a work item."""
    return ReadResult(
        runs=tuple(runs), counts={name: totals.counts[name] for name in _COUNTS},
        records=tuple(totals.records), sizes=tuple(totals.sizes), rejected={},
        rejected_file=(0, 0), survey=totals.survey,
    )  # fmt: skip


def _describe(result: ReadResult) -> Written:
    return Written(sum(result.sizes), encode(result, indent=None).decode())


@dataclass(frozen=True)
class _RecordSink(RunFileSink[ExamplesJob]):
    """Records, with the function that gives each its key; see `RunFileSink`."""

    transform = "WriteExamples"
    key: Callable[[Any], Key] | None = None

    def prepare(self) -> None:
        """Nothing is needed."""

    def size_of(self, element: Any) -> int:
        """Returns about how many bytes an element takes as a record."""
        return size_of(element)

    def open_writer(self) -> BundleWriter:
        """Returns the writer of a worker."""
        return _RecordBundles(self)

    def merge(self, texts: list[str]) -> Written:
        """Merges run files into one."""
        whole = self.gather(texts)
        run = merge_run_files(self.job, _run_path(bundle_path(self.job), 0), whole.runs)
        return _describe(structs.replace(whole, runs=(run,)))

    def gather(self, texts: list[str]) -> ReadResult:
        """Adds up descriptions."""
        totals = RecordTotals(len(self.job.splits))
        runs: list[RunFileInfo] = []
        for text in texts:
            result = decode(text, ReadResult)
            totals.add(0, result)
            runs += result.runs
        return _result(runs, totals)

    def plan_shards(self, tree: MergeTree) -> list[SplitShards]:
        """Plans the shards by the bytes of records."""
        return plan_record_shards(self.job, tree)

    def open_builder(self, tree: MergeTree) -> RecordShardBuilder:
        """Returns what builds shards in a worker."""
        return RecordShardBuilder(self.job, tree)

    def commit_spec(self) -> CommitSpec:
        """Returns what the manifest says."""
        return commit_spec(self.job, self.transform)


class WriteExamples(WriteElements):
    """Records -> a dataset; gives the counts of it, once `_SUCCESS` is written.

    An element is `bytes`, a serialized tf.Example or any other record, which is written as it is;
    or a dict: feature -> value, list or array of numbers, text or bytes, which becomes a
    tf.Example (integers and bool int64, other numbers float32; None is no value).

    The key of an element decides its position and its split; without one the hash of its bytes
    does. So equal elements give equal shards for any engine, any number of workers and any bundles,
    and equal elements without a key lie side by side. Memory: one run file's records twice for each
    bundle, however large the bundle. Repeated bundles change nothing.
    """

    @takes(WriteExamplesSpec)
    @naming_arguments(python_names(ExamplesSpec))
    def __init__(self, output: str | os.PathLike[str], **options: Any) -> None:
        """Checks what can be checked before the pipeline runs.

        Args:
          output: the folder of the dataset, on storage that all workers see.
          options: the keyword arguments listed below.

        Raises:
          UsageError: a value is not valid, or a dataset is there.
          TypeError: an argument that there is not.
        """
        spec = from_arguments(WriteExamplesSpec, options)
        if spec.deduplicate and spec.key is not None:
            raise UsageError("deduplicate=True compares contents; give no key")
        records = RecordOptions(deduplicate=spec.deduplicate)
        job = ExamplesJob(**pipeline_job(output, spec.dataset), records=records)
        super().__init__(_RecordSink(job, spec.run_bytes, spec.key))
