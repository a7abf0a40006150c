"""examples/train_multiworker.py as its users run it: two processes, one of them killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from recordmill.records.codec.encoding import Strings
from recordmill.records.schema import Feature, Schema

from .reader.small_datasets import write_dataset as write_columns

EXAMPLE = Path(__file__).parents[1] / "examples/train_multiworker.py"
SECONDS = 200

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3 * SECONDS)]


@contextmanager
def training(work_dir: Path, *flags: str) -> Iterator[subprocess.Popen[str]]:
    """The example as a process, in a group of its own that never outlives the test."""
    command = [
        sys.executable, str(EXAMPLE), f"--work_dir={work_dir}",
        "--hidden_size=16", "--layers=1", *flags,
    ]  # fmt: skip
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def train(work_dir: Path, *flags: str) -> str:
    """Runs the example to its end and returns what it printed."""
    with training(work_dir, *flags) as process:
        output, _ = process.communicate(timeout=SECONDS)
    assert process.returncode == 0, output
    return output


def losses(work_dir: Path) -> list[tuple[int, float]]:
    path = work_dir / "losses.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    return [(line["step"], line["loss"]) for line in map(json.loads, lines)]


def summaries(work_dir: Path, worker: int) -> dict[str, list[int]]:
    """Tag -> steps of what a worker wrote for TensorBoard."""
    found: dict[str, list[int]] = {}
    for path in sorted((work_dir / f"logs/worker-{worker}").iterdir()):
        for record in tf.data.TFRecordDataset(str(path)).as_numpy_iterator():
            event = tf.compat.v1.Event.FromString(record)
            for value in event.summary.value:
                assert value.metadata.plugin_data.plugin_name == "scalars"
                found.setdefault(value.tag, []).append(event.step)
    return found


def test_bert_killed_in_mid_epoch_goes_on_with_the_same_losses(
    tmp_path: Path, write_dataset: Callable[..., Path], vocab_file: str
) -> None:
    dataset = write_dataset("--task=mlm_tokens", "--num_shards=2")
    flags = [
        "--model=bert", f"--dataset={dataset}", f"--vocab_file={vocab_file}", "--max_seq_length=64",
        "--max_predictions_per_seq=10", "--train_split=train[:85%]", "--eval_split=train[85%:]",
        "--batch_size=24", "--checkpoint_steps=4",
    ]  # fmt: skip
    whole = tmp_path / "whole"
    train(whole, *flags)
    expected = dict(losses(whole))
    assert len(expected) > 12
    assert list(expected) == list(range(len(expected)))

    killed = tmp_path / "killed"
    with training(killed, *flags, "--step_seconds=0.5") as process:
        assert process.stdout is not None
        workers = next(line for line in process.stdout if line.startswith("workers:"))
        deadline = time.monotonic() + SECONDS
        while len(losses(killed)) < 7:
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)
        os.kill(int(workers.split()[2]), signal.SIGKILL)
        output, _ = process.communicate(timeout=SECONDS)
        assert process.returncode == 1
        assert "worker 1 ended with status -9; run the same command again" in output
    first = losses(killed)
    assert 7 <= len(first) < len(expected)

    train(killed, *flags)
    again = losses(killed)[len(first) :]
    begin = again[0][0]
    assert begin % 4 == 0
    assert 4 <= begin <= len(first)
    assert [step for step, _ in again] == list(range(begin, len(expected)))
    for step, loss in [*first, *again]:
        assert np.isclose(loss, expected[step], rtol=1e-3), step

    reports = [json.loads((path / "evaluation.json").read_text()) for path in (whole, killed)]
    for report in reports:
        each = report["workers"]
        assert len(each) == 2
        assert np.isclose(report["mean"], np.mean(each))
        assert np.isclose(report["variance"], np.var(each), atol=1e-9)
        assert report["worst"] == max(each) == each[report["worst_worker"]]
    assert np.allclose(reports[0]["workers"], reports[1]["workers"], rtol=1e-3)
    for worker in (0, 1):
        found = summaries(whole, worker)
        assert found == {"loss": list(expected), "evaluation_loss": [len(expected)]}


def test_workers_end_with_their_launcher(tmp_path: Path) -> None:
    dataset = write_images(tmp_path / "images", {"train": 64, "validation": 16})
    flags = ["--model=cnn", f"--dataset={dataset}", "--epochs=1000", "--step_seconds=1"]
    with training(tmp_path / "work", *flags) as process:
        assert process.stdout is not None
        assert any(line.startswith("workers:") for line in process.stdout)
        os.kill(process.pid, signal.SIGKILL)
        # The workers have the pipe, too: it ends with the last of them.
        process.communicate(timeout=SECONDS)


COLOURS = np.array([[200, 30, 30], [30, 200, 30], [30, 30, 200]])


def write_images(folder: Path, sizes: dict[str, int]) -> Path:
    """Noisy squares of three colours, in the form of TFDS."""
    schema = Schema(
        (
            Feature("image", "bytes", (), "a PNG", kind="image", image_shape=(None, None, 3)),
            Feature(
                "label", "int64", (), "red, green, blue", kind="classes", classes=("r", "g", "b")
            ),
        )
    )
    rng = np.random.default_rng(0)
    splits = {}
    for split, size in sizes.items():
        labels = rng.integers(0, 3, size)
        pixels = COLOURS[labels][:, None, None] + rng.integers(0, 50, (size, 20, 24, 3))
        images = [tf.io.encode_png(image.astype(np.uint8)).numpy() for image in pixels]
        splits[split] = [{"image": Strings.from_list(images), "label": labels}]
    return write_columns(folder, splits, schema)


def test_a_cnn_learns_what_it_is_shown(tmp_path: Path) -> None:
    dataset = write_images(tmp_path / "images", {"train": 320, "validation": 50})
    output = train(
        tmp_path / "work", "--model=cnn", f"--dataset={dataset}", "--image_size=16",
        "--batch_size=16", "--epochs=3", "--learning_rate=0.02",
    )  # fmt: skip
    found = [loss for _, loss in losses(tmp_path / "work")]
    assert len(found) == 30
    assert np.mean(found[-5:]) < 0.5 * np.mean(found[:3])
    assert "evaluation loss: mean" in output
    report = json.loads((tmp_path / "work/evaluation.json").read_text())
    assert report["worst"] < 0.5 * found[0]
