"""Find the duplicates of a corpus in files of hashes; only numbers cross the stage boundaries.

    <work>/fingerprints/<token>/item-000000-0.rows  hashes of a work item's documents, sorted
    <work>/duplicates/<token>/part-000000.rows      of a range of hashes: pairs of documents
    <work>/duplicates/<token>/clusters.rows         near: dropped documents and what they repeat

Beside each lies its description, written once it is whole. For exact duplicates the parts have the
dropped documents already; for near ones the pairs of all parts are joined into clusters. What a
document is there is said by `comparison.py`.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import numpy as np

from recordmill.records.errors import RunError
from recordmill.records.hashing import U64
from recordmill.records.state import Count
from recordmill.transforms.storage import files
from recordmill.transforms.text.cleaning.comparison import (
    EXACT_WIDTH,
    NEAR_WIDTH,
    Clusters,
    distinct,
    equal_documents,
    similar_documents,
)
from recordmill.transforms.text.cleaning.minhash import most_differing
from recordmill.transforms.text.cleaning.sorted_rows import file_bytes, read_rows, write_rows
from recordmill.transforms.text.text_job import TextJob

PART_BYTES = 1 << 24  # of rows that a worker compares at a time, at least
_MOST_PART_BYTES = 1 << 28
_USUAL_PARTS = 1024  # each reads from all files: beyond 16 GB of rows, parts grow first
_PAIR = 2


class FingerprintState(msgspec.Struct, frozen=True):
    """The description of a work item's hashes: the rows of each file, and its documents."""

    rows: list[Count]
    documents: Count


class _PartsState(msgspec.Struct, frozen=True):
    """How many ranges all hashes are cut into."""

    parts: Count


class RowsState(msgspec.Struct, frozen=True):
    """The description of files of pairs: the rows of each."""

    rows: list[Count]


class DuplicateFiles:
    """The files of hashes and of pairs of a job."""

    def __init__(self, job: TextJob) -> None:
        self._job = job
        self.places = 3 if job.workspace.of_pipeline else 1  # numbers that a document's place has
        hashed = NEAR_WIDTH if job.clean.deduplicate == "near" else EXACT_WIDTH
        self.width = hashed + self.places - 1
        self.pair_width = 2 * self.places if job.clean.deduplicate == "near" else _PAIR

    def _path(self, folder: str, name: str) -> str:
        return files.join(self._job.workspace.work, folder, self._job.workspace.token, name)

    @property
    def fingerprints_folder(self) -> str:
        """The folder of the hashes of all work items."""
        return self._path("fingerprints", "")

    @property
    def parts_folder(self) -> str:
        """The folder of the pairs of all parts."""
        return self._path("duplicates", "parts")

    def fingerprint_path(self, item: int, number: int) -> str:
        """A file of hashes of a work item."""
        return self._path("fingerprints", f"item-{item:06d}-{number}.rows")

    def fingerprint_state_path(self, item: int) -> str:
        """The description of the hashes of a work item."""
        return self._path("fingerprints", f"item-{item:06d}.json")

    def names_path(self, item: int) -> str:
        """What the documents of a work item are found by, for lists of dropped documents."""
        return self._path("fingerprints", f"item-{item:06d}.names")

    def ends_path(self, item: int) -> str:
        """Where each of these begins in that file, and the last one ends."""
        return self._path("fingerprints", f"item-{item:06d}.ends")

    @property
    def parts_path(self) -> str:
        """The number of parts."""
        return self._path("duplicates", "parts.json")

    def pairs_path(self, part: int) -> str:
        """The pairs of a part."""
        return self._path("duplicates", f"parts/part-{part:06d}.rows")

    def pairs_state_path(self, part: int) -> str:
        """The description of the pairs of a part."""
        return self._path("duplicates", f"parts/part-{part:06d}.json")

    @property
    def clusters_path(self) -> str:
        """The dropped documents, where parts have no more than pairs."""
        return self._path("duplicates", "clusters.rows")

    @property
    def dropped_path(self) -> str:
        """The numbers of dropped documents, written once all of them are known."""
        return self._path("duplicates", "dropped.json")

    def fingerprint_state(self, item: int) -> FingerprintState | None:
        """Returns the description of a work item's hashes, None where it is not done."""
        return self._job.workspace.read_state(self.fingerprint_state_path(item), FingerprintState)

    def part_count(self) -> int | None:
        """Returns the number of parts, None before it is known."""
        state = self._job.workspace.read_state(self.parts_path, _PartsState)
        return None if state is None else state.parts

    def rows_state(self, path: str) -> list[int] | None:
        """Returns the rows of files of pairs, None where they are not done."""
        state = self._job.workspace.read_state(path, RowsState)
        return None if state is None else state.rows

    def holds_rows(self, path: str, rows: int, width: int) -> bool:
        """Tells whether a file is there in its size; one without rows need not be."""
        return not rows or files.size(path) == file_bytes(rows, width)


def count_parts(job: TextJob, work_items: int, part_bytes: int) -> int:
    """Returns into how many ranges all hashes are cut, once all are written; the number is kept.

    Args:
      job: of the corpus.
      work_items: their number.
      part_bytes: of the rows of a range, at least, where there are so many.

    Raises:
      RunError: the hashes of a work item are missing.
    """
    held = DuplicateFiles(job)
    known = held.part_count()
    if known is None:
        rows = 0
        for item in range(work_items):
            rows += sum(_need(held, item).rows)
        known = part_count_for(rows * held.width * 8, part_bytes)
        job.workspace.write_state(held.parts_path, _PartsState(known))
    return known


