"""Read the documents of a work item, and write the hashes by which they are compared."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, nullcontext
from dataclasses import replace
from typing import Any

import numpy as np
import orjson

from recordmill.records.arrays import Int64s
from recordmill.records.hashing import U64
from recordmill.transforms.dataset.error_budget import RejectList
from recordmill.transforms.sources.changes import reading
from recordmill.transforms.sources.document_batch import DocumentBatch
from recordmill.transforms.sources.document_spec import READ_LIMITS, DocumentLimits
from recordmill.transforms.sources.documents import read_documents
from recordmill.transforms.sources.formats import ELEMENTS
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
_BLOCK_NAMES = 4096  # that are read at a time
_END_BYTES = 8


class Fingerprinter:
    """Does the work items one after the other; not thread-safe."""

    def __init__(
        self,
        job: TextJob,
        limits: DocumentLimits = READ_LIMITS,
        held_bytes: int = HELD_BYTES,
        input_bytes: int = 0,
    ) -> None:
        self._job = job
        self._most_inputs = input_bytes and job.documents.most_unpacked_bytes(input_bytes)
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
        names = _NamesFile(held, item) if self._job.clean.list_dropped else None
        lists = self._job.workspace.of_lists
        listed = RejectList(self._job, item, lists, self._most_inputs)
        with names or nullcontext(), listed as rejects:
            for source in sources:
                for batch, goes_on in self._batches(source, rejects):
                    first = documents - batch.continues
                    documents = first + len(batch.keys)
                    chosen, hashes = hasher.add(batch, goes_on=goes_on)
                    begin = np.uint64(first_document(item) + first)
                    found = hasher.rows(begin + chosen.astype(np.uint64), hashes)
                    if batch.ranks:
                        of_row = (found[:, 1] - begin).astype(np.int64)
                        found = np.column_stack([found, batch.ranks()[of_row]])
                    rows.append(found)
                    size += found.nbytes
                    if names:
                        names.add(batch, source.name)
                    if size >= self._held_bytes:
                        written.append(self._write(item, len(written), rows))
                        rows, size = [], 0
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
        listed = not self._job.clean.list_dropped or (
            files.size(held.ends_path(item)) == (state.documents + 1) * _END_BYTES
            and files.exists(held.names_path(item))
        )
        return found and listed

    def _write(self, item: int, number: int, parts: list[U64]) -> int:
        """Writes rows in order of their hashes and documents; returns their number."""
        rows = np.concatenate(parts)
        rows = rows[np.lexsort((rows[:, 1], rows[:, 0]))]
        write_rows(self._files.fingerprint_path(item, number), rows)
        return len(rows)

    def _batches(
        self, source: SourceRange, rejects: RejectList
    ) -> Iterator[tuple[DocumentBatch, bool]]:
        """Yields batches as scatter sees them, and whether the last document goes on."""
        before: DocumentBatch | None = None
        with reading(source.path, source.size, source.modified_ns):
            for batch in self._documents(source):
                rejects.add(batch.rejects)  # scatter lists them; here they end the run early
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
            # The places of elements follow from all that they have.
            groups = source.format == ELEMENTS and len(job.splits) > 1
            return read_documents(source, job.documents, groups=groups, limits=self._limits)
        if self._mapper is None:
            self._mapper = DocumentMapper(job.map, job.documents, self._limits, groups=False)
        return self._mapper.read(source, MapSums())


class _NamesFile:
    """What the documents of a work item are found by: lines of JSON, and where each ends."""

    def __init__(self, held: DuplicateFiles, item: int) -> None:
        self._opened = ExitStack()
        self._names = self._opened.enter_context(files.writing(held.names_path(item)))
        self._ends = self._opened.enter_context(files.writing(held.ends_path(item)))
        self._ends.write(bytes(_END_BYTES))
        self._end = 0

    def add(self, batch: DocumentBatch, source: str) -> None:
        """Adds the documents that begin in a batch."""
        begun = batch.positions[int(batch.continues) :].tolist()
        lines = [orjson.dumps(batch.description(source, position)) + b"\n" for position in begun]
        ends = self._end + np.cumsum([len(line) for line in lines], dtype=np.int64)
        self._names.write(b"".join(lines))
        self._ends.write(ends.astype("<i8").tobytes())
        self._end += sum(map(len, lines))

    def __enter__(self) -> _NamesFile:
        return self

    def __exit__(self, *error: Any) -> None:
        self._opened.__exit__(*error)


class ItemDuplicates:
    """The duplicates among the documents of a work item: `KnownDuplicates` of `cleaner.py`."""

    def __init__(self, job: TextJob, item: int) -> None:
        self._job = job
        self._begin = first_document(item)
        self._repeats = read_repeats(job, self._begin, first_document(item + 1) - 1)
        self._origins: dict[int, dict[str, Any]] | None = None

    def find(self, first: int, count: int) -> tuple[Int64s, U64]:
        """Returns which of some documents are dropped, from 0 on, and what each repeats."""
        numbers = self._repeats[:, 0]
        begin = np.uint64(self._begin + first)
        bounds = np.searchsorted(numbers, [begin, np.uint64(self._begin + first + count)])
        found = self._repeats[bounds[0] : bounds[1]]
        return (found[:, 0] - begin).astype(np.int64), found[:, 1]

    def origin(self, original: int) -> dict[str, Any]:
        """Returns what a document that others repeat is found by."""
        if self._origins is None:
            self._origins = self._read_origins()
        return self._origins[original]

    def _read_origins(self) -> dict[int, dict[str, Any]]:
        """Reads what the originals are found by, those of one work item after those of another."""
        held = DuplicateFiles(self._job)
        origins: dict[int, dict[str, Any]] = {}
        at, ends, names = (-1, -1), np.zeros(1, np.int64), b""
        for document in np.unique(self._repeats[:, 1]).tolist():
            item, number = work_item_of(document)
            block, row = divmod(number, _BLOCK_NAMES)
            if (item, block) != at:
                at, begin = (item, block), block * _BLOCK_NAMES * _END_BYTES
                size = (_BLOCK_NAMES + 1) * _END_BYTES
                ends = np.frombuffer(files.read_bytes(held.ends_path(item), begin, size), "<i8")
                first, last = int(ends[0]), int(ends[-1])
                names = files.read_bytes(held.names_path(item), first, last - first)
            first, last = (ends[row : row + 2] - ends[0]).tolist()
            origins[document] = orjson.loads(names[first:last])
        return origins


def load_duplicates(job: TextJob, item: int) -> ItemDuplicates | None:
    """Returns the duplicates of a work item; None where documents are not compared."""
    return ItemDuplicates(job, item) if job.clean.deduplicates else None
