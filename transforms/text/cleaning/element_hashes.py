"""The hashes by which documents of a PCollection are compared, run file by run file.

A document of a PCollection has no position: its identity, two hashes of all that it has, stands for
it. Beside a run file lie

    <run>.documents   key, split and fate of each document, in order of their numbers
    <run>.identities  identity and number of each that has text, sorted
    <run>.hashes-0    hashes of texts and identities, sorted
    <run>.names       for lists: a line of each document, its identity and name, in this order

and the chunks in the run file carry numbers of documents, in the place of their keys.
"""

from __future__ import annotations

import msgspec
import numpy as np

from recordmill.records.arrays import Int64s
from recordmill.records.hashing import U64
from recordmill.records.state import Count
from recordmill.transforms.sources.document_batch import DocumentBatch
from recordmill.transforms.storage import files
from recordmill.transforms.storage.array_files import write_array
from recordmill.transforms.text.cleaning.exact_hashes import ExactHasher
from recordmill.transforms.text.cleaning.minhash import MinHasher
from recordmill.transforms.text.cleaning.sorted_rows import write_rows
from recordmill.transforms.text.text_job import TextJob

KEPT, TOO_SHORT, TOO_LONG, WITHOUT_TOKENS = range(4)  # the fates of documents
REASONS = {TOO_SHORT: "too_short", TOO_LONG: "too_long"}  # of those that are dropped
DOCUMENT_COLUMNS = 3
IDENTITY_COLUMNS = 3  # half of the identity, the number, the other half
_HELD_BYTES = 1 << 25  # of hashes, before they go to a file


class RunHashes(msgspec.Struct, frozen=True):
    """What lies beside a run file.

    Attributes:
      run: the name of the run file without its extension.
      documents, identities: their numbers.
      hashes: the rows of each file of hashes.
    """

    run: str
    documents: Count
    identities: Count
    hashes: list[Count]


class ElementHashes:
    """Collects the hashes of documents, and writes those of each run file.

    Args:
      job: the job.
      held_bytes: of hashes in memory.
    """

    def __init__(self, job: TextJob, held_bytes: int = _HELD_BYTES) -> None:
        self._is_near = job.clean.deduplicate == "near"
        self._is_listed = job.clean.list_dropped
        self._hasher: ExactHasher | MinHasher
        if self._is_near:
            self._hasher = MinHasher(job.clean.near_threshold)
        else:
            self._hasher = ExactHasher(keeps_lines=job.documents.row.is_example)
        self._held_bytes = held_bytes
        self.begin("")

    def begin(self, path: str) -> None:
        """Begins a run file.

        Args:
          path: of it, without its extension.
        """
        self._path = path
        self._count = 0
        self._documents: list[U64] = []
        self._identities: list[U64] = []
        self._rows: list[U64] = []
        self._names: list[bytes] = []
        self._held = 0
        self._written: list[int] = []

    def add(self, batch: DocumentBatch, identities: U64, splits: Int64s, fates: Int64s) -> U64:
        """Adds documents.

        Args:
          batch: with normalized text.
          identities: `[num_documents, 2] uint64`.
          splits, fates: `[num_documents] int64`.

        Returns:
          `[num_documents] uint64`: their numbers.
        """
        numbers = np.arange(self._count, self._count + len(batch.keys), dtype=np.uint64)
        self._count += len(batch.keys)
        columns = [batch.keys, splits.astype(np.uint64), fates.astype(np.uint64)]
        self._documents.append(np.column_stack(columns))
        chosen, hashes = self._hasher.add(batch, goes_on=False)
        mine = identities[chosen]
        self._identities.append(np.column_stack([mine[:, 0], numbers[chosen], mine[:, 1]]))
        self._rows.append(self._rows_of(mine, hashes))
        self._held += self._rows[-1].nbytes
        if self._held >= self._held_bytes:
            self._write_hashes()
        return numbers

    def add_names(self, lines: list[bytes]) -> None:
        """Adds lines of documents in order of their numbers, where dropped ones are listed."""
        self._names += lines

    def _rows_of(self, identities: U64, hashes: U64) -> U64:
        """Returns the hasher's rows, with half of the identity as document, and the other half."""
        rows = self._hasher.rows(np.arange(len(identities), dtype=np.uint64), hashes)
        of_row = identities[rows[:, 1].astype(np.int64)]
        rows[:, 1] = of_row[:, 0]
        return np.column_stack([rows, of_row[:, 1]])

    def _write_hashes(self) -> None:
        rows = np.concatenate(self._rows)
        rows = rows[np.lexsort((rows[:, 1], rows[:, 0]))]
        write_rows(hashes_path(self._path, len(self._written)), rows)
        self._written.append(len(rows))
        self._rows, self._held = [], 0

    def end(self) -> RunHashes:
        """Writes what is held of a run file."""
        if self._held:
            self._write_hashes()
        documents = np.concatenate([np.zeros((0, DOCUMENT_COLUMNS), np.uint64), *self._documents])
        with files.writing(documents_path(self._path)) as handle:
            write_array(handle, documents.astype("<u8", copy=False))
        empty = np.zeros((0, IDENTITY_COLUMNS), np.uint64)
        if self._is_listed:
            files.write_bytes(names_path(self._path), b"".join(self._names))
        identities = np.concatenate([empty, *self._identities])
        if len(identities):
            order = np.lexsort((identities[:, 1], identities[:, 0]))
            write_rows(identities_path(self._path), identities[order])
        name = self._path.rpartition("/")[2]
        return RunHashes(name, self._count, len(identities), self._written)


def documents_path(run: str) -> str:
    """Returns the file of the documents of a run file."""
    return f"{run}.documents"


def names_path(run: str) -> str:
    """Returns the file of the names of the documents of a run file."""
    return f"{run}.names"


def identities_path(run: str) -> str:
    """Returns the file of the identities of a run file."""
    return f"{run}.identities"


def hashes_path(run: str, number: int) -> str:
    """Returns a file of hashes of a run file."""
    return f"{run}.hashes-{number}"
