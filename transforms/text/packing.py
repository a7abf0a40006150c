"""Documents in rows: one each, joined and cut, or packed by best fit (Ding et al. 2024).

Joined documents are cut wherever a row ends. Best fit (arXiv:2404.10830) cuts only documents that
are longer than a row, into full rows and a rest, and packs the rests, the longest first, each into
the row with the least room that holds it. In any case every token goes into exactly one row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from recordmill.records.arrays import Bools, Bytes, Int32s, Int64s
from recordmill.records.codec.jit import kernel, subroutine
from recordmill.records.hashing import U64
from recordmill.transforms.text.chunks import Chunks, instance_key
from recordmill.transforms.text.text_spec import Packing


@dataclass(frozen=True, slots=True)
class Parts:
    """Parts of documents, as spans of tokens.

    Attributes:
      starts, lengths: `[num_parts] int64`, in the tokens that they are of.
      keys: `[num_parts] uint64`, all different: order and draws follow from them.
      chunks: `[num_parts] int64`: the chunk that each is of.
      wholes: `[num_parts] int64`: equal for parts of one copy of one chunk, from 0 on.
    """

    starts: Int64s
    lengths: Int64s
    keys: U64
    chunks: Int64s
    wholes: Int64s

    def __len__(self) -> int:
        return len(self.keys)

    def take(self, chosen: Int64s) -> Parts:
        """Returns some of the parts, in the order of `chosen`."""
        return Parts(
            self.starts[chosen], self.lengths[chosen], self.keys[chosen], self.chunks[chosen],
            self.wholes[chosen],
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class PackedRows:
    """Parts by row: row r has `parts` from `splits[r]` to `splits[r + 1]`, one behind the other.

    Attributes:
      parts: in order of their rows.
      splits: `[num_rows + 1] int64`.
    """

    parts: Parts
    splits: Int64s

    def __len__(self) -> int:
        return len(self.splits) - 1

    @property
    def keys(self) -> U64:
        """`[num_rows] uint64`: of the first part of each row."""
        return self.parts.keys[self.splits[:-1]]

    def longer_than(self, tokens: int) -> PackedRows:
        """Returns the rows that have more tokens."""
        keep = np.add.reduceat(self.parts.lengths, self.splits[:-1]) > tokens
        counts = np.diff(self.splits)
        parts = self.parts.take(np.flatnonzero(np.repeat(keep, counts)))
        return PackedRows(parts, np.concatenate([[0], np.cumsum(counts[keep])]).astype(np.int64))


@kernel
def _keys(hashes: U64, chosen: Int64s, copies: Int64s, keys: U64) -> None:
    for i in range(chosen.shape[0]):
        keys[i] = instance_key(hashes[chosen[i]], copies[i], 0)


def whole_parts(chunks: Chunks, chosen: Int64s, copies: Int64s) -> Parts:
    """Returns a part for each chosen chunk, in order of their keys.

    Args:
      chunks: all of a block.
      chosen, copies: `[n] int64`: chunks, and which copy of each.
    """
    keys = np.empty(len(chosen), np.uint64)
    _keys(chunks.hashes, chosen, copies, keys)
    parts = Parts(
        chunks.token_starts[chosen], chunks.token_counts[chosen], keys, chosen,
        np.arange(len(chosen)),
    )  # fmt: skip
    return parts.take(np.argsort(keys, kind="stable"))


@kernel
def _count_cuts(lengths: Int64s, rooms: Int64s) -> int:
    count = 0
    for i in range(lengths.shape[0]):
        count += (lengths[i] + rooms[i] - 1) // rooms[i]
    return count


@kernel
def _cut(
    lengths: Int64s, rooms: Int64s, keys: U64, of: Int64s, begins: Int64s, cut_keys: U64
) -> None:
    at = 0
    for i in range(lengths.shape[0]):
        number = 0
        begin = 0
        while begin < lengths[i]:
            of[at] = i
            begins[at] = begin
            cut_keys[at] = instance_key(keys[i], 0, number) if number else keys[i]
            begin += rooms[i]
            number += 1
            at += 1


def cut_parts(parts: Parts, most_tokens: int | Int64s) -> Parts:
    """Cuts parts that are too long: full ones, then a rest.

    Args:
      parts: any.
      most_tokens: of a part, or `[num_parts] int64`: of the parts that each is cut into.
    """
    rooms = np.broadcast_to(np.asarray(most_tokens, np.int64), (len(parts),)).copy()
    count = _count_cuts(parts.lengths, rooms)
    of, begins = np.empty(count, np.int64), np.empty(count, np.int64)
    keys = np.empty(count, np.uint64)
    _cut(parts.lengths, rooms, parts.keys, of, begins, keys)
    lengths = np.minimum(parts.lengths[of] - begins, rooms[of])
    return Parts(parts.starts[of] + begins, lengths, keys, parts.chunks[of], parts.wholes[of])


@kernel
def _cut_stream(
    lengths: Int64s, keys: U64, num_open: int, capacity: int, overhead: int, of: Int64s,
    begins: Int64s, sizes: Int64s, cut_keys: U64, rows: Int64s,
) -> int:  # fmt: skip
    """Joins the parts behind the first ones, which are open, and cuts them where rows end.

    Returns how many cuts there are.
    """
    count = 0
    row = 0
    free = capacity
    for i in range(lengths.shape[0]):
        if 0 < i <= num_open:  # nothing tells where an open one ends
            row += 1
            free = capacity
        begin = 0
        number = 0
        while begin < lengths[i]:
            if free <= overhead:
                row += 1
                free = capacity
            size = min(lengths[i] - begin, free - overhead)
            of[count] = i
            begins[count] = begin
            sizes[count] = size
            cut_keys[count] = instance_key(keys[i], 0, number) if number else keys[i]
            rows[count] = row
            free -= size + overhead
            begin += size
            number += 1
            count += 1
    return count


def _concat(parts: Parts, capacity: int, overhead: int, is_open: Bools | None) -> PackedRows:
    num_open = 0
    if is_open is not None:
        num_open = int(np.count_nonzero(is_open))
        parts = parts.take(np.argsort(~is_open, kind="stable"))
    # A part is cut at most once for each row that it reaches into.
    most = int((parts.lengths // max(capacity - overhead, 1) + 2).sum())
    of, begins, sizes, rows = np.empty((4, most), np.int64)
    keys = np.empty(most, np.uint64)
    count = _cut_stream(
        parts.lengths, parts.keys, num_open, capacity, overhead, of, begins, sizes, keys, rows
    )
    of = of[:count]
    cut = Parts(
        parts.starts[of] + begins[:count], sizes[:count].copy(), keys[:count].copy(),
        parts.chunks[of], parts.wholes[of],
    )  # fmt: skip
    return PackedRows(cut, _splits(rows[:count]))


def _splits(rows: Int64s) -> Int64s:
    """Returns where each row begins, of the rows of parts in ascending order."""
    return np.concatenate([[0], np.cumsum(np.bincount(rows))]).astype(np.int64)


@subroutine
def _least_room(tree: Bytes, leaves: int, size: int) -> int:
    """Returns the least room of at least `size` that a row has; -1 where no row has it.

    Node i of the tree is 1 where a leaf below it is; its children are 2 i and 2 i + 1.
    """
    node = leaves + size
    if tree[node] == 0:
        while node > 1 and (node & 1 or tree[node + 1] == 0):
            node >>= 1
        if node == 1:
            return -1
        node += 1
        while node < leaves:
            node <<= 1
            if tree[node] == 0:
                node += 1
    return node - leaves


@kernel
def _best_fit(sizes: Int64s, order: Int64s, capacity: int, rows: Int64s) -> int:
    """Fills the row of each part; returns the number of rows."""
    leaves = 1
    while leaves <= capacity:
        leaves *= 2
    tree = np.zeros(2 * leaves, np.uint8)
    first = np.full(capacity + 1, -1, np.int64)  # room -> the last row that got to have it
    following = np.empty(sizes.shape[0], np.int64)  # row -> the one before with the same room
    count = 0
    for k in range(order.shape[0]):
        part = order[k]
        size = sizes[part]
        room = _least_room(tree, leaves, size) if size < capacity else -1
        if room < 0:
            row = count
            count += 1
            room = capacity
        else:
            row = first[room]
            first[room] = following[row]
            if first[room] < 0:
                node = leaves + room
                tree[node] = 0
                while node > 1 and tree[node ^ 1] == 0:
                    node >>= 1
                    tree[node] = 0
        rows[part] = row
        room -= size
        if room > 0:
            following[row] = first[room]
            first[room] = row
            node = leaves + room
            while node > 0 and tree[node] == 0:
                tree[node] = 1
                node >>= 1
    return count


def best_fit(sizes: Int64s, capacity: int) -> Int64s:
    """Returns `[num_parts] int64`: the row of each part, by best-fit decreasing.

    Args:
      sizes: `[num_parts] int64`, in `[1, capacity]`.
      capacity: of a row.
    """
    rows = np.empty(len(sizes), np.int64)
    order = np.argsort(-sizes, kind="stable")
    _best_fit(sizes, order, capacity, rows)
    return rows


def pack(
    parts: Parts, *, packing: Packing, capacity: int, overhead: int = 0,
    is_open: Bools | None = None,
) -> PackedRows:  # fmt: skip
    """Cuts parts where they must be, and says which go into a row together.

    Args:
      parts: in the order in which they are joined.
      packing: "none", "concat" or "best_fit".
      capacity: the tokens of a row.
      overhead: what a row needs for each part beside its tokens, such as [CLS] and [SEP].
      is_open: `[num_parts] bool`: those whose documents go on, so that no end is behind them. They
        are joined with no other; None for none.
    """
    if packing == "concat":
        return _concat(parts, capacity, overhead, is_open)
    parts = cut_parts(parts, capacity - overhead)
    if packing == "none":
        return PackedRows(parts, np.arange(len(parts) + 1))
    rows = best_fit(parts.lengths + overhead, capacity)
    # Parts of a row keep their order, which is random: the longest is not always the first.
    return PackedRows(parts.take(np.argsort(rows, kind="stable")), _splits(rows))


@dataclass(frozen=True, slots=True)
class FilledRows:
    """Rows of tokens, `[num_rows, width] int32` each but for `lengths`.

    Attributes:
      ids: padded with the id asked for.
      segments: 1, 2, … by part, 0 on padding.
      positions: 0, 1, … from the beginning of each part, 0 on padding.
      lengths: `[num_rows] int32`: the tokens of each row.
      answers: `[num_rows, width] bool`: tokens that are no part of a prompt, False on padding.
    """

    ids: Int32s
    segments: Int32s
    positions: Int32s
    lengths: Int32s
    answers: Bools


class _RowArrays(NamedTuple):
    """`FilledRows`, for kernels."""

    ids: Int32s
    segments: Int32s
    positions: Int32s
    lengths: Int32s
    answers: Bools


@kernel
def _fill(
    ids: Any, starts: Int64s, lengths: Int64s, answer_starts: Int64s, splits: Int64s,
    chosen: Int64s, begin_id: int, end_id: int, with_spans: bool, rows: _RowArrays,
) -> None:  # fmt: skip
    out, segments, positions, row_lengths, answers = rows
    for row in range(chosen.shape[0]):
        at = 0
        first_part = splits[chosen[row]]
        for part in range(first_part, splits[chosen[row] + 1]):
            first = at
            if begin_id >= 0:
                out[row, at] = begin_id
                at += 1
            # Unsigned indices cannot count from the end, so the compiler copies many at once.
            to, source = np.uint64(at), np.uint64(starts[part])
            for i in range(np.uint64(lengths[part])):
                out[row, to + i] = ids[source + i]
            if with_spans:
                for j in range(lengths[part]):
                    answers[row, at + j] = starts[part] + j >= answer_starts[part]
            at += lengths[part]
            if end_id >= 0:
                out[row, at] = end_id
                at += 1
            if with_spans:
                for j in range(first, at):
                    segments[row, j] = part - first_part + 1
                    positions[row, j] = j - first
        row_lengths[row] = at


def fill_rows(
    ids: npt.NDArray[Any], packed: PackedRows, chosen: Int64s, *, width: int, pad_id: int = 0,
    around: tuple[int, int] = (-1, -1), answer_starts: Int64s | None = None,
    with_spans: bool = True,
) -> FilledRows:  # fmt: skip
    """Copies the tokens of chosen rows.

    Args:
      ids: `[num_tokens]`: the tokens that parts are spans of.
      packed: rows of at most `width` tokens.
      chosen: `[num_chosen] int64`: row i of the result is row `chosen[i]`.
      width: of the result.
      pad_id: behind the tokens.
      around: ids before and behind each part, such as [CLS] and [SEP]; -1 for none.
      answer_starts: `[num_parts] int64`, in `ids`: where the prompt of each part ends; None for
        documents without prompts.
      with_spans: fill `segments`, `positions` and `answers` too; else these are empty.
    """
    size = len(chosen), width
    of_spans = size if with_spans else (0, 0)
    rows = _RowArrays(
        np.full(size, pad_id, np.int32), np.zeros(of_spans, np.int32),
        np.zeros(of_spans, np.int32), np.empty(len(chosen), np.int32),
        np.zeros(of_spans, np.bool_),
    )  # fmt: skip
    parts = packed.parts
    if answer_starts is None:
        answer_starts = np.zeros(len(parts), np.int64)
    _fill(
        ids,
        parts.starts,
        parts.lengths,
        answer_starts,
        packed.splits,
        chosen,
        *around,
        with_spans,
        rows,
    )
    return FilledRows(*rows)


def count_cut(packed: PackedRows, chunks: Chunks, seed: int) -> dict[str, int]:
    """Counts documents, a copy each, and those whose tokens are in more than one row.

    A document longer than a chunk is counted by its first chunk, which is many rows long.

    Args:
      packed: the rows of a block.
      chunks: that they are of.
      seed: of the hashes of chunks.
    """
    first = chunks.are_first(seed)[packed.parts.chunks]
    parts = np.bincount(packed.parts.wholes[first])
    return {
        "documents_in_rows": int(np.count_nonzero(parts)),
        "documents_cut": int(np.count_nonzero(parts > 1)),
    }
