"""Span corruption: against plain Python and the reader, given the same draws; its rates."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from recordmill.records.errors import UsageError
from recordmill.records.hashing import seed_for
from recordmill.records.noise import NoiseCounts
from recordmill.transforms.text.corruption import (
    CorruptionSpec,
    Denoiser,
    corrupt_rows,
    draw_rows,
)

from ..splitmix import GOLDEN, MASK, mix64

SENTINELS = np.arange(999, 799, -1).astype(np.int32)
T5 = Denoiser(0.15, 3)
UL2 = (Denoiser(0.15, 3, 0.5), Denoiser(0.5, 32, 0.25), Denoiser(0.25, 1e9, 0.25))


def random_rows(count: int, width: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, width + 1, count).astype(np.int32)
    lengths[0] = 1
    ids = rng.integers(5, 700, (count, width)).astype(np.int32)
    ids[np.arange(width) >= lengths[:, None]] = 0
    return ids, lengths


def cut_reference(state: int, purpose: int, items: int, parts: int) -> list[int]:
    """The lengths of parts: the positions of the largest draws are cuts."""

    def key(position: int) -> int:
        bits = mix64(state + (2 * position + purpose + 1) * GOLDEN & MASK)
        return (bits >> 31 << 30) + position

    chosen = sorted(range(1, items), key=key)[items - parts :] if parts > 1 else []
    ends = [0, *sorted(chosen), items]
    return [b - a for a, b in itertools.pairwise(ends)]


def corrupted_reference(
    row: list[int], state: int, density: float, span: float
) -> tuple[list[int], list[int]]:
    """T5's random_spans_noise_mask, span by span."""
    noise = min(max(round(len(row) * density), 1), len(row) - 1)
    if len(row) == 1:
        return row, [int(SENTINELS[0])]
    spans = min(max(round(noise / span), 1), len(row) - noise)
    noise_lengths = cut_reference(state, 0, noise, spans)
    other_lengths = cut_reference(state, 1, len(row) - noise, spans)
    inputs: list[int] = []
    targets: list[int] = []
    for i, (other, hidden) in enumerate(zip(other_lengths, noise_lengths, strict=True)):
        sentinel = int(SENTINELS[i])
        inputs += [*row[:other], sentinel]
        targets += [sentinel, *row[other : other + hidden]]
        row = row[other + hidden :]
    return inputs, targets


@pytest.mark.parametrize("denoisers", [(T5,), UL2, (Denoiser(0.5, 3),)])
def test_rows_are_those_of_plain_python(denoisers: tuple[Denoiser, ...]) -> None:
    spec = CorruptionSpec(64, denoisers)
    ids, lengths = random_rows(200, spec.raw_length)
    keys = np.arange(200).astype(np.uint64)
    states, chosen = draw_rows(keys, spec=spec, seed=3, choice_seed=4)
    made = corrupt_rows(ids, lengths, states, chosen, spec=spec, sentinels=SENTINELS)
    assert set(chosen.tolist()) == set(range(len(denoisers)))
    for i in range(200):
        one = denoisers[chosen[i]]
        row = ids[i, : lengths[i]].tolist()
        inputs, targets = corrupted_reference(
            row, int(states[i]), one.density, one.mean_span_length
        )
        assert made.inputs[i, : made.input_lengths[i]].tolist() == inputs
        assert made.targets[i, : made.target_lengths[i]].tolist() == targets
        assert not made.inputs[i, len(inputs) :].any()
        assert not made.targets[i, len(targets) :].any()
        assert len(inputs) < spec.inputs_length
        assert len(targets) < spec.targets_length


def test_the_reader_makes_the_same_of_the_same_draws() -> None:
    import tensorflow as tf

    from recordmill.reader.transforms.spans import corrupt_spans

    spec = CorruptionSpec(40, (T5,))
    ids, lengths = random_rows(100, spec.raw_length)
    keys = np.arange(100).astype(np.uint64)
    seed = seed_for(7, "reader/spans")  # that of the reader, so the states are the same
    states, chosen = draw_rows(keys, spec=spec, seed=seed, choice_seed=0)
    made = corrupt_rows(ids, lengths, states, chosen, spec=spec, sentinels=SENTINELS)
    transform = corrupt_spans(
        vocab_size=1000, max_seq_length=spec.raw_length, names="cerebras", seed=7
    )
    rows = tf.ragged.constant([ids[i, :n].tolist() for i, n in enumerate(lengths)], tf.int32)
    found = transform({"input_ids": rows}, tf.constant([[0, i] for i in range(100)], tf.int64))
    for i in range(100):
        size = int(found["encoder_input_length"][i])
        assert found["encoder_input_ids"][i, :size].numpy().tolist() == (
            made.inputs[i, : made.input_lengths[i]].tolist()
        )
        size = int(found["decoder_input_length"][i])
        assert found["labels"][i, :size].numpy().tolist() == (
            [*made.targets[i, : made.target_lengths[i]].tolist(), 1]
        )


