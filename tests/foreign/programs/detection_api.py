"""TensorFlow's Object Detection API: its decoder of tf.Examples.

The decoder needs `tf_slim`, which calls functions by the names of private modules that they have
left since; they get their old names back.
"""

from __future__ import annotations

import sys
from typing import Any

from exchange import serve, stack


def prepare(checkout: str) -> None:
    import tensorflow as tf
    from tensorflow.python.ops import control_flow_ops

    for name in ("case", "cond", "while_loop"):
        if not hasattr(control_flow_ops, name):
            setattr(control_flow_ops, name, getattr(tf.compat.v1, name))
    sys.path.insert(0, checkout)


def read(files: list[str], **options: Any) -> dict[str, Any]:
    """Returns what the decoder gives for each record; `options` are those of its constructor."""
    import tensorflow as tf
    from object_detection.data_decoders import tf_example_decoder

    decoder = tf_example_decoder.TfExampleDecoder(**options)
    dataset = tf.data.TFRecordDataset(files).map(decoder.decode)
    return stack(dataset.as_numpy_iterator())


if __name__ == "__main__":
    serve(prepare, read)
