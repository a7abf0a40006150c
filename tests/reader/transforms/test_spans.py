from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from recordmill.reader.transforms.spans import corrupt_spans, corrupted_lengths
from recordmill.records.errors import UsageError

from .token_rows import keys_of, ragged

VOCAB, LENGTH, EOS = 1000, 40, 1


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


START, ENCODER_PAD, DECODER_PAD, LABEL_PAD = 2, 0, 7, -100


class TestCerebrasNames:
    """What Cerebras Model Zoo R_1.6.1, T5DynamicDataProcessor, gives to its model."""

    def found(self, rows: list[list[int]], **options: Any) -> dict[str, np.ndarray]:
        transform = corrupt_spans(
            vocab_size=VOCAB, max_seq_length=LENGTH, names="cerebras", seed=5, **options
        )
        batch = transform({"input_ids": ragged(rows)}, keys_of(len(rows)))
        return {name: value.numpy() for name, value in batch.items()}

    def test_names_dtypes_and_shapes(self) -> None:
        found = self.found(sample_rows(50))
        source, target = corrupted_lengths(LENGTH)
        ids, masks = ((50, source - 1), np.int32), ((50, target), np.int32)
        assert {name: (value.shape, value.dtype) for name, value in found.items()} == {
            "encoder_input_ids": ids,
            "encoder_mask": ids,
            "encoder_input_length": ((50,), np.int32),
            "decoder_input_ids": masks,
            "decoder_mask": masks,
            "decoder_input_length": ((50,), np.int32),
            "labels": masks,
            "loss_scale": ((50, target), np.float32),
        }

    def test_the_contract(self) -> None:
        rows = sample_rows(80)
        found = self.found(
            rows, decoder_start_id=START, decoder_pad_id=DECODER_PAD, label_pad_id=LABEL_PAD
        )
        lengths = found["encoder_input_length"], found["decoder_input_length"]
        np.testing.assert_allclose(found["loss_scale"], 80 / lengths[1].sum(), rtol=1e-6)
        for i, row in enumerate(rows):
            source, target = lengths[0][i], lengths[1][i]
            columns = [np.arange(found[name].shape[1]) for name in ("encoder_mask", "labels")]
            assert (found["encoder_mask"][i] == (columns[0] >= source)).all()
            assert (found["decoder_mask"][i] == (columns[1] >= target)).all()
            inputs, labels = found["encoder_input_ids"][i], found["labels"][i]
            assert EOS not in inputs
            assert not inputs[source:].any()
            assert labels[target - 1] == EOS
            assert (labels[target:] == LABEL_PAD).all()
            decoder = found["decoder_input_ids"][i]
            assert decoder[0] == START
            assert (decoder[1:target] == labels[: target - 1]).all()
            assert (decoder[target:] == DECODER_PAD).all()
            assert restored(inputs[:source].tolist(), labels[: target - 1].tolist()) == row

    def test_the_same_spans_as_by_the_other_names(self) -> None:
        rows = sample_rows(20)
        other = corrupt_spans(vocab_size=VOCAB, max_seq_length=LENGTH, seed=5)
        labels = other({"input_ids": ragged(rows)}, keys_of(20))["labels"].numpy()
        assert (self.found(rows)["labels"] == labels).all()

    def test_the_decoder_begins_with_its_padding(self) -> None:
        assert (self.found(sample_rows(5))["decoder_input_ids"][:, 0] == 0).all()
        found = self.found(sample_rows(5), decoder_pad_id=DECODER_PAD)
        assert (found["decoder_input_ids"][:, 0] == DECODER_PAD).all()

    def test_the_end_of_the_input_if_asked(self) -> None:
        rows = sample_rows(5)
        found = self.found(rows, encoder_eos=True)
        ends = found["encoder_input_length"] - 1
        assert (found["encoder_input_ids"][np.arange(5), ends] == EOS).all()
        without = self.found(rows)["encoder_input_length"]
        assert (ends == without).all()

    def test_chosen_lengths(self) -> None:
        found = self.found(sample_rows(5), encoder_length=64, decoder_length=32)
        assert found["encoder_mask"].shape == (5, 64)
        assert found["labels"].shape == found["loss_scale"].shape == (5, 32)
        source, target = corrupted_lengths(LENGTH)
        for name, least in (("encoder_length", source - 1), ("decoder_length", target)):
            with pytest.raises(UsageError, match=f"{name} must be {least} or more.*, got 3; give"):
                self.found([], **{name: 3})

    def test_what_is_removed_is_nowhere(self) -> None:
        rows = [[901, *row, 902] for row in sample_rows(30) if len(row) < LENGTH - 1]
        found = self.found(rows, remove=(901, 902))
        plain = self.found([row[1:-1] for row in rows])
        assert all((found[name] == plain[name]).all() for name in plain)

    def test_cls_and_sep_of_word_pieces(self, tmp_path: Any) -> None:
        vocab = tmp_path / "vocab.txt"
        vocab.write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\na\nb\n")
        tokens = tf.ragged.constant([["[CLS]", "a", "b", "a", "a", "[SEP]"], ["[CLS]", "[SEP]"]])
        transform = corrupt_spans(
            vocab_size=50, max_seq_length=8, vocab_file=vocab, eos_id=9, names="cerebras"
        )
        found = transform({"tokens": tokens}, keys_of(2))
        for name in ("encoder_input_ids", "decoder_input_ids", "labels"):
            assert not np.isin(found[name].numpy(), (2, 3)).any()
        assert found["encoder_input_length"].numpy().tolist() == [4, 0]
        with pytest.raises(UsageError, match="needs a vocabulary"):
            self.found([[5]], remove=("[CLS]",))

    def test_wrong_names(self) -> None:
        with pytest.raises(UsageError, match="names must be one of cerebras, seqio, got 'cerebra'"):
            corrupt_spans(vocab_size=VOCAB, max_seq_length=LENGTH, names="cerebra")  # type: ignore[arg-type]


def test_masked_records_are_refused() -> None:
    rows = {"input_ids": ragged([[5, 6]]), "masked_lm_positions": tf.constant([[1]])}
    with pytest.raises(UsageError, match="corrupt_spans needs unmasked records, and these have"):
        corrupt_spans(vocab_size=VOCAB, max_seq_length=LENGTH)(rows, keys_of(1))