def test_rates_hold_over_many_rows() -> None:
    spec = CorruptionSpec(512, UL2)
    ids, _ = random_rows(4000, spec.raw_length)
    lengths = np.full(4000, spec.raw_length, np.int32)
    keys = np.arange(4000).astype(np.uint64)
    states, chosen = draw_rows(keys, spec=spec, seed=1, choice_seed=2)
    shares = np.bincount(chosen) / 4000
    np.testing.assert_allclose(shares, [0.5, 0.25, 0.25], atol=0.025)
    made = corrupt_rows(ids, lengths, states, chosen, spec=spec, sentinels=SENTINELS)
    density = made.noise_tokens / lengths.sum()
    expected = sum(share * one.density for share, one in zip(shares.tolist(), UL2, strict=True))
    assert abs(density - expected) < 0.002
    plain = CorruptionSpec(512, (T5,))
    assert (plain.raw_length, plain.targets_length) == (568, 114)  # of T5's own pretraining
    one = corrupt_rows(
        ids[:, : spec.raw_length], lengths, states, np.zeros_like(chosen),
        spec=CorruptionSpec(512, (T5, *UL2[1:])), sentinels=SENTINELS,
    )  # fmt: skip
    assert abs(one.noise_tokens / lengths.sum() - 0.15) < 0.002
    assert abs(one.noise_tokens / one.noise_spans - 3) < 0.05


def test_a_span_longer_than_a_row_is_the_end_of_the_row() -> None:
    spec = CorruptionSpec(64, (Denoiser(0.25, 1e9),))
    ids, lengths = random_rows(50, spec.raw_length)
    keys = np.arange(50).astype(np.uint64)
    states, chosen = draw_rows(keys, spec=spec, seed=1, choice_seed=2)
    made = corrupt_rows(ids, lengths, states, chosen, spec=spec, sentinels=SENTINELS)
    for i in np.flatnonzero(lengths > 1).tolist():
        n = int(made.input_lengths[i]) - 1
        assert made.inputs[i, :n].tolist() == ids[i, :n].tolist()
        assert (made.inputs[i] >= 800).sum() == (made.targets[i] >= 800).sum() == 1


def test_every_way_to_cut_is_equally_likely() -> None:
    """8 tokens, 4 of them noise, in 2 spans: 3 x 3 ways."""
    spec = CorruptionSpec(8, (Denoiser(0.5, 2),))
    ids = np.tile(np.arange(10, 18).astype(np.int32), (9000, 1))
    assert spec.raw_length >= 8
    ids = np.pad(ids, [(0, 0), (0, spec.raw_length - 8)])
    lengths = np.full(9000, 8, np.int32)
    keys = np.arange(9000).astype(np.uint64)
    states, chosen = draw_rows(keys, spec=spec, seed=1, choice_seed=2)
    made = corrupt_rows(ids, lengths, states, chosen, spec=spec, sentinels=SENTINELS)
    ways, counts = np.unique(made.inputs, axis=0, return_counts=True)
    assert len(ways) == 9
    assert abs(counts - 1000).max() < 130


def seqio_lengths(inputs_length: int, density: float, span: float) -> tuple[int, int]:
    """seqio's random_spans_helper, as its source has it."""

    def lengths(tokens: int) -> tuple[int, int]:
        noise = round(tokens * density)
        spans = round(noise / span)
        return tokens - noise + spans + 1, noise + spans + 1

    tokens = inputs_length
    while lengths(tokens + 1)[0] <= inputs_length:
        tokens += 1
    targets = lengths(tokens)[1]
    if density == 0.5 and targets > inputs_length:
        tokens -= 1
        targets -= 1
    return tokens, targets


@pytest.mark.parametrize("inputs_length", [32, 114, 512, 1024])
@pytest.mark.parametrize(("density", "span"), [(0.15, 3.0), (0.5, 3.0), (0.15, 8.0), (0.5, 32.0)])
def test_lengths_are_seqios(inputs_length: int, density: float, span: float) -> None:
    counts = NoiseCounts(density, span)
    tokens, targets = seqio_lengths(inputs_length, density, span)
    assert counts.raw_length(inputs_length) == tokens
    # seqio takes one off the target where half of a row is noise, and it may be shorter by more.
    assert targets - (density == 0.5) <= counts.corrupted_lengths(tokens)[1] <= targets
    assert CorruptionSpec(inputs_length, (Denoiser(density, span),)).raw_length == tokens


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"inputs_length": 4}, r"--max_seq_length must be in \[8, 32767\] for span corruption"),
        ({"denoisers": ()}, "--denoisers must name one denoiser or more"),
        ({"denoisers": (Denoiser(0.15, 3, 0),)}, "share of a denoiser must be above 0, got 0"),
        ({"denoisers": (Denoiser(1.0, 3),)}, r"noise_density must be in \(0, 1\), got 1.0"),
        ({"denoisers": (Denoiser(0.5, 0.5),)}, "mean_noise_span_length must be 1 or more"),
        ({"denoisers": (Denoiser(0.999, 100),)}, "tokens before corruption, and may take 32767"),
    ],
)
def test_wrong_values(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        CorruptionSpec(**{"inputs_length": 512, "denoisers": (T5,)} | options)
