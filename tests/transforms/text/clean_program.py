"""A user's own program that cleans what it writes, to be run on any engine.

python clean_program.py OUTPUT TOKENIZER [Beam's options]
"""

from __future__ import annotations

import random
import sys

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions

from recordmill.transforms import Bert, Document, WriteText

TEXTS, COUNT = 400, 700  # the others are those again, with a word more or in full-width letters
_WIDE = {ord("a") + i: 0xFF41 + i for i in range(26)}


def document(number: int) -> Document:
    """Makes a document: some are short, some repeat an earlier one, some are nearly equal."""
    rng = random.Random(number % TEXTS)
    words = [f"w{rng.randrange(5000)}" for _ in range(3 if number % 10 == 0 else 60)]
    text = " ".join(words)
    if number >= TEXTS:
        text = text.translate(_WIDE) if number % 2 else f"{text} again"
    return Document(text, key=f"k{number}", group=f"g{number % 90}")


def main(output: str, tokenizer: str, arguments: list[str]) -> None:
    writing = WriteText(
        output, objective=Bert(max_seq_length=64, dupe_factor=2), tokenizer=tokenizer,
        splits={"train": 0.8, "test": 0.2}, num_shards=3, normalize="nfkc", min_tokens=30,
        deduplicate="near", list_dropped=True, run_tokens=8000,
    )  # fmt: skip
    with beam.Pipeline(options=PipelineOptions(arguments)) as pipeline:
        _ = (
            pipeline
            | "Numbers" >> beam.Create(range(COUNT))
            | "Spread" >> beam.Reshuffle()
            | "Document" >> beam.Map(document)
            | "Write" >> writing
        )


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
