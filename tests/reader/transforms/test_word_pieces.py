from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from recordmill.reader.transforms.causal import causal_labels
from recordmill.reader.transforms.packing import pack_sequences
from recordmill.reader.transforms.spans import corrupt_spans
from recordmill.records.errors import UsageError

from .token_rows import keys_of, ragged


def test_word_pieces_are_prepared_as_their_ids(vocab_file: str) -> None:
    pieces = Path(vocab_file).read_text(encoding="utf-8").split()
    rows = [[7, 9, 8], [6], [8, 8, 7, 6, 5]]
    words = tf.ragged.constant([[pieces[i] for i in row] for row in rows])
    for make in (
        lambda **more: causal_labels(max_seq_length=8, **more),
        lambda **more: pack_sequences(max_seq_length=8, **more),
        lambda **more: corrupt_spans(vocab_size=1000, max_seq_length=8, **more),
    ):
        wanted = make()({"input_ids": ragged(rows)}, keys_of(3))
        found = make(vocab_file=vocab_file)({"tokens": words}, keys_of(3))
        assert wanted.keys() == found.keys()
        for name, values in wanted.items():
            assert np.array_equal(values, found[name]), name
        with pytest.raises(UsageError, match="give vocab_file"):
            make()({"tokens": words}, keys_of(3))
