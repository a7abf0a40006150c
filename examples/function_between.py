"""A DoFn of your own between reading and writing, on any engine.

    python examples/function_between.py --input='corpus/*.txt' --output=ds --tokenizer=vocab.txt

reads what `recordmill text` reads, drops short documents, cuts long ones, and writes rows for GPT.
Other flags are Beam's. On a Flink cluster of this machine (`examples/flink/cluster.py start`):

    --runner=PortableRunner --job_endpoint=localhost:8099 --environment_type=LOOPBACK
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import replace

import apache_beam as beam
from apache_beam.metrics import Metrics
from apache_beam.options.pipeline_options import PipelineOptions

from recordmill.records.errors import UsageError
from recordmill.transforms import Document, Gpt, ReadDocuments, WriteText


class CutDocuments(beam.DoFn):
    """Drops documents of few characters, and cuts those of many at line ends."""

    def __init__(self, least: int, most: int) -> None:
        self._least = least
        self._most = most

    def process(self, document: Document) -> Iterator[Document]:
        """Yields the parts of a document, each with a key of its own."""
        if len(document.text) < self._least:
            Metrics.counter("own", "too_short").inc()
            return
        part: list[str] = []
        number = size = 0
        for line in document.text.split("\n"):
            if part and size + len(line) > self._most:
                yield replace(document, text="\n".join(part), key=f"{document.key}/{number}")
                part, number, size = [], number + 1, 0
            part.append(line)
            size += len(line) + 1
        yield replace(document, text="\n".join(part), key=f"{document.key}/{number}")


def main(arguments: list[str]) -> None:
    """Builds the pipeline and runs it."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--input", required=True)
    parser.add_argument("--output", required=True)
    parser.add_argument("--tokenizer", required=True)
    parser.add_argument("--num_shards", type=int, default=4)
    parser.add_argument("--least", type=int, default=100, help="Characters of a document.")
    parser.add_argument("--most", type=int, default=2000, help="Characters of a part.")
    flags, others = parser.parse_known_args(arguments)
    write = WriteText(
        flags.output,
        objective=Gpt(max_seq_length=256),
        tokenizer=flags.tokenizer,
        num_shards=flags.num_shards,
    )
    with beam.Pipeline(options=PipelineOptions(others)) as pipeline:
        _ = (
            pipeline
            | "Read" >> ReadDocuments(flags.input)
            | "Cut" >> beam.ParDo(CutDocuments(flags.least, flags.most))
            | "Write" >> write
        )


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except UsageError as error:
        sys.exit(f"function_between.py: {error}")
