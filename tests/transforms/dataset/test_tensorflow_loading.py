"""TensorFlow says nothing about the graphics cards that a machine lacks."""

from __future__ import annotations

import subprocess
import sys

import pytest

from recordmill.pipelines.commands import bench
from recordmill.reader.options import BenchSpec

_USE = """
from recordmill.transforms.dataset.tensorflow_loading import load_quietly
load_quietly("tensorflow")
import tensorflow as tf
print(len(tf.config.list_physical_devices()) > 0, int(tf.constant(1)))
"""


@pytest.mark.slow
def test_tensorflow_is_loaded_and_used_in_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TF_CPP_MIN_LOG_LEVEL", raising=False)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    done = subprocess.run([sys.executable, "-c", _USE], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("True 1\n", "")


@pytest.mark.parametrize(
    ("start", "said"),
    [
        (["-OO"], "needs docstrings, which PYTHONOPTIMIZE=2 leaves out"),
        ([], "2.4 GB more cannot be had: not enough memory"),
    ],
)
def test_what_tensorflow_lacks_is_said_before_it_is_loaded(start: list[str], said: str) -> None:
    program = (
        "import resource; resource.setrlimit(resource.RLIMIT_AS, (1_500_000_000, -1))\n"
        "from recordmill.transforms.dataset.tensorflow_loading import load_tensorflow\n"
        "load_tensorflow()"
    )
    line = [sys.executable, *start, "-c", program]
    done = subprocess.run(line, capture_output=True, text=True)
    assert said in done.stderr.splitlines()[-1]


def test_bench_loads_it_so(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: list[str] = []
    monkeypatch.setattr(bench, "load_quietly", lambda *modules: loaded.extend(modules))
    monkeypatch.setattr(bench.bench, "run", lambda options: 7 if loaded else 0)
    assert bench.run(BenchSpec(path="ds")) == 7
    assert loaded == ["tensorflow"]
