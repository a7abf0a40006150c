"""Training on several workers: a small BERT or a small CNN under MultiWorkerMirroredStrategy.

    python examples/train_multiworker.py --model=bert --dataset=ds --vocab_file=vocab.txt
    python examples/train_multiworker.py --model=cnn --dataset=images --num_workers=2

This one command starts all workers on this machine, and ends all when one dies. The same command
again goes on from the last checkpoint, with the same losses as if nothing had happened: it holds
the model and the reader's place. What it reads is what `recordmill text --task=bert` (or `mlm`, or
`mlm_tokens`, then masked anew each epoch) and `recordmill images --task=classification` wrote.

Each worker writes TensorBoard summaries (`<work_dir>/logs/worker-<i>`); the first one writes
`losses.jsonl`, and `evaluation.json`: mean, variance and worst worker.

The loop is our own because Keras 3's `model.fit` does not run under this strategy.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("TF_USE_LEGACY_KERAS", "0")


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    flags = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    flags.add_argument("--model", choices=("bert", "cnn"), required=True)
    flags.add_argument("--dataset", required=True)
    flags.add_argument("--train_split", default="train")
    flags.add_argument("--eval_split", default="validation")
    flags.add_argument("--vocab_file", help="bert: of the dataset")
    flags.add_argument("--max_seq_length", type=int, default=128, help="bert, of unmasked records")
    flags.add_argument("--max_predictions_per_seq", type=int, default=20, help="the same")
    flags.add_argument("--image_size", type=int, default=32, help="cnn: pixels each way")
    flags.add_argument("--work_dir", type=Path, default=Path("multiworker"))
    flags.add_argument("--num_workers", type=int, default=2)
    flags.add_argument("--batch_size", type=int, default=32, help="of each worker")
    flags.add_argument("--epochs", type=int, default=1)
    flags.add_argument("--checkpoint_steps", type=int, default=100)
    flags.add_argument("--hidden_size", type=int, default=128)
    flags.add_argument("--layers", type=int, default=2)
    flags.add_argument("--learning_rate", type=float, default=1e-3)
    flags.add_argument("--seed", type=int, default=0)
    flags.add_argument("--step_seconds", type=float, default=0.0, help="the least time of a step")
    found = flags.parse_args(arguments)
    if found.model == "bert" and not found.vocab_file:
        flags.error("--model=bert needs --vocab_file")
    return found


# The launcher: one process a worker.


def free_ports(count: int) -> list[int]:
    """Returns ports that nothing listens on; all are held until the last is found."""
    with ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("localhost", 0))
        return [int(one.getsockname()[1]) for one in sockets]


def check(options: argparse.Namespace) -> None:
    """Ends with one line where the dataset cannot be read as asked."""
    from recordmill.reader.dataset import open_dataset
    from recordmill.reader.selection import parse_selection
    from recordmill.records.errors import UsageError

    try:
        records = open_dataset(options.dataset).split_records
        for split in (options.train_split, options.eval_split):
            parse_selection(split, records, options.dataset)
    except UsageError as error:
        print(f"{error}; see --train_split and --eval_split", file=sys.stderr)
        sys.exit(2)


def launch(options: argparse.Namespace) -> int:
    """Runs all workers; returns 0 when all have finished, and 1 when one has died."""
    workers = [f"localhost:{port}" for port in free_ports(options.num_workers)]
    processes = []
    for index in range(options.num_workers):
        config = {"cluster": {"worker": workers}, "task": {"type": "worker", "index": index}}
        environment = os.environ | {"TF_CONFIG": json.dumps(config)}
        command = [sys.executable, *sys.argv]
        processes.append(subprocess.Popen(command, env=environment))
    print("workers:", *(process.pid for process in processes), flush=True)
    try:
        while True:
            statuses = [process.poll() for process in processes]
            dead = [i for i, status in enumerate(statuses) if status]
            if dead:
                print(
                    f"worker {dead[0]} ended with status {statuses[dead[0]]}; run the same command "
                    "again to go on from the last checkpoint",
                    file=sys.stderr,
                )
                return 1
            if all(status == 0 for status in statuses):
                return 0
            time.sleep(0.2)
    finally:
        for process in processes:
            process.kill()
            process.wait()


# The models: each is a Keras model, and how to make its inputs, labels and weights of a batch.


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
    from recordmill.reader.masking import mask_tokens

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
            found = attention(hidden, hidden, attention_mask=attended)
            hidden = layers.LayerNormalization()(hidden + found)
            more = layers.Dense(width)(layers.Dense(4 * width, activation="gelu")(hidden))
            hidden = layers.LayerNormalization()(hidden + more)
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
    from recordmill.reader.image_augmentation import augment_images, normalise_images
    from recordmill.reader.images import RandomCrop, decode_images

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


# A worker.


class Worker:
    """Trains and evaluates; every worker calls the same methods in the same order."""

    def __init__(self, options: argparse.Namespace) -> None:
        import keras
        import tensorflow as tf

        keras.utils.set_random_seed(options.seed)
        self.options = options
        self.strategy = tf.distribute.MultiWorkerMirroredStrategy()
        self.index = int(self.strategy.cluster_resolver.task_id)
        self.task = {"bert": bert_task, "cnn": cnn_task}[options.model](options)
        with self.strategy.scope():
            self.model = self.task.build()
            self.optimizer = keras.optimizers.Adam(options.learning_rate)
            self.optimizer.build(self.model.trainable_variables)
        self.place = ReaderPlace()
        self.checkpoint = tf.train.Checkpoint(
            model=self.model, optimizer=self.optimizer, reader=self.place.state
        )
        # All workers take part in saving; what the first one writes is kept.
        name = "checkpoints" if self.index == 0 else f"checkpoints-of-worker-{self.index}"
        self.folder = options.work_dir / name
        self.manager = tf.train.CheckpointManager(self.checkpoint, str(self.folder), max_to_keep=2)
        self.summaries = tf.summary.create_file_writer(
            str(options.work_dir / f"logs/worker-{self.index}")
        )

    def reader(self, context: Any, split: str, *, training: bool) -> Any:
        from recordmill.reader.loading import Reader

        return Reader(
            self.options.dataset, split, batch_size=self.options.batch_size, shuffle=training,
            seed=self.options.seed, epochs=self.options.epochs if training else 1,
            remainder="drop" if training else "pad", input_context=context,
            transform=self.task.read(training),
        )  # fmt: skip

    def losses(self, batch: dict[str, Any], training: bool) -> tuple[Any, Any]:
        """Returns the sum of the weighted losses of a batch, and that of the weights."""
        import keras
        import tensorflow as tf

        inputs, labels, weights = self.task.split_batch(batch)
        if "row_mask" in batch:
            rows = tf.cast(batch["row_mask"], tf.float32)
            weights *= tf.reshape(rows, [-1] + [1] * (len(weights.shape) - 1))
        logits = self.model(inputs, training=training)
        each = keras.losses.sparse_categorical_crossentropy(labels, logits, from_logits=True)
        return tf.reduce_sum(each * weights), tf.reduce_sum(weights)

    def train(self) -> None:
        """Trains from the last checkpoint, where there is one, to the end of all epochs."""
        import tensorflow as tf

        strategy = self.strategy
        newest = tf.train.latest_checkpoint(str(self.options.work_dir / "checkpoints"))
        if newest:
            self.checkpoint.restore(newest).assert_consumed()

        def dataset(context: Any) -> tf.data.Dataset:
            return self.place.open(self.reader(context, self.options.train_split, training=True))

        def replica_step(batch: dict[str, Any]) -> Any:
            with tf.GradientTape() as tape:
                summed, weight = self.losses(batch, training=True)
                replica = tf.distribute.get_replica_context()
                loss = summed / tf.maximum(replica.all_reduce("SUM", weight), 1.0)
            variables = self.model.trainable_variables
            self.optimizer.apply(tape.gradient(loss, variables), variables)
            return loss

        @tf.function
        def step(batch: dict[str, Any]) -> Any:
            return strategy.reduce("SUM", strategy.run(replica_step, args=(batch,)), axis=None)

        for batch in strategy.distribute_datasets_from_function(dataset):
            began = time.monotonic()
            self.report(float(step(batch)))
            time.sleep(max(0.0, began + self.options.step_seconds - time.monotonic()))
            if self.place.step % self.options.checkpoint_steps == 0:
                self.manager.save(checkpoint_number=self.place.step)
        self.manager.save(checkpoint_number=self.place.step)

    def report(self, loss: float) -> None:
        """Writes the loss of a step, and moves the reader's place behind it."""
        with self.summaries.as_default():
            write_scalar("loss", loss, self.place.step)
        if self.index == 0:
            with (self.options.work_dir / "losses.jsonl").open("a") as lines:
                lines.write(json.dumps({"step": self.place.step, "loss": loss}) + "\n")
        self.place.step += 1

    def evaluate(self) -> None:
        """Evaluates on every worker's part of the split; the first one reports on all."""
        import numpy as np
        import tensorflow as tf

        strategy = self.strategy

        def dataset(context: Any) -> tf.data.Dataset:
            return self.reader(context, self.options.eval_split, training=False).dataset()

        @tf.function
        def step(batch: dict[str, Any]) -> Any:
            return strategy.run(lambda batch: tf.stack(self.losses(batch, False)), args=(batch,))

        total = np.zeros(2)
        for batch in strategy.distribute_datasets_from_function(dataset):
            total += strategy.experimental_local_results(step(batch))[0].numpy()
        mine = total[0] / max(total[1], 1.0)
        with self.summaries.as_default():
            write_scalar("evaluation_loss", mine, self.place.step)
        self.summaries.flush()
        values = strategy.run(lambda: tf.constant([mine], tf.float32))
        losses = strategy.gather(values, axis=0).numpy()
        if self.index == 0:
            worst = int(losses.argmax())
            report = {
                "step": self.place.step,
                "workers": losses.tolist(),
                "mean": float(losses.mean()),
                "variance": float(losses.var()),
                "worst_worker": worst,
                "worst": float(losses[worst]),
            }
            (self.options.work_dir / "evaluation.json").write_text(json.dumps(report))
            print(
                f"evaluation loss: mean {report['mean']:.4f}, variance {report['variance']:.2e}, "
                f"worst {report['worst']:.4f} of worker {worst}"
            )


