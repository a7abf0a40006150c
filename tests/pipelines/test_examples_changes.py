"""`recordmill examples --where`, `--map` and `--schema`: records left out, changed and refused."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from recordmill.pipelines.command_line import main
from recordmill.records.example_values import parse_any

from ..transforms.examples.record_files import example, message, write_records
from .jobs import manifest, shard_bytes
from .test_examples_job import numbered, records_of, run, statistics

FUNCTIONS = '''
"""Functions for records."""
import numpy as np

def keep(record):
    return record

def even(record):
    return record if record["id"][0] % 2 == 0 else None

def longer(record):
    record["words"] = len(record["text"][0].split())
    record["ids"] = record["ids"] + 1
    return record

def in_place(record):
    record["ids"] += 1
    return record

def twins(record):
    first = {**record, "half": b"left"}
    yield first
    yield {"half": "right", "id": record["id"]}

def fails(record):
    if record["id"][0] == 7:
        raise ValueError("seven")
    return record

def nonsense(record):
    return 5 if record["id"][0] == 7 else record

def unfit(record):
    return {"id": 1 + 2j} if record["id"][0] == 7 else record

def unfit_in_place(record):
    if record["id"][0] == 7:
        record["id"] = 1 + 2j
    return record

def too_large(record):
    return {"id": 1e300} if record["id"][0] == 7 else record

def lengths(record):
    return {"length": len(record)} if isinstance(record, bytes) else {"length": -1}
'''


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("changes")
    write_records(made / "in/a.tfrecord", numbered(200))
    write_records(made / "in/b.tfrecord.gz", numbered(100, 200), "GZIP")
    (made / "functions.py").write_text(FUNCTIONS)
    return made


def ids(output: Path) -> list[int]:
    return sorted(int(parse_any(record)["id"][0]) for record in records_of(output))


def counts(output: Path) -> dict[str, Any]:
    return dict(manifest(output)["counts"])


CONDITIONS = {
    "id<10": range(10),
    "id>=290 and ids==3": [i for i in range(290, 300) if i % 7 == 3],
    "len(ids)==4 and id!=5": [i for i in range(300) if i != 5],
    "len(nothing)==0 and id<3": range(3),
    "text~^(word ){29}$": [i for i, r in enumerate(numbered(300)) if r.count(b"word") == 29],
}


@pytest.mark.parametrize("condition", CONDITIONS)
def test_a_condition_chooses_records(folder: Path, tmp_path: Path, condition: str) -> None:
    flags = (f"--input={folder}/in/*", f"--where={condition}", "--num_shards=2")
    assert run(tmp_path / "ds", *flags) == 0
    assert ids(tmp_path / "ds") == list(CONDITIONS[condition])
    found = counts(tmp_path / "ds")
    assert found["records_read"] == 300
    assert found["dropped"] == {"where": 300 - found["examples"]}
    assert set(records_of(tmp_path / "ds")) <= set(numbered(300)), "bytes stay as they are"
    assert manifest(tmp_path / "ds")["config"]["records"]["where"] == condition


def test_a_condition_on_records_of_several_forms(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    entry = message((0x0A, b"a"), (0x12, message((0x1A, message((0x0A, b"\x05"))))))
    steps = message((0x0A, b"b"), (0x12, b""))
    sequence = message((0x0A, message((0x0A, entry))), (0x12, message((0x0A, steps))))
    unpacked = bytes.fromhex("0a0b0a090a01611204 1a020805".replace(" ", ""))
    records = [example(a=5), example(a=[1, 5]), example(a=5.0), example(a="5"), example(a=4),
               example(b=5), example(a=None), sequence, unpacked, b"\xff" * 9]  # fmt: skip
    assert parse_any(unpacked)["a"].tolist() == [5]
    write_records(tmp_path / "x", records)
    flags = (f"--input={tmp_path}/x", "--where=a==5")
    assert run(tmp_path / "ds", *flags) == 1
    assert "1 of 10 inputs rejected (not_an_example 1)" in capsys.readouterr().err
    assert run(tmp_path / "ds", *flags, "--max_rejected=0.1") == 0
    assert Counter(records_of(tmp_path / "ds")) == Counter([*records[:4], sequence, unpacked])
    assert counts(tmp_path / "ds")["dropped"] == {"where": 3}
    assert counts(tmp_path / "ds")["records_read"] == 9


def test_functions_change_drop_and_multiply(folder: Path, tmp_path: Path) -> None:
    name = f"{folder}/functions.py"
    flags = (f"--input={folder}/in/*", f"--map={name}:even", f"--map={name}:longer",
             f"--map={name}:twins", "--where=id<100", "--num_shards=3")  # fmt: skip
    outputs = []
    for workers in (1, 2):
        output = tmp_path / f"ds{workers}"
        assert run(output, *flags, workers=workers) == 0
        outputs.append(shard_bytes(output))
    assert outputs[0] == outputs[1]
    rows = [parse_any(record) for record in records_of(tmp_path / "ds1")]
    assert Counter(row["half"][0] for row in rows) == {b"left": 50, b"right": 50}
    for row in rows:
        if row["half"] == [b"left"]:
            assert row["words"][0] == len(row["text"][0].split())
            assert row["ids"].tolist() == [int(row["id"][0]) % 7 + 1] * 4
    found = counts(tmp_path / "ds1")
    assert found == {"records_read": 300, "rejected": {}, "examples": 100, "records_added": 50,
                     "dropped": {"where": 200, "map": 50}}  # fmt: skip
    features = {f["name"]: f for f in manifest(tmp_path / "ds1")["features"]}
    assert sorted(features) == ["half", "id", "ids", "text", "words"]
    assert features["words"]["optional"]
    assert main(["verify", str(tmp_path / "ds1")]) == 0


def test_several_keep_the_order_of_the_input(folder: Path, tmp_path: Path) -> None:
    flags = (f"--input={folder}/in/a*", f"--map={folder}/functions.py:twins", "--order=input")
    assert run(tmp_path / "ds", *flags, "--num_shards=3") == 0
    rows = [parse_any(record) for record in records_of(tmp_path / "ds")]
    assert [(int(r["id"][0]), r["half"][0]) for r in rows] == [
        (i, half) for i in range(200) for half in (b"left", b"right")
    ]


def test_what_a_function_leaves_as_it_is_keeps_its_bytes(folder: Path, tmp_path: Path) -> None:
    # The features are in an order that no encoder of ours writes.
    odd = [example(id=1, b="x", a="y"), example(id=2)]
    write_records(tmp_path / "x", odd)
    for name, same in (("keep", True), ("even", True), ("in_place", False)):
        if name == "in_place":
            write_records(tmp_path / "x", numbered(5))
        flags = (f"--input={tmp_path}/x", f"--map={folder}/functions.py:{name}")
        assert run(tmp_path / name, *flags) == 0
        found = records_of(tmp_path / name)
        assert all(record in odd for record in found) == same
    rows = [parse_any(record) for record in records_of(tmp_path / "in_place")]
    assert all(row["ids"][0] == row["id"][0] % 7 + 1 for row in rows)


def test_a_function_sees_bytes_of_what_is_no_example(folder: Path, tmp_path: Path) -> None:
    write_records(tmp_path / "x", [b"\xff" * 3, b"\xff" * 5, example(a=1)])
    assert (
        run(tmp_path / "ds", f"--input={tmp_path}/x", f"--map={folder}/functions.py:lengths") == 0
    )
    rows = [parse_any(record) for record in records_of(tmp_path / "ds")]
    assert sorted(int(row["length"][0]) for row in rows) == [-1, 3, 5]
    assert statistics(tmp_path / "ds")["inputs"]["form"] == "example"


@pytest.mark.parametrize(
    ("name", "detail"),
    [
        ("fails", "functions.py:fails: ValueError: seven (functions.py, line "),
        ("nonsense", "functions.py:nonsense: TypeError: the function must return dict or bytes, "),
        ("unfit", "functions.py:unfit returned: feature id must have numbers, text or bytes"),
        ("unfit_in_place", "functions.py:unfit_in_place returned: feature id must have numbers"),
        ("too_large", "functions.py:too_large returned: feature id has a number beyond float32"),
    ],
)
def test_what_a_function_raises_is_a_reject(
    folder: Path, tmp_path: Path, name: str, detail: str, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = (f"--input={folder}/in/a*", f"--map={folder}/functions.py:{name}")
    assert run(tmp_path / "ds", *flags, "--max_rejected=0.1") == 0
    found = counts(tmp_path / "ds")
    assert (found["rejected"], found["examples"]) == ({"map_error": 1}, 199)
    (path,) = (tmp_path / "ds/_meta/rejected").iterdir()
    reject = json.loads(path.read_text())
    assert (reject["source"], reject["stage"]) == ("a.tfrecord", "map")
    assert reject["detail"].startswith(detail)
    capsys.readouterr()
    assert run(tmp_path / "other", *flags, "--map_errors=fail") == 1
    error = capsys.readouterr().err
    assert detail.partition(":")[2][:20] in error
    assert f"for the record of a.tfrecord at {reject['position']}; correct" in error
    assert error.count("\n") == 1


def test_the_source_of_a_function_is_part_of_the_configuration(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "f.py").write_text("def f(record):\n    return record\n")
    flags = (f"--input={folder}/in/a*", f"--map={tmp_path}/f.py:f")
    assert run(tmp_path / "ds", *flags) == 0
    assert run(tmp_path / "ds", *flags) == 0
    assert "nothing to do" in capsys.readouterr().out
    (tmp_path / "f.py").write_text("def f(record):\n    return None\n")
    assert run(tmp_path / "ds", *flags) == 2
    assert "--map was f.py:f@" in capsys.readouterr().err
    assert run(tmp_path / "none", *flags) == 1
    assert "no records for split train: 200 read, 200 left out by --map" in capsys.readouterr().err


def test_a_given_schema(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path / "first", f"--input={folder}/in/a*") == 0
    write_records(tmp_path / "y", [*numbered(5), example(id=3), example(id=3, ids=[1] * 4, text=3),
                                   b"\xff", example(id=1, ids=[1] * 3, text="")])  # fmt: skip
    for schema in ("_meta/manifest.json", "features.json"):
        flags = (f"--input={tmp_path}/y", f"--schema={tmp_path}/first/{schema}")
        output = tmp_path / schema.replace("/", "-")
        assert run(output, *flags) == 1
        assert "4 of 9 inputs rejected (other_schema 4)" in capsys.readouterr().err
        assert run(output, *flags, "--max_rejected=0.5") == 0
        assert sorted(records_of(output)) == sorted(numbered(5))
        features = {f["name"]: f["shape"] for f in manifest(output)["features"]}
        assert features == {"id": [], "ids": [4], "text": []}
        lines = "".join(p.read_text() for p in (output / "_meta/rejected").iterdir())
        assert "feature text must be bytes, and is int64" in lines
        assert "feature ids must have 4 values, and has 3" in lines
        assert main(["verify", str(output)]) == 0
        capsys.readouterr()


ERRORS = [
    (("--where=id",), "--where must be FEATURE OPERATOR VALUE"),
    (("--where=id==three",), "--where: id has numbers, and 'three' is none"),
    (("--where=text~(",), "is no regular expression"),
    (("--map={0}/functions.py:absent",), "the function must be one of"),
    (("--map={0}/no.py:absent",), "cannot be read"),
    (("--map=no_such_module:f",), "there is no module no_such_module"),
    (("--map_errors=fail",), "--map_errors=fail has no effect without --map"),
    (("--schema={0}/no.json",), "no.json cannot be read"),
    (("--schema={0}/functions.py",), "functions.py: it is cut or no JSON"),
    (("--schema={0}/other.json",), "it is neither a features.json of TFDS nor a manifest"),
]


@pytest.mark.parametrize(("flags", "expected"), ERRORS)
def test_wrong_use_is_one_line(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    flags: tuple[str, ...], expected: str,
) -> None:  # fmt: skip
    (folder / "other.json").write_text("{}")
    given = (flag.format(folder) for flag in flags)
    assert run(tmp_path / "ds", f"--input={folder}/in/a*", *given) == 2
    error = capsys.readouterr().err
    assert expected in error
    assert error.count("\n") == 1
    assert not (tmp_path / "ds").exists()


def test_a_feature_that_nobody_has_is_named(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path / "ds", f"--input={folder}/in/*", "--where=lable==3") == 1
    error = capsys.readouterr().err
    assert "none of the first 200 records of a.tfrecord has the feature lable" in error
    assert "no records for split train: 300 read, 300 left out by --where; check" in error
