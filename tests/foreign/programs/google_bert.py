"""google-research/bert: the reader of its pretraining, and its own writer.

It is code for TensorFlow 1. `tensorflow.compat.v1` is that but for `tf.contrib`, of which the
reader calls two functions; both are in `tf.data.experimental` under their names.
"""

from __future__ import annotations

import itertools
import sys
import types
from typing import Any

from exchange import serve, stack


def prepare(checkout: str) -> None:
    import tensorflow as tf

    old = tf.compat.v1
    old.contrib = types.SimpleNamespace(data=tf.data.experimental)
    sys.modules["tensorflow"] = old
    sys.path.insert(0, checkout)


def read(action: str, **arguments: Any) -> dict[str, Any]:
    actions = {
        "read": read_rows, "write": write, "classify": read_classified, "convert": convert_rows,
    }  # fmt: skip
    return actions[action](**arguments)


def read_rows(files: list[str], lengths: list[int], is_training: bool, rows: int) -> dict[str, Any]:
    """Returns the features of so many rows: the reader repeats for ever."""
    import run_pretraining

    input_fn = run_pretraining.input_fn_builder(files, *lengths, is_training)
    batches = input_fn({"batch_size": 1}).as_numpy_iterator()
    return stack(
        {name: value[0] for name, value in batch.items()}
        for batch in itertools.islice(batches, rows)
    )


def write(flags: list[str]) -> dict[str, Any]:
    """Runs `create_pretraining_data.py`."""
    import create_pretraining_data

    create_pretraining_data.FLAGS(["create_pretraining_data.py", *flags])
    create_pretraining_data.main(None)
    return {}


def _run_classifier() -> Any:
    """Imports run_classifier without its optimizer, which names classes that Keras 3 has not."""
    sys.modules.setdefault("optimization", types.ModuleType("optimization"))
    import run_classifier

    return run_classifier


def read_classified(files: list[str], length: int, rows: int) -> dict[str, Any]:
    """Returns the features of so many rows, by run_classifier's reader, in order."""
    builder = _run_classifier().file_based_input_fn_builder
    batches = builder(files, length, False, False)({"batch_size": 1}).as_numpy_iterator()
    return stack(
        {name: value[0] for name, value in batch.items()}
        for batch in itertools.islice(batches, rows)
    )


def convert_rows(
    texts: list[list[str]], labels: list[str], names: list[str], length: int, vocab_file: str
) -> dict[str, Any]:
    """Returns what run_classifier makes of rows of one text or two."""
    classifier = _run_classifier()
    tokenizer = classifier.tokenization.FullTokenizer(vocab_file, do_lower_case=True)
    made = []
    for number, (row, label) in enumerate(zip(texts, labels, strict=True)):
        example = classifier.InputExample(str(number), row[0], *row[1:], label=label)
        features = classifier.convert_single_example(
            number + 5,
            example,
            names,
            length,
            tokenizer,  # the first five are logged
        )
        made.append(
            {
                "input_ids": features.input_ids, "input_mask": features.input_mask,
                "segment_ids": features.segment_ids, "label_ids": features.label_id,
            }
        )  # fmt: skip
    return stack(made)


if __name__ == "__main__":
    serve(prepare, read)