def part_count_for(size: int, part_bytes: int) -> int:
    """Returns into how many ranges so many bytes of rows are cut, of `part_bytes` at least."""
    part_bytes = max(part_bytes, min(size // _USUAL_PARTS, _MOST_PART_BYTES))
    return max(1, -(-size // part_bytes))


def _need(held: DuplicateFiles, item: int) -> FingerprintState:
    state = held.fingerprint_state(item)
    if state is None:
        path = held.fingerprint_state_path(item)
        raise RunError(f"{path} is missing or damaged; run the same command again")
    return state


def compare_part(job: TextJob, work_items: int, part: int) -> None:
    """Writes the pairs of one range of hashes, unless they are there.

    Memory: the rows of the range in a few copies: 16 MiB, and up to 256 MiB beyond 16 GB of rows.

    Raises:
      RunError: the hashes of a work item are missing or cut; the next run makes them anew.
    """
    held = DuplicateFiles(job)
    path, state_path = held.pairs_path(part), held.pairs_state_path(part)
    done = held.rows_state(state_path)
    if done is not None and held.holds_rows(path, done[0], held.pair_width):
        return
    job.workspace.check_own()
    parts = held.part_count() or 1
    low, high = (part << 64) // parts, ((part + 1) << 64) // parts - 1
    found = list(_hashes(held, work_items, low, high))
    rows = np.concatenate(found) if found else np.zeros((0, held.width), np.uint64)
    if job.clean.deduplicate == "near":
        pairs = similar_documents(rows, most_differing(job.clean.near_threshold))
    else:
        pairs = equal_documents(rows)
        pairs = pairs[np.argsort(pairs[:, 0])]
    if len(pairs):
        write_rows(path, pairs)
    job.workspace.write_state(state_path, RowsState([len(pairs)]))


def _hashes(held: DuplicateFiles, work_items: int, low: int, high: int) -> Iterator[U64]:
    for item in range(work_items):
        for number, rows in enumerate(_need(held, item).rows):
            path = held.fingerprint_path(item, number)
            try:
                yield read_rows(path, rows, held.width, low, high)
            except RunError:
                files.delete_quietly([held.fingerprint_state_path(item)])
                raise


def collect_duplicates(job: TextJob) -> None:
    """Writes which documents are dropped, once the pairs of all parts are, unless it is known.

    Memory: 16 bytes for each document in a pair of near duplicates (32 for elements of a
    PCollection), and thrice that meanwhile.

    Raises:
      RunError: the pairs of a part are missing or cut; the next run makes them anew.
    """
    held = DuplicateFiles(job)
    is_near = job.clean.deduplicate == "near"
    known = held.rows_state(held.dropped_path)
    if known is not None and (not is_near or held.holds_rows(held.clusters_path, known[0], _PAIR)):
        return
    job.workspace.check_own()
    rows = [_need_rows(held, part) for part in range(held.part_count() or 0)]
    if is_near:
        clusters = Clusters(_all_of(held, rows))
        for pairs in _pairs(held, rows):
            clusters.join(pairs)
        repeats = clusters.repeats()
        if len(repeats):
            write_rows(held.clusters_path, repeats)
        rows = [len(repeats)]
    job.workspace.write_state(held.dropped_path, RowsState(rows))


def _need_rows(held: DuplicateFiles, part: int) -> int:
    state = held.rows_state(held.pairs_state_path(part))
    if state is None:
        path = held.pairs_state_path(part)
        raise RunError(f"{path} is missing or damaged; run the same command again")
    return state[0]


def _all_of(held: DuplicateFiles, rows: list[int]) -> U64:
    """Returns `[n, places] uint64`: the places of all documents in pairs, in order, each once."""
    nodes = np.zeros((0, held.places), np.uint64)
    found: list[U64] = []
    size = 0
    for pairs in _pairs(held, rows):
        found.append(pairs.reshape(-1, held.places))
        size += len(found[-1])
        if size >= len(nodes):  # so that sorting them costs as often as they double
            nodes, found, size = distinct(np.concatenate([nodes, *found])), [], 0
    return distinct(np.concatenate([nodes, *found]))


def _pairs(held: DuplicateFiles, rows: list[int]) -> Iterator[U64]:
    for part, count in enumerate(rows):
        path, state_path = held.pairs_path(part), held.pairs_state_path(part)
        yield _read_pairs(held, path, state_path, count, held.pair_width)


def _read_pairs(
    held: DuplicateFiles, path: str, state_path: str, rows: int, width: int,
    bounds: tuple[int, int] = (0, (1 << 64) - 1),
) -> U64:  # fmt: skip
    """Reads pairs whose first document is in some bounds."""
    try:
        return read_rows(path, rows, width, *bounds)
    except RunError:
        files.delete_quietly([state_path, held.dropped_path])
        raise


def read_repeats(job: TextJob, first: int, last: int) -> U64:
    """Returns `[n, 2] uint64`: dropped documents in `[first, last]`, ascending, and originals.

    Raises:
      RunError: they are missing or cut; the next run makes them anew.
    """
    held = DuplicateFiles(job)
    rows = held.rows_state(held.dropped_path)
    if rows is None:
        raise RunError(f"{held.dropped_path} is missing or damaged; run the same command again")
    if job.clean.deduplicate == "near":
        path, bounds = held.clusters_path, (first, last)
        return _read_pairs(held, path, held.dropped_path, rows[0], _PAIR, bounds)
    found = [
        _read_pairs(held, held.pairs_path(p), held.pairs_state_path(p), count, _PAIR, (first, last))
        for p, count in enumerate(rows)
        if count
    ]
    repeats = np.concatenate([np.zeros((0, _PAIR), np.uint64), *found])
    return repeats[np.argsort(repeats[:, 0])]
