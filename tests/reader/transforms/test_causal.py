from __future__ import annotations

import pytest
import tensorflow as tf

from recordmill.reader.transforms.causal import causal_labels
from recordmill.reader.transforms.packing import pack_sequences
from recordmill.records.errors import UsageError

from .token_rows import keys_of, ragged


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


class TestGpt:
    def rows(self) -> dict[str, tf.Tensor]:
        return {"input_ids": ragged([[5, 6, 7], [8, 9], [3]])}

    def packed(self, **options: object) -> dict[str, list[list[float]]]:
        rows = pack_sequences(max_seq_length=8)(self.rows(), keys_of(3))
        found = causal_labels(max_seq_length=7, **options)(rows, keys_of(3))  # type: ignore[arg-type]
        return {name: value.numpy().tolist() for name, value in found.items()}

    def test_a_label_at_the_boundary_by_flag(self) -> None:
        found = self.packed(label_boundaries=True)
        assert found["labels"] == [[6, 7, 8, 9, 3, 0, 0]]
        assert found["input_mask"] == [[1, 1, 1, 1, 1, 0, 0]]
        assert found["segment_ids"] == [[1, 1, 1, 2, 2, 3, 0]]

    def test_the_mask_of_cerebras_is_one_on_padding(self) -> None:
        found = self.packed(names="cerebras", label_boundaries=True)
        assert found["input_mask"] == [[0, 0, 0, 0, 0, 1, 1]]
        transform = causal_labels(max_seq_length=7, names="cerebras")
        mask = transform(self.rows(), keys_of(3))["input_mask"]
        assert mask.dtype == tf.float32

    def test_the_padding_of_labels(self) -> None:
        assert self.packed(label_pad_id=-100)["labels"] == [[6, 7, -100, 9, -100, -100, -100]]

    def test_wrong_names(self) -> None:
        with pytest.raises(UsageError, match="names must be one of cerebras, seqio"):
            self.packed(names="gpt")

    def test_masked_records_are_refused(self) -> None:
        rows = {**self.rows(), "masked_lm_positions": tf.constant([[1]] * 3)}
        with pytest.raises(UsageError, match="causal_labels needs unmasked records, and these"):
            causal_labels(max_seq_length=7)(rows, keys_of(3))
