"""Reading finished datasets with tf.data. Imports `recordmill.records` only: no Beam.

A name is imported where it is first used, so that TensorFlow is loaded by the first call that
needs it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from recordmill.reader.arrays import RaggedArray, as_numpy
    from recordmill.reader.balance import (
        balance_by_label,
        balance_by_rejection,
        class_distribution,
        read_labels,
    )
    from recordmill.reader.bucketing import bucket_boundaries, bucket_by_length, stored_lengths
    from recordmill.reader.devices import distribute, prefetch_to_device
    from recordmill.reader.feeding import Feed, from_queue
    from recordmill.reader.image_augmentation import augment_images, normalise_images
    from recordmill.reader.images import RandomCrop, decode_images
    from recordmill.reader.loading import Reader, load
    from recordmill.reader.masking import mask_tokens
    from recordmill.reader.mixing import mix, temperature_weights
    from recordmill.reader.performance import perf_input_fn
    from recordmill.reader.random_access import RecordTable
    from recordmill.reader.text_preparation import (
        causal_labels,
        corrupt_spans,
        corrupted_lengths,
        pack_sequences,
    )
    from recordmill.reader.torch_batches import torch_dataset

_MODULES = {
    "Feed": "feeding",
    "RaggedArray": "arrays",
    "RandomCrop": "images",
    "Reader": "loading",
    "RecordTable": "random_access",
    "as_numpy": "arrays",
    "augment_images": "image_augmentation",
    "balance_by_label": "balance",
    "balance_by_rejection": "balance",
    "bucket_boundaries": "bucketing",
    "bucket_by_length": "bucketing",
    "causal_labels": "text_preparation",
    "class_distribution": "balance",
    "corrupt_spans": "text_preparation",
    "corrupted_lengths": "text_preparation",
    "decode_images": "images",
    "distribute": "devices",
    "from_queue": "feeding",
    "load": "loading",
    "mask_tokens": "masking",
    "mix": "mixing",
    "normalise_images": "image_augmentation",
    "pack_sequences": "text_preparation",
    "perf_input_fn": "performance",
    "prefetch_to_device": "devices",
    "read_labels": "balance",
    "stored_lengths": "bucketing",
    "temperature_weights": "mixing",
    "torch_dataset": "torch_batches",
}

__all__ = [
    "Feed",
    "RaggedArray",
    "RandomCrop",
    "Reader",
    "RecordTable",
    "as_numpy",
    "augment_images",
    "balance_by_label",
    "balance_by_rejection",
    "bucket_boundaries",
    "bucket_by_length",
    "causal_labels",
    "class_distribution",
    "corrupt_spans",
    "corrupted_lengths",
    "decode_images",
    "distribute",
    "from_queue",
    "load",
    "mask_tokens",
    "mix",
    "normalise_images",
    "pack_sequences",
    "perf_input_fn",
    "prefetch_to_device",
    "read_labels",
    "stored_lengths",
    "temperature_weights",
    "torch_dataset",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"recordmill.reader.{_MODULES[name]}"), name)
