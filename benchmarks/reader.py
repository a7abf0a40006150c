"""The reader beside what else there is, in one run, on the same records; ratios are what counts.

    python benchmarks/reader.py [--records=320000] [--parts=speed,workers,shuffle,restore]

Parts: speed (records/s of bare tf.data, ours, Model Garden's loader, parse_single_example), workers
(one of several beside shuffle(4096) of its own shards; 1.3 million records in 64 shards are
`--records=1310720`), shuffle (how far from a full permutation, with memory), restore (the first
batch from anywhere). Masks, images and class balance: `benchmarks/reader_transforms.py`.
"""

from __future__ import annotations

import argparse
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")

import numpy as np
import tensorflow as tf

from recordmill.reader import Reader, load
from recordmill.reader.dataset import open_dataset
from recordmill.reader.parsing import example_spec
from recordmill.records import text_formats as formats
from recordmill.records.codec.encoding import encode_batch
from recordmill.records.codec.framing import index_lines
from recordmill.records.manifest import MANIFEST_PATH, Manifest, ShardInfo, success_bytes
from recordmill.records.schema import Schema
from recordmill.records.shards import ShardName

BATCH = 256
ROUNDS = 9
LENGTH, PREDICTIONS = 128, 20


def show(name: str, value: float, unit: str, **more: object) -> None:
    extra = "  ".join(f"{key} {item}" for key, item in more.items())
    print(f"{name:<52} {value:>12,.2f} {unit:<12} {extra}", flush=True)


