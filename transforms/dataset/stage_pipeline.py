"""The stages of a job as Beam's transforms: an engine spreads their work items over its workers.

On this machine nothing of this is loaded: `stages.do_here` does the same without Beam.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import apache_beam as beam
from apache_beam.pvalue import AsList
from apache_beam.transforms.window import GlobalWindows

from recordmill.records.manifest import Manifest
from recordmill.transforms.dataset import counters
from recordmill.transforms.dataset.commit import CommitSpec, commit_run
from recordmill.transforms.dataset.job import Job
from recordmill.transforms.dataset.run_errors import is_over, one_line_first
from recordmill.transforms.dataset.stages import Stage, count_items, do_item
from recordmill.transforms.dataset.statistics_report import read_statistics, summary_lines
from recordmill.transforms.dataset.worker_note import notes_in

_LOGGER = logging.getLogger("recordmill")


class _ListWorkDoFn(beam.DoFn):
    def __init__(self, stage: Stage[Any]) -> None:
        self._stage = stage

    def process(self, element: Any, awaited: Any = None) -> Iterator[int]:
        del element, awaited  # which arrives when the stage before is done
        with one_line_first():
            yield from range(count_items(self._stage))


class _DoItemsDoFn(beam.DoFn):
    """Numbers of work items -> (0, the records that each has added)."""

    def __init__(self, stage: Stage[Any]) -> None:
        self._stage = stage

    def process(self, item: int) -> Iterator[tuple[int, int]]:
        counters.count(counters.STARTED)
        with one_line_first(), notes_in(self._stage.job.workspace):
            done = do_item(self._stage, item)
        if done is not None:
            for name, amount in done.counts.items():
                counters.count(name, amount)
            counters.count(counters.FINISHED)
            yield 0, done.records

    def finish_bundle(self) -> None:
        self._stage.release()

    def teardown(self) -> None:
        self._stage.close()


class _NumberDoFn(beam.DoFn):
    """Anything -> (0, 1)."""

    def process(self, element: Any) -> Iterator[tuple[int, int]]:
        del element
        yield 0, 1


class _TotalDoFn(beam.DoFn):
    """Anything -> the sum of the values of side inputs."""

    def process(self, element: Any, *sums: list[tuple[int, int]]) -> Iterator[int]:
        del element
        yield sum(value for each in sums for _, value in each)


class DoStages(beam.PTransform[Any, beam.PCollection[int]]):
    """A pipeline, or a PCollection of anything -> the records of all stages as one number.

    The first stage begins when the PCollection is complete; the number comes after the last one.
    """

    def __init__(self, stages: Sequence[Stage[Any]]) -> None:
        super().__init__()
        self._stages = tuple(stages)

    def expand(self, before: Any) -> beam.PCollection[int]:
        """Lists, spreads and awaits the work items of one stage after the other.

        What is awaited is a side input: an element of the main input is there from the beginning,
        so a stage without work items is followed by the next one, too.
        """
        pipeline, awaited, sums = before, [], []
        if isinstance(before, beam.PCollection):
            pipeline = before.pipeline
            if not before.windowing.is_default():
                before = before | "IgnoreWindows" >> beam.WindowInto(GlobalWindows())
            awaited = [AsList(before | "NumberInput" >> _summed(_NumberDoFn()))]
        for stage in self._stages:
            name = stage.name
            done = (
                pipeline
                | f"Begin{name}" >> beam.Impulse()
                | f"List{name}" >> beam.ParDo(_ListWorkDoFn(stage), *awaited).with_output_types(int)
                | f"Spread{name}" >> beam.Reshuffle()
                | name >> _summed(_DoItemsDoFn(stage))
            )
            awaited = [AsList(done)]
            sums += awaited
        begin = pipeline | "BeginTotal" >> beam.Impulse()
        return begin | "Total" >> beam.ParDo(_TotalDoFn(), *sums).with_output_types(int)


@beam.ptransform_fn
def _summed(elements: beam.PCollection[Any], function: beam.DoFn) -> beam.PCollection[Any]:
    """Elements -> the sum of the numbers that a function gives for them; nothing without any."""
    return (
        elements
        | "Do" >> beam.ParDo(function).with_output_types(tuple[int, int])
        | "Await" >> beam.CombinePerKey(sum)
    )


def _show_summary(job: Job, manifest: Manifest) -> None:
    """Logs the summary of a dataset; where nobody has asked for logs, prints it.

    The dataset is committed: whatever fails here must not fail the pipeline.
    """
    try:
        text = "\n".join(summary_lines(job, manifest, read_statistics(job.workspace.output)))
        if _LOGGER.isEnabledFor(logging.INFO):
            _LOGGER.info("%s", text)
            return
        encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
        print(text.encode(encoding, "backslashreplace").decode(encoding), flush=True)
    except Exception as error:  # a full disk, a closed pipe, a storage that does not answer
        _LOGGER.warning("%s is written; no summary: %s", job.workspace.output, error)


class _CommitDoFn(beam.DoFn):
    def __init__(self, job: Job, spec: CommitSpec) -> None:
        self._job = job
        self._spec = spec

    def process(self, records: int) -> Iterator[dict[str, Any]]:
        with one_line_first():
            again = is_over(self._job.workspace)
            manifest = commit_run(self._job, self._spec, records)
        if self._job.workspace.of_pipeline and not again:  # a command prints it at its end
            _show_summary(self._job, manifest)
        yield manifest.counts


class CommitDataset(beam.PTransform[beam.PCollection[int], beam.PCollection[dict[str, Any]]]):
    """The number of all examples, as one element -> the counts of the finished dataset."""

    def __init__(self, job: Job, spec: CommitSpec) -> None:
        super().__init__()
        self._job = job
        self._spec = spec

    def expand(self, records: beam.PCollection[int]) -> beam.PCollection[dict[str, Any]]:
        """Publishes the shards and writes `_SUCCESS`."""
        return records | "Commit" >> beam.ParDo(_CommitDoFn(self._job, self._spec))


class RunStages(beam.PTransform[Any, beam.PCollection[dict[str, Any]]]):
    """A pipeline, or a PCollection to wait for -> the counts of the finished dataset.

    Memory: the numbers of a stage's work items, and what one item takes in each worker.
    """

    def __init__(self, stages: Sequence[Stage[Any]], commit: CommitSpec) -> None:
        """Takes the stages of one job, and what its manifest says."""
        super().__init__()
        self._stages = tuple(stages)
        self._commit = commit

    def expand(self, begin: Any) -> beam.PCollection[dict[str, Any]]:
        """Does the stages, then publishes the shards and writes `_SUCCESS`."""
        return (
            begin
            | "DoStages" >> DoStages(self._stages)
            | "CommitDataset" >> CommitDataset(self._stages[0].job, self._commit)
        )
