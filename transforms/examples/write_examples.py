"""`WriteExamples`: any PCollection of records to a dataset, with the promises of the commands."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

from recordmill.records.errors import UsageError
from recordmill.records.spec import from_arguments, naming_arguments, python_names, takes
from recordmill.transforms.dataset.commit import CommitSpec
from recordmill.transforms.dataset.element_sink import ElementSpool, SpoolFile
from recordmill.transforms.dataset.pipeline_run import commit_spec, pipeline_job
from recordmill.transforms.dataset.stages import Stage
from recordmill.transforms.dataset.write_elements import WriteElements
from recordmill.transforms.examples.example_elements import (
    Key,
    Record,
    encode_elements,
    hash_keys,
    size_of,
)
from recordmill.transforms.examples.examples_job import ExamplesJob
from recordmill.transforms.examples.examples_spec import (
    ExamplesSpec,
    RecordOptions,
    WriteExamplesSpec,
)
from recordmill.transforms.examples.examples_stages import examples_stages
from recordmill.transforms.examples.record_source import (
    KEYED_ELEMENTS,
    RecordFileRange,
    keys_path,
)
from recordmill.transforms.examples.scatter import RECORD_LIMITS, RecordLimits
from recordmill.transforms.sources.element_items import ShuffledElements
from recordmill.transforms.sources.formats import ELEMENTS
from recordmill.transforms.storage import files
from recordmill.transforms.storage.array_files import write_array


class RecordSpool(ElementSpool):
    """Writes records with their frames, and beside them the hashes of their keys if they have some.

    Args:
      key: gives each element its key.
    """

    def __init__(self, key: Callable[[Any], Key] | None) -> None:
        self._key = key

    def begin(self, path: str, opened: ExitStack) -> None:
        """Begins a file."""
        self._handle = opened.enter_context(files.writing(path, sync=False))
        if self._key:
            self._keys = opened.enter_context(files.writing(keys_path(path), sync=False))

    def add(self, elements: list[Record]) -> int:
        """Encodes elements and gives them keys."""
        size = 0
        for data, _, positions in encode_elements(elements):
            write_array(self._handle, data)
            size += len(data)
            if self._key:
                keys = hash_keys((elements[position] for position in positions), self._key)
                write_array(self._keys, keys.astype("<u8"))
        return size


@dataclass(frozen=True)
class _RecordSink(ShuffledElements[ExamplesJob]):
    """Records, with the function that gives each its key.

    Attributes:
      limits: the sizes in which records are handled.
      key: that function; None takes the content.
    """

    transform = "WriteExamples"
    limits: RecordLimits = RECORD_LIMITS
    key: Callable[[Any], Key] | None = None

    def size_of(self, element: Any) -> int:
        """Returns about how many bytes an element takes as a record."""
        return size_of(element)

    def open_spool(self) -> ElementSpool:
        """Returns what writes records with their frames."""
        return RecordSpool(self.key)

    def source(self, spooled: SpoolFile) -> RecordFileRange:
        """Returns a file of records as scatter reads it."""
        path, form = spooled.path(self.job), KEYED_ELEMENTS if self.key else ELEMENTS
        return RecordFileRange(path, spooled.name, form, "", spooled.size_bytes)

    def stages(self) -> list[Stage[Any]]:
        """Returns the stages of a job of records."""
        return examples_stages(self.job, None, limits=self.limits)

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
    and equal elements without a key lie side by side. Until the end the output's folder holds all
    records once more. Memory: one run file's records twice in a worker, however large the bundle.
    Repeated bundles change nothing.
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
        limits = replace(RECORD_LIMITS, run_bytes=spec.run_bytes)
        super().__init__(_RecordSink(job, limits=limits, key=spec.key))
