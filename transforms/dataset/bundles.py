"""Any PCollection to a dataset: what `WriteExamples`, `WriteText` and the like have in common.

A PCollection has no work items. The bundle that holds elements writes them to files in order of
their keys, each of bounded size and under a name of its own, and only descriptions go on: those of
bundles that an engine has committed. A bundle that fails or is repeated leaves files that nobody
lists; they go with the temporary folder. Files of small bundles are merged, so that many small
bundles cost a pass and not a read for each and every shard.
"""

from __future__ import annotations

import logging
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

import apache_beam as beam
from apache_beam.transforms.window import GlobalWindow, GlobalWindows
from apache_beam.utils.windowed_value import WindowedValue

from recordmill.records.errors import RunError, UsageError
from recordmill.records.spec import naming_arguments
from recordmill.transforms.dataset import counters
from recordmill.transforms.dataset.commit import CommitSpec
from recordmill.transforms.dataset.error_budget import fail
from recordmill.transforms.dataset.job import Job
from recordmill.transforms.dataset.pipeline_run import begin_run, check_output
from recordmill.transforms.dataset.run_task import RunTask, is_over
from recordmill.transforms.dataset.stages import RunStages, Stage
from recordmill.transforms.storage import files

_LOGGER = logging.getLogger("recordmill")
_BATCH_BYTES = 1 << 22
_BATCH_ELEMENTS = 4096

JobT = TypeVar("JobT", bound=Job)


class Written(NamedTuple):
    """What a bundle has written, or a merge of several.

    Attributes:
      size: of it, in the unit of `ElementSink.merge_size`.
      text: its description, as JSON; paths are relative to the folder of the run.
    """

    size: int
    text: str


class BundleWriter(ABC):
    """Writes the elements of bundles, one bundle after the other; a worker has one.

    A bundle that fails ends with its worker's error, and its writer is not used again.
    """

    @abstractmethod
    def begin(self) -> None:
        """Begins a bundle."""

    @abstractmethod
    def add(self, elements: list[Any]) -> None:
        """Takes some elements of the bundle, of 4 MB or 4,096 unless one alone is larger."""

    @abstractmethod
    def end(self) -> Written:
        """Ends the bundle: all that was added is in files."""


@dataclass(frozen=True)
class ElementSink(ABC, Generic[JobT]):
    """How elements of one kind become a dataset; small enough to be sent to every stage.

    Attributes:
      transform: the name of the PTransform, for messages and the manifest.
      job: what is written.
      merge_size: bundles that have written less are merged to about so much.
    """

    transform: ClassVar[str]
    job: JobT
    merge_size: int

    @abstractmethod
    def prepare(self) -> None:
        """Writes what the run needs into its folders, once they are claimed."""

    def prepared(self) -> ElementSink[JobT]:
        """Returns the sink as stages have it that follow `prepare`, without what it has written."""
        return self

    @abstractmethod
    def size_of(self, element: Any) -> int:
        """Returns about how many bytes an element takes, 0 for one that is of a wrong type."""

    @abstractmethod
    def open_writer(self) -> BundleWriter:
        """Returns the writer of a worker; the folders are claimed and prepared."""

    def clean(self) -> beam.PTransform[Any, Any] | None:
        """Returns what makes all that bundles have written into what is merged; None for nothing.

        It takes and gives a PCollection of `Written`.
        """
        return None

    @abstractmethod
    def merge(self, texts: list[str]) -> Written:
        """Merges what several bundles have written."""

    @abstractmethod
    def plan(self, texts: list[str]) -> None:
        """Writes what the stages need from all descriptions.

        Raises:
          RunError: there is nothing to write, or too little for so many shards.
        """

    @abstractmethod
    def stages(self) -> Sequence[Stage[Any]]:
        """Returns the stages that make the dataset of what is planned."""

    @abstractmethod
    def commit_spec(self) -> CommitSpec:
        """Returns what the manifest says."""


def bundle_path(job: Job) -> str:
    """Returns the beginning of the names of a bundle's files, which nobody else uses."""
    return files.join(runs_folder(job), f"bundle-{uuid.uuid4().hex}")


def runs_folder(job: Job) -> str:
    """The folder of the files of all bundles."""
    return files.join(job.workspace.work, "runs-0")


class _BeginDoFn(beam.DoFn):
    def __init__(self, sink: ElementSink[Any]) -> None:
        self._sink = sink

    def process(self, impulse: bytes) -> Iterator[str]:
        del impulse
        job = self._sink.job
        if is_over(job.workspace):
            _LOGGER.warning(
                "%s: this pipeline has written it already, and runs again, as engines let it that "
                "lost a worker; nothing is written. For a new run build the pipeline anew",
                job.workspace.output,
            )
        else:
            with naming_arguments(job.argument_names):
                begin_run(job, self._sink.transform)
                self._sink.prepare()
        yield job.workspace.token


