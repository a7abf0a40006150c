"""What the reader does on the fly, on this machine: masks, images, balance.

    python benchmarks/reader_transforms.py [--scratch=DIR] [--images=GLOB] [--parts=…]

Parts: masking (records a second of length 128, by way of masking, beside reading alone), spans
(T5's corruption and packing of the same records), images (an epoch of an image model whose step
takes a given time: the naive loop of the ETL tutorial beside ours), balance (500 shards: the
distribution, and the peak memory, in interpreters of their own; what is not the interpreter's own
is the mapped files of libraries, TensorFlow's 400 MB above all).
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from glob import glob
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
sys.path.insert(0, str(Path(__file__).parent))

import numpy as np

LENGTH, PREDICTIONS, BATCH = 128, 20, 256
SHARDS, CLASSES, RECORDS_PER_SHARD = 500, 10, 400
SIDE, IMAGE_BATCH = 224, 32


def show(name: str, value: float, unit: str, **more: object) -> None:
    extra = "  ".join(f"{key} {item}" for key, item in more.items())
    print(f"{name:<58} {value:>10,.1f} {unit:<12} {extra}", flush=True)


def rate(batches: Iterable[Any], size: int) -> tuple[float, float]:
    """Returns records a second, and records a second of processor time, without the first batch."""
    iterator = iter(batches)
    next(iterator)
    began, began_cpu, count = time.perf_counter(), time.process_time(), 0
    for _ in iterator:
        count += size
    return count / (time.perf_counter() - began), count / (time.process_time() - began_cpu)


def written(folder: Path, *command: str) -> Path:
    """Writes a dataset with the command line, where it is not there yet."""
    if not (folder / "_SUCCESS").exists():
        recordmill = [sys.executable, "-m", "recordmill.pipelines.command_line"]
        subprocess.run([*recordmill, *command, f"--output={folder}"], check=True)
    return folder


def token_dataset(scratch: Path, megabytes: int) -> tuple[Path, str]:
    from corpus import make_corpus, pydoc_text

    corpus = make_corpus(scratch / "corpus", pydoc_text(), megabytes * 1_000_000)
    vocab = scratch / "vocab.txt"
    if not vocab.exists():
        command = ["vocab", f"--input={corpus}/*.txt", f"--output={vocab}", "--vocab_size=8000"]
        subprocess.run(
            [sys.executable, "-m", "recordmill.pipelines.command_line", *command], check=True
        )
    dataset = written(
        scratch / "tokens", "text", f"--input={corpus}/*.txt", f"--vocab_file={vocab}",
        "--task=mlm_tokens", f"--max_seq_length={LENGTH}", "--num_shards=4",
    )  # fmt: skip
    return dataset, str(vocab)


def masking(scratch: Path, megabytes: int) -> None:
    from recordmill.reader.loading import load
    from recordmill.reader.transforms.masking import mask_tokens

    dataset, vocab = token_dataset(scratch, megabytes)
    sizes = {"max_seq_length": LENGTH, "max_predictions_per_seq": PREDICTIONS}
    ways: dict[str, list[Callable[..., Any]]] = {
        "reading word pieces, no mask": [],
        "+ masks by token": [mask_tokens(vocab_file=vocab, **sizes)],
        "+ masks by word": [mask_tokens(vocab_file=vocab, whole_word=True, **sizes)],
        "+ masks of up to 3 words": [
            mask_tokens(vocab_file=vocab, whole_word=True, max_ngram_size=3, **sizes)
        ],
    }
    for name, transforms in ways.items():
        speed, per_core = rate(
            load(dataset, "train", batch_size=BATCH, transform=transforms), BATCH
        )
        show(name, speed, "records/s", per_core_second=f"{per_core:,.0f}")


def spans(scratch: Path, megabytes: int) -> None:
    import tensorflow as tf

    from recordmill.reader.loading import load
    from recordmill.reader.transforms.masking import mask_tokens
    from recordmill.reader.transforms.packing import pack_sequences
    from recordmill.reader.transforms.spans import corrupt_spans

    dataset, vocab = token_dataset(scratch, megabytes)
    mask = mask_tokens(vocab_file=vocab, max_seq_length=LENGTH, max_predictions_per_seq=1)

    def ids(features: dict[str, Any], keys: tf.Tensor) -> dict[str, Any]:
        """Id records of uneven length, as a job for id records would write them."""
        lengths = tf.cast(keys[:, 1] * 37 % 100, tf.int32) + 20
        kept = tf.range(LENGTH) < lengths[:, None]
        return {"input_ids": tf.ragged.boolean_mask(mask(features, keys)["input_ids"], kept)}

    whole = load(dataset, "train", batch_size=BATCH, transform=ids)
    show("reading ids", rate(whole, BATCH)[0], "records/s")
    corrupt = corrupt_spans(vocab_size=9000, max_seq_length=LENGTH)
    corrupted = load(dataset, "train", batch_size=BATCH, transform=[ids, corrupt])
    show("+ span corruption", rate(corrupted, BATCH)[0], "records/s")
    pack = pack_sequences(max_seq_length=512)
    packed = load(dataset, "train", batch_size=BATCH, transform=[ids, pack])
    fill = np.mean([float(np.mean(batch["segment_ids"] > 0)) for batch in packed.take(20)])
    show("+ packing into rows of 512", rate(packed, BATCH)[0], "records/s", filled=f"{fill:.1%}")


def images(scratch: Path, pattern: str | None, count: int) -> None:
    import tensorflow as tf
    from images import make_images

    from recordmill.reader.loading import load
    from recordmill.reader.transforms.image_augmentation import augment_images, normalise_images
    from recordmill.reader.transforms.image_decoding import decode_images

    make_images(scratch / "photos", sorted(glob(pattern)) if pattern else [], count)
    dataset = written(
        scratch / "images", "images", f"--input={scratch}/photos/*/*.jpg", "--task=classification",
        "--num_shards=4",
    )  # fmt: skip
    files = [str(path) for path in sorted(dataset.glob("train/*.tfrecords"))]
    spec = {
        "image": tf.io.FixedLenFeature([], tf.string),
        "label": tf.io.FixedLenFeature([], tf.int64),
    }

    def one(record: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        parsed = tf.io.parse_single_example(record, spec)
        image = tf.image.decode_jpeg(parsed["image"], channels=3)
        image = tf.image.random_flip_left_right(tf.image.resize(image, (SIDE, SIDE)))
        return (image - 127.5) / 127.5, parsed["label"]

    epochs = 2
    piped = tf.data.TFRecordDataset(files).map(one).batch(IMAGE_BATCH, drop_remainder=True)

    def naive() -> Iterator[tuple[Any, Any]]:
        """One record after the other, each decoded when its turn comes."""
        rows: list[Any] = []
        for record in tf.data.TFRecordDataset(files):
            rows.append(one(record))
            if len(rows) == IMAGE_BATCH:
                yield tuple(tf.stack(column) for column in zip(*rows, strict=True))
                rows = []

    ours = load(
        dataset, "train", batch_size=IMAGE_BATCH, epochs=epochs,
        transform=[
            decode_images(size=(SIDE, SIDE)), augment_images(),
            normalise_images(mean=127.5, std=127.5),
        ],
    )  # fmt: skip

    def step_time(batches: Any, model_seconds: float) -> float:
        """Returns the mean time of a step, without the first, which builds and fills the graph."""
        iterator = iter(batches)
        next(iterator)
        began, steps = time.perf_counter(), 0
        for _ in iterator:
            time.sleep(model_seconds)  # what an accelerator does costs this machine nothing
            steps += 1
        return (time.perf_counter() - began) / steps

    alone = step_time(naive(), 0.0)
    show("naive loop, no model", IMAGE_BATCH / alone, "images/s")
    show("map, batch; TensorFlow adds a prefetch", IMAGE_BATCH / step_time(piped, 0.0), "images/s")
    show("ours, no model", IMAGE_BATCH / step_time(ours, 0.0), "images/s")
    for share in (0.25, 0.5, 1.0):
        seconds = share * alone
        times = [step_time(batches, seconds) for batches in (ours, naive(), piped)]
        show(
            f"with a model of {1000 * seconds:.0f} ms a step", 1000 * times[0], "ms a step",
            of_naive=f"{times[0] / times[1]:.2f}", of_map_batch=f"{times[0] / times[2]:.2f}",
        )  # fmt: skip


def megabytes(kind: str) -> float:
    """VmHWM (peak, with mapped files of libraries) or RssAnon (now, without) of this process."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(kind)).split()[1]) / 1e3


