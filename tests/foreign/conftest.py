"""Runs the code of other projects over our datasets, each in a process of its own.

Their code is never part of this repository. The variables below name checkouts of it; a test whose
checkout is not named is skipped. CONTRIBUTING.md says which versions, and how to get them.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recordmill.pipelines.command_line import main
from recordmill.records.manifest import Manifest

from ..conftest import make_documents
from . import trees
from .table import PROPERTY, Reading, to_text

PROGRAMS = Path(__file__).parent / "programs"
BERT = "RECORDMILL_FOREIGN_BERT"
CEREBRAS_TEXT = "RECORDMILL_FOREIGN_CEREBRAS_TEXT"
CEREBRAS_UNET = "RECORDMILL_FOREIGN_CEREBRAS_UNET"
OBJECT_DETECTION = "RECORDMILL_FOREIGN_OBJECT_DETECTION"
SEQIO = "RECORDMILL_FOREIGN_SEQIO"
MAXTEXT = "RECORDMILL_FOREIGN_MAXTEXT"
TFX = "RECORDMILL_FOREIGN_TFX"

# A program's answer to a call: arrays by name.
Answer = dict[str, np.ndarray]


def _checkout(variable: str, inside: str) -> Path:
    """Returns the path that a variable names, or skips the test."""
    if not os.environ.get(variable):
        pytest.skip(f"{variable} does not name a checkout; CONTRIBUTING.md says how to get one")
    path = Path(os.environ[variable]).resolve()
    if not (path / inside).exists():
        pytest.fail(f"{variable} must name a folder that contains {inside}, got {path}")
    return path


@pytest.fixture(scope="session")
def bert_checkout() -> Path:
    return _checkout(BERT, "run_pretraining.py")


@pytest.fixture(scope="session")
def cerebras_text() -> Path:
    return _checkout(CEREBRAS_TEXT, "modelzoo/transformers/tf/bert")


@pytest.fixture(scope="session")
def cerebras_unet() -> Path:
    return _checkout(CEREBRAS_UNET, "modelzoo/unet/tf/input")


@pytest.fixture(scope="session")
def object_detection() -> Path:
    return _checkout(OBJECT_DETECTION, "object_detection/data_decoders")


@pytest.fixture(scope="session")
def seqio_folder() -> Path:
    return _checkout(SEQIO, "seqio/beam_utils.py")


@pytest.fixture(scope="session")
def maxtext_folder() -> Path:
    return _checkout(MAXTEXT, "maxtext/input_pipeline/tfds_data_processing.py")


@pytest.fixture(scope="session")
def tfx_folder() -> Path:
    return _checkout(TFX, "tfx/components/util/tfxio_utils.py")


@dataclass
class ForeignCalls:
    """Calls of foreign code: many in one process, because importing TensorFlow takes seconds."""

    folder: Path
    runs: list[str] = field(default_factory=list)

    def run(self, program: str, *calls: dict[str, Any], checkout: Path | None = None) -> list[Any]:
        """Returns the answer to each call; a call that raised gives `ForeignError`."""
        self.runs.append(program)
        request = self.folder / f"{len(self.runs)}.json"
        answers = self.folder / f"{len(self.runs)}.npz"
        request.write_text(json.dumps({"checkout": str(checkout or ""), "calls": calls}))
        done = subprocess.run(
            [sys.executable, str(PROGRAMS / f"{program}.py"), str(request), str(answers)],
            capture_output=True, text=True,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        with np.load(answers) as stored:
            content = {name: stored[name] for name in stored.files}
        return [_answer(content, number) for number in range(len(calls))]


class ForeignError(Exception):
    """What foreign code raised, as one line."""


def _answer(content: Answer, number: int) -> Answer | ForeignError:
    prefix = f"{number}/"
    own = {
        name.removeprefix(prefix): array
        for name, array in content.items()
        if name.startswith(prefix)
    }
    return ForeignError(str(own["error"])) if "error" in own else own


@pytest.fixture(scope="session")
def foreign(tmp_path_factory: pytest.TempPathFactory) -> ForeignCalls:
    return ForeignCalls(tmp_path_factory.mktemp("foreign"))


def promised(dataset: Path, split: str = "train") -> int:
    """Returns the number of records in the manifest."""
    manifest = Manifest.from_bytes((dataset / "_meta/manifest.json").read_bytes())
    return sum(shard.records for shard in manifest.split_shards()[split])


Count = Callable[..., None]


@pytest.fixture
def count(request: pytest.FixtureRequest) -> Count:
    """Checks the number of records that a reader gave, and puts it into the table."""

    def add(reader: str, dataset: Path, read: int, label: str, split: str = "train") -> None:
        reading = Reading(reader, label, split, promised(dataset, split), read)
        request.node.user_properties.append((PROPERTY, reading.to_json()))
        assert read == reading.promised, reading

    return add


@pytest.fixture(scope="session")
def row_table() -> list[dict[str, Any]]:
    """Rows of texts with labels: long ones, pairs of which either is the longer, other letters."""
    rng = random.Random(11)
    words = [word for text in make_documents(20) for line in text for word in line.split()]
    words += ["Ünïcode,", "don't", "東京", "zzzqqq"]
    return [
        {
            "text": "the " + " ".join(rng.choices(words, k=rng.choice([0, 10, 40, 90]))),
            "other": "of " + " ".join(rng.choices(words, k=rng.choice([0, 10, 40, 90]))),
            "label": rng.choice(["no", "yes", "perhaps"]), "score": rng.randrange(16) / 4,
        }
        for _ in range(90)
    ]  # fmt: skip


@pytest.fixture(scope="session")
def write_rows(
    tmp_path_factory: pytest.TempPathFactory, row_table: list[dict[str, Any]], vocab_file: str
) -> Callable[..., Path]:
    """Writes a dataset of the rows in two shards; equal flags are written once."""
    folder = tmp_path_factory.mktemp("rows")
    source = folder / "rows.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in row_table), encoding="utf-8")
    written: dict[tuple[str, ...], Path] = {}

    def write(*flags: str) -> Path:
        if flags not in written:
            output = folder / f"dataset-{len(written)}"
            line = [
                "text", f"--input={source}", f"--output={output}", f"--vocab_file={vocab_file}",
                "--task=classify", "--max_seq_length=64", "--num_shards=2",
                "--direct_num_workers=1", *flags,
            ]  # fmt: skip
            assert main(line) == 0
            written[flags] = output
        return written[flags]

    return write


@pytest.fixture(scope="session")
def write_images(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Writes a dataset of a tree for a task, in two shards; equal flags are written once."""
    folder = tmp_path_factory.mktemp("images")
    sources = {
        "detection": (trees.draw_coco, ("images", "--annotations={}/instances.json")),
        "segmentation": (trees.draw_pairs, ("", "--labels={}/labels.txt")),
        "classification": (trees.draw_classes, ("",)),
    }
    written: dict[tuple[str, ...], Path] = {}

    def write(task: str, *flags: str) -> Path:
        draw, (inside, *others) = sources[task]
        source = folder / task
        if not source.exists():
            source.mkdir()
            draw(source)
        key = (task, *flags)
        if key not in written:
            output = folder / f"dataset-{len(written)}"
            lines = [f"--input={source / inside}", *(other.format(source) for other in others)]
            lines += [f"--output={output}", "--num_shards=2", "--direct_num_workers=1"]
            assert main(["images", f"--task={task}", *lines, *flags]) == 0
            written[key] = output
        return written[key]

    return write


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Prints the table of readers and datasets."""
    reports = [r for group in ("passed", "failed") for r in terminalreporter.stats.get(group, [])]
    readings = [
        Reading.from_json(value)
        for report in reports
        for name, value in getattr(report, "user_properties", [])
        if name == PROPERTY
    ]
    if readings:
        terminalreporter.section("foreign readers")
        terminalreporter.write_line(to_text(readings))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks the tests of this folder: each starts processes that import all of another project."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.slow)
