"""Windows over the tokens of a piece, or of many pieces one behind the other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from recordmill.records.errors import UsageError
from recordmill.records.hashing import U64
from recordmill.records.jit import kernel
from recordmill.records.randomness import mix_one, next_below, next_unit, start
from recordmill.transforms.lines import Int64s
from recordmill.transforms.pairing import check_max_seq_length
from recordmill.transforms.pieces import Pieces
from recordmill.transforms.tokenization import Ids


@dataclass(frozen=True, slots=True)
class WindowSpec:
    """How windows slide.

    Attributes:
      max_seq_length: of an example, with [CLS] and [SEP].
      overlap_size: tokens that a window repeats of the one before.
      short_seq_prob: the share of windows whose length is drawn below the maximum, in [0, 1].
      min_short_seq_length: the least tokens of those, without [CLS] and [SEP].
      cross_documents: join documents with [SEP], so that windows are full.
    """

    max_seq_length: int = 128
    overlap_size: int = 0
    short_seq_prob: float = 0.1
    min_short_seq_length: int = 2
    cross_documents: bool = False

    def __post_init__(self) -> None:
        check_max_seq_length(self.max_seq_length)
        if not 0 <= self.short_seq_prob <= 1:
            raise UsageError(f"--short_seq_prob must be in [0, 1], got {self.short_seq_prob}")
        if not 0 <= self.overlap_size <= self.window_tokens // 2:
            raise UsageError(
                f"--overlap_size must be in [0, {self.window_tokens // 2}] for --max_seq_length="
                f"{self.max_seq_length}, got {self.overlap_size}"
            )
        least = self.overlap_size + 1
        if not least <= self.min_short_seq_length <= self.window_tokens:
            raise UsageError(
                f"--min_short_seq_length must be in [{least}, {self.window_tokens}], got "
                f"{self.min_short_seq_length}"
            )

    @property
    def window_tokens(self) -> int:
        """The most tokens of a window without [CLS] and [SEP]."""
        return self.max_seq_length - 2


@dataclass(frozen=True, slots=True)
class Windows:
    """Planned windows: `[num_windows]` spans of tokens and their keys."""

    starts: Int64s
    lengths: Int64s
    keys: U64

    def __len__(self) -> int:
        return len(self.keys)


@kernel
def _plan(
    pieces: Any, chosen: Int64s, copies: Int64s, spec: Any, seed: np.uint64, out: Any,
    counts: Int64s, dry: bool,
) -> None:  # fmt: skip
    hashes, token_starts, token_counts = pieces
    most, overlap, short_prob, least = spec
    starts, lengths, keys = out
    rng = np.empty(1, np.uint64)
    total = 0
    for k in range(chosen.shape[0]):
        piece = chosen[k]
        start(rng, seed, hashes[piece], copies[k])
        at = 0
        count = 0
        while True:
            target = most
            if next_unit(rng) < short_prob:
                target = least + next_below(rng, most - least + 1)
            length = min(target, token_counts[piece] - at)
            if not dry:
                starts[total] = token_starts[piece] + at
                lengths[total] = length
                number = np.uint64(count) + (np.uint64(copies[k]) << np.uint64(32))
                keys[total] = mix_one(hashes[piece] ^ mix_one(number))
            total += 1
            count += 1
            if at + length >= token_counts[piece]:
                break
            at += length - overlap
        counts[k] = count


def _arrays(size: int) -> tuple[Any, ...]:
    return np.empty(size, np.int64), np.empty(size, np.int64), np.empty(size, np.uint64)


def _planned(
    pieces: Pieces, chosen: Int64s, copies: Int64s, spec: WindowSpec, seed: int, out: Any, dry: bool
) -> Int64s:
    counts = np.empty(len(chosen), np.int64)
    limits = (
        spec.window_tokens, spec.overlap_size, spec.short_seq_prob, spec.min_short_seq_length,
    )  # fmt: skip
    columns = (pieces.hashes, pieces.token_starts, pieces.token_counts)
    _plan(columns, chosen, copies, limits, np.uint64(seed), out, counts, dry)
    return counts


def count_windows(pieces: Pieces, copy: int, *, spec: WindowSpec, seed: int) -> Int64s:
    """Returns `[num_pieces] int64`: the number of windows that `plan_windows` will give."""
    copies = np.full(len(pieces), copy, np.int64)
    return _planned(pieces, np.arange(len(pieces)), copies, spec, seed, _arrays(0), True)


def plan_windows(
    pieces: Pieces, chosen: Int64s, copies: Int64s, *, spec: WindowSpec, seed: int
) -> Windows:
    """Plans the windows over chosen pieces, each in the given copy."""
    counts = _planned(pieces, chosen, copies, spec, seed, _arrays(0), True)
    out = _arrays(int(counts.sum()))
    _planned(pieces, chosen, copies, spec, seed, out, False)
    return Windows(*out)


def join_documents(
    pieces: Pieces, chosen: Int64s, copies: Int64s, *, sep_id: int
) -> tuple[Pieces, Int64s]:
    """Puts the chosen pieces of each copy one behind the other, with [SEP] between them.

    Returns:
      One piece per copy, and which copy each is.
    """
    parts: list[Ids] = []
    hashes, sizes, found = [], [], np.unique(copies)
    separator = np.array([sep_id], np.int32)
    for copy in found:
        members = chosen[copies == copy]
        hashes.append(pieces.hashes[members[0]])
        total = 0
        for i, member in enumerate(members.tolist()):
            begin = pieces.token_starts[member]
            part = pieces.ids[begin : begin + pieces.token_counts[member]]
            parts += [separator, part] if i else [part]
            total += len(part) + bool(i)
        sizes.append(total)
    counts = np.array(sizes, np.int64)
    keys = np.array(hashes, np.uint64)
    joined = Pieces(
        keys, keys, np.cumsum(counts) - counts, counts,
        np.arange(len(counts) + 1), counts.astype(np.int32),
        np.concatenate(parts) if parts else np.zeros(0, np.int32),
    )  # fmt: skip
    return joined, found


@kernel
def _fill(
    ids: Ids, starts: Int64s, window_lengths: Int64s, order: Int64s, cls_id: int, sep_id: int,
    out: Any, lengths: Ids,
) -> None:  # fmt: skip
    for row in range(order.shape[0]):
        i = order[row]
        out[row, 0] = cls_id
        for j in range(window_lengths[i]):
            out[row, 1 + j] = ids[starts[i] + j]
        out[row, 1 + window_lengths[i]] = sep_id
        lengths[row] = 2 + window_lengths[i]


def fill_windows(
    pieces: Pieces, windows: Windows, chosen: Int64s, *, spec: WindowSpec, cls_id: int, sep_id: int
) -> tuple[Ids, Ids]:
    """Copies the tokens of chosen windows: `[num_chosen, max_seq_length] int32` and lengths."""
    ids = np.zeros((len(chosen), spec.max_seq_length), np.int32)
    lengths = np.empty(len(chosen), np.int32)
    _fill(pieces.ids, windows.starts, windows.lengths, chosen, cls_id, sep_id, ids, lengths)
    return ids, lengths
