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
    return {"read": read_rows, "write": write}[action](**arguments)


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


if __name__ == "__main__":
    serve(prepare, read)