def bert_columns(count: int, seed: int) -> dict[str, np.ndarray]:
    """Dense BERT records, as a text of some thousand sentences gives them."""
    rng = np.random.default_rng(seed)
    lengths = np.minimum(LENGTH, rng.integers(100, LENGTH + 20, count))[:, None]
    mask = (np.arange(LENGTH) < lengths).astype(np.int32)
    return {
        "input_ids": rng.integers(1000, 30522, (count, LENGTH)).astype(np.int32) * mask,
        "input_mask": mask,
        "segment_ids": (np.arange(LENGTH) > lengths // 2).astype(np.int32) * mask,
        "masked_lm_ids": rng.integers(1000, 30522, (count, PREDICTIONS)),
        "masked_lm_positions": np.sort(rng.integers(1, LENGTH, (count, PREDICTIONS)), axis=1),
        "masked_lm_weights": (np.arange(PREDICTIONS) < lengths * 0.15).astype(np.float32),
        "next_sentence_labels": rng.integers(0, 2, (count, 1)),
    }


def write_dataset(
    folder: Path, schema: Schema, shards: Iterable[dict[str, Any]], count: int
) -> Path:
    """Writes columns as the shards of split "train", without Beam."""
    infos = []
    for index, columns in enumerate(shards):
        name = ShardName("train", index, count)
        batch = encode_batch(schema, columns)
        for path, content in (
            (name.path, batch.buffer.tobytes()), (name.index_path, index_lines(batch.offsets)),
        ):  # fmt: skip
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(content)
        size = len(batch.buffer)
        infos.append(ShardInfo("train", index, count, len(batch.offsets) - 1, size, size, crc32c=0))
    manifest = Manifest(
        name="benchmark", config={}, fingerprint="", features=schema.to_json(), compression="",
        versions={}, sources={}, counts={}, files={}, shards=infos,
    ).to_bytes()  # fmt: skip
    (folder / MANIFEST_PATH).write_bytes(manifest)
    (folder / "_SUCCESS").write_bytes(success_bytes(manifest))
    return folder


def bert_dataset(records: int, shards: int = 8) -> Path:
    folder = Path(tempfile.gettempdir()) / f"recordmill-reader-benchmark-{records}-{shards}"
    if not (folder / "_SUCCESS").exists():
        schema = formats.bert(max_seq_length=LENGTH, max_predictions_per_seq=PREDICTIONS)
        columns = (bert_columns(records // shards, seed) for seed in range(shards))
        write_dataset(folder, schema, columns, shards)
    return folder


def rates(
    makers: dict[str, Callable[[], Iterable[Any]]], most: dict[str, int]
) -> dict[str, np.ndarray]:
    """Returns `[rounds, 2]` for each: records/s, and processor microseconds a record.

    The runs take turns, so that all of a round meet the same load; processor time is what remains
    comparable where others use the machine.
    """
    figures: dict[str, list[tuple[float, float]]] = {name: [] for name in makers}
    for _ in range(ROUNDS):
        for name, make in makers.items():
            batches = iter(make())
            next(batches)
            began, worked = time.perf_counter(), time.process_time()
            count = 0
            for _ in batches:
                count += 1
                if count >= most.get(name, 10**9):
                    break
            rate = count * BATCH / (time.perf_counter() - began)
            cost = (time.process_time() - worked) / (count * BATCH) * 1e6
            figures[name].append((rate, cost))
            del batches  # it may still be reading ahead
    return {name: np.array(rows) for name, rows in figures.items()}


def model_garden(path: Path) -> tf.data.Dataset:
    from official.nlp.data import pretrain_dataloader

    config = pretrain_dataloader.BertPretrainDataConfig(
        input_path=f"{path}/train/*", seq_length=LENGTH, max_predictions_per_seq=PREDICTIONS,
        global_batch_size=BATCH, is_training=True,
    )  # fmt: skip
    return pretrain_dataloader.BertPretrainDataLoader(config).load()


def speed_part(arguments: argparse.Namespace) -> None:
    path = bert_dataset(arguments.records)
    dataset = open_dataset(path)
    files = [str(path / shard.name.path) for shard in dataset.split("train").shards]
    spec = example_spec(dataset.schema)

    def bare() -> tf.data.Dataset:
        batches = tf.data.TFRecordDataset(files).batch(BATCH, drop_remainder=True)
        parsed = batches.map(lambda x: tf.io.parse_example(x, spec), tf.data.AUTOTUNE)
        return parsed.prefetch(tf.data.AUTOTUNE)

    def one_by_one() -> tf.data.Dataset:
        records = tf.data.TFRecordDataset(files)
        parsed = records.map(lambda x: tf.io.parse_single_example(x, spec))
        return parsed.batch(BATCH, drop_remainder=True)

    def python_loop() -> Iterable[Any]:
        rows: list[Any] = []
        for record in tf.data.TFRecordDataset(files):
            rows.append(tf.io.parse_single_example(record, spec))
            if len(rows) == BATCH:
                yield {name: tf.stack([row[name] for row in rows]) for name in rows[0]}
                rows = []

    found = rates(
        {
            "bare": bare,
            "in order": lambda: load(path, "train", batch_size=BATCH, shuffle=False),
            "shuffled": lambda: load(path, "train", batch_size=BATCH),
            "garden": lambda: model_garden(path),
            "one by one": one_by_one,
            "loop": python_loop,
        },
        {"garden": 40, "one by one": 80, "loop": 10},
    )
    names = {
        "bare": "TFRecordDataset, batch, parse_example",
        "in order": "recordmill, in order, int32",
        "shuffled": "recordmill, shuffled, int32",
        "garden": "Model Garden's BertPretrainDataLoader",
        "one by one": "map(parse_single_example), batch",
        "loop": "a Python loop of parse_single_example",
    }
    for name, label in names.items():
        # The median of what the rounds say: each compares runs that followed each other.
        rate, cost = np.median(found[name], axis=0)
        of_bare = np.median(found[name] / found["bare"], axis=0)
        show(
            label, rate, "records/s",
            of_bare=f"{of_bare[0]:.2f}",
            cpu=f"{cost:.2f} us",
            of_bare_by_cpu=f"{1 / of_bare[1]:.2f}",
            in_order_is=f"{np.median(found['in order'][:, 0] / found[name][:, 0]):.1f}x",
        )  # fmt: skip


def workers_part(arguments: argparse.Namespace) -> None:
    """One worker of 1 to 64, whose rows come from everywhere, beside tf.data on its own shards."""
    path = bert_dataset(arguments.records, shards=64)
    dataset = open_dataset(path)
    files = [str(path / shard.name.path) for shard in dataset.split("train").shards]
    spec = example_spec(dataset.schema)

    def bare(workers: int) -> tf.data.Dataset:
        records = tf.data.TFRecordDataset(files[::workers]).shuffle(4096).repeat()
        batches = records.batch(BATCH, drop_remainder=True)
        parsed = batches.map(lambda x: tf.io.parse_example(x, spec), tf.data.AUTOTUNE)
        return parsed.prefetch(tf.data.AUTOTUNE)

    def ours(workers: int) -> tf.data.Dataset:
        return load(
            path, "train", batch_size=BATCH, epochs=None, num_workers=workers,
            worker_index=workers // 2,
        )  # fmt: skip

    for workers in (1, 2, 16, 64):
        makers = {"bare": lambda: bare(workers), "ours": lambda: ours(workers)}  # noqa: B023
        found = rates(makers, {"bare": 400, "ours": 400})
        rate, cost = np.median(found["ours"], axis=0)
        of_bare = np.median(found["ours"] / found["bare"], axis=0)
        show(
            f"one worker of {workers}", rate, "records/s", of_bare=f"{of_bare[0]:.2f}",
            cpu=f"{cost:.2f} us", of_bare_by_cpu=f"{1 / of_bare[1]:.2f}",
        )  # fmt: skip


def quality(order: np.ndarray) -> dict[str, str]:
    """How an order of 0 … n-1 differs from 0 … n-1; a full permutation has displacement 0.333."""
    count = len(order)
    return {
        "displacement": f"{np.abs(order - np.arange(count)).mean() / count:.3f}",
        "neighbours_follow": f"{(np.abs(np.diff(order)) == 1).mean():.5f}",
        "within_1000": f"{(np.abs(np.diff(order)) <= 1000).mean():.4f}",
        "batch_spread": f"{_spread(order, BATCH):.3f}",
    }


def _spread(order: np.ndarray, batch: int) -> float:
    """Returns the standard deviation of records in a batch, 0.289 of n for uniform draws."""
    whole = order[: len(order) // batch * batch].reshape(-1, batch)
    return float(whole.std(axis=1).mean() / len(order))


_MEMORY = """
import os, sys
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import tensorflow as tf
from recordmill.reader import load
from recordmill.reader.dataset import open_dataset
path, kind = sys.argv[1:]
if kind == "recordmill":
    batches = load(path, "train", batch_size=256)
else:
    files = [f"{path}/{shard.name.path}" for shard in open_dataset(path).split("train").shards]
    batches = tf.data.TFRecordDataset(files)
    if kind == "buffer":
        batches = batches.shuffle(10_000)
    batches = batches.batch(256)
def peak():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) / 1024
next(iter(tf.data.Dataset.range(3)))
before = peak()
for _ in batches:
    pass
print(peak() - before)
"""


def memory_mib(path: Path, kind: str) -> float:
    """Returns by how much an epoch raises the peak memory of a fresh process."""
    command = [sys.executable, "-c", _MEMORY, str(path), kind]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def shuffle_part(arguments: argparse.Namespace) -> None:
    path = bert_dataset(arguments.records)

    def record_alone(features: Any, keys: tf.Tensor) -> Any:
        return {"record": keys[:, 1]}

    batches = load(path, "train", batch_size=BATCH, transform=record_alone)
    ours = np.concatenate([batch["record"] for batch in batches.as_numpy_iterator()])
    count = len(ours)
    buffered = tf.data.Dataset.range(count).shuffle(10_000, seed=1).batch(BATCH)
    orders = {
        "recordmill": ours,
        "shuffle(10_000)": np.concatenate(list(buffered.as_numpy_iterator())),
        "a full permutation": np.random.default_rng(0).permutation(count),
        "the written order": np.arange(count),
    }
    kinds = {"recordmill": "recordmill", "shuffle(10_000)": "buffer", "the written order": "plain"}
    for name, order in orders.items():
        memory = memory_mib(path, kinds[name]) if name in kinds else math.nan
        show(f"shuffle: {name}", memory, "MiB more", **quality(order))


def restore_part(arguments: argparse.Namespace) -> None:
    path = bert_dataset(arguments.records)
    steps = Reader(path, "train", batch_size=BATCH).steps_per_epoch
    for start in (0, steps // 2, steps - 1, 1000 * steps):
        began = time.perf_counter()
        reader = Reader(path, "train", batch_size=BATCH, epochs=None, start_step=start)
        next(iter(reader))
        size = len(reader.state().encode())
        show(f"first batch from step {start}", time.perf_counter() - began, "s", state_bytes=size)


PARTS: dict[str, Callable[[argparse.Namespace], None]] = {
    "speed": speed_part,
    "workers": workers_part,
    "shuffle": shuffle_part,
    "restore": restore_part,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=int, default=320_000)
    parser.add_argument("--parts", default=",".join(PARTS))
    arguments = parser.parse_args()
    for name in arguments.parts.split(","):
        PARTS[name](arguments)


if __name__ == "__main__":
    main()
