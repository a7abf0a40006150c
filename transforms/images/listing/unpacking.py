"""Unpack images from columns to packs, one pack a work item; see `byte_rows.py`."""

from __future__ import annotations

from collections.abc import Iterator

from recordmill.records.errors import RunError
from recordmill.transforms.dataset.stages import Done, Phase, Stage
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


class Unpack(Stage[ImageJob]):
    """Writes packs. Memory: a block of rows.

    Args:
      job: the job.
      spec: of its input.
      packs: their number.
      input_bytes: of all packs, for progress.
    """

    name = "Unpack"

    def __init__(self, job: ImageJob, spec: SourceSpec, packs: int, input_bytes: int = 0) -> None:
        super().__init__(job)
        self._spec = spec
        self._packs = packs
        self._input_bytes = input_bytes

    def items(self) -> int:
        """Returns the number of packs."""
        return self._packs

    def do(self, item: int) -> Done:
        """Writes a pack unless it is there."""
        return Done(counts={"bytes_unpacked": unpack(self.job, self._spec, item)})

    def describe(self, item: int) -> str:
        """Returns the name of its first file."""
        return read_work_item(self.job.workspace.inputs_folder, item)[0].name

    def phases(self) -> Iterator[Phase]:
        """Yields the packs that are there."""
        done = files.count(self.job.packs_folder, ".bin")
        yield Phase("unpack", done, self._packs, self._input_bytes)
