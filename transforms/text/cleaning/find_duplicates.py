"""The stages that find duplicates, before scatter reads the documents that are kept."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

from recordmill.transforms.dataset.stages import Done, OnceStage, Phase, Stage
from recordmill.transforms.sources.input_stage import InputStage
from recordmill.transforms.sources.work_item_files import read_work_item_count
from recordmill.transforms.storage import files
from recordmill.transforms.text.cleaning.duplicates import (
    PART_BYTES,
    DuplicateFiles,
    collect_duplicates,
    compare_part,
    count_parts,
)
from recordmill.transforms.text.cleaning.fingerprinting import Fingerprinter
from recordmill.transforms.text.text_job import TextJob


class Fingerprint(InputStage[TextJob]):
    """Writes the hashes of the documents of each work item to files, sorted.

    Memory: 32 MiB of hashes and a block of text.
    """

    name = "Fingerprint"
    phase = "fingerprint"

    @cached_property
    def _fingerprinter(self) -> Fingerprinter:
        return Fingerprinter(self.job, self._limits, input_bytes=self._input_bytes)

    @property
    def results_folder(self) -> str:
        """The folder of hashes."""
        return DuplicateFiles(self.job).fingerprints_folder

    def do(self, item: int) -> Done:
        """Hashes the documents of a work item."""
        self._fingerprinter.run(item)
        return Done()


class Compare(Stage[TextJob]):
    """Compares the documents of a range of hashes at a time, and writes which repeat which.

    Memory: the rows of a range in a few copies, 16 MiB each, more beyond 16 GB of rows.
    """

    name = "Compare"

    @cached_property
    def _work_items(self) -> int:
        return read_work_item_count(self.job.workspace.inputs_folder)

    def items(self) -> int:
        """Returns the number of ranges; it is decided once, and kept."""
        return count_parts(self.job, self._work_items, PART_BYTES)

    def do(self, item: int) -> Done:
        """Compares a range."""
        compare_part(self.job, self._work_items, item)
        return Done()

    def phases(self) -> Iterator[Phase]:
        """Yields the ranges that are described."""
        held = DuplicateFiles(self.job)
        yield Phase("compare", files.count(held.parts_folder, ".json"), held.part_count() or 1)


class CollectDuplicates(OnceStage[TextJob]):
    """Decides which documents are dropped: of those that are alike, the first of the input stays.

    Memory: see `collect_duplicates`.
    """

    name = "CollectDuplicates"

    def do(self, item: int) -> Done:
        """Joins the pairs of all ranges."""
        collect_duplicates(self.job)
        return Done()
