from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from recordmill.reader.text_preparation import (
    causal_labels,
    corrupt_spans,
    corrupted_lengths,
    pack_sequences,
)
from recordmill.records.errors import UsageError

VOCAB, LENGTH, EOS = 1000, 40, 1


def keys_of(count: int, epoch: int = 0) -> tf.Tensor:
    return tf.constant([[epoch, record] for record in range(count)], tf.int64)


def ragged(rows: list[list[int]]) -> tf.RaggedTensor:
    return tf.ragged.constant(rows, tf.int32)


def sample_rows(count: int, seed: int = 0) -> list[list[int]]:
    rng = np.random.default_rng(seed)
    return [rng.integers(5, 900, rng.integers(1, LENGTH + 1)).tolist() for _ in range(count)]


def restored(inputs: list[int], target: list[int]) -> list[int]:
    """The record that input and target came from: each sentinel replaced by what follows it."""
    spans: dict[int, list[int]] = {}
    for token in target:
        if token >= 900:
            spans[token] = []
            last = token
        else:
            spans[last].append(token)
    return [t for token in inputs for t in (spans[token] if token >= 900 else [token])]


class TestCorruptSpans:
    def test_counts_and_sentinels_are_t5s_and_nothing_is_lost(self) -> None:
        rows = sample_rows(300)
        transform = corrupt_spans(vocab_size=VOCAB, max_seq_length=LENGTH)
        found = {
            k: v.numpy() for k, v in transform({"input_ids": ragged(rows)}, keys_of(300)).items()
        }
        input_length, target_length = corrupted_lengths(LENGTH)
        assert found["encoder_input_ids"].shape == (300, input_length)
        assert found["labels"].shape == (300, target_length)
        for i, row in enumerate(rows):
            inputs = found["encoder_input_ids"][i, found["encoder_input_mask"][i] > 0].tolist()
            labels = found["labels"][i, found["decoder_input_mask"][i] > 0].tolist()
            shifted = found["decoder_input_ids"][i].tolist()
            assert shifted == [0, *found["labels"][i, :-1].tolist()]
            assert inputs.pop() == labels.pop() == EOS
            assert not found["labels"][i, len(labels) + 1 :].any()
            assert restored(inputs, labels) == row
            if len(row) == 1:
                assert labels == [VOCAB - 1]
                continue
            noise = min(max(round(len(row) * 0.15), 1), len(row) - 1)
            spans = max(1, round(noise / 3))
            sentinels = [VOCAB - 1 - j for j in range(spans)]
            assert [t for t in inputs if t >= 900] == sentinels
            assert [t for t in labels if t >= 900] == sentinels
            assert len(labels) == noise + spans
            assert inputs[0] < 900
            assert inputs[-1] >= 900

    def test_every_way_to_cut_is_equally_likely(self) -> None:
        """8 tokens, 4 of them noise, in 2 spans: 3 x 3 ways."""
        transform = corrupt_spans(
            vocab_size=VOCAB, max_seq_length=8, noise_density=0.5, mean_noise_span_length=2.0
        )
        rows = tf.tile(tf.range(10, 18)[None], [9000, 1])
        inputs = transform({"input_ids": rows}, keys_of(9000))["encoder_input_ids"].numpy()
        ways, counts = np.unique(inputs, axis=0, return_counts=True)
        assert len(ways) == 9
        assert abs(counts - 1000).max() < 130

    def test_spans_depend_on_seed_epoch_and_record_alone(self) -> None:
        rows = [row for row in sample_rows(400) if len(row) > 30][:50]
        transform = corrupt_spans(vocab_size=VOCAB, max_seq_length=LENGTH, seed=3)
        whole = transform({"input_ids": ragged(rows)}, keys_of(50))["labels"].numpy()
        part = transform({"input_ids": ragged(rows[20:30])}, keys_of(50)[20:30])["labels"].numpy()
        assert (whole[20:30] == part).all()
        later = transform({"input_ids": ragged(rows)}, keys_of(50, epoch=1))["labels"].numpy()
        assert (later != whole).any(axis=1).mean() > 0.7

    def test_shapes_are_known_in_a_dataset(self) -> None:
        transform = corrupt_spans(vocab_size=VOCAB, max_seq_length=LENGTH)
        rows = tf.data.Dataset.from_tensor_slices((sample_rows(1)[0:1], keys_of(1)))
        spec = (
            rows.batch(4, drop_remainder=True)
            .map(lambda ids, keys: transform({"input_ids": ids}, keys))
            .element_spec
        )
        assert spec["labels"].shape == (4, corrupted_lengths(LENGTH)[1])

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"noise_density": 0.0}, r"noise_density must be in \(0, 1\), got 0.0"),
            ({"mean_noise_span_length": 0.5}, "mean_noise_span_length must be 1 or more"),
            ({"vocab_size": 2}, "vocab_size must be above 2 sentinels, got 2"),
        ],
    )
    def test_wrong_options(self, options: dict[str, Any], message: str) -> None:
        with pytest.raises(UsageError, match=message):
            corrupt_spans(**{"vocab_size": VOCAB, "max_seq_length": LENGTH, **options})


def first_fit(rows: list[list[int]], room: int) -> list[list[list[int]]]:
    packed: list[list[list[int]]] = []
    for row in rows:
        for into in packed:
            if sum(map(len, into)) + len(row) <= room:
                into.append(row)
                break
        else:
            packed.append([row])
    return packed


