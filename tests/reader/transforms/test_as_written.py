"""Transforms of batches give what static objectives write of the same rows."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from recordmill.reader.transforms.causal import causal_labels
from recordmill.reader.transforms.packing import pack_sequences
from recordmill.reader.transforms.spans import corrupt_spans
from recordmill.records.hashing import seed_for
from recordmill.transforms.text.causal import causal_columns
from recordmill.transforms.text.corruption import corrupt_rows, draw_rows
from recordmill.transforms.text.denoising import corrupted_columns
from recordmill.transforms.text.packing import FilledRows, PackedRows, Parts, fill_rows, pack
from recordmill.transforms.text.text_spec import T5, Gpt

from .token_rows import keys_of, ragged

LENGTH, PAD = 20, 7
DOCUMENTS = [
    np.arange(20 + 10 * i, 20 + 10 * i + size).tolist()
    for i, size in enumerate([9, 5, 20, 3, 12, 1, 8, 6, 2, 19, 4])
]


def packed(width: int) -> tuple[PackedRows, FilledRows]:
    """The documents in rows by best fit."""
    ids = np.array([token for document in DOCUMENTS for token in document], np.int32)
    sizes = np.array([len(document) for document in DOCUMENTS])
    numbers = np.arange(len(sizes))
    parts = Parts(np.cumsum(sizes) - sizes, sizes, numbers.astype(np.uint64), numbers, numbers)
    rows = pack(parts, packing="best_fit", capacity=width)
    return rows, fill_rows(ids, rows, np.arange(len(rows)), width=width, pad_id=PAD)


def test_packed_rows() -> None:
    """Documents of a row, given as a batch in their order, come out as that row."""
    packing, rows = packed(LENGTH)
    assert len(packing) < len(DOCUMENTS)
    transform = pack_sequences(max_seq_length=LENGTH, pad_id=PAD)
    for row in range(len(packing)):
        mine = packing.parts.wholes[packing.splits[row] : packing.splits[row + 1]]
        made = transform({"input_ids": ragged([DOCUMENTS[i] for i in mine])}, keys_of(len(mine)))
        assert made["input_ids"].numpy().tolist() == [rows.ids[row].tolist()]
        assert made["segment_ids"].numpy().tolist() == [rows.segments[row].tolist()]
        assert made["position_ids"].numpy().tolist() == [rows.positions[row].tolist()]


@pytest.mark.parametrize("told_apart", [False, True])
def test_causal_labels(told_apart: bool) -> None:
    spec = Gpt(max_seq_length=LENGTH, use_segment_ids=told_apart, use_position_id=told_apart)
    _, rows = packed(spec.row_tokens)
    written, _ = causal_columns(rows, spec, PAD)
    transform = causal_labels(max_seq_length=LENGTH, pad_id=PAD, label_boundaries=not told_apart)
    read = {"input_ids": rows.ids, "segment_ids": rows.segments, "position_ids": rows.positions}
    made = transform({k: tf.constant(v) for k, v in read.items()}, keys_of(len(rows.ids)))
    for name, values in written.items():
        assert made[name].numpy().tolist() == np.asarray(values).astype(int).tolist(), name


def test_labels_of_maxtext() -> None:
    spec = Gpt(max_seq_length=LENGTH, format="maxtext")
    _, rows = packed(spec.row_tokens)
    written, _ = causal_columns(rows, spec, PAD)
    transform = causal_labels(max_seq_length=LENGTH, pad_id=PAD)
    read = {"input_ids": rows.ids, "segment_ids": rows.segments}
    made = transform({k: tf.constant(v) for k, v in read.items()}, keys_of(len(rows.ids)))
    assert (made["input_ids"].numpy() == written["inputs"]).all()
    assert (made["labels"].numpy() == written["targets"]).all()
    known = np.asarray(written["targets_segmentation"]) > 0
    assert (made["input_mask"].numpy() == known).all()


def test_corrupted_spans_in_cerebras_form() -> None:
    spec = T5(max_seq_length=32).corruption
    rng = np.random.default_rng(0)
    lengths = rng.integers(1, spec.raw_length + 1, 40).astype(np.int32)
    ids = rng.integers(20, 500, (40, spec.raw_length)).astype(np.int32)
    ids[np.arange(spec.raw_length) >= lengths[:, None]] = PAD
    states, denoisers = draw_rows(
        np.arange(40).astype(np.uint64), spec=spec, seed=seed_for(3, "reader/spans"), choice_seed=0
    )
    made = corrupt_rows(
        ids, lengths, states, denoisers, spec=spec,
        sentinels=np.arange(999, 900, -1).astype(np.int32),
    )  # fmt: skip
    written = corrupted_columns(made, form="cerebras", end_id=1, start_id=2, pad_id=PAD)
    transform = corrupt_spans(
        vocab_size=1000, max_seq_length=spec.raw_length, names="cerebras", seed=3, pad_id=PAD,
        decoder_start_id=2, encoder_length=32,
    )  # fmt: skip
    rows = ragged([ids[i, :size].tolist() for i, size in enumerate(lengths)])
    read = transform({"targets": rows}, keys_of(40))
    assert set(read) == set(written)
    for name in set(read) - {"loss_scale"}:
        assert read[name].numpy().tolist() == np.asarray(written[name]).astype(int).tolist(), name
    # Its scale is of the batch: with a batch of one record it is that record's.
    one = transform({"targets": rows[:1]}, keys_of(1))
    np.testing.assert_allclose(one["loss_scale"][0], np.asarray(written["loss_scale"])[0])
