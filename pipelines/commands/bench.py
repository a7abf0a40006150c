"""`recordmill bench DIR`: measure how fast a dataset is read, and where the time goes."""

from __future__ import annotations

from dataclasses import fields

from recordmill.pipelines.arguments import Parser
from recordmill.pipelines.tensorflow_loading import load_quietly
from recordmill.reader import bench


def make_parser() -> Parser:
    """Returns the parser of `recordmill bench`."""
    parser = Parser(
        prog="recordmill bench",
        description="Measures how fast a dataset is read and where the time goes; says what to "
        "change.",
    )
    bench.add_arguments(parser)
    return parser


def main(arguments: list[str]) -> int:
    """Runs `recordmill bench`; returns the exit status."""
    parsed = vars(make_parser().parse_args(arguments))
    options = bench.BenchFlags(
        **{field.name: parsed[field.name] for field in fields(bench.BenchFlags)}
    )
    load_quietly("tensorflow")
    return bench.run(options)
