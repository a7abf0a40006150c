"""A user's own program that reads documents of every source, filters them and writes a dataset.

    python sources_program.py SOURCES.json OUTPUT TOKENIZER [--slow] [Beam's options]

SOURCES.json has the arguments of `ReadDocuments` for each source, by name.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import replace
from pathlib import Path

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions

from recordmill.transforms import Bert, Document, ReadDocuments, WriteText


def is_kept(document: Document, slow: bool) -> bool:
    """Leaves out what is in English."""
    if slow:
        time.sleep(0.002)  # so that a test can kill something meanwhile
    return not document.text.startswith("English")


def named(document: Document, source: str) -> Document:
    """Says in the key which source a document is of."""
    return replace(document, key=f"{source} {document.key}")


def main(sources: str, output: str, tokenizer: str, arguments: list[str]) -> None:
    slow = "--slow" in arguments
    write = WriteText(
        output, objective=Bert(max_seq_length=64), tokenizer=tokenizer, num_shards=6,
        splits={"train": 0.9, "test": 0.1}, run_tokens=20_000,
    )  # fmt: skip
    with beam.Pipeline(
        options=PipelineOptions([a for a in arguments if a != "--slow"])
    ) as pipeline:
        documents = [
            pipeline
            | f"Read {name}" >> ReadDocuments(given.pop("input"), item_bytes=4000, **given)
            | f"Name {name}" >> beam.Map(named, name)
            for name, given in json.loads(Path(sources).read_text()).items()
        ]
        _ = (
            documents
            | "Join" >> beam.Flatten()
            | "Filter" >> beam.Filter(is_kept, slow)
            | "Write" >> write
        )


if __name__ == "__main__":
    main(*sys.argv[1:4], sys.argv[4:])