def write_scalar(name: str, value: float, step: int) -> None:
    """What tf.summary.scalar does, without needing TensorBoard on the training machine."""
    import tensorflow as tf

    scalars = tf.compat.v1.SummaryMetadata.PluginData(plugin_name="scalars")
    metadata = tf.compat.v1.SummaryMetadata(plugin_data=scalars)
    tf.summary.write(name, tf.constant(value, tf.float32), step=step, metadata=metadata)


class ReaderPlace:
    """How far the reader has come, as a part of `tf.train.Checkpoint`."""

    def __init__(self) -> None:
        import tensorflow as tf

        place = self

        class State(tf.train.experimental.PythonState):
            def serialize(self) -> str:
                return place.reader.state(place.step) if place.reader else place.restored

            def deserialize(self, state: Any) -> None:
                text = state.decode() if isinstance(state, bytes) else state
                place.restored, place.step = text, json.loads(text)["step"]

        self.reader: Any = None
        self.restored = ""
        self.step = 0
        self.state = State()

    def open(self, reader: Any) -> Any:
        """Returns the batches of a reader from the place on."""
        if self.restored:
            reader.restore(self.restored)
        self.reader = reader
        return reader.dataset()


def work(options: argparse.Namespace) -> None:
    worker = Worker(options)
    worker.train()
    worker.evaluate()
    if worker.index:
        shutil.rmtree(worker.folder, ignore_errors=True)


if __name__ == "__main__":
    parsed = parse()
    parsed.work_dir.mkdir(parents=True, exist_ok=True)
    if "TF_CONFIG" in os.environ:
        work(parsed)
    else:
        check(parsed)
        sys.exit(launch(parsed))
