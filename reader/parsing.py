"""Parse serialized records into batches of tensors, by the dataset's own schema.

A batch is parsed at once: `parse_single_example` for each record takes several times as long.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from recordmill.reader.features import Features
from recordmill.reader.narrowing import Narrowing
from recordmill.records.schema import Feature, Schema

if TYPE_CHECKING:
    import tensorflow as tf


def _dtype(feature: Feature) -> Any:
    import tensorflow as tf

    return {"int64": tf.int64, "float32": tf.float32, "bytes": tf.string}[feature.dtype]


def _default(feature: Feature) -> Any:
    shape = [size or 0 for size in feature.shape]
    return np.full(shape, b"" if feature.dtype == "bytes" else 0).tolist()


def example_spec(schema: Schema, *, filler: bool = False) -> dict[str, Any]:
    """Returns what `tf.io.parse_example` wants to know of the features.

    A known shape becomes `FixedLenFeature`; one whose first dimension varies `RaggedFeature`.

    Args:
      schema: of the records.
      filler: an empty record becomes zeros and empty strings, instead of an error.
    """
    import tensorflow as tf

    spec: dict[str, Any] = {}
    for feature in schema.features:
        dtype = _dtype(feature)
        if feature.values is not None:
            default = _default(feature) if filler else None
            spec[feature.name] = tf.io.FixedLenFeature(feature.shape, dtype, default)
        else:
            rows = [tf.io.RaggedFeature.UniformRowLength(length) for length in feature.shape[1:]]
            spec[feature.name] = tf.io.RaggedFeature(dtype, partitions=rows)
    return spec


def batch_parser(
    schema: Schema, narrowing: Narrowing, *, filler: bool = False
) -> Callable[[tf.Tensor], Features]:
    """Returns a function from `[batch_size] string`, serialized records, to feature -> batch.

    int64 becomes int32 where `narrowing` says so; a value that does not fit is an error in one
    line. A feature of known shape gives a dense `[batch_size, *shape]`; one whose length varies a
    RaggedTensor `[batch_size, None, …]`, and so does a feature list of a SequenceExample. With
    `filler` an empty record is one of zeros. Records without a schema stay as they are, as the one
    feature `record`.
    """
    import tensorflow as tf

    from recordmill.reader.one_line_errors import PARSE_NAME

    if not schema.features:
        return lambda records: {"record": records}

    if schema.sequence:
        steps = {
            f.name: tf.io.FixedLenSequenceFeature((), _dtype(f), allow_missing=filler)
            for f in schema.features
        }

        def parse_sequences(records: tf.Tensor) -> Features:
            _, padded, lengths = tf.io.parse_sequence_example(
                records, sequence_features=steps, name=PARSE_NAME
            )
            return {
                name: tf.RaggedTensor.from_tensor(values, lengths=lengths[name])
                for name, values in narrowing.batch(padded).items()
            }

        return parse_sequences

    spec = example_spec(schema, filler=filler)

    def parse_examples(records: tf.Tensor) -> Features:
        return narrowing.batch(tf.io.parse_example(records, spec, name=PARSE_NAME))

    return parse_examples
