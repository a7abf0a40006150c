"""`recordmill examples` from Parquet, Arrow, Avro, CSV and TSV: a row is a record."""

from __future__ import annotations

import csv
import gzip
import json
import math
from pathlib import Path
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tensorflow as tf

from recordmill.pipelines.command_line import main
from recordmill.records.example_values import parse_any

from ..transforms.examples.record_files import example, write_records
from ..transforms.sources.column_files import arrow_file, arrow_stream
from .jobs import manifest, shard_bytes
from .test_examples_job import records_of, run

COUNT = 300


def row(i: int) -> dict[str, Any]:
    """A row with each kind of value, some of them null."""
    return {
        "id": i,
        "big": -(1 << 40) * i if i % 3 else None,
        "flag": i % 2 == 0,
        "score": i / 8 if i % 5 else None,
        "text": f"text {i} ü" if i % 7 else None,
        "data": bytes([i % 256]) * (i % 4),
        "list": [i, i + 1, -i][: i % 4] if i % 11 else None,
        "names": [f"n{j}" for j in range(i % 3)],
    }


ROWS = [row(i) for i in range(COUNT)]
SCHEMA = pa.schema([
    ("id", pa.int32()), ("big", pa.int64()), ("flag", pa.bool_()), ("score", pa.float64()),
    ("text", pa.string()), ("data", pa.binary()), ("list", pa.list_(pa.int64())),
    ("names", pa.list_(pa.string())),
])  # fmt: skip


def as_example(values: dict[str, Any]) -> bytes:
    """The record of a row, by protobuf; null is no feature."""
    features = {}
    for name, value in values.items():
        if value is None:
            continue
        several = value if isinstance(value, list) else [value]
        kind = SCHEMA.field(name).type
        inner = kind.value_type if pa.types.is_list(kind) else kind
        if pa.types.is_floating(inner):
            feature = tf.train.Feature(float_list=tf.train.FloatList(value=several))
        elif pa.types.is_integer(inner) or pa.types.is_boolean(inner):
            feature = tf.train.Feature(int64_list=tf.train.Int64List(value=map(int, several)))
        else:
            texts = [v.encode() if isinstance(v, str) else v for v in several]
            feature = tf.train.Feature(bytes_list=tf.train.BytesList(value=texts))
        features[name] = feature
    message = tf.train.Example(features=tf.train.Features(feature=features))
    return bytes(message.SerializeToString(deterministic=True))


def write_avro(path: Path) -> None:
    kinds = {"id": "int", "big": ["null", "long"], "flag": "boolean", "score": ["null", "double"],
             "text": ["null", "string"], "data": "bytes",
             "list": ["null", {"type": "array", "items": "long"}],
             "names": {"type": "array", "items": "string"}}  # fmt: skip
    fields = [{"name": name, "type": kind} for name, kind in kinds.items()]
    schema = fastavro.parse_schema({"type": "record", "name": "row", "fields": fields})
    with path.open("wb") as handle:
        fastavro.writer(handle, schema, ROWS, sync_interval=2000)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("tables")
    table = pa.Table.from_pylist(ROWS, schema=SCHEMA)
    pq.write_table(table, made / "rows.parquet", row_group_size=40)
    arrow_file(made / "rows.feather", table, 40)
    arrow_stream(made / "rows.arrow", table, 40)
    views = {
        "text": pa.string_view(),
        "data": pa.binary_view(),
        "names": pa.list_(pa.string_view()),
    }
    kinds = [field.with_type(views.get(field.name, field.type)) for field in SCHEMA]
    arrow_stream(made / "views.arrow", pa.Table.from_pylist(ROWS, schema=pa.schema(kinds)), 40)
    write_avro(made / "rows.avro")
    for name, delimiter in (("rows.csv", ","), ("rows.tsv", "\t")):
        with (made / name).open("w", encoding="utf-8", newline="") as handle:
            writer = csv.writer(handle, delimiter=delimiter)
            writer.writerow(["id", "big", "score", "text", "quoted"])
            for each in ROWS:
                quoted = f'a "quoted", {each["id"]}\nline'
                writer.writerow([each["id"], each["big"], each["score"], each["text"], quoted])
    (made / "packed.csv.gz").write_bytes(gzip.compress((made / "rows.csv").read_bytes()))
    return made


