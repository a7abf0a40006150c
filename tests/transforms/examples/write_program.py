"""A user's own program that filters and changes records, to be run on any engine: its functions are
in __main__, as those of users are, so that workers get them with the pipeline.

    python write_program.py INPUT OUTPUT [--slow] [--regroup] [--dying=FILE] [Beam's options]
"""

from __future__ import annotations

import os
import signal
import sys
import time
from dataclasses import replace
from typing import Any

import apache_beam as beam
import psutil
from apache_beam.options.pipeline_options import PipelineOptions

from recordmill.records.example_values import parse_example
from recordmill.transforms import ReadExamples, WriteExamples


def is_kept(record: bytes) -> bool:
    """Leaves a seventh of the records out."""
    return int(parse_example(record)["id"][0]) % 7 != 0


def changed(record: bytes, slow: bool) -> dict[str, Any]:
    """Returns a record with one more feature."""
    if slow:
        time.sleep(0.001)  # so that a test can kill something meanwhile
    found = parse_example(record)
    return {**found, "square": int(found["id"][0]) ** 2}


def die_once(counts: dict[str, Any], mark: str) -> dict[str, Any]:
    """Kills the task manager of Flink that this worker belongs to, unless the mark is there."""
    try:
        os.close(os.open(mark, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return counts
    java = [p for p in psutil.Process().parents() if p.name() == "java"]
    os.kill(java[0].pid, signal.SIGKILL)
    time.sleep(60)
    return counts


def main(source: str, output: str, arguments: list[str]) -> None:
    own = ("--slow", "--regroup", "--dying=")
    flags = [flag for flag in arguments if not flag.startswith(own)]
    dying = [flag.partition("=")[2] for flag in arguments if flag.startswith("--dying=")]
    writing = WriteExamples(
        output, num_shards=12, splits={"train": 0.9, "test": 0.1}, run_bytes=1 << 14
    )
    if "--regroup" in arguments:  # as many run files of a huge dataset are
        writing._sink = replace(
            writing._sink, max_runs=3, file_bytes=1, item_bytes=1, batch_elements=50
        )
    with beam.Pipeline(options=PipelineOptions(flags)) as pipeline:
        written = (
            pipeline
            | "Read" >> ReadExamples(source, range_bytes=1 << 15)
            | "Keep" >> beam.Filter(is_kept)
            | "Change" >> beam.Map(changed, "--slow" in arguments)
            | "Write" >> writing
        )
        for mark in dying:
            _ = written | "Die" >> beam.Map(die_once, mark)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
