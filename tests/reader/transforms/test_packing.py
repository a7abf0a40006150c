from __future__ import annotations

import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from recordmill.reader.transforms.packing import pack_sequences
from recordmill.records.errors import UsageError

from .token_rows import keys_of, ragged


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
