"""Any PCollection to a dataset: what `WriteExamples`, `WriteText` and the like have in common.

A PCollection has no work items. The bundle that holds elements writes them to files of rows, each
of bounded size and under a name of its own, and only their descriptions go on: those of bundles
that an engine has committed. These files are the input of the job's own stages, which read them as
they read the files of a command. A bundle that fails or is repeated leaves files that nobody lists;
they go with the temporary folder.

    <work>/elements.json                 the files of all bundles
    <work>/elements/<a name of its own>  rows, in the form of the kind of job
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import apache_beam as beam
import msgspec
from apache_beam.transforms.window import GlobalWindow, GlobalWindows
from apache_beam.utils.windowed_value import WindowedValue

from recordmill.records.errors import RunError, UsageError
from recordmill.records.spec import naming_arguments
from recordmill.transforms.dataset.element_sink import (
    ElementSink,
    ElementSpool,
    SpoolFile,
    elements_folder,
)
from recordmill.transforms.dataset.error_budget import fail
from recordmill.transforms.dataset.job import Job
from recordmill.transforms.dataset.pipeline_run import begin_run, check_output
from recordmill.transforms.dataset.run_errors import is_over, one_line_first, run_errors
from recordmill.transforms.dataset.stage_pipeline import RunStages
from recordmill.transforms.dataset.stages import Done, OnceStage
from recordmill.transforms.storage import files

_LOGGER = logging.getLogger("recordmill")
_BATCH_BYTES = 1 << 22


class _SpoolFiles(msgspec.Struct, frozen=True):
    """`elements.json`: the files of all bundles."""

    files: list[SpoolFile]


def _list_path(job: Job) -> str:
    return files.join(job.workspace.work, "elements.json")


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
            with one_line_first(), naming_arguments(job.argument_names):
                begin_run(job, self._sink.transform)
                self._sink.prepare()
        yield job.workspace.token


class _SpoolDoFn(beam.DoFn):
    """Elements -> the files of rows that a bundle has written."""

    def __init__(self, sink: ElementSink[Any]) -> None:
        self._sink = sink
        self._spool: ElementSpool | None = None

    def start_bundle(self) -> None:
        self._held: list[Any] = []
        self._held_bytes = 0
        self._opened: ExitStack | None = None
        self._is_over: bool | None = None

    def process(self, element: Any, token: str) -> Iterator[SpoolFile]:
        del token  # its arrival means that the folders are claimed
        if self._is_over is None:
            self._is_over = is_over(self._sink.job.workspace)
        if self._is_over:  # the engine runs once more what is committed
            return
        self._held.append(element)
        self._held_bytes += self._sink.size_of(element)
        if self._held_bytes >= _BATCH_BYTES or len(self._held) >= self._sink.batch_elements:
            self._flush()
            if self._size >= self._sink.file_bytes:
                yield self._ended()

    def finish_bundle(self) -> Iterator[WindowedValue]:
        if self._held:
            self._flush()
        if self._opened:
            yield WindowedValue(self._ended(), GlobalWindow().max_timestamp(), [GlobalWindow()])

    def _flush(self) -> None:
        with one_line_first():
            self._write_held()

    def _write_held(self) -> None:
        held, self._held, self._held_bytes = self._held, [], 0
        if self._spool is None:
            self._spool = self._sink.open_spool()
        if self._opened is None:
            self._opened, self._size, self._elements = ExitStack(), 0, 0
            self._path = files.join(elements_folder(self._sink.job), uuid.uuid4().hex)
            self._spool.begin(self._path, self._opened)
        try:
            self._size += self._spool.add(held)
        except BaseException as error:
            self._opened.__exit__(type(error), error, error.__traceback__)  # removes the file
            if isinstance(error, RunError | UsageError):
                fail(self._sink.job, RunError(str(error)))
            raise
        self._elements += len(held)

    def _ended(self) -> SpoolFile:
        opened, self._opened = self._opened, None
        if opened:
            opened.close()
        name = self._path.rpartition("/")[2]
        return SpoolFile(name, self._elements, files.size(self._path))


class _ListDoFn(beam.DoFn):
    """The files of all bundles -> their number, once listed on disk, where the first list stays."""

    def __init__(self, sink: ElementSink[Any]) -> None:
        self._job = sink.job

    def process(self, spooled: list[SpoolFile]) -> Iterator[int]:
        if not is_over(self._job.workspace):
            with one_line_first(), run_errors(self._job):
                workspace, path = self._job.workspace, _list_path(self._job)
                workspace.check_own()
                # An engine that lost a worker spools once more, in other bundles. What stages have
                # done is of the files that were listed first, which hold the same elements.
                if workspace.read_state(path, _SpoolFiles) is None:
                    workspace.write_state(path, _SpoolFiles(sorted(spooled)))
        yield len(spooled)


class _PlanElements(OnceStage[Job]):
    """Makes the input of the job's first stage of what bundles have written."""

    name = "PlanElements"

    def __init__(self, sink: ElementSink[Any]) -> None:
        super().__init__(sink.job)
        self._sink = sink

    def do(self, item: int) -> Done:
        listed = self.job.workspace.need_state(_list_path(self.job), _SpoolFiles)
        self._sink.plan(listed.files)
        return Done()


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
        """Writes files of rows, then does the stages of the job, and writes `_SUCCESS`."""
        sink = self._sink
        begun = (
            elements.pipeline
            | "Impulse" >> beam.Impulse()
            | "Begin" >> beam.ParDo(_BeginDoFn(sink)).with_output_types(str)
        )
        sink = sink.prepared()
        if not elements.windowing.is_default():  # it costs more for each element than all the rest
            elements = elements | "IgnoreWindows" >> beam.WindowInto(GlobalWindows())
        spool = beam.ParDo(_SpoolDoFn(sink), beam.pvalue.AsSingleton(begun))
        return (
            elements
            | "Spool" >> spool.with_output_types(SpoolFile)
            | "ListFiles" >> beam.CombineGlobally(beam.combiners.ToListCombineFn())
            | "WriteList" >> beam.ParDo(_ListDoFn(sink)).with_output_types(int)
            | "RunStages" >> RunStages([_PlanElements(sink), *sink.stages()], sink.commit_spec())
        )