@contextmanager
def peak_of_own_memory() -> Iterator[list[float]]:
    """Yields what will hold the peak of RssAnon, which the system does not keep."""
    peak, done = [0.0], threading.Event()

    def watch() -> None:
        while not done.wait(0.01):
            peak[0] = max(peak[0], megabytes("RssAnon"))

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield peak
    finally:
        done.set()
        watcher.join()


def write_classes(folder: Path) -> Path:
    """500 shards of uneven classes, class c with a share of 2 ** -(c + 1), and 4 kB a record."""
    sys.path.insert(0, str(Path(__file__).parents[1]))
    from recordmill.records.codec.encoding import Strings
    from recordmill.records.schema import Feature, Schema
    from tests.reader.small_datasets import write_dataset

    if (folder / "_SUCCESS").exists():
        return folder
    rng = np.random.default_rng(0)
    schema = Schema(
        (Feature("label", "int64", (), "class"), Feature("payload", "bytes", (), "4 kB"))
    )
    shares = 0.5 ** np.arange(1, CLASSES + 1)
    columns = [
        {
            "label": rng.choice(CLASSES, RECORDS_PER_SHARD, p=shares / shares.sum()),
            "payload": Strings.from_list([rng.bytes(4096) for _ in range(RECORDS_PER_SHARD)]),
        }
        for _ in range(SHARDS)
    ]
    return write_dataset(folder, {"train": columns}, schema)


