"""`recordmill bench DIR`: measure how fast a dataset is read, and where the time goes."""

from __future__ import annotations

from recordmill.pipelines.tensorflow_loading import load_quietly
from recordmill.reader import bench
from recordmill.reader.options import BenchSpec


def run(options: BenchSpec) -> int:
    """Runs `recordmill bench`; returns the exit status."""
    load_quietly("tensorflow")
    return bench.run(options)
