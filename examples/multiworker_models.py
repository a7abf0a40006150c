"""The models of `train_multiworker.py`, and how to make inputs, labels and weights of a batch."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Task:
    """What the loop needs to know of a model.

    Attributes:
      build: returns the model.
      read: transforms for the reader, by whether it trains.
      split_batch: batch -> inputs, labels, weights of labels.
    """

    build: Callable[[], Any]
    read: Callable[[bool], list[Any]]
    split_batch: Callable[[dict[str, Any]], tuple[Any, Any, Any]]


def bert_task(options: argparse.Namespace) -> Task:
    import keras
    from keras import layers, ops

    from recordmill.reader.dataset import open_dataset
    from recordmill.reader.transforms.masking import mask_tokens

    vocab_size = len(Path(options.vocab_file).read_text(encoding="utf-8").splitlines())
    dataset = open_dataset(options.dataset)
    shapes = {feature.name: feature.shape for feature in dataset.schema.features}
    length, predictions = options.max_seq_length, options.max_predictions_per_seq
    masked = "masked_lm_positions" in shapes
    if masked:
        length, predictions = shapes["input_ids"][0], shapes["masked_lm_positions"][0]

    def build() -> Any:
        ids = keras.Input([length], dtype="int32", name="input_ids")
        mask = keras.Input([length], dtype="int32", name="input_mask")
        positions = keras.Input([predictions], dtype="int32", name="masked_lm_positions")
        width = options.hidden_size
        hidden = layers.Embedding(vocab_size, width)(ids)
        hidden += layers.Embedding(length, width)(ops.arange(length))
        attended = ops.cast(mask[:, None, :], "bool")
        for _ in range(options.layers):
            heads = max(1, width // 64)
            attention = layers.MultiHeadAttention(heads, width // heads)
            attention_output = attention(hidden, hidden, attention_mask=attended)
            hidden = layers.LayerNormalization()(hidden + attention_output)
            output = layers.Dense(width)(layers.Dense(4 * width, activation="gelu")(hidden))
            hidden = layers.LayerNormalization()(hidden + output)
        chosen = ops.take_along_axis(hidden, positions[:, :, None], axis=1)
        return keras.Model([ids, mask, positions], layers.Dense(vocab_size)(chosen))

    def read(_: bool) -> list[Any]:
        if masked:
            return []
        return [
            mask_tokens(
                vocab_file=options.vocab_file, max_seq_length=length,
                max_predictions_per_seq=predictions, seed=options.seed,
            )
        ]  # fmt: skip

    def split_batch(batch: dict[str, Any]) -> tuple[Any, Any, Any]:
        inputs = [batch[name] for name in ("input_ids", "input_mask", "masked_lm_positions")]
        return inputs, batch["masked_lm_ids"], batch["masked_lm_weights"]

    return Task(build, read, split_batch)


def cnn_task(options: argparse.Namespace) -> Task:
    import keras
    import tensorflow as tf
    from keras import layers

    from recordmill.reader.dataset import open_dataset
    from recordmill.reader.transforms.image_augmentation import augment_images, normalise_images
    from recordmill.reader.transforms.image_decoding import RandomCrop, decode_images

    size = (options.image_size, options.image_size)
    features = {f.name: f for f in open_dataset(options.dataset).schema.features}
    label = "label" if "label" in features else "image/class/label"
    classes = len(features[label].classes) + 1  # ImageNet's and the TPU models' begin with 1

    def build() -> Any:
        image = keras.Input([*size, 3], name="image")
        hidden = image
        for i in range(options.layers):
            hidden = layers.Conv2D(options.hidden_size << i, 3, strides=2, activation="relu")(
                hidden
            )
        pooled = layers.GlobalAveragePooling2D()(hidden)
        return keras.Model(image, layers.Dense(classes)(pooled))

    def read(training: bool) -> list[Any]:
        normalise = normalise_images(mean=127.5, std=127.5)
        if not training:
            return [decode_images(size=size, fit="crop"), normalise]
        crop = RandomCrop(area=(0.5, 1.0))
        decode = decode_images(size=size, random_crop=crop, seed=options.seed)
        augment = augment_images(brightness=0.2, contrast=0.2, seed=options.seed)
        return [decode, augment, normalise]

    def split_batch(batch: dict[str, Any]) -> tuple[Any, Any, Any]:
        return batch["image"], batch[label], tf.ones_like(batch[label], tf.float32)

    return Task(build, read, split_batch)