@pytest.mark.parametrize(
    "name", ["rows.parquet", "rows.feather", "rows.arrow", "views.arrow", "rows.avro"]
)
def test_rows_become_the_records_that_protobuf_writes(
    folder: Path, tmp_path: Path, name: str
) -> None:
    assert run(tmp_path / "ds", f"--input={folder}/{name}", "--num_shards=2") == 0
    assert sorted(records_of(tmp_path / "ds")) == sorted(map(as_example, ROWS))
    features = {f["name"]: f for f in manifest(tmp_path / "ds")["features"]}
    assert {n: f["dtype"] for n, f in features.items()} == {
        "id": "int64", "big": "int64", "flag": "int64", "score": "float32", "text": "bytes",
        "data": "bytes", "list": "int64", "names": "bytes",
    }  # fmt: skip
    assert {n for n, f in features.items() if f.get("optional")} == {"big", "score", "text", "list"}
    assert main(["verify", str(tmp_path / "ds")]) == 0
    assert run(tmp_path / "order", f"--input={folder}/{name}", "--order=input") == 0
    assert records_of(tmp_path / "order") == [as_example(each) for each in ROWS]


@pytest.mark.parametrize("name", ["rows.csv", "rows.tsv", "packed.csv.gz"])
def test_rows_of_csv(folder: Path, tmp_path: Path, name: str) -> None:
    flags = (f"--input={folder}/{name}", "--order=input", "--num_shards=2")
    assert run(tmp_path / "ds", *flags) == 0
    rows = [parse_any(record) for record in records_of(tmp_path / "ds")]
    assert [int(each["id"][0]) for each in rows] == list(range(COUNT))
    for given, found in zip(ROWS, rows, strict=True):
        assert found["text"] == [(given["text"] or "").encode()]
        assert found["quoted"] == [f'a "quoted", {given["id"]}\nline'.encode()]
        assert ("big" in found) == (given["big"] is not None)
        assert ("score" in found) == (given["score"] is not None)
        assert given["score"] is None or found["score"][0] == np.float32(given["score"])
    dtypes = {f["name"]: f["dtype"] for f in manifest(tmp_path / "ds")["features"]}
    assert dtypes == {"id": "int64", "big": "int64", "score": "float32", "text": "bytes",
                      "quoted": "bytes"}  # fmt: skip


def test_columns_are_picked_and_filtered(folder: Path, tmp_path: Path) -> None:
    for name in ("rows.parquet", "rows.csv"):
        flags = (f"--input={folder}/{name}", "--columns=text,id", "--where=id<10", "--order=input")
        assert run(tmp_path / name, *flags) == 0
        rows = [parse_any(record) for record in records_of(tmp_path / name)]
        assert [int(each["id"][0]) for each in rows] == list(range(10))
        assert set().union(*rows) == {"id", "text"}


