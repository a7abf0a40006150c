from __future__ import annotations

import argparse
import re
from pathlib import Path

import pytest
import tensorflow as tf

from recordmill.reader import bench, load, perf_input_fn
from recordmill.reader.bench import Costs, report
from recordmill.records.errors import UsageError

from .small_datasets import write_numbers

NUMBER = r"[\d.e+-]+"
LINES = [
    rf"total steps: (\d+), time: {NUMBER}, perf: {NUMBER} steps/sec/worker",
    rf"Without counting first step, total steps: \d+, time: {NUMBER}, "
    rf"perf: {NUMBER} steps/sec/worker",
    r"total number of inputs: 3",
    r"Shapes: {'id': \(4,\), 'row': \(4, 3\), 'text': \(4,\)}",
]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_numbers(tmp_path_factory.mktemp("ds"), [25, 15])


def test_perf_input_fn(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    steps, elapsed, first = perf_input_fn(
        lambda params: load(path, "train", batch_size=params["batch_size"]), {"batch_size": 4}
    )
    assert steps == 10
    assert 0 < first <= elapsed
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 4
    for line, pattern in zip(lines, LINES, strict=True):
        assert re.fullmatch(pattern, line), line


def test_perf_input_fn_stops_in_time(path: Path) -> None:
    steps, elapsed, _ = perf_input_fn(lambda params: params, tf.data.Dataset.range(10**9), 0.05)
    assert 1 <= steps < 10**9
    assert elapsed >= 0.05


def test_perf_input_fn_takes_any_structure(capsys: pytest.CaptureFixture[str]) -> None:
    pairs = tf.data.Dataset.from_tensors(({"a": [[1, 2]]}, [3]))
    assert perf_input_fn(lambda params: pairs, None)[0] == 1
    assert "Shapes: {'0/a': (1, 2), '1': (1,)}" in capsys.readouterr().out
    with pytest.raises(UsageError, match="at least one batch, and this one gives none"):
        perf_input_fn(lambda params: tf.data.Dataset.range(0), None)


def parsed(*flags: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    bench.add_arguments(parser)
    return parser.parse_args(flags)


def test_the_command(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = parsed(str(path), "--batch_size=4", "--time=0.2", "--no-shuffle")
    assert bench.run(arguments) == 0
    shown = capsys.readouterr().out
    assert re.match(LINES[0], shown)
    assert re.search(r"records/s; a batch every .* ms", shown)
    assert re.search(r"read .* ms, parse .* ms, transform 0.00 ms", shown)
    assert re.search(r"a step of 5 ms would wait \d+% of the time", shown)
    assert "is the largest part" in shown


def test_each_flag_is_checked(path: Path) -> None:
    with pytest.raises(UsageError, match="--time must be more than 0 seconds, got 0"):
        bench.run(parsed(str(path), "--time=0"))
    with pytest.raises(UsageError, match="--step_msec must be more than 0"):
        bench.run(parsed(str(path), "--step_msec=0"))
    with pytest.raises(UsageError, match="did you mean 'train'"):
        bench.run(parsed(str(path), "--split=trian"))


def test_stalls_and_advice() -> None:
    costs = Costs(read=2.0, parse=6.0, transform=1.0, wait=8.0)
    assert costs.stall(2.0) == 0.75
    assert costs.stall(10.0) == 0.0
    assert "parsing is the largest part" in costs.advice()
    assert "reading is the largest" in Costs(3, 2, 1, 6).advice()
    assert "transforms are the largest" in Costs(3, 2, 9, 6).advice()
    assert "a step of 2 ms would wait 75% of the time" in report(costs, 4, [2.0])
    assert "500 records/s; a batch every 8.00 ms" in report(costs, 4, [])
