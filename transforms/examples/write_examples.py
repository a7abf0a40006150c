"""`WriteExamples`: any PCollection of records to a dataset, with the promises of the commands.

A PCollection has no work items. The bundle that holds records writes them to run files in order of
their keys, each of bounded size and under a name of its own, and only descriptions go on: those of
bundles that an engine has committed. A bundle that fails or is repeated leaves files that nobody
lists; they go with the temporary folder. Small run files are merged, so that many small bundles
cost a pass and not a read for each and every shard.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import apache_beam as beam
import numpy as np
from apache_beam.transforms.window import GlobalWindow, GlobalWindows
from apache_beam.utils.windowed_value import WindowedValue

from recordmill.records.codec.content_hash import hash_contents
from recordmill.records.codec.framing import FOOTER_BYTES, HEADER_BYTES
from recordmill.records.errors import RunError, UsageError
from recordmill.records.hashing import U64, mix64, seed_for
from recordmill.transforms.dataset import counters
from recordmill.transforms.dataset.commit import CommitDataset
from recordmill.transforms.dataset.error_budget import fail
from recordmill.transforms.dataset.job import ShardSpec, SplitSpec
from recordmill.transforms.dataset.run_state import new_token
from recordmill.transforms.dataset.splits import choose_splits
from recordmill.transforms.dataset.workspace import Workspace
from recordmill.transforms.examples.build import BuildRecordShards
from recordmill.transforms.examples.descriptions import ReadResult
from recordmill.transforms.examples.elements import Key, Record, encode_elements, hash_keys, size_of
from recordmill.transforms.examples.job import ExamplesJob
from recordmill.transforms.examples.pipeline_run import begin_run, check_output, commit_spec
from recordmill.transforms.examples.record_writer import RunWriter
from recordmill.transforms.examples.run_records import KeyedRecords, find_in_range
from recordmill.transforms.examples.scatter import ORDER_PURPOSE
from recordmill.transforms.examples.schema_survey import SchemaSurvey
from recordmill.transforms.examples.shard_plan import RecordTotals, plan_record_shards
from recordmill.transforms.shuffle.merge_tree import MergeTree
from recordmill.transforms.shuffle.run_files import (
    MAX_HASH,
    RunFileInfo,
    RunFileReader,
    read_run_file,
)
from recordmill.transforms.storage import files

_RUN_BYTES = 1 << 26
_BATCH_BYTES = 1 << 22
_BATCH_RECORDS = 4096
_TREE = MergeTree(1)  # one description lists the run files of all bundles
_COUNTS = ("records_read", "repeated", "sampled_out", "duplicates")


class _BeginDoFn(beam.DoFn):
    def __init__(self, job: ExamplesJob) -> None:
        self._job = job

    def process(self, impulse: bytes) -> Iterator[str]:
        del impulse
        begin_run(self._job)
        yield self._job.workspace.token


class _WriteRunsDoFn(beam.DoFn):
    """Elements -> the description of what a bundle has written, as JSON."""

    def __init__(self, job: ExamplesJob, key: Callable[[Any], Key] | None, run_bytes: int) -> None:
        self._job = job
        self._key = key
        self._run_bytes = run_bytes
        self._seed = np.uint64(seed_for(job.seed, ORDER_PURPOSE))
        self._shares = [split.share for split in job.splits]

    def start_bundle(self) -> None:
        self._writer = new_writer(self._job, self._run_bytes)
        self._survey = SchemaSurvey()
        self._held: list[Record] = []
        self._held_bytes = 0
        self._read = 0

    def process(self, element: Record, token: str) -> None:
        del token  # its arrival means that the folders are claimed
        self._held.append(element)
        self._held_bytes += size_of(element)
        if self._held_bytes >= _BATCH_BYTES or len(self._held) >= _BATCH_RECORDS:
            self._flush()

    def finish_bundle(self) -> Iterator[WindowedValue]:
        self._flush()
        self._writer.write()
        counters.count("records_read", self._read)
        if self._read:
            counts = dict.fromkeys(_COUNTS, 0) | {"records_read": self._read}
            text = describe(self._writer, counts, self._survey)
            yield WindowedValue(text, GlobalWindow().max_timestamp(), [GlobalWindow()])

    def _flush(self) -> None:
        held, self._held, self._held_bytes = self._held, [], 0
        self._read += len(held)
        for data, offsets, positions in encode_elements(held):
            begins, ends = offsets[:-1], offsets[1:]
            self._survey.add(data, begins, ends)
            contents = hash_contents(data, begins + HEADER_BYTES, ends - FOOTER_BYTES)
            groups = contents[:, 0]
            if self._key is not None:
                groups = hash_keys((held[position] for position in positions), self._key)
            self._add(KeyedRecords(
                data, begins, ends, mix64(groups ^ self._seed), contents[:, 1]
            ), groups)  # fmt: skip

    def _add(self, records: KeyedRecords, groups: U64) -> None:
        splits = choose_splits(groups, self._shares)
        for split in np.unique(splits).tolist():
            mine = splits == split
            self._writer.add(split, records if mine.all() else records.take(mine))


def new_writer(job: ExamplesJob, run_bytes: int) -> RunWriter:
    """Returns a writer of run files whose names nobody else uses."""
    base = files.join(job.workspace.work, "runs-0", f"bundle-{uuid.uuid4().hex}")
    return RunWriter(
        partial(_run_path, base), len(job.splits), job.workspace.token, run_bytes, job.deduplicate
    )


def _run_path(base: str, number: int) -> str:
    return f"{base}-{number}.bin"


def describe(writer: RunWriter, counts: Mapping[str, int], survey: SchemaSurvey) -> str:
    """Returns the JSON of what was written."""
    result = ReadResult(
        runs=tuple(writer.runs), counts={**counts, "duplicates": writer.duplicates},
        records=tuple(writer.records), sizes=tuple(writer.sizes), rejected={},
        rejected_file=(0, 0), survey=survey,
    )  # fmt: skip
    return json.dumps(result.to_json(), sort_keys=True)


def _read(job: ExamplesJob, text: str) -> ReadResult:
    return ReadResult.from_json(json.loads(text), files.join(job.workspace.work, "runs-0"))


def gather(job: ExamplesJob, results: list[str], run_bytes: int) -> Iterator[list[str]]:
    """Yields the descriptions of small bundles that fit in a run file together, and large alone."""
    held: list[str] = []
    held_bytes = 0
    for text in sorted(results):
        size = sum(_read(job, text).sizes)
        if held and held_bytes + size > run_bytes:
            yield held
            held, held_bytes = [], 0
        held.append(text)
        held_bytes += size
    if held:
        yield held


def merge_results(job: ExamplesJob, texts: list[str], run_bytes: int) -> str:
    """Returns one description of several, whose run files it merges into one."""
    if len(texts) == 1:
        return texts[0]
    results = [_read(job, text) for text in texts]
    writer = new_writer(job, 2 * run_bytes)
    token = job.workspace.token
    runs = [read_run_file(i, token=token, histograms=False) for r in results for i in r.runs]
    for split in range(len(job.splits)):
        for run in runs:
            part = RunFileReader(run, split).read(0, MAX_HASH)
            if len(part):
                writer.add(split, find_in_range(part, 0, MAX_HASH))
    writer.write()
    totals = RecordTotals(len(job.splits))
    for result in results:
        totals.add(0, result)
    duplicates = totals.counts["duplicates"] + writer.duplicates
    text = describe(writer, totals.counts, totals.survey)
    return json.dumps(json.loads(text) | {"counts": totals.counts | {"duplicates": duplicates}})


class _GatherDoFn(beam.DoFn):
    def __init__(self, job: ExamplesJob, run_bytes: int) -> None:
        self._job = job
        self._run_bytes = run_bytes

    def process(self, results: list[str]) -> Iterator[list[str]]:
        yield from gather(self._job, results, self._run_bytes)


class _MergeDoFn(beam.DoFn):
    def __init__(self, job: ExamplesJob, run_bytes: int) -> None:
        self._job = job
        self._run_bytes = run_bytes

    def process(self, results: list[str]) -> Iterator[str]:
        with counters.work_item():
            yield merge_results(self._job, results, self._run_bytes)


class _PlanDoFn(beam.DoFn):
    def __init__(self, job: ExamplesJob) -> None:
        self._job = job

    def process(self, results: list[str]) -> Iterator[tuple[int, int]]:
        job = self._job
        totals = RecordTotals(len(job.splits))
        runs: list[RunFileInfo] = []
        for text in sorted(results):
            result = _read(job, text)
            totals.add(0, result)
            runs += result.runs
        whole = ReadResult(
            runs=tuple(runs), counts={name: totals.counts[name] for name in _COUNTS},
            records=tuple(totals.records), sizes=tuple(totals.sizes), rejected={},
            rejected_file=(0, 0), survey=totals.survey,
        )  # fmt: skip
        try:
            job.workspace.check_own()
            job.workspace.write_state(job.description_path(0, 0), whole.to_json())
            splits = plan_record_shards(job, _TREE)
        except RunError as error:
            fail(job, error)
        for number, split in enumerate(splits):
            for shard in range(split.shards):
                yield number, shard


class WriteExamples(beam.PTransform[beam.PCollection[Any], beam.PCollection[dict[str, Any]]]):
    """Records -> a dataset; gives the counts of it, once `_SUCCESS` is written.

    An element is `bytes`, a serialized tf.Example or any other record, which is written as it is;
    or a dict: feature -> value, list or array of numbers, text or bytes, which becomes a
    tf.Example (integers and bool int64, other numbers float32; None is no value).

    The key of an element decides its position and its split; without one the hash of its bytes
    does. So equal elements give equal shards for any engine, any number of workers and any bundles,
    and equal elements without a key lie side by side. Memory: one run file's records twice for each
    bundle, however large the bundle. Repeated bundles change nothing.
    """

    def __init__(
        self,
        output: str,
        *,
        key: Callable[[Any], Key] | None = None,
        splits: Mapping[str, float] | None = None,
        num_shards: int | Mapping[str, int] | None = None,
        shard_bytes: int = 200_000_000,
        compression: str = "",
        deduplicate: bool = False,
        seed: int = 12345,
        overwrite: bool = False,
        run_bytes: int = _RUN_BYTES,
    ) -> None:
        """Checks what can be checked before the pipeline runs.

        Args:
          output: the folder of the dataset, on storage that all workers see.
          key: (element) -> str, bytes or int; elements of one key are in one split.
          splits: name -> share, such as `{"train": 0.9, "validation": 0.1}`; one split by default.
          num_shards: of the first split, or of each by name; without it `shard_bytes` decides.
          shard_bytes: the size of a shard, before compression.
          compression: of shards: "", "GZIP" or "ZLIB".
          deduplicate: leave out elements whose bytes are those of another.
          seed: of the order.
          overwrite: replace the dataset that is there.
          run_bytes: a worker holds so many bytes of records, twice.

        Raises:
          UsageError: a value is not valid, or a dataset is there.
        """
        super().__init__()
        if deduplicate and key is not None:
            raise UsageError("deduplicate=True compares contents; give no key")
        names = dict(splits or {"train": 1.0})
        counts = num_shards if isinstance(num_shards, Mapping) else {next(iter(names)): num_shards}
        staging = files.join(output.rstrip("/") or "/", "_tmp")
        workspace = Workspace(
            output=output.rstrip("/") or "/", work=staging, staging=staging, token=new_token()
        )
        self._job = ExamplesJob(
            workspace=workspace,
            splits=tuple(SplitSpec(n, share, counts.get(n)) for n, share in names.items()),
            shards=ShardSpec(shard_bytes),
            compression=compression,
            seed=seed,
            overwrite=overwrite,
            deduplicate=deduplicate,
        )
        self._key = key
        self._run_bytes = run_bytes
        check_output(self._job)

    def expand(self, elements: beam.PCollection[Any]) -> beam.PCollection[dict[str, Any]]:
        """Writes run files, then shards, then `_SUCCESS`."""
        job, run_bytes = self._job, self._run_bytes
        begun = (
            elements.pipeline
            | "Impulse" >> beam.Impulse()
            | "Begin" >> beam.ParDo(_BeginDoFn(job)).with_output_types(str)
        )
        listed = beam.CombineGlobally(beam.combiners.ToListCombineFn())
        return (
            elements
            | "IgnoreWindows" >> beam.WindowInto(GlobalWindows())
            | "WriteRuns"
            >> beam.ParDo(
                _WriteRunsDoFn(job, self._key, run_bytes), beam.pvalue.AsSingleton(begun)
            ).with_output_types(str)
            | "ListBundles" >> listed
            | "GatherSmall" >> beam.ParDo(_GatherDoFn(job, run_bytes)).with_output_types(list[str])
            | "SpreadGroups" >> beam.Reshuffle()
            | "MergeSmall" >> beam.ParDo(_MergeDoFn(job, run_bytes)).with_output_types(str)
            | "ListRuns" >> beam.CombineGlobally(beam.combiners.ToListCombineFn())
            | "PlanShards" >> beam.ParDo(_PlanDoFn(job)).with_output_types(tuple[int, int])
            | "SpreadShards" >> beam.Reshuffle()
            | "Build" >> BuildRecordShards(job, _TREE)
            | "SumExamples" >> beam.CombineGlobally(sum)
            | "CommitDataset" >> CommitDataset(job, commit_spec(job))
        )
