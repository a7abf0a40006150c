"""`recordmill examples --order=key`: records sorted by a feature, over all shards."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from recordmill.pipelines.command_line import main
from recordmill.records.example_values import parse_any

from ..transforms.examples.record_files import example, write_records
from .jobs import manifest, shard_bytes
from .test_examples_job import records_of, run

DRAW = random.Random(3)
ROWS: list[dict[str, Any]] = [
    {
        "id": i, "time": DRAW.randrange(-1000, 1 << 40), "label": i % 3,
        "score": DRAW.uniform(-5, 5), "name": f"n{DRAW.randrange(200):03d}",
    }
    for i in range(600)
]  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("order")
    records = [example(**row) for row in ROWS]
    write_records(made / "in/a.tfrecord", records[:400])
    write_records(made / "in/b.tfrecord.gz", records[400:], "GZIP")
    pq.write_table(pa.Table.from_pylist(ROWS), made / "rows.parquet", row_group_size=50)
    return made


@pytest.mark.parametrize("key", ["time", "label", "score", "name"])
def test_records_in_order_of_a_feature(folder: Path, tmp_path: Path, key: str) -> None:
    flags = (f"--input={folder}/in/*", "--order=key", f"--key={key}", "--num_shards=4")
    outputs = []
    for workers in (1, 2):
        output = tmp_path / str(workers)
        assert run(output, *flags, workers=workers) == 0
        outputs.append(shard_bytes(output))
    assert outputs[0] == outputs[1]
    found = records_of(output)
    assert sorted(found) == sorted(example(**row) for row in ROWS)
    values = [parse_any(record)[key][0] for record in found]
    assert values == sorted(values)
    sizes = [len(data) for data in shard_bytes(output).values()]
    assert len(sizes) == 4
    assert min(sizes) > max(sizes) / 2
    assert manifest(output)["config"]["records"]["key"] == key
    assert main(["verify", str(output)]) == 0


def test_however_the_work_is_cut(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from recordmill.pipelines.planning import examples_planner

    outputs = []
    for target in (1 << 30, 2000):
        monkeypatch.setattr(examples_planner, "record_item_bytes", lambda *_, n=target: n)
        output = tmp_path / str(target)
        flags = (f"--input={folder}/rows.parquet", "--order=key", "--key=name", "--num_shards=3",
                 "--splits=a:0.7,b:0.3")  # fmt: skip
        assert run(output, *flags) == 0
        outputs.append(shard_bytes(output))
    assert outputs[0] == outputs[1]
    for split in ("a/", "b/"):
        names = [parse_any(record)["name"][0] for record in records_of(output, split)]
        assert names == sorted(names)


def test_records_without_the_key_are_rejects(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    records = [
        *(example(k=i % 5, n=i) for i in range(50)),
        example(n=1),
        example(k="text"),
        b"\xff",
    ]
    write_records(tmp_path / "x", records)
    flags = (f"--input={tmp_path}/x", "--order=key", "--key=k")
    assert run(tmp_path / "ds", *flags) == 1
    assert "3 of 53 inputs rejected (no_key 3)" in capsys.readouterr().err
    assert run(tmp_path / "ds", *flags, "--max_rejected=0.1") == 0
    assert len(records_of(tmp_path / "ds")) == 50


def test_the_key_is_that_of_mapped_records(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "f.py").write_text(
        "def f(record):\n    return {**record, 'turned': -int(record['id'][0])}\n"
    )
    flags = (f"--input={folder}/in/*", f"--map={tmp_path}/f.py:f", "--where=id<100",
             "--order=key", "--key=turned", "--num_shards=2")  # fmt: skip
    assert run(tmp_path / "ds", *flags) == 0
    assert [int(parse_any(r)["id"][0]) for r in records_of(tmp_path / "ds")] == [*range(99, -1, -1)]


ERRORS = [
    (("--order=key",), "--order=key and --key=FEATURE belong together"),
    (("--key=id",), "--order=key and --key=FEATURE belong together"),
    (("--order=key", "--key=nothing"),
     "--key=nothing: no record of a sample from all over the input has this feature; the first has "
     "id, label, name, score, time"),
    (("--order=key", "--key=id", "--deduplicate"), "--deduplicate needs --order=shuffle"),
    (("--order=key", "--key=id", "--random_seed=2"), "--random_seed has no effect"),
]  # fmt: skip


@pytest.mark.parametrize(("flags", "expected"), ERRORS)
def test_wrong_use_is_one_line(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    flags: tuple[str, ...], expected: str,
) -> None:  # fmt: skip
    assert run(tmp_path / "ds", f"--input={folder}/in/*", *flags) == 2
    error = capsys.readouterr().err
    assert expected in error
    assert error.count("\n") == 1
    assert not (tmp_path / "ds").exists()
