"""Training on several workers: a small BERT or a small CNN under MultiWorkerMirroredStrategy.

    python examples/train_multiworker.py --model=bert --dataset=ds --vocab_file=vocab.txt
    python examples/train_multiworker.py --model=cnn --dataset=images --num_workers=2

This one command starts all workers on this machine, and ends all when one dies; they end with it,
however it ends. The same command again goes on from the last checkpoint, with the same losses as if
nothing had happened: it holds the model and the reader's state. What it reads is what `recordmill
text --task=bert` (or `mlm`, or `mlm_tokens`, then masked anew each epoch) and `recordmill images
--task=classification` wrote.

Each worker writes TensorBoard summaries (`<work_dir>/logs/worker-<i>`); the first one writes
`losses.jsonl`, and `evaluation.json`: mean, variance and worst worker.

The loop is our own because Keras 3's `model.fit` does not run under this strategy. The models are
in `multiworker_models.py`.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("TF_USE_LEGACY_KERAS", "0")

from multiworker_models import bert_task, cnn_task

LAUNCHER = "MULTIWORKER_LAUNCHER"  # the variable that tells workers its process id


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
    options = flags.parse_args(arguments)
    if options.model == "bert" and not options.vocab_file:
        flags.error("--model=bert needs --vocab_file")
    return options


# The launcher: one process a worker.


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("localhost", port))
        except OSError:
            return False
    return True


def free_ports(count: int) -> list[int]:
    """Returns ports that nothing listens on, of those that no system gives away by itself.

    One of a system's own choice, by binding port 0, may be another program's before a worker binds
    it.
    """
    return list(islice(filter(is_free, random.sample(range(20_000, 32_768), 1000)), count))


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
        environment = os.environ | {"TF_CONFIG": json.dumps(config), LAUNCHER: str(os.getpid())}
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
        self.progress = ReaderProgress()
        self.checkpoint = tf.train.Checkpoint(
            model=self.model, optimizer=self.optimizer, reader=self.progress.state
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
            return self.progress.open(self.reader(context, self.options.train_split, training=True))

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
            if self.progress.step % self.options.checkpoint_steps == 0:
                self.manager.save(checkpoint_number=self.progress.step)
        self.manager.save(checkpoint_number=self.progress.step)

    def report(self, loss: float) -> None:
        """Writes the loss of a step, and counts it."""
        with self.summaries.as_default():
            write_scalar("loss", loss, self.progress.step)
        if self.index == 0:
            with (self.options.work_dir / "losses.jsonl").open("a") as lines:
                lines.write(json.dumps({"step": self.progress.step, "loss": loss}) + "\n")
        self.progress.step += 1

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
            write_scalar("evaluation_loss", mine, self.progress.step)
        self.summaries.flush()
        values = strategy.run(lambda: tf.constant([mine], tf.float32))
        losses = strategy.gather(values, axis=0).numpy()
        if self.index == 0:
            worst = int(losses.argmax())
            report = {
                "step": self.progress.step,
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


class ReaderProgress:
    """How far the reader has come, as a part of `tf.train.Checkpoint`."""

    def __init__(self) -> None:
        import tensorflow as tf

        progress = self

        class State(tf.train.experimental.PythonState):
            def serialize(self) -> str:
                return (
                    progress.reader.state(progress.step) if progress.reader else progress.restored
                )

            def deserialize(self, state: Any) -> None:
                text = state.decode() if isinstance(state, bytes) else state
                progress.restored, progress.step = text, json.loads(text)["step"]

        self.reader: Any = None
        self.restored = ""
        self.step = 0
        self.state = State()

    def open(self, reader: Any) -> Any:
        """Returns the batches of a reader from the restored step on."""
        if self.restored:
            reader.restore(self.restored)
        self.reader = reader
        return reader.dataset()


def end_with_launcher() -> None:
    """Ends this process once its launcher is gone, however that ended; it may wait for others."""
    while os.getppid() == int(os.environ[LAUNCHER]):
        time.sleep(0.2)
    os._exit(1)


def work(options: argparse.Namespace) -> None:
    if LAUNCHER in os.environ:  # a cluster starts its workers by other means
        threading.Thread(target=end_with_launcher, daemon=True).start()
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
