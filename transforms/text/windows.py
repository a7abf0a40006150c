"""Windows that slide over the tokens of a chunk, or of many chunks joined with [SEP]."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from recordmill.records.arrays import Int64s
from recordmill.records.codec.jit import kernel, subroutine
from recordmill.records.codec.randomness import Generator, next_below, next_unit, start
from recordmill.records.hashing import U64
from recordmill.transforms.subwords.tokenizer import Ids
from recordmill.transforms.text.chunks import ChunkColumns, Chunks, instance_key
from recordmill.transforms.text.text_spec import Windowed


def window_tokens(spec: Windowed) -> int:
    """Returns the most tokens of a window without [CLS] and [SEP]."""
    return spec.max_seq_length - 2


@dataclass(frozen=True, slots=True)
class Windows:
    """Planned windows: spans of tokens.

    Attributes:
      starts, lengths: `[num_windows] int64`, in the tokens of the chunks.
      keys: `[num_windows] uint64`: order and masks follow from it.
      chunks: `[num_windows] int64`: the chunk that each is of.
    """

    starts: Int64s
    lengths: Int64s
    keys: U64
    chunks: Int64s

    def __len__(self) -> int:
        return len(self.keys)


class _WindowOptions(NamedTuple):
    """What kernels need of the options, and the seed."""

    window_tokens: int
    overlap_size: int
    short_seq_prob: float
    min_short_seq_length: int
    seed: np.uint64


class _WindowColumns(NamedTuple):
    """The arrays of `Windows`, for kernels."""

    starts: Int64s
    lengths: Int64s
    keys: U64


@subroutine
def _draw_length(rng: Generator, options: _WindowOptions, rest: int) -> int:
    """Draws the length of a window over the `rest` tokens of a chunk."""
    if next_unit(rng) < options.short_seq_prob:
        least = options.min_short_seq_length
        return min(least + next_below(rng, options.window_tokens - least + 1), rest)
    return min(options.window_tokens, rest)


@kernel
def _count_windows(
    chunks: ChunkColumns, chosen: Int64s, copies: Int64s, options: _WindowOptions, counts: Int64s
) -> None:
    hashes, _, _, token_counts, _, _ = chunks
    rng = np.empty(1, np.uint64)
    for k in range(chosen.shape[0]):
        chunk = chosen[k]
        start(rng, options.seed, hashes[chunk], copies[k])
        tokens = token_counts[chunk]
        end = _draw_length(rng, options, tokens)
        count = 1
        while end < tokens:
            end -= options.overlap_size
            end += _draw_length(rng, options, tokens - end)
            count += 1
        counts[k] = count


@kernel
def _plan_windows(
    chunks: ChunkColumns, chosen: Int64s, copies: Int64s, options: _WindowOptions,
    windows: _WindowColumns,
) -> None:  # fmt: skip
    hashes, _, token_starts, token_counts, _, _ = chunks
    starts, lengths, keys = windows
    rng = np.empty(1, np.uint64)
    row = 0
    for k in range(chosen.shape[0]):
        chunk, copy = chosen[k], copies[k]
        start(rng, options.seed, hashes[chunk], copy)
        tokens = token_counts[chunk]
        begin = 0
        number = 0
        while True:
            length = _draw_length(rng, options, tokens - begin)
            starts[row] = token_starts[chunk] + begin
            lengths[row] = length
            keys[row] = instance_key(hashes[chunk], copy, number)
            row += 1
            number += 1
            if begin + length >= tokens:
                break
            begin += length - options.overlap_size


def _options(spec: Windowed, seed: int) -> _WindowOptions:
    return _WindowOptions(
        window_tokens(spec), spec.overlap, spec.short_seq_prob, spec.least_tokens,
        np.uint64(seed),
    )  # fmt: skip


def _count(chunks: Chunks, chosen: Int64s, copies: Int64s, options: _WindowOptions) -> Int64s:
    counts = np.empty(len(chosen), np.int64)
    _count_windows(chunks.columns, chosen, copies, options, counts)
    return counts


def count_windows(chunks: Chunks, copy: int, *, spec: Windowed, seed: int) -> Int64s:
    """Returns `[num_chunks] int64`: the number of windows that `plan_windows` will give."""
    copies = np.full(len(chunks), copy, np.int64)
    return _count(chunks, np.arange(len(chunks)), copies, _options(spec, seed))


def plan_windows(
    chunks: Chunks, chosen: Int64s, copies: Int64s, *, spec: Windowed, seed: int
) -> Windows:
    """Plans the windows over chosen chunks.

    Args:
      chunks: all of a block.
      chosen: `[n] int64`: the chunks to make windows of, and
      copies: `[n] int64`: which copy of each.
      spec: how windows slide.
      seed: of this purpose, from `hashing.seed_for`.
    """
    options = _options(spec, seed)
    counts = _count(chunks, chosen, copies, options)
    size = int(counts.sum())
    windows = _WindowColumns(
        np.empty(size, np.int64), np.empty(size, np.int64), np.empty(size, np.uint64)
    )
    _plan_windows(chunks.columns, chosen, copies, options, windows)
    return Windows(*windows, np.repeat(chosen, counts))


def join_documents(
    chunks: Chunks, chosen: Int64s, copies: Int64s, *, sep_id: int
) -> tuple[Chunks, Int64s]:
    """Joins the chosen chunks of each copy to one chunk, with [SEP] between them.

    Args:
      chunks: all of a block.
      chosen, copies: `[n] int64`, as in `plan_windows`.
      sep_id: the id of [SEP].

    Returns:
      One chunk per copy, and `[num_copies] int64`: which copy each is.
    """
    parts: list[Ids] = []
    hashes, sizes = [], []
    copy_numbers = np.unique(copies)
    separator = np.array([sep_id], np.int32)
    for copy in copy_numbers:
        members = chosen[copies == copy]
        hashes.append(chunks.hashes[members[0]])
        size = 0
        for i, member in enumerate(members.tolist()):
            begin = chunks.token_starts[member]
            part = chunks.ids[begin : begin + chunks.token_counts[member]]
            parts += [separator, part] if i else [part]
            size += len(part) + bool(i)
        sizes.append(size)
    counts = np.array(sizes, np.int64)
    keys = np.array(hashes, np.uint64)
    joined = Chunks(
        keys, keys, np.cumsum(counts) - counts, counts,
        np.arange(len(counts) + 1), counts.astype(np.int32),
        np.concatenate(parts) if parts else np.zeros(0, np.int32),
    )  # fmt: skip
    return joined, copy_numbers


@kernel
def _fill(
    ids: Ids, starts: Int64s, window_lengths: Int64s, order: Int64s, cls_id: int, sep_id: int,
    out: Ids, lengths: Ids,
) -> None:  # fmt: skip
    for row in range(order.shape[0]):
        i = order[row]
        out[row, 0] = cls_id
        for j in range(window_lengths[i]):
            out[row, 1 + j] = ids[starts[i] + j]
        out[row, 1 + window_lengths[i]] = sep_id
        lengths[row] = 2 + window_lengths[i]


def fill_windows(
    chunks: Chunks, windows: Windows, chosen: Int64s, *, spec: Windowed, cls_id: int, sep_id: int
) -> tuple[Ids, Ids]:
    """Copies the tokens of chosen windows.

    Args:
      chunks: those that the windows were planned from.
      windows: from `plan_windows`.
      chosen: `[num_chosen] int64`, into `windows`: row i of the result is window `chosen[i]`.
      spec: how windows slide.
      cls_id, sep_id: the ids of [CLS] and [SEP].

    Returns:
      ids, `[num_chosen, max_seq_length] int32`, and lengths, `[num_chosen] int32`.
    """
    ids = np.zeros((len(chosen), spec.max_seq_length), np.int32)
    lengths = np.empty(len(chosen), np.int32)
    _fill(chunks.ids, windows.starts, windows.lengths, chosen, cls_id, sep_id, ids, lengths)
    return ids, lengths
