"""`recordmill bench DIR`: measure how fast a dataset is read, and where the time goes."""

from __future__ import annotations

from recordmill.reader import bench
from recordmill.reader.options import BenchSpec
from recordmill.transforms.dataset.tensorflow_loading import load_quietly


def run(options: BenchSpec) -> int:
    """Runs `recordmill bench`; returns the exit status."""
    load_quietly("tensorflow")
    return bench.run(options)