class _WriteBundleDoFn(beam.DoFn):
    """Elements -> what a bundle has written."""

    def __init__(self, sink: ElementSink[Any]) -> None:
        self._sink = sink
        self._writer: BundleWriter | None = None

    def start_bundle(self) -> None:
        self._held: list[Any] = []
        self._held_bytes = 0
        self._has_begun = False
        self._is_over: bool | None = None

    def process(self, element: Any, token: str) -> None:
        del token  # its arrival means that the folders are claimed
        if self._is_over is None:
            self._is_over = is_over(self._sink.job.workspace)
        if self._is_over:  # the engine runs once more what is committed
            return
        self._held.append(element)
        self._held_bytes += self._sink.size_of(element)
        if self._held_bytes >= _BATCH_BYTES or len(self._held) >= _BATCH_ELEMENTS:
            self._flush()

    def finish_bundle(self) -> Iterator[WindowedValue]:
        if self._held:
            self._flush()
        if self._has_begun:
            written = self._opened().end()
            yield WindowedValue(written, GlobalWindow().max_timestamp(), [GlobalWindow()])

    def _flush(self) -> None:
        held, self._held, self._held_bytes = self._held, [], 0
        writer = self._opened()
        try:
            if not self._has_begun:
                writer.begin()
                self._has_begun = True
            writer.add(held)
        except (RunError, UsageError) as error:
            fail(self._sink.job, RunError(str(error)))

    def _opened(self) -> BundleWriter:
        if self._writer is None:
            self._writer = self._sink.open_writer()
        return self._writer


def gather(bundles: Sequence[Written], merge_size: int) -> Iterator[list[str]]:
    """Yields the descriptions of small bundles that make a file together, and large alone."""
    held: list[str] = []
    held_size = 0
    for text, size in sorted((text, size) for size, text in bundles):
        if held and held_size + size > merge_size:
            yield held
            held, held_size = [], 0
        held.append(text)
        held_size += size
    if held:
        yield held


class _SinkTask(RunTask[Job]):
    """A task on what bundles have written."""

    def __init__(self, sink: ElementSink[Any]) -> None:
        super().__init__(sink.job)
        self._sink = sink


class _GatherDoFn(_SinkTask):
    def work(self, bundles: list[Written]) -> Iterator[list[str]]:
        yield from gather(bundles, self._sink.merge_size)


class _MergeDoFn(_SinkTask):
    def work(self, texts: list[str]) -> Iterator[str]:
        with counters.work_item():
            yield texts[0] if len(texts) == 1 else self._sink.merge(texts).text


class _PlanDoFn(_SinkTask):
    """All descriptions -> a number, once the stages that follow can begin."""

    def work(self, texts: list[str]) -> Iterator[int]:
        self._job.workspace.check_own()
        self._sink.plan(sorted(texts))
        yield len(texts)


class WriteElements(beam.PTransform[beam.PCollection[Any], beam.PCollection[dict[str, Any]]]):
    """Elements -> a dataset; gives the counts of it, once `_SUCCESS` is written."""

    def __init__(self, sink: ElementSink[Any]) -> None:
        """Checks that nothing is lost at the output.

        Raises:
          UsageError: something is there that may not be replaced.
        """
        super().__init__()
        self._sink = sink
        check_output(sink.job)

    def expand(self, elements: beam.PCollection[Any]) -> beam.PCollection[dict[str, Any]]:
        """Writes files of bundles, then shards, then `_SUCCESS`."""
        sink = self._sink
        begun = (
            elements.pipeline
            | "Impulse" >> beam.Impulse()
            | "Begin" >> beam.ParDo(_BeginDoFn(sink)).with_output_types(str)
        )
        sink = sink.prepared()
        if not elements.windowing.is_default():  # it costs more for each element than all the rest
            elements = elements | "IgnoreWindows" >> beam.WindowInto(GlobalWindows())
        write = beam.ParDo(_WriteBundleDoFn(sink), beam.pvalue.AsSingleton(begun))
        written = elements | "WriteBundles" >> write
        clean = sink.clean()
        if clean:
            written = written | "Clean" >> clean
        merged = (
            written
            | "ListBundles" >> beam.CombineGlobally(beam.combiners.ToListCombineFn())
            | "GatherSmall" >> beam.ParDo(_GatherDoFn(sink)).with_output_types(list[str])
            | "SpreadGroups" >> beam.Reshuffle()
            | "MergeSmall" >> beam.ParDo(_MergeDoFn(sink)).with_output_types(str)
            | "ListMerged" >> beam.CombineGlobally(beam.combiners.ToListCombineFn())
        )
        return (
            merged
            | "PlanStages" >> beam.ParDo(_PlanDoFn(sink)).with_output_types(int)
            | "RunStages" >> RunStages(sink.stages(), sink.commit_spec())
        )
