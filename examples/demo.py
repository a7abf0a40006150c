"""The jobs on what every machine has: Python's help texts, and pictures drawn by code.

Run by `make demo`; everything is written to demo/. Running it again does only what is missing.
"""

from __future__ import annotations

import os
import pydoc_data.topics
import shlex
import sys
import time
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")

import pictures

import recordmill.reader as reader
from recordmill.pipelines.command_line import main

DEMO = Path("demo")


def recordmill(*arguments: str) -> None:
    """Runs a command as a user would type it."""
    print(f"\n$ recordmill {shlex.join(arguments)}", flush=True)
    began = time.monotonic()
    status = main(list(arguments))
    if status:
        sys.exit(status)
    print(f"  ({time.monotonic() - began:.1f} s)")


def write_text() -> None:
    """Writes Python's own help texts, one file a topic, as `pydoc` shows them."""
    folder = DEMO / "text"
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in pydoc_data.topics.topics.items():
        path = folder / f"{name}.txt"
        if not path.exists():
            path.write_text(text, encoding="utf-8")
    topics = len(pydoc_data.topics.topics)
    print(f"{topics} help topics of Python {sys.version.split()[0]} in {folder}/")


def show_batch() -> None:
    """Reads one batch and prints two of its examples, decoded."""
    tokens = (DEMO / "vocab.txt").read_text(encoding="utf-8").splitlines()
    print("\n$ python")
    print(">>> import recordmill.reader as reader")
    print(f">>> batch = next(iter(reader.load('{DEMO}/dataset', 'train', batch_size=32)))")
    batch = next(iter(reader.load(DEMO / "dataset", "train", batch_size=32)))
    for name, value in sorted(batch.items()):
        print(f"{name:<22} {value.dtype.name:<8} {value.shape}")
    for row in range(2):
        length = int(batch["input_mask"][row].numpy().sum())
        ids = batch["input_ids"][row].numpy()[:length]
        weights = batch["masked_lm_weights"][row].numpy() > 0
        wanted = batch["masked_lm_ids"][row].numpy()[weights]
        random = int(batch["next_sentence_labels"][row][0])
        print(f"\nexample {row}: second segment is {'random' if random else 'the continuation'}")
        print("  " + " ".join(tokens[i] for i in ids).replace(" ##", ""))
        print("  to predict: " + ", ".join(tokens[i] for i in wanted))


def show_pictures() -> None:
    """Reads a batch of records and writes them as one picture."""
    import tensorflow as tf

    batch = next(iter(reader.load(DEMO / "surfaces", "train", batch_size=18, seed=1)))
    images = tf.stack([tf.io.decode_image(data) for data in batch["image"]])
    masks = tf.stack([tf.io.decode_image(data) for data in batch["segmentation_mask"]])
    sheet = DEMO / "contact_sheet.png"
    pictures.contact_sheet(images.numpy(), masks.numpy(), sheet)
    print(f"\n18 decoded records, what their masks mark in red: {sheet}")


def text_job() -> None:
    """Help texts to masked sentence pairs."""
    write_text()
    vocabulary = f"{DEMO}/vocab.txt"
    text = f"--input={DEMO}/text/*.txt"
    if not Path(vocabulary).exists():
        recordmill("vocab", text, f"--output={vocabulary}", "--vocab_size=4000")
    recordmill(
        "text", text, f"--output={DEMO}/dataset", f"--vocab_file={vocabulary}", "--task=bert",
        "--documents=file", "--sentence_splitter=none", "--max_seq_length=128",
        "--dupe_factor=5", "--num_shards=4", "--splits=train:0.9,validation:0.1", "--report",
    )  # fmt: skip
    recordmill("verify", f"{DEMO}/dataset")
    show_batch()


def image_job() -> None:
    """Drawn surfaces to augmented images with masks."""
    pictures.draw(DEMO / "pictures")
    recordmill(
        "images", f"--input={DEMO}/pictures", f"--output={DEMO}/surfaces", "--task=segmentation",
        "--channels=1", "--image_size=128x128", "--num_shards=2",
        "--augmentations=flip,rotate(20),brightness", "--copies=2", "--keep_original", "--report",
    )  # fmt: skip
    recordmill("verify", f"{DEMO}/surfaces")
    show_pictures()


if __name__ == "__main__":
    print(f"everything is written to {DEMO.absolute()}")
    text_job()
    image_job()
    reports = " and ".join(f"{DEMO}/{name}/_meta/report.html" for name in ("dataset", "surfaces"))
    print(f"\nwhat is in the two datasets, as pages for a browser: {reports}")
