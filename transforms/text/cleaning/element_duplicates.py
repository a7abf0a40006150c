"""Find the duplicates among documents of a PCollection, in files of hashes.

    <work>/duplicates/<token>/elements.json           all run files, and the numbers of parts
    <work>/duplicates/<token>/texts-000000.rows       of a range of hashes: identities that repeat
    <work>/duplicates/<token>/clusters.rows           near: the same of all ranges
    <work>/duplicates/<token>/elements-000000.rows    of a range of identities: who is dropped
    <work>/duplicates/<token>/repeated-000000.rows    for lists: the identities that others repeat
    <work>/duplicates/<token>/listed-000000.rows      for lists: who is dropped, and who is repeated

Rows that repeat others have four columns: an identity, and that of the one that is kept.

A PCollection has no order. Of equal or similar texts the one of the least identity is kept, and of
elements that are equal in everything any: so the same are kept for any bundles.
"""

from __future__ import annotations

import msgspec
import numpy as np

from recordmill.records.errors import RunError
from recordmill.records.hashing import U64
from recordmill.records.state import Count
from recordmill.transforms.dataset.bundles import runs_folder
from recordmill.transforms.storage import files
from recordmill.transforms.text.cleaning.comparison import (
    Clusters,
    equal_documents,
    first_document,
    similar_documents,
)
from recordmill.transforms.text.cleaning.duplicates import (
    PART_BYTES,
    DuplicateFiles,
    RowsState,
    part_count_for,
)
from recordmill.transforms.text.cleaning.element_hashes import (
    DOCUMENT_COLUMNS,
    IDENTITY_COLUMNS,
    RunHashes,
    documents_path,
    hashes_path,
    identities_path,
)
from recordmill.transforms.text.cleaning.identities import positions_of, ranks_of
from recordmill.transforms.text.cleaning.minhash import most_differing
from recordmill.transforms.text.cleaning.sorted_rows import read_rows, write_rows
from recordmill.transforms.text.text_job import TextJob

_PAIR = 4
_LISTED = 4


class _Index(msgspec.Struct, frozen=True):
    """All run files, and into how many ranges their hashes and identities are cut."""

    runs: list[RunHashes]
    texts: Count
    elements: Count