class TestPackSequences:
    @settings(deadline=None, max_examples=40)
    @given(
        rows=st.lists(
            st.lists(st.integers(1, 99), min_size=1, max_size=12), min_size=1, max_size=12
        )
    )
    def test_rows_are_those_of_first_fit(self, rows: list[list[int]]) -> None:
        found = pack_sequences(max_seq_length=12)({"input_ids": ragged(rows)}, keys_of(len(rows)))
        for i, packed in enumerate(first_fit(rows, 12)):
            padding = [0] * (12 - sum(map(len, packed)))
            ids = [t for record in packed for t in record]
            segments = [j for j, record in enumerate(packed, 1) for _ in record]
            positions = [p for record in packed for p in range(len(record))]
            assert found["input_ids"][i].numpy().tolist() == ids + padding
            assert found["segment_ids"][i].numpy().tolist() == segments + padding
            assert found["position_ids"][i].numpy().tolist() == positions + padding
        assert len(found["input_ids"]) == len(first_fit(rows, 12))

    def test_a_fixed_number_of_rows_is_met_or_an_error(self) -> None:
        rows = {"input_ids": ragged([[7] * 8, [8] * 8, [9] * 4])}
        found = pack_sequences(max_seq_length=12, rows=3)(rows, keys_of(3))
        assert found["segment_ids"].shape == (3, 12)
        assert not found["segment_ids"][2].numpy().any()
        with pytest.raises(tf.errors.InvalidArgumentError, match="needs more than rows=1 rows"):
            pack_sequences(max_seq_length=12, rows=1)(rows, keys_of(3))

    def test_features_that_would_be_lost_must_be_named(self) -> None:
        rows = {"input_ids": ragged([[7, 8]]), "label": tf.constant([1])}
        with pytest.raises(UsageError, match="the records have label too"):
            pack_sequences(max_seq_length=4)(rows, keys_of(1))
        assert "label" not in pack_sequences(max_seq_length=4, drop=["label"])(rows, keys_of(1))


class TestCausalLabels:
    def test_the_label_of_a_token_is_the_next(self) -> None:
        found = causal_labels(max_seq_length=4)(
            {"input_ids": ragged([[5, 6, 7], [5, 6, 7, 8, 9], [5]]), "doc": tf.range(3)}, keys_of(3)
        )
        assert {name: value.numpy().tolist() for name, value in found.items()} == {
            "input_ids": [[5, 6, 7, 0], [5, 6, 7, 8], [5, 0, 0, 0]],
            "labels": [[6, 7, 0, 0], [6, 7, 8, 9], [0, 0, 0, 0]],
            "input_mask": [[1, 1, 0, 0], [1, 1, 1, 1], [0, 0, 0, 0]],
            "doc": [0, 1, 2],
        }

    def test_no_label_crosses_the_end_of_a_packed_record(self) -> None:
        rows = {"input_ids": ragged([[5, 6, 7], [8, 9], [3]])}
        packed = pack_sequences(max_seq_length=7)(rows, keys_of(3))
        found = causal_labels(max_seq_length=6)(packed, keys_of(3))
        assert {name: value.numpy().tolist() for name, value in found.items()} == {
            "input_ids": [[5, 6, 7, 8, 9, 3]],
            "labels": [[6, 7, 0, 9, 0, 0]],
            "input_mask": [[1, 1, 0, 1, 0, 0]],
            "segment_ids": [[1, 1, 1, 2, 2, 3]],
            "position_ids": [[0, 1, 2, 0, 1, 0]],
        }

    @pytest.mark.parametrize("packed_to", [6, 7, 9])
    def test_packed_rows_may_be_of_another_length(self, packed_to: int) -> None:
        rows = {"input_ids": ragged([[5, 6, 7], [8, 9]])}
        packed = pack_sequences(max_seq_length=packed_to)(rows, keys_of(2))
        found = causal_labels(max_seq_length=6, pad_id=0)(packed, keys_of(2))
        assert {name: value.numpy().tolist() for name, value in found.items()} == {
            "input_ids": [[5, 6, 7, 8, 9, 0]],
            "labels": [[6, 7, 0, 9, 0, 0]],
            "input_mask": [[1, 1, 0, 1, 0, 0]],
            "segment_ids": [[1, 1, 1, 2, 2, 0]],
            "position_ids": [[0, 1, 2, 0, 1, 0]],
        }

    def test_packed_rows_with_more_tokens_are_refused(self) -> None:
        rows = {"input_ids": ragged([[5, 6, 7], [8, 9]])}
        packed = pack_sequences(max_seq_length=5)(rows, keys_of(2))
        with pytest.raises(tf.errors.InvalidArgumentError, match="at most max_seq_length=4"):
            causal_labels(max_seq_length=3)(packed, keys_of(2))


def test_word_pieces_are_prepared_as_their_ids(vocab_file: str) -> None:
    pieces = Path(vocab_file).read_text(encoding="utf-8").split()
    rows = [[7, 9, 8], [6], [8, 8, 7, 6, 5]]
    words = tf.ragged.constant([[pieces[i] for i in row] for row in rows])
    for make in (
        lambda **more: causal_labels(max_seq_length=8, **more),
        lambda **more: pack_sequences(max_seq_length=8, **more),
        lambda **more: corrupt_spans(vocab_size=VOCAB, max_seq_length=8, **more),
    ):
        wanted = make()({"input_ids": ragged(rows)}, keys_of(3))
        found = make(vocab_file=vocab_file)({"tokens": words}, keys_of(3))
        assert wanted.keys() == found.keys()
        for name, values in wanted.items():
            assert np.array_equal(values, found[name]), name
        with pytest.raises(UsageError, match="give vocab_file"):
            make()({"tokens": words}, keys_of(3))
