"""Unpack images from columns to packs, one pack a work item; see `byte_rows.py`."""

from __future__ import annotations

from collections.abc import Iterator

import apache_beam as beam

from recordmill.records.errors import RunError
from recordmill.transforms.dataset import counters
from recordmill.transforms.dataset.run_task import RunTask
from recordmill.transforms.images.image_job import ImageJob
from recordmill.transforms.images.listing.byte_rows import (
    find_byte_columns,
    pack_name,
    read_byte_rows,
)
from recordmill.transforms.images.references import ListedReject
from recordmill.transforms.images.source_spec import SourceSpec
from recordmill.transforms.sources.work_item_files import read_work_item
from recordmill.transforms.storage import files


def unpack(job: ImageJob, spec: SourceSpec, number: int) -> int:
    """Writes a pack unless it is there; returns its bytes.

    Raises:
      RunError: the input changed since it was listed.
    """
    path = files.join(job.packs_folder, pack_name(number))
    size = files.size(path)
    if size >= 0:
        return size
    job.workspace.check_own()
    with files.writing(path) as out:
        for source in read_work_item(job.workspace.inputs_folder, number):
            columns = find_byte_columns(source.path, spec)
            if columns is None:
                raise RunError(f"{source.path} has changed; start anew with --overwrite")
            for item in read_byte_rows(source, columns, spec):
                if not isinstance(item, ListedReject):  # which listing has reported
                    out.write(item[1])
    return files.size(path)


class _UnpackDoFn(RunTask[ImageJob]):
    def __init__(self, job: ImageJob, spec: SourceSpec) -> None:
        super().__init__(job)
        self._spec = spec

    def work(self, number: int) -> Iterator[int]:
        with counters.work_item():
            size = unpack(self._job, self._spec, number)
            counters.count("bytes_unpacked", size)
        yield number


class UnpackImages(beam.PTransform[beam.PCollection[int], beam.PCollection[int]]):
    """Numbers of packs -> the same numbers, each once the pack is written.

    Memory: a block of rows. Repeating a work item, also two copies at once, changes nothing.
    """

    def __init__(self, job: ImageJob, spec: SourceSpec) -> None:
        super().__init__()
        self._job = job
        self._spec = spec

    def expand(self, numbers: beam.PCollection[int]) -> beam.PCollection[int]:
        """Writes packs."""
        return numbers | "Unpack" >> beam.ParDo(
            _UnpackDoFn(self._job, self._spec)
        ).with_output_types(int)