class ElementDuplicates:
    """The duplicates among the documents of all bundles; what is done twice is the same.

    Args:
      job: the job.
    """

    def __init__(self, job: TextJob) -> None:
        self._job = job
        self._files = DuplicateFiles(job)
        self._width = self._files.width + 1  # an identity has two values
        self._known: _Index | None = None

    def list_runs(self, runs: list[RunHashes], part_bytes: int = PART_BYTES) -> int:
        """Writes which run files there are; returns into how many ranges their hashes are cut."""
        hashes = sum(sum(run.hashes) for run in runs) * self._width * 8
        identities = sum(run.identities for run in runs) * IDENTITY_COLUMNS * 8
        texts, elements = (part_count_for(size, part_bytes) for size in (hashes, identities))
        index = _Index(runs, texts, elements)
        self._job.workspace.write_state(self._files.elements_path, index)
        return index.texts

    def _index(self) -> _Index:
        if self._known is None:
            path = self._files.elements_path
            self._known = self._job.workspace.need_state(path, _Index)
        return self._known

    @property
    def num_runs(self) -> int:
        """The number of run files."""
        return len(self._index().runs)

    def compare_texts(self, part: int) -> None:
        """Writes the identities of a range of hashes that repeat another.

        Memory: as `duplicates.compare_part`.

        Raises:
          RunError: a file of hashes is missing or cut.
        """
        index, width = self._index(), self._width
        low, high = _range(part, index.texts)
        found = [
            read_rows(hashes_path(self._run(run), number), rows, width, low, high)
            for run in index.runs
            for number, rows in enumerate(run.hashes)
        ]
        rows = np.concatenate([np.zeros((0, width), np.uint64), *found])
        identities, ranks = ranks_of(rows[:, [1, -1]])
        rows = rows[:, :-1]
        rows[:, 1] = ranks
        if self._job.clean.deduplicate == "near":
            pairs = similar_documents(rows, most_differing(self._job.clean.near_threshold))
        else:
            pairs = np.unique(equal_documents(rows), axis=0)
        # Elements that are equal in everything have one identity, which `compare_elements` sees.
        pairs = pairs[pairs[:, 0] != pairs[:, 1]]
        self._write(self._files.texts_path(part), identities[pairs].reshape(-1, _PAIR))
        if self._job.clean.list_dropped:
            self._write(self._files.repeated_path(part), identities[np.unique(pairs[:, 1])])

    def collect_texts(self) -> int:
        """Joins near duplicates into clusters; returns into how many ranges identities are cut.

        Memory: 24 bytes for each text in a pair of near duplicates, and thrice that meanwhile.

        Raises:
          RunError: the pairs of a part are missing or cut.
        """
        index, held = self._index(), self._files
        if self._job.clean.deduplicate == "near":
            paths = [held.texts_path(part) for part in range(index.texts)]
            nodes = self._all_of(paths)
            clusters = Clusters(np.arange(len(nodes), dtype=np.uint64))
            for path in paths:
                found = positions_of(nodes, self._read(path, _PAIR).reshape(-1, 2))
                clusters.join(found.reshape(-1, 2).astype(np.uint64))
            repeats = clusters.repeats()
            self._write(held.clusters_path, nodes[repeats].reshape(-1, _PAIR))
            if self._job.clean.list_dropped:
                # Of those that others repeat some repeat others in turn.
                self._write(held.repeated_clusters_path, nodes[np.unique(repeats[:, 1])])
        return index.elements

    def _all_of(self, paths: list[str]) -> U64:
        """Returns `[n, 2] uint64`: all identities in files of pairs, in order, each once."""
        nodes = np.zeros((0, 2), np.uint64)
        held: list[U64] = []
        size = 0
        for path in paths:
            held.append(self._read(path, _PAIR).reshape(-1, 2))
            size += len(held[-1])
            if size >= len(nodes):  # so that sorting them costs as often as they double
                nodes, held, size = ranks_of(np.concatenate([nodes, *held]))[0], [], 0
        return ranks_of(np.concatenate([nodes, *held]))[0]

    def compare_elements(self, part: int) -> None:
        """Writes which documents of a range of identities are dropped, of all run files.

        Raises:
          RunError: a file is missing or cut.
        """
        index, held = self._index(), self._files
        low, high = _range(part, index.elements)
        found = [np.zeros((0, IDENTITY_COLUMNS), np.uint64)]
        for number, run in enumerate(index.runs):
            path = identities_path(self._run(run))
            found.append(read_rows(path, run.identities, IDENTITY_COLUMNS, low, high))
            found[-1][:, 1] += np.uint64(first_document(number))
        rows = np.concatenate(found)
        identities = rows[:, [0, 2]]
        repeats = self._repeats(low, high)
        found_at = positions_of(repeats[:, :2], identities)
        equal = equal_documents(rows)
        dropped = np.union1d(rows[found_at >= 0, 1], equal[:, 0])
        self._write(held.dropped_elements_path(part), dropped.reshape(-1, 1))
        if self._job.clean.list_dropped:
            # Of elements that are equal in everything one stands for all.
            originals = identities.copy()
            originals[found_at >= 0] = repeats[found_at[found_at >= 0], 2:]
            is_dropped = np.isin(rows[:, 1], dropped)
            is_repeated = positions_of(self._repeated(low, high), identities) >= 0
            is_repeated |= np.isin(rows[:, 1], equal[:, 1])
            told = is_dropped | is_repeated
            listed = np.column_stack([rows[:, 1], originals, is_dropped.astype(np.uint64)])[told]
            self._write(held.listed_elements_path(part), listed[np.argsort(listed[:, 0])])

    def _repeats(self, low: int, high: int) -> U64:
        """Returns `[n, 4] uint64`: identities in a range that repeat another, in order."""
        held = self._files
        paths = [held.texts_path(part) for part in range(self._index().texts)]
        if self._job.clean.deduplicate == "near":
            paths = [held.clusters_path]
        found = [self._read(path, _PAIR, low, high) for path in paths]
        repeats = np.concatenate([np.zeros((0, _PAIR), np.uint64), *found])
        return repeats[np.lexsort((repeats[:, 1], repeats[:, 0]))]

    def _repeated(self, low: int, high: int) -> U64:
        """Returns `[n, 2] uint64`: identities in a range that others repeat, in order."""
        held = self._files
        paths = [held.repeated_path(part) for part in range(self._index().texts)]
        if self._job.clean.deduplicate == "near":
            paths = [held.repeated_clusters_path]
        found = [self._read(path, 2, low, high) for path in paths]
        return ranks_of(np.concatenate([np.zeros((0, 2), np.uint64), *found]))[0]

    def listed(self, number: int) -> U64:
        """Returns the documents of a run file that are dropped, or that others repeat.

        Returns:
          `[m, 4] uint64`: the number of the document in the run file, the identity of the one that
          is kept, and whether the document is dropped.

        Raises:
          RunError: a file is missing or cut.
        """
        first, last = first_document(number), first_document(number + 1) - 1
        paths = map(self._files.listed_elements_path, range(self._index().elements))
        found = [self._read(path, _LISTED, first, last) for path in paths]
        rows = np.concatenate([np.zeros((0, _LISTED), np.uint64), *found])
        rows[:, 0] -= np.uint64(first)
        return rows

    def documents(self, number: int) -> tuple[str, U64, U64]:
        """Returns a run file without its extension, its documents, and which are dropped.

        Returns:
          Its path; `[n, 3] uint64` as `ElementHashes` writes them; `[m] uint64`, their numbers.

        Raises:
          RunError: a file is missing or cut.
        """
        index = self._index()
        run = index.runs[number]
        first, last = first_document(number), first_document(number + 1) - 1
        dropped = [np.zeros((0, 1), np.uint64)]
        for part in range(index.elements):
            dropped.append(self._read(self._files.dropped_elements_path(part), 1, first, last))
        path = documents_path(self._run(run))
        size = run.documents * DOCUMENT_COLUMNS * 8
        data = files.read_bytes(path) if files.exists(path) else b""
        if len(data) != size:
            raise RunError(f"{path} is missing or cut; run the pipeline again")
        documents = np.frombuffer(data, "<u8").astype(np.uint64).reshape(-1, DOCUMENT_COLUMNS)
        numbers = np.concatenate(dropped)[:, 0] - np.uint64(first)
        return self._run(run), documents, numbers

    def _run(self, run: RunHashes) -> str:
        return files.join(runs_folder(self._job), run.run)

    def _write(self, path: str, rows: U64) -> None:
        if len(rows):
            write_rows(path, rows)
        self._job.workspace.write_state(f"{path}.json", RowsState([len(rows)]))

    def _read(self, path: str, width: int, low: int = 0, high: int = (1 << 64) - 1) -> U64:
        rows = self._files.rows_state(f"{path}.json")
        if rows is None:
            raise RunError(f"{path} is missing or damaged; run the pipeline again")
        return read_rows(path, rows[0], width, low, high)


def _range(part: int, parts: int) -> tuple[int, int]:
    return (part << 64) // parts, ((part + 1) << 64) // parts - 1
