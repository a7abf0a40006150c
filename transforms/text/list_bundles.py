"""The stages that list what the bundles of a pipeline have dropped."""

from __future__ import annotations

from collections.abc import Iterator

import apache_beam as beam

from recordmill.transforms.dataset import counters
from recordmill.transforms.dataset.bundles import Written, runs_folder
from recordmill.transforms.dataset.run_task import RunTask
from recordmill.transforms.text.bundle_results import BundleResult
from recordmill.transforms.text.cleaning.drop_lists import DropLists
from recordmill.transforms.text.text_job import TextJob


class _PlanListsDoFn(RunTask[TextJob]):
    """All descriptions -> the numbers of lists."""

    def work(self, bundles: list[Written]) -> Iterator[int]:
        self._job.workspace.check_own()
        folder = runs_folder(self._job)
        texts = sorted(text for _, text in bundles)
        lines = [each for text in texts for each in BundleResult.parse(text, folder).lines]
        yield from range(DropLists(self._job).plan(lines))


class _WriteListDoFn(RunTask[TextJob]):
    def work(self, part: int) -> Iterator[int]:
        with counters.work_item():
            DropLists(self._job).write(part)
        yield part


class _PassDoFn(RunTask[TextJob]):
    """All descriptions -> each of them."""

    def work(self, bundles: list[Written]) -> Iterator[Written]:
        yield from bundles


class ListDropped(beam.PTransform[beam.PCollection[Written], beam.PCollection[Written]]):
    """What bundles have written -> the same, once the lists of dropped documents are written.

    Memory: of a list a bounded number of lines. Doing anything of it twice, or twice at once,
    changes nothing.

    Args:
      job: the job.
    """

    def __init__(self, job: TextJob) -> None:
        super().__init__()
        self._job = job

    def expand(self, written: beam.PCollection[Written]) -> beam.PCollection[Written]:
        """Joins dropped documents with those that they repeat, range by range."""
        to_list = beam.combiners.ToListCombineFn()
        bundles = written | "ListLines" >> beam.CombineGlobally(to_list)
        listed = (
            bundles
            | "ListLists" >> beam.ParDo(_PlanListsDoFn(self._job)).with_output_types(int)
            | "SpreadLists" >> beam.Reshuffle()
            | "WriteLists" >> beam.ParDo(_WriteListDoFn(self._job)).with_output_types(int)
            | "AwaitLists" >> beam.CombineGlobally(beam.combiners.CountCombineFn())
        )
        go_on = beam.ParDo(_PassDoFn(self._job), beam.pvalue.AsSingleton(listed))
        return bundles | "GoOn" >> go_on.with_output_types(Written)
