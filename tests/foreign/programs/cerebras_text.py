"""Cerebras Model Zoo, Release_1.8.0: the processors of text, with the parameters of a call.

Some of its imports cannot be had on this Python, and are replaced: `keras_preprocessing`, which is
abandoned, and `tensorflow.keras.preprocessing.text` by the code of `tf_keras`; the names of
`tf.estimator.ModeKeys`; and `spacy`, which only its writers call.
"""

from __future__ import annotations

import importlib
import itertools
import os
import sys
import types
from typing import Any

from exchange import serve, stack

MODULES = {
    "BertTfRecordsProcessor": "bert",
    "BertMlmOnlyTfRecordsStaticMaskProcessor": "bert",
    "BertMlmOnlyTfRecordsDynamicMaskProcessor": "bert",
    "GptTfRecordsProcessor": "gpt2",
    "T5DynamicDataProcessor": "t5",
}


def prepare(checkout: str) -> None:
    import tensorflow as tf
    import tf_keras

    keys = types.SimpleNamespace(TRAIN="train", EVAL="eval", PREDICT="infer")
    tf.estimator = types.SimpleNamespace(ModeKeys=keys)
    package = types.ModuleType("keras_preprocessing")
    package.text = tf_keras.preprocessing.text
    sys.modules["keras_preprocessing"] = package
    for name in ("keras_preprocessing.text", "tensorflow.keras.preprocessing.text"):
        sys.modules[name] = tf_keras.preprocessing.text
    sys.modules["spacy"] = types.ModuleType("spacy")
    sys.path.insert(0, checkout)


def read(
    processor: str,
    params: dict[str, Any],
    is_training: bool = False,
    batches: int | None = None,
    tf_config: str = "",
) -> dict[str, Any]:
    """Returns features and "label" of the batches, row by row.

    Args:
      tf_config: makes this process one worker of several, as the environment variable does.
    """
    os.environ.pop("TF_CONFIG", None)
    if tf_config:
        os.environ["TF_CONFIG"] = tf_config
    model = MODULES[processor]
    module = importlib.import_module(f"modelzoo.transformers.tf.{model}.input.{processor}")
    made = getattr(module, processor)(params)
    if model == "t5":
        dataset = made.create_tf_dataset(mode="eval")
    else:
        dataset = made.create_tf_dataset(is_training=is_training)
    rows = []
    for features, label in itertools.islice(dataset.as_numpy_iterator(), batches):
        columns = {**features, "label": label}
        rows += [{name: columns[name][i] for name in columns} for i in range(len(label))]
    return stack(rows)


if __name__ == "__main__":
    serve(prepare, read)