@pytest.mark.parametrize("name", ["rows.parquet", "rows.avro", "rows.csv", "rows.feather"])
def test_the_same_bytes_however_a_file_is_cut(
    folder: Path, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from recordmill.pipelines.planning import examples_planner

    outputs = []
    for target in (1 << 30, 1500):
        monkeypatch.setattr(examples_planner, "record_item_bytes", lambda *_, n=target: n)
        output = tmp_path / str(target)
        flags = (f"--input={folder}/{name}", "--num_shards=3", "--splits=a:0.7,b:0.3")
        assert run(output, *flags, workers=2 if target == 1500 else 1) == 0
        outputs.append(shard_bytes(output))
    assert outputs[0] == outputs[1]


def test_tables_and_records_together(folder: Path, tmp_path: Path) -> None:
    write_records(tmp_path / "in/x.tfrecord", [example(id=1000 + i) for i in range(20)])
    flags = (f"--input={tmp_path}/in/*", f"--input={folder}/rows.p*", f"--input={folder}/rows.csv",
             "--weights=1,1,2", "--columns=id")  # fmt: skip
    assert run(tmp_path / "ds", *flags) == 0
    ids = sorted(int(parse_any(record)["id"][0]) for record in records_of(tmp_path / "ds"))
    assert ids == sorted([*range(1000, 1020), *list(range(COUNT)) * 3])


def test_without_a_row_of_names(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("\ufeff1;a b;0.5\n\n2;'c';1\n3;;2", encoding="utf-8")
    flags = (f"--input={tmp_path}/x.csv", "--header=none", "--columns=n,t,f", "--delimiter=;",
             "--order=input")  # fmt: skip
    assert run(tmp_path / "ds", *flags) == 0
    rows = [parse_any(record) for record in records_of(tmp_path / "ds")]
    assert [(int(r["n"][0]), r["t"][0], float(r["f"][0])) for r in rows] == [
        (1, b"a b", 0.5), (2, b"'c'", 1.0), (3, b"", 2.0)
    ]  # fmt: skip


def test_rows_that_do_not_fit_are_listed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = ["id,text", *(f"{i},t{i}" for i in range(20)), "x,late", "1,2,3", '5,"open', "6,f"]
    (tmp_path / "a.csv").write_text("\n".join(lines[:21]) + "\n")
    (tmp_path / "b.csv").write_bytes(
        ("\n".join([lines[0], *lines[21:23]]) + "\n7,").encode() + b"\xff\n8,y\n"
    )
    flags = (f"--input={tmp_path}/*.csv",)
    assert run(tmp_path / "ds", *flags) == 1
    error = capsys.readouterr().err
    assert "3 of 24 inputs rejected (bad_row 1, undecodable 1, wrong_number_of_fields 1)" in error
    assert run(tmp_path / "ds", *flags, "--max_rejected=0.5") == 0
    text = "".join(p.read_text() for p in (tmp_path / "ds/_meta/rejected").iterdir())
    rejects = {each["reason"]: each for each in map(json.loads, text.splitlines())}
    assert rejects["bad_row"]["detail"] == "'id' is 'x' and must be int64"
    assert rejects["bad_row"]["position"] == 8
    assert len(records_of(tmp_path / "ds")) == 21


def test_values_that_no_record_holds_are_rejects(tmp_path: Path) -> None:
    table = pa.table({
        "id": pa.array([1, 2, 1 << 63, 3], pa.uint64()),
        "list": pa.array([[1], [1, None], [3], [4]], pa.list_(pa.int64())),
        "float": [math.inf, None, 1.5, -1e300],
    })  # fmt: skip
    pq.write_table(table, tmp_path / "x.parquet")
    assert run(tmp_path / "ds", f"--input={tmp_path}/x.parquet", "--max_rejected=0.8") == 0
    assert records_of(tmp_path / "ds") == [example(float=math.inf, id=1, list=[1])]
    assert manifest(tmp_path / "ds")["counts"]["rejected"] == {"bad_row": 3}
    text = "".join(p.read_text() for p in (tmp_path / "ds/_meta/rejected").iterdir())
    for detail in ("'id' has a number beyond 64 bits", "'list' has null inside", "beyond float32"):
        assert detail in text


def test_other_forms_of_the_same_values(tmp_path: Path) -> None:
    text = pa.array(["a", None, "ü"])
    table = pa.table({
        "large": text.cast(pa.large_string()), "dictionary": text.dictionary_encode(),
        "fixed": pa.array([b"ab", b"cd", None], pa.binary(2)),
        "half": pa.array(np.array([1, 2, 3], np.float16)), "nothing": pa.nulls(3),
        "pair": pa.array([[1, 2], [3, 4], None], pa.list_(pa.int8(), 2)),
        "bits": pa.array([[True], [], None], pa.large_list(pa.bool_())),
        "sliced": pa.array(["x", "yy", "zzz", None])[1:],
    })  # fmt: skip
    arrow_file(tmp_path / "x.arrow", table, 3)
    assert run(tmp_path / "ds", f"--input={tmp_path}/x.arrow", "--order=input") == 0
    rows = [parse_any(record) for record in records_of(tmp_path / "ds")]
    assert rows[0]["large"] == rows[0]["dictionary"] == [b"a"]
    assert [r.get("fixed") for r in rows] == [[b"ab"], [b"cd"], None]
    assert [r["half"].tolist() for r in rows] == [[1.0], [2.0], [3.0]]
    assert [r["pair"].tolist() if "pair" in r else None for r in rows] == [[1, 2], [3, 4], None]
    assert [list(r["bits"]) if "bits" in r else None for r in rows] == [[1], [], None]
    assert [r.get("sliced") for r in rows] == [[b"yy"], [b"zzz"], None]
    assert "nothing" not in set().union(*rows)


def test_a_given_schema_says_types_and_columns(folder: Path, tmp_path: Path) -> None:
    features = [{"name": "id", "dtype": "bytes", "shape": [], "meaning": ""},
                {"name": "score", "dtype": "float32", "shape": [None], "meaning": "",
                 "optional": True}]  # fmt: skip
    (tmp_path / "schema.json").write_text(json.dumps(features))
    flags = (f"--input={folder}/rows.csv", f"--schema={tmp_path}/schema.json", "--order=input")
    assert run(tmp_path / "ds", *flags) == 0
    rows = [parse_any(record) for record in records_of(tmp_path / "ds")]
    assert [each["id"] for each in rows] == [[str(i).encode()] for i in range(COUNT)]
    assert set().union(*rows) == {"id", "score"}


def test_damaged_files_are_rejects(folder: Path, tmp_path: Path) -> None:
    for name in ("rows.parquet", "rows.avro", "rows.arrow"):
        data = bytearray((folder / name).read_bytes())
        (tmp_path / "cut").mkdir(exist_ok=True)
        (tmp_path / "cut" / name).write_bytes(data[: len(data) * 2 // 3])
    flags = (f"--input={tmp_path}/cut/*", "--max_rejected=0.5")
    assert run(tmp_path / "ds", *flags) == 0
    counts = manifest(tmp_path / "ds")["counts"]
    assert counts["rejected"] == {"broken_file": 3}
    assert 100 < counts["examples"] < 2 * COUNT


ERRORS = [
    (("rows.parquet", "--columns=id,none"), "--columns must name columns of "),
    (("rows.csv", "--columns=id,none"), "rows.csv: id, big, score, text, quoted; got 'none'"),
    (("nested.parquet",), "column 'deep' is struct<a: int64>, which is nested, and no tf.Example "
                          "holds it; name the others: --columns=id"),
    (("when.parquet",), "column 'when' is timestamp[us], which is neither a number, nor text"),
    (("rows.parquet", "--header=none", "--columns=a"), "--header is for CSV and TSV"),
    (("rows.parquet", "--delimiter=;"), "--delimiter is for CSV and TSV"),
    (("x.tfrecord", "--columns=a"), "--columns is for tables"),
    (("rows.csv", "--header=none"), "--header=none and --columns belong together"),
    (("rows.csv", "--header=none", "--columns=a,b"), "--columns names 2 columns, and the"),
    (("rows.csv", "--columns=a,a"), "--columns must name each once"),
    (("twice.csv",), "two columns are called 'a'"),
    (("rows.csv", "--where=id==x"), "--where: id has numbers, and 'x' is none"),
]  # fmt: skip


@pytest.mark.parametrize(("flags", "expected"), ERRORS)
def test_wrong_use_is_one_line(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    flags: tuple[str, ...], expected: str,
) -> None:  # fmt: skip
    nested = pa.table({"id": [1], "deep": [{"a": 1}]})
    pq.write_table(nested, folder / "nested.parquet")
    when = pa.table({"when": pa.array([1], pa.timestamp("us"))})
    pq.write_table(when, folder / "when.parquet")
    (folder / "twice.csv").write_text("a,a\n1,2\n")
    write_records(folder / "x.tfrecord", [example(id=1)])
    assert run(tmp_path / "ds", f"--input={folder}/{flags[0]}", *flags[1:]) == 2
    error = capsys.readouterr().err
    assert expected in error
    assert error.count("\n") == 1
    assert not (tmp_path / "ds").exists()


def test_an_estimate_of_tables(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "examples", f"--input={folder}/rows.parquet", "--output=ds"]) == 0
    assert "1 files" in capsys.readouterr().out
