"""T5's span corruption of rows of tokens (Raffel et al. 2020, arXiv:1910.10683).

The mask is that of T5's random_spans_noise_mask, drawn as `recordmill.reader.transforms` draws it:
given the same state of draws, `corrupt_spans` there makes the same input and target. A mixture of
denoisers draws one for each row (Tay et al. 2022, arXiv:2205.05131).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from recordmill.records.arrays import Bools, Int32s, Int64s
from recordmill.records.codec.heaps import sift_down
from recordmill.records.codec.jit import kernel, subroutine
from recordmill.records.codec.randomness import mix_one, next_unit, start
from recordmill.records.errors import UsageError
from recordmill.records.hashing import GOLDEN, U64
from recordmill.records.noise import MAX_RAW_TOKENS, NoiseCounts

Float64s = npt.NDArray[np.float64]

_LOW_BITS = 30  # of a key that is sorted: the position

MODES = ("regular", "sequential", "extreme")
_REGULAR, _SEQUENTIAL, _EXTREME = range(len(MODES))
_EXTREME_SPAN, _EXTREME_DENSITY = 12, 0.3


@dataclass(frozen=True, slots=True)
class Denoiser:
    """One way to corrupt rows.

    Attributes:
      density: the share of tokens that are noise, in (0, 1).
      mean_span_length: of noise, in tokens, 1 or more. One that is longer than a row makes the end
        of the row the only span, as a prefix language model has it.
      share: of the rows, any number above 0.
    """

    density: float
    mean_span_length: float
    share: float = 1.0

    @property
    def counts(self) -> NoiseCounts:
        """How many tokens are noise."""
        return NoiseCounts(self.density, self.mean_span_length)


@dataclass(frozen=True)
class CorruptionSpec:
    """How rows are corrupted.

    Attributes:
      inputs_length: the most tokens of an input, sentinels and the end included.
      denoisers: of which each row draws one.
      mode_tokens: of which one begins each input, by its denoiser: of regular, sequential and
        extreme ones; () for none. A token of decimal digits is an id.

    Raises:
      UsageError: a value is not valid.
    """

    inputs_length: int
    denoisers: tuple[Denoiser, ...]
    mode_tokens: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not 8 <= self.inputs_length < MAX_RAW_TOKENS:
            raise UsageError(
                f"--max_seq_length must be in [8, {MAX_RAW_TOKENS - 1}] for span corruption, got "
                f"{self.inputs_length}"
            )
        if self.mode_tokens and len(self.mode_tokens) != len(MODES):
            raise UsageError(
                f"--mode_tokens must be three tokens, of {', '.join(MODES)} denoisers, got "
                f"{','.join(self.mode_tokens)}"
            )
        if not self.denoisers:
            raise UsageError("--denoisers must name one denoiser or more, got none")
        for denoiser in self.denoisers:
            _ = denoiser.counts
            if not 0 < denoiser.share < float("inf"):
                raise UsageError(f"the share of a denoiser must be above 0, got {denoiser.share}")
        if self.raw_length >= MAX_RAW_TOKENS:
            raise UsageError(
                f"rows of --max_seq_length={self.inputs_length} take {self.raw_length} tokens "
                f"before corruption, and may take {MAX_RAW_TOKENS - 1}; use a smaller one"
            )

    @cached_property
    def raw_length(self) -> int:
        """The most tokens of a row before corruption, whichever denoiser it draws."""
        room = self.inputs_length - bool(self.mode_tokens)
        length = min(one.counts.raw_length(room) for one in self.denoisers)
        # Short rows have a span where seqio's helper counts none.
        while any(one.counts.corrupted_lengths(length)[0] > room for one in self.denoisers):
            length -= 1
        return length

    @cached_property
    def modes(self) -> tuple[int, ...]:
        """The mode of each denoiser, as a position in MODES (Tay et al. 2022, section 3.1)."""
        return tuple(
            _SEQUENTIAL
            if one.mean_span_length >= self.raw_length
            else _EXTREME
            if one.mean_span_length >= _EXTREME_SPAN or one.density >= _EXTREME_DENSITY
            else _REGULAR
            for one in self.denoisers
        )

    @cached_property
    def targets_length(self) -> int:
        """The most tokens of a target, sentinels and the end included."""
        return max(one.counts.corrupted_lengths(self.raw_length)[1] for one in self.denoisers)

    @cached_property
    def most_spans(self) -> int:
        """The most sentinels of a row."""
        # A row of one token has a target of one sentinel.
        return max(1, *(one.counts.most_spans(self.raw_length) for one in self.denoisers))


@dataclass(frozen=True, slots=True)
class CorruptedRows:
    """Inputs and targets, without ends and padded with 0.

    Attributes:
      inputs: `[num_rows, inputs_length] int32`.
      input_lengths: `[num_rows] int32`.
      targets: `[num_rows, targets_length] int32`.
      target_lengths: `[num_rows] int32`.
      noise_tokens, noise_spans: of all rows.
    """

    inputs: Int32s
    input_lengths: Int32s
    targets: Int32s
    target_lengths: Int32s
    noise_tokens: int
    noise_spans: int


class _Tables(NamedTuple):
    """Noise tokens and spans of a row by denoiser and length, for kernels."""

    noise: Int64s
    spans: Int64s


@subroutine
def _bits(state: np.uint64, counter: int) -> np.uint64:
    """Returns draw number `counter` of a state, without those before it."""
    return mix_one(state + np.uint64(counter + 1) * GOLDEN)


@subroutine
def _mark_cuts(
    state: np.uint64, purpose: int, items: int, parts: int, heap: U64, is_cut: Bools
) -> None:
    """Marks where `items` items are cut into `parts` parts, none empty: all ways alike likely."""
    is_cut[: items + 1] = False
    wanted = parts - 1
    if wanted <= 0:
        return
    heap[:wanted] = 0
    for position in range(1, items):
        high = _bits(state, 2 * position + purpose) >> np.uint64(_LOW_BITS + 1)
        value = (high << np.uint64(_LOW_BITS)) + np.uint64(position)
        if value > heap[0]:
            sift_down(heap, wanted, value)
    for i in range(wanted):
        is_cut[np.int64(heap[i] & np.uint64((1 << _LOW_BITS) - 1))] = True


@subroutine
def _corrupt_row(
    row: Int32s, length: int, noise: int, sentinels: Int32s, noise_cuts: Bools, other_cuts: Bools,
    inputs: Int32s, targets: Int32s,
) -> tuple[int, int]:  # fmt: skip
    """Fills input and target, in which sentinels stand for what the other has."""
    at = span = others = noises = 0
    input_length = target_length = 0
    while at < length:
        targets[target_length] = sentinels[span]
        target_length += 1
        while True:
            inputs[input_length] = row[at]
            input_length += 1
            at += 1
            others += 1
            if others == length - noise or other_cuts[others]:
                break
        if noise == 0:
            break
        inputs[input_length] = sentinels[span]
        input_length += 1
        while True:
            targets[target_length] = row[at]
            target_length += 1
            at += 1
            noises += 1
            if noises == noise or noise_cuts[noises]:
                break
        span += 1
    return input_length, target_length


@kernel
def _corrupt(
    ids: Int32s, lengths: Int32s, states: U64, denoisers: Int64s, tables: _Tables,
    sentinels: Int32s, inputs: Int32s, input_lengths: Int32s, targets: Int32s,
    target_lengths: Int32s,
) -> tuple[int, int]:  # fmt: skip
    noise_table, span_table = tables
    width = ids.shape[1]
    heap = np.empty(width + 1, np.uint64)
    noise_cuts, other_cuts = np.empty(width + 1, np.bool_), np.empty(width + 1, np.bool_)
    all_noise = all_spans = 0
    for row in range(ids.shape[0]):
        length = lengths[row]
        noise = noise_table[denoisers[row], length]
        spans = span_table[denoisers[row], length]
        _mark_cuts(states[row], 0, noise, spans, heap, noise_cuts)
        _mark_cuts(states[row], 1, length - noise, spans, heap, other_cuts)
        input_lengths[row], target_lengths[row] = _corrupt_row(
            ids[row], length, noise, sentinels, noise_cuts, other_cuts, inputs[row], targets[row]
        )
        all_noise += noise
        all_spans += spans
    return all_noise, all_spans


@kernel
def _draw_rows(
    keys: U64, seed: np.uint64, choice_seed: np.uint64, reached: Float64s, states: U64,
    denoisers: Int64s,
) -> None:  # fmt: skip
    rng = np.empty(1, np.uint64)
    for row in range(keys.shape[0]):
        start(rng, choice_seed, keys[row], 0)
        draw = next_unit(rng)
        denoiser = 0
        while denoiser + 1 < reached.shape[0] and draw >= reached[denoiser]:
            denoiser += 1
        denoisers[row] = denoiser
        start(rng, seed, keys[row], 0)
        states[row] = rng[0]


def draw_rows(
    keys: U64, *, spec: CorruptionSpec, seed: int, choice_seed: int
) -> tuple[U64, Int64s]:
    """Draws the denoiser of each row.

    Args:
      keys: `[num_rows] uint64`.
      spec: has the denoisers.
      seed, choice_seed: of the spans and of the denoisers, from `hashing.seed_for`.

    Returns:
      `[num_rows] uint64`: the state of the draws of each row, and `[num_rows] int64`: its denoiser.
    """
    shares = np.array([one.share for one in spec.denoisers], np.float64)
    states, denoisers = np.empty(len(keys), np.uint64), np.empty(len(keys), np.int64)
    _draw_rows(
        keys, np.uint64(seed), np.uint64(choice_seed), np.cumsum(shares) / shares.sum(), states,
        denoisers,
    )  # fmt: skip
    return states, denoisers


def corrupt_rows(
    ids: Int32s, lengths: Int32s, states: U64, denoisers: Int64s, *, spec: CorruptionSpec,
    sentinels: Int32s,
) -> CorruptedRows:  # fmt: skip
    """Corrupts rows.

    Args:
      ids: `[num_rows, raw_length] int32`.
      lengths: `[num_rows] int32`: the tokens of each row, 1 or more.
      states, denoisers: from `draw_rows`.
      spec: how.
      sentinels: `[n] int32`: the id of the first sentinel of a row, the second, …
    """
    tables = _Tables(
        *(
            np.stack(
                [
                    one.counts.up_to(spec.raw_length)[which].astype(np.int64)
                    for one in spec.denoisers
                ]
            )
            for which in (0, 1)
        )
    )
    inputs = np.zeros((len(ids), spec.inputs_length), np.int32)
    targets = np.zeros((len(ids), spec.targets_length), np.int32)
    input_lengths, target_lengths = np.empty((2, len(ids)), np.int32)
    noise, spans = _corrupt(
        ids, lengths, states, denoisers, tables, sentinels, inputs, input_lengths, targets,
        target_lengths,
    )  # fmt: skip
    return CorruptedRows(inputs, input_lengths, targets, target_lengths, int(noise), int(spans))