def balance_child(way: str, folder: str) -> None:
    """One way in this interpreter; prints the largest error, the peaks and records a second."""
    with peak_of_own_memory() as own:
        error, speed = balanced(way, folder)
    print(error, megabytes("VmHWM"), own[0], speed)


def balanced(way: str, folder: str) -> tuple[float, float]:
    """Reads an epoch one way; returns the largest error and records a second."""
    import tensorflow as tf

    if way == "tensorflow":
        list(tf.data.Dataset.range(3).batch(2))
        return 0.0, 0.0
    from recordmill.reader.loading import load
    from recordmill.reader.sampling import balance

    labels = balance.read_labels(folder, "train")
    if way == "label":
        batches = load(folder, "train", batch_size=BATCH, reorder=balance.balance_by_label(labels))
    else:
        shares = np.bincount(labels) / len(labels)
        reject = balance.balance_by_rejection(
            initial_dist=dict(enumerate(shares.tolist())), keep_size=way == "keep_size"
        )
        epochs = 1 if way == "keep_size" else 60
        loaded = load(folder, "train", batch_size=BATCH, epochs=epochs, transform=reject)
        batches = loaded.rebatch(BATCH, drop_remainder=True)
    began = time.perf_counter()
    counts = sum(np.bincount(batch["label"], minlength=CLASSES) for batch in batches)
    speed = counts.sum() / (time.perf_counter() - began)
    return float(abs(counts / counts.sum() - 1 / CLASSES).max()), speed


def balance(scratch: Path) -> None:
    folder = write_classes(scratch / "classes")
    for way in ("tensorflow", "label", "keep_size"):
        command = [sys.executable, __file__, f"--child={way}", f"--folder={folder}"]
        output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        error, peak, own, speed = map(float, output.split()[-4:])
        show(
            f"balance, {way}", peak, "MB peak", own=f"{own:.0f} MB",
            largest_error=f"{error:.2%}", records_per_second=f"{speed:,.0f}",
        )  # fmt: skip


def main() -> None:
    flags = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    flags.add_argument("--scratch", type=Path, default=Path("/tmp/recordmill-reader-benchmark"))
    flags.add_argument("--parts", default="masking,spans,images,balance")
    flags.add_argument("--megabytes", type=int, default=20, help="of text")
    flags.add_argument("--images", help="photos; drawn ones where none are given")
    flags.add_argument("--count", type=int, default=2000, help="of images")
    flags.add_argument("--child", help=argparse.SUPPRESS)
    flags.add_argument("--folder", help=argparse.SUPPRESS)
    options = flags.parse_args()
    if options.child:
        balance_child(options.child, options.folder)
        return
    options.scratch.mkdir(parents=True, exist_ok=True)
    parts: dict[str, Callable[[], None]] = {
        "masking": lambda: masking(options.scratch, options.megabytes),
        "spans": lambda: spans(options.scratch, options.megabytes),
        "images": lambda: images(options.scratch, options.images, options.count),
        "balance": lambda: balance(options.scratch),
    }
    for part in options.parts.split(","):
        parts[part]()


if __name__ == "__main__":
    main()
