"""Read the documents of a work item, and write the hashes by which they are compared."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from tempfile import SpooledTemporaryFile

import numpy as np

from recordmill.records.arrays import Int64s
from recordmill.records.hashing import U64
from recordmill.transforms.sources.changes import reading
from recordmill.transforms.sources.document_batch import DocumentBatch
from recordmill.transforms.sources.document_spec import READ_LIMITS, DocumentLimits
from recordmill.transforms.sources.documents import read_documents
from recordmill.transforms.sources.mapped_documents import DocumentMapper, MapSums
from recordmill.transforms.sources.work_item_files import read_work_item
from recordmill.transforms.sources.work_items import SourceRange
from recordmill.transforms.storage import files
from recordmill.transforms.text.cleaning.comparison import first_document, work_item_of
from recordmill.transforms.text.cleaning.duplicates import (
    DuplicateFiles,
    FingerprintState,
    read_repeats,
)
from recordmill.transforms.text.cleaning.exact_hashes import ExactHasher
from recordmill.transforms.text.cleaning.minhash import MinHasher
from recordmill.transforms.text.cleaning.sorted_rows import file_bytes, write_rows
from recordmill.transforms.text.cleaning.unicode_forms import LineNormalizer
from recordmill.transforms.text.text_job import TextJob

HELD_BYTES = 1 << 25  # of rows, before they go to a file
_SPOOL_BYTES = 1 << 22
_BLOCK_POSITIONS = 4096  # that are read at a time
_POSITION_BYTES = 16  # the number of the source in the work item, and the position in its file


class Fingerprinter:
    """Does the work items one after the other; not thread-safe."""

    def __init__(
        self, job: TextJob, limits: DocumentLimits = READ_LIMITS, held_bytes: int = HELD_BYTES
    ) -> None:
        self._job = job
        self._limits = limits
        self._held_bytes = held_bytes
        self._files = DuplicateFiles(job)
        form = job.clean.normalize
        self._normalizer = (
            LineNormalizer(form, whole_texts=job.documents.keeps_text) if form != "none" else None
        )
        self._mapper: DocumentMapper | None = None

    def run(self, item: int) -> int:
        """Does a work item unless it is done; returns the number of its documents.

        Memory: 32 MiB of rows and a block of text, whatever the size of the work item.
        """
        held = self._files
        done = held.fingerprint_state(item)
        if done is not None and self._is_whole(item, done):
            return done.documents
        self._job.workspace.check_own()
        hasher = self._hasher()
        rows: list[U64] = []
        written: list[int] = []
        size = documents = 0
        sources = read_work_item(self._job.workspace.inputs_folder, item)
        with SpooledTemporaryFile(max_size=_SPOOL_BYTES) as positions:
            for number, source in enumerate(sources):
                for batch, goes_on in self._batches(source):
                    first = documents - batch.continues
                    documents = first + len(batch.keys)
                    chosen, hashes = hasher.add(batch, goes_on=goes_on)
                    keys = np.uint64(first_document(item) + first) + chosen.astype(np.uint64)
                    rows.append(hasher.rows(keys, hashes))
                    size += rows[-1].nbytes
                    if self._job.clean.list_dropped:
                        begun = batch.positions[int(batch.continues) :]
                        sourced = np.column_stack([np.full(len(begun), number, np.int64), begun])
                        positions.write(sourced.astype("<i8").tobytes())
                    if size >= self._held_bytes:
                        written.append(self._write(item, len(written), rows))
                        rows, size = [], 0
            if self._job.clean.list_dropped:
                positions.seek(0)
                with files.writing(held.positions_path(item)) as out:
                    shutil.copyfileobj(positions, out)
        if size:
            written.append(self._write(item, len(written), rows))
        state = FingerprintState(written, documents)
        self._job.workspace.write_state(held.fingerprint_state_path(item), state)
        return documents

    def _hasher(self) -> ExactHasher | MinHasher:
        if self._job.clean.deduplicate == "near":
            return MinHasher(self._job.clean.near_threshold)
        return ExactHasher(keeps_lines=self._job.documents.row.is_example)

    def _is_whole(self, item: int, state: FingerprintState) -> bool:
        """Tells whether what a finished work item wrote is still there."""
        held = self._files
        found = all(
            files.size(held.fingerprint_path(item, i)) == file_bytes(rows, held.width)
            for i, rows in enumerate(state.rows)
        )
        listed = self._job.clean.list_dropped and state.documents
        size = state.documents * _POSITION_BYTES
        return found and (not listed or files.size(held.positions_path(item)) == size)

    def _write(self, item: int, number: int, parts: list[U64]) -> int:
        """Writes rows in order of their hashes and documents; returns their number."""
        rows = np.concatenate(parts)
        rows = rows[np.lexsort((rows[:, 1], rows[:, 0]))]
        write_rows(self._files.fingerprint_path(item, number), rows)
        return len(rows)

    def _batches(self, source: SourceRange) -> Iterator[tuple[DocumentBatch, bool]]:
        """Yields batches as scatter sees them, and whether the last document goes on."""
        before: DocumentBatch | None = None
        with reading(source.path, source.size, source.modified_ns):
            for batch in self._documents(source):
                if self._normalizer:
                    batch = replace(batch, lines=self._normalizer(batch.lines))
                if before is not None and len(before.keys):
                    yield before, batch.continues
                before = batch
            if before is not None and len(before.keys):
                yield before, False

    def _documents(self, source: SourceRange) -> Iterator[DocumentBatch]:
        """Yields the documents of a range as scatter sees them."""
        job = self._job
        if not job.map:
            return read_documents(source, job.documents, groups=False, limits=self._limits)
        if self._mapper is None:
            self._mapper = DocumentMapper(job.map, job.documents, self._limits, groups=False)
        return self._mapper.read(source, MapSums())


class ItemDuplicates:
    """The duplicates among the documents of a work item: `KnownDuplicates` of `cleaner.py`."""

    def __init__(self, job: TextJob, item: int) -> None:
        self._job = job
        self._begin = first_document(item)
        self._repeats = read_repeats(job, self._begin, first_document(item + 1) - 1)
        self._origins: dict[int, tuple[str, int]] | None = None

    def find(self, first: int, count: int) -> tuple[Int64s, U64]:
        """Returns which of some documents are dropped, from 0 on, and what each repeats."""
        numbers = self._repeats[:, 0]
        begin = np.uint64(self._begin + first)
        bounds = np.searchsorted(numbers, [begin, np.uint64(self._begin + first + count)])
        found = self._repeats[bounds[0] : bounds[1]]
        return (found[:, 0] - begin).astype(np.int64), found[:, 1]

    def origin(self, original: int) -> tuple[str, int]:
        """Returns the file and the position of a document that others repeat."""
        if self._origins is None:
            self._origins = self._read_origins()
        return self._origins[original]

    def _read_origins(self) -> dict[int, tuple[str, int]]:
        """Reads where the originals lie, those of one work item after those of another."""
        held = DuplicateFiles(self._job)
        origins: dict[int, tuple[str, int]] = {}
        item, block, sources, positions = -1, -1, [""], np.zeros((0, 2), np.int64)
        for document in np.unique(self._repeats[:, 1]).tolist():
            of_item, number = work_item_of(document)
            if of_item != item:
                found = read_work_item(self._job.workspace.inputs_folder, of_item)
                sources, block = [source.name for source in found], -1
            if (of_item, number // _BLOCK_POSITIONS) != (item, block):
                item, block = of_item, number // _BLOCK_POSITIONS
                size = _BLOCK_POSITIONS * _POSITION_BYTES
                data = files.read_bytes(held.positions_path(item), block * size, size)
                positions = np.frombuffer(data, "<i8").reshape(-1, 2)
            source, position = positions[number % _BLOCK_POSITIONS].tolist()
            origins[document] = sources[source], position
        return origins


def load_duplicates(job: TextJob, item: int) -> ItemDuplicates | None:
    """Returns the duplicates of a work item; None where documents are not compared."""
    return ItemDuplicates(job, item) if job.clean.deduplicates else None
