"""Rows of Parquet files, filtered by a column, as a dataset for BERT.

    python examples/filter_parquet.py --input='corpus/*.parquet' --output=ds --tokenizer=vocab.txt

Other flags are Beam's, such as --runner=PrismRunner; the shards are the same on any engine.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions

from recordmill.records.errors import UsageError
from recordmill.transforms import Bert, Document, WriteText


def is_of(row: dict[str, Any], language: str) -> bool:
    """Tells whether a row is of a language."""
    return bool(row["lang"] == language)


def to_document(row: dict[str, Any]) -> Document:
    """Makes a document of a row; its key decides its position and its masks."""
    return Document(row["text"], key=str(row["id"]))


def main(arguments: list[str]) -> None:
    """Builds the pipeline and runs it."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--input", required=True, help="Parquet with columns id, text and lang.")
    parser.add_argument("--output", required=True)
    parser.add_argument("--tokenizer", required=True)
    parser.add_argument("--language", default="de")
    parser.add_argument("--num_shards", type=int, default=4)
    parser.add_argument("--dupe_factor", type=int, default=10)
    flags, others = parser.parse_known_args(arguments)
    task = Bert(max_seq_length=128, dupe_factor=flags.dupe_factor)
    write = WriteText(
        flags.output, objective=task, tokenizer=flags.tokenizer, num_shards=flags.num_shards
    )
    with beam.Pipeline(options=PipelineOptions(others)) as pipeline:
        _ = (
            pipeline
            | "Read" >> beam.io.ReadFromParquet(flags.input, columns=["id", "text", "lang"])
            | "Filter" >> beam.Filter(is_of, flags.language)
            | "ToDocument" >> beam.Map(to_document)
            | "Write" >> write
        )


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except UsageError as error:
        sys.exit(f"filter_parquet.py: {error}")
