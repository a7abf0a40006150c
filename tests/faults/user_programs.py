"""Pipelines of users' own, each with one local worker: they are killed, and started again."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apache_beam as beam

from recordmill.pipelines.engines.error_text import one_line
from recordmill.records.errors import UsageError
from recordmill.transforms import Document, Gpt, WriteExamples, WriteText

from ..transforms.user_pipelines import write_elements

_BUNDLES = 3
_PARTS = 4


def _documents(source: Path) -> list[str]:
    texts = [path.read_text(encoding="utf-8") for path in sorted(source.glob("*.txt"))]
    return [document for text in texts for document in text.split("\n\n") if document.strip()]


def _write_text(source: Path, output: Path, overwrite: bool) -> tuple[beam.PTransform, list[Any]]:
    writing = WriteText(
        str(output), objective=Gpt(max_seq_length=32), tokenizer=str(source / "vocab"),
        num_shards=2, deduplicate="near", overwrite=overwrite, warnings="none",
    )  # fmt: skip
    texts = _documents(source)
    return writing, [Document(text, key=f"d{i}") for i, text in enumerate([*texts, *texts[:5]])]


def _write_examples(
    source: Path, output: Path, overwrite: bool
) -> tuple[beam.PTransform, list[Any]]:
    writing = WriteExamples(str(output), num_shards=2, overwrite=overwrite)
    return writing, [{"id": i, "text": text} for i, text in enumerate(_documents(source))]


TRANSFORMS: dict[str, Callable[[Path, Path, bool], tuple[beam.PTransform, list[Any]]]] = {
    "WriteText": _write_text,
    "WriteExamples": _write_examples,
}


def run(transform: str, source: Path, output: Path, *, overwrite: bool = False) -> int:
    """Runs a pipeline, and prints in one line what it raised; returns the exit status.

    How a program tells its user of an exception is the program's own; that it is raised is ours.
    """
    logging.disable(logging.CRITICAL)  # Beam logs each traceback, beside raising it
    try:
        writing, elements = TRANSFORMS[transform](source, output, overwrite)
        write_elements(writing, elements, bundles=_BUNDLES, workers=1)
    except Exception as error:
        print(f"recordmill: {one_line(error)}", file=sys.stderr)
        return 2 if isinstance(error, UsageError) else 1
    return 0


def main(transform: str, source: str, output: str) -> int:
    """Runs a pipeline as a program of its own."""
    return run(transform, Path(source), Path(output))
