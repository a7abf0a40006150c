from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from recordmill.reader import bench, load, perf_input_fn
from recordmill.reader.bench import Costs, report
from recordmill.reader.options import BenchSpec
from recordmill.records.errors import UsageError
from recordmill.records.spec import build, naming_flags

from ..pictures import png
from .small_datasets import write_numbers

NUMBER = r"[\d.e+-]+"
LINES = [
    rf"total steps: (\d+), time: {NUMBER}, perf: {NUMBER} steps/sec/worker",
    rf"Without counting first step, total steps: \d+, time: {NUMBER}, "
    rf"perf: {NUMBER} steps/sec/worker",
    r"total number of inputs: 3",
    r"Shapes: {id: \(4,\), row: \(4, 3\), text: \(4,\)}",
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


@pytest.mark.slow
def test_no_step_has_the_import_of_tensorflow() -> None:
    program = (
        "import sys\n"
        "from recordmill.reader.performance import perf_input_fn\n"
        "seen = []\n"
        "perf_input_fn(lambda _: seen.append('tensorflow' in sys.modules) or [{}], None)\n"
        "sys.exit(seen != [True])"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_perf_input_fn_stops_in_time(path: Path) -> None:
    steps, elapsed, _ = perf_input_fn(lambda params: params, tf.data.Dataset.range(10**9), 0.05)
    assert 1 <= steps < 10**9
    assert elapsed >= 0.05


def test_perf_input_fn_takes_any_structure(capsys: pytest.CaptureFixture[str]) -> None:
    pairs = tf.data.Dataset.from_tensors(({"a": [[1, 2]]}, [3]))
    assert perf_input_fn(lambda params: pairs, None)[0] == 1
    assert "Shapes: {features/a: (1, 2), labels: (1,)}" in capsys.readouterr().out
    with pytest.raises(UsageError, match="at least one batch, and this one gives none"):
        perf_input_fn(lambda params: tf.data.Dataset.range(0), None)


@pytest.mark.parametrize(
    ("batch", "shapes"),
    [
        ((np.zeros((100, 784)), np.zeros(100)), "{features: (100, 784), labels: (100,)}"),
        (
            ({"ids": np.zeros((2, 4))}, np.zeros(2), np.zeros(2)),
            "{features/ids: (2, 4), labels: (2,), weights: (2,)}",
        ),
        ({"image": np.zeros((2, 3)), "label": np.zeros(2)}, "{image: (2, 3), label: (2,)}"),
        (((np.zeros(2), np.zeros(3)), np.zeros(2)),
         "{features/0: (2,), features/1: (3,), labels: (2,)}"),
        (np.zeros((2, 3)), "{input: (2, 3)}"),
    ],
    ids=["pair", "weights", "dict", "nested", "tensor"],
)  # fmt: skip
def test_shapes_have_names(batch: Any, shapes: str, capsys: pytest.CaptureFixture[str]) -> None:
    perf_input_fn(lambda params: iter([batch]), None)
    assert capsys.readouterr().out.splitlines()[-1] == f"Shapes: {shapes}"


def run(path: Path, **options: Any) -> int:
    with naming_flags():
        return bench.run(build(BenchSpec, {"path": str(path), "time": 0.2, **options}))


def test_the_command(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(path, batch_size="4", time="0.2", shuffle=False) == 0
    told, shown = capsys.readouterr().out.split("\n", 1)
    assert told == "steps of the whole reader, as perf_input_fn of Cerebras' Model Zoo prints them:"
    assert re.match(LINES[0], shown)
    assert re.search(r"records/s; a batch every .* ms", shown)
    assert re.search(r"read .* ms, parse .* ms, transform 0.00 ms", shown)
    assert re.search(r"a step of 5 ms would wait \d+% of the time", shown)
    assert "is the largest part" in shown


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"time": "0"}, "--time must be above 0, got 0"),
        ({"step_msec": ["0"]}, "--step_msec must be above 0, got 0"),
        ({"batch_size": "x"}, "--batch_size must be a whole number, got 'x'"),
        ({"batch_size": "0"}, "--batch_size must be at least 1, got 0"),
        ({"split": "trian"}, "did you mean 'train'"),
        ({"image_size": "0"}, "--image_size must be like 224x224 or 224, got '0'"),
        ({"image_size": "8", "decode": False}, "--image_size has no effect with --no-decode"),
        ({"image_size": "8"}, "--image_size has no effect on .*, which has no images"),
        ({"decode": True}, "--decode has no effect on .*, which has no images"),
        ({"int64": "id,id"}, "--int64 must name each once, got id,id"),
    ],
)
def test_each_flag_is_checked(path: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        run(path, **options)


def test_values_of_flags() -> None:
    spec = build(
        BenchSpec, {"path": "ds", "step_msec": [["20", "50"]], "int64": "a, b", "image_size": "9x7"}
    )
    assert (spec.step_msec, spec.int64, spec.size) == ((20.0, 50.0), ("a", "b"), (9, 7))


def test_stalls_and_advice() -> None:
    costs = Costs(read=2.0, parse=6.0, transform=1.0, wait=8.0)
    assert costs.stall(2.0) == 0.75
    assert costs.stall(10.0) == 0.0
    assert "parsing is the largest part" in costs.advice()
    assert "reading is the largest" in Costs(3, 2, 1, 6).advice()
    assert "transforms are the largest" in Costs(3, 2, 9, 6).advice()
    assert "a step of 2 ms would wait 75% of the time" in report(costs, 4, [2.0])
    assert "500 records/s; a batch every 8.00 ms" in report(costs, 4, [])


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from recordmill.pipelines.command_line import main

    folder = tmp_path_factory.mktemp("pictures")
    for i in range(8):
        (folder / "in/cat").mkdir(parents=True, exist_ok=True)
        (folder / f"in/cat/{i}.png").write_bytes(png(20 + i, 16, seed=i))
    flags = ("--direct_num_workers=1", "--num_shards=1")
    for name, more in (("ds", ()), ("sized", ("--image_size=8x12", "--channels=1"))):
        assert (
            main(["images", f"--input={folder}/in", f"--output={folder}/{name}", *flags, *more])
            == 0
        )
    return folder


class TestPictures:
    @pytest.mark.parametrize(
        ("name", "options", "shape"),
        [
            ("ds", {}, (224, 224, 3)),
            ("sized", {}, (8, 12, 1)),
            ("ds", {"image_size": "10x20"}, (10, 20, 3)),
            ("ds", {"image_size": "10", "decode": True}, (10, 10, 3)),
        ],
    )
    def test_they_are_decoded(
        self, pictures: Path, capsys: pytest.CaptureFixture[str], name: str,
        options: dict[str, Any], shape: tuple[int, int, int],
    ) -> None:  # fmt: skip
        assert run(pictures / name, batch_size=4, **options) == 0
        shown = capsys.readouterr().out
        assert f"image: {(4, *shape)}" in shown
        assert f"images are decoded to {shape[0]}x{shape[1]}x{shape[2]}, as part of" in shown

    def test_they_are_not_if_asked(
        self, pictures: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert run(pictures / "ds", batch_size=4, decode=False) == 0
        shown = capsys.readouterr().out
        assert "image: (4,)" in shown
        assert "decoded" not in shown
