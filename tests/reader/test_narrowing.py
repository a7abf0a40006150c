"""int64 as int32: the same number, or one line; never another number."""

from __future__ import annotations

import itertools
import struct
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pytest
import tensorflow as tf
from msgspec.structs import replace

from recordmill.reader import (
    Feed,
    RecordTable,
    as_numpy,
    bench,
    causal_labels,
    from_queue,
    load,
    read_labels,
)
from recordmill.reader.dataset import FinishedDataset, open_dataset
from recordmill.reader.framing import masked_crc32c
from recordmill.reader.loading import Reader
from recordmill.reader.narrowing import Narrowing, int64_names
from recordmill.reader.one_line_errors import ReadError
from recordmill.reader.options import BenchSpec
from recordmill.reader.parsing import batch_parser
from recordmill.records import text_formats
from recordmill.records.codec.encoding import Column, Ragged, Strings
from recordmill.records.errors import RunError, UsageError
from recordmill.records.schema import Feature, Schema

from . import small_datasets
from .small_datasets import write_dataset, write_numbers
from .test_parsing import unframed

BIG = 3_000_000_000
ROWS = Schema(
    (
        Feature("id", "int64", (), "a number that needs 64 bits"),
        Feature("label", "int64", (), "a small number"),
        Feature("text", "bytes", (), "no number"),
    )
)
RAGGED = Schema((Feature("times", "int64", (None,), ""),))
STEPS = Schema((Feature("times", "int64", (None,), "", sequence=True),))
TIMES = Ragged(np.array([1, BIG, 2, 2**53 + 1]), np.array([0, 1, 1, 4]))


def rows(ids: list[int], labels: list[int] | None = None) -> dict[str, Column]:
    return {
        "id": np.array(ids),
        "label": np.array(labels or [i % 3 - 1 for i in range(len(ids))]),
        "text": Strings.from_list([b"text"] * len(ids)),
    }


def written(folder: Path, ids: list[int]) -> Path:
    return write_dataset(folder / "ds", {"train": [rows(ids)]}, ROWS)


def ids_of(path: Path, **options: Any) -> list[int]:
    batches = load(path, "train", shuffle=False, **options)
    return [int(i) for batch in batches for i in batch["id"].numpy()]


WIDE = [BIG, 2**31, -(2**31) - 1, 2**53 + 1, 2**63 - 1, -(2**63), 2**32, -BIG]


@pytest.mark.parametrize("value", WIDE)
def test_a_value_that_does_not_fit_is_one_line(tmp_path: Path, value: int) -> None:
    path = written(tmp_path, [1, 2, value, 4])
    line = f"{path}: feature 'id' must fit int32, and a value is {value}; read it as int64 by "
    with pytest.raises(ReadError) as info:
        ids_of(path, batch_size=4)
    assert str(info.value) == line + "int64=('id',)"
    table = RecordTable(path, "train")
    assert table[1]["id"] == 2
    shard = path / "train/train-00000-of-00001.tfrecords"
    with pytest.raises(RunError) as at:
        table[2]
    assert str(at.value) == line.replace(f"{path}", f"{shard}: record 2", 1) + "int64=('id',)"
    assert ids_of(path, batch_size=4, int64="id") == [1, 2, value, 4]
    kept = RecordTable(path, "train", int64=("id",))[2]
    assert kept["id"] == value
    assert kept["id"].dtype == np.int64
    assert kept["label"].dtype == np.int32


def test_every_int32_is_read(tmp_path: Path) -> None:
    path = written(tmp_path, [2**31 - 1, -(2**31), 0, -1])
    assert ids_of(path, batch_size=2) == [2**31 - 1, -(2**31), 0, -1]
    assert [record["id"] for record in RecordTable(path, "train")] == [2**31 - 1, -(2**31), 0, -1]


def test_a_wide_value_does_not_end_an_epoch_in_silence(tmp_path: Path) -> None:
    """It comes late, in a second chunk, and in every form of batches."""
    ids = [*range(5000), BIG, *range(100)]
    path = written(tmp_path, ids)
    for remainder in ("drop", "keep"):
        dataset = load(path, "train", batch_size=50, shuffle=False, remainder=remainder)
        batches = iter(dataset)
        first = [next(batches) for _ in range(20)]
        assert len(first) == 20
        with pytest.raises(ReadError, match="a value is 3000000000"):
            list(batches)
    with pytest.raises(ReadError, match="a value is 3000000000"):
        list(as_numpy(load(path, "train", batch_size=50)))
    kept = load(path, "train", batch_size=50, remainder="pad", int64=["id"])
    assert sorted(i for batch in kept for i in batch["id"].numpy())[-1] == BIG


def test_many_numbers_at_once(tmp_path: Path) -> None:
    """Large tensors are looked at one by one, with and without numbers below 0."""
    schema = Schema((Feature("a", "int64", (64,), ""), Feature("b", "int64", (64,), "")))
    for place, value, least in (("a", BIG, 0), ("b", -BIG, -100)):
        columns = {name: np.full((2048, 64), least) for name in ("a", "b")}
        write_dataset(tmp_path / place / "whole", {"train": [columns]}, schema)
        batch = next(iter(load(tmp_path / place / "whole", "train", batch_size=1024)))
        assert set(batch["a"].numpy().flat) == {least}
        columns[place][1234, 5] = value
        write_dataset(tmp_path / place / "wide", {"train": [columns]}, schema)
        with pytest.raises(ReadError, match=f"feature '{place}' .* a value is {value};"):
            list(load(tmp_path / place / "wide", "train", batch_size=1024))


def steps_of_times(*_: Any) -> Any:
    """What `encode_batch` returns, of SequenceExamples with lists of integers."""
    data = b""
    offsets = [0]
    for begin, end in itertools.pairwise(TIMES.row_splits):
        values = [tf.train.Int64List(value=[value]) for value in TIMES.values[begin:end]]
        steps = tf.train.FeatureList(feature=[tf.train.Feature(int64_list=v) for v in values])
        lists = tf.train.FeatureLists(feature_list={"times": steps})
        record = tf.train.SequenceExample(feature_lists=lists).SerializeToString()
        length = struct.pack("<Q", len(record))
        for part in (length, record):
            data += part + struct.pack("<I", masked_crc32c(part))
        offsets.append(len(data))
    return SimpleNamespace(buffer=np.frombuffer(data, np.uint8), offsets=np.array(offsets))


@pytest.mark.parametrize("schema", [RAGGED, STEPS])
def test_ragged_features_and_sequence_examples(
    tmp_path: Path, schema: Schema, monkeypatch: pytest.MonkeyPatch
) -> None:
    if schema.sequence:
        monkeypatch.setattr(small_datasets, "encode_batch", steps_of_times)
    path = write_dataset(tmp_path / "ds", {"train": [{"times": TIMES}]}, schema)
    with pytest.raises(ReadError, match=r"feature 'times' must fit int32, and a value is 9007199"):
        list(load(path, "train", batch_size=3))
    with pytest.raises(RunError, match=r"record 2: feature 'times' .* value is 3000000000; read"):
        list(RecordTable(path, "train"))
    batch = next(iter(load(path, "train", batch_size=3, shuffle=False, int64="times")))
    assert batch["times"].to_list() == [[1], [], [BIG, 2, 2**53 + 1]]
    table = RecordTable(path, "train", int64="times")
    assert [record["times"].tolist() for record in table] == [[1], [], [BIG, 2, 2**53 + 1]]


def test_dtypes_do_not_depend_on_values(tmp_path: Path) -> None:
    for ids in ([1, 2], [BIG, BIG]):
        path = written(tmp_path / str(ids[0]), ids)
        spec = load(path, "train", batch_size=2).element_spec
        assert spec["id"] == spec["label"] == tf.TensorSpec([2], tf.int32)
        spec = load(path, "train", batch_size=2, int64=("label", "id")).element_spec
        assert spec["id"] == spec["label"] == tf.TensorSpec([2], tf.int64)


def test_records_of_our_own_jobs_stay_int32(tmp_path: Path) -> None:
    """Rows of tokens fit by construction, and are not searched; kept fields are."""
    bert = text_formats.bert(max_seq_length=4, max_predictions_per_seq=2)
    schema = Schema((*bert.features, Feature("year", "int64", (), "kept")))
    columns: dict[str, Column] = {
        f.name: np.ones((2, *f.shape), np.int64 if f.dtype == "int64" else np.float32)
        for f in schema.features
    }
    path = write_dataset(tmp_path / "ds", {"train": [columns]}, schema)
    others = open_dataset(path)
    manifest = replace(others.manifest, config={"objective": {"name": "bert"}})
    text = FinishedDataset(others.path, manifest, schema)
    integers = {f.name for f in schema.features if f.dtype == "int64"}
    assert not Narrowing.of(others, ()).small
    assert Narrowing.of(text, ()).small == integers - {"year"}
    for dataset in (others, text):
        parse = batch_parser(schema, Narrowing.of(dataset, ()))
        parsed = parse(tf.constant(unframed(schema, columns)))
        kinds = {f.name: tf.int32 if f.dtype == "int64" else tf.float32 for f in schema.features}
        assert {name: values.dtype for name, values in parsed.items()} == kinds
        columns["year"] = np.array([1, BIG])
        with pytest.raises(tf.errors.InvalidArgumentError, match=r"year.*must fit int32"):
            parse(tf.constant(unframed(schema, columns)))
        columns["year"] = np.array([1, 2])


def test_names_that_are_no_int64_feature_are_refused(tmp_path: Path) -> None:
    path = written(tmp_path, [1, 2])
    line = f"{path}: the int64 feature must be one of id, label, got 'idd'; did you mean 'id'?"
    for read in (RecordTable, lambda *a, **k: load(*a, batch_size=1, **k)):
        with pytest.raises(UsageError) as info:
            read(path, "train", int64=("idd",))
        assert str(info.value) == line
        with pytest.raises(UsageError, match="must be one of id, label, got 'text'"):
            read(path, "train", int64="text")
        with pytest.raises(UsageError, match=r"int64 must be names of features, like \(\"id\",\)"):
            read(path, "train", int64=True)
    words = Schema((Feature("text", "bytes", (), ""),))
    path = write_dataset(
        tmp_path / "words", {"train": [{"text": Strings.from_list([b"a"])}]}, words
    )
    with pytest.raises(UsageError, match="has no int64 features; leave out int64="):
        load(path, "train", batch_size=1, int64="text")


def test_a_name_or_several() -> None:
    assert int64_names("id") == ("id",)
    assert int64_names(["id", "time", "id"]) == ("id", "time")
    assert int64_names(()) == ()


def test_the_advice_keeps_the_names_that_were_given(tmp_path: Path) -> None:
    path = write_dataset(tmp_path / "ds", {"train": [rows([BIG], [BIG])]}, ROWS)
    with pytest.raises(ReadError, match=r"read it as int64 by int64=\('id', 'label'\)$"):
        list(load(path, "train", batch_size=1, int64="id"))


def test_what_tensorflow_iterates_holds_the_line(tmp_path: Path) -> None:
    dataset = load(written(tmp_path, [1, BIG]), "train", batch_size=1)
    for run in (
        lambda: list(dataset.repeat(2)),
        lambda: dataset.save(str(tmp_path / "saved")),
        lambda: dataset.reduce(0, lambda count, _: count + 1),
    ):
        with pytest.raises(tf.errors.OpError) as info:
            run()
        lines = [line for line in info.value.message.splitlines() if "a value is 3000" in line]
        assert len(lines) == 1


def test_a_state_of_a_reader_does_not_depend_on_it(tmp_path: Path) -> None:
    path = written(tmp_path, [1, 2, 3, BIG])
    narrow = Reader(path, "train", batch_size=1, shuffle=False)
    wide = Reader(path, "train", batch_size=1, shuffle=False, int64="id")
    wide.restore(narrow.state(3))
    assert [int(batch["id"][0]) for batch in wide] == [BIG]


def test_labels_are_read_whole(tmp_path: Path) -> None:
    """Also beside another feature that needs 64 bits."""
    path = written(tmp_path, [BIG, 2, 2**40])
    assert read_labels(path, "train").tolist() == [-1, 0, 1]
    assert read_labels(path, "train", feature="id").tolist() == [BIG, 2, 2**40]


def test_tokens_that_fit_no_id_are_one_line(tmp_path: Path) -> None:
    schema = Schema((Feature("input_ids", "int64", (None,), ""),))
    for name, tokens in (("small", [5, 6, 7]), ("wide", [5, 6, 2**32 + 7])):
        column = Ragged(np.array(tokens), np.array([0, 3]))
        write_dataset(tmp_path / name, {"train": [{"input_ids": column}]}, schema)
    options: dict[str, Any] = {"batch_size": 1, "int64": "input_ids"}
    options["transform"] = causal_labels(max_seq_length=3)
    batch = next(iter(load(tmp_path / "small", "train", **options)))
    assert batch["labels"].numpy().tolist() == [[6, 7, 0]]
    assert batch["labels"].dtype == tf.int32
    with pytest.raises(ReadError, match=r"token ids must fit int32, and one of .* is 4294967303"):
        list(load(tmp_path / "wide", "train", **options))


@pytest.mark.parametrize(
    ("value", "dtype", "shown"),
    [
        (BIG, tf.int32, "3000000000"),
        (np.array([1, -BIG]), tf.int32, "-3000000000"),
        ([1.5], tf.int32, "1.5"),
        (300, tf.uint8, "300"),
        (-1, tf.uint64, "-1"),
        (1 << 70, tf.int64, "1.1805916207174113e+21"),
    ],
)
def test_a_feed_gives_the_numbers_that_were_put(value: Any, dtype: Any, shown: str) -> None:
    feed = Feed()
    for x in (1, value):
        feed.put({"x": x})
    feed.end_epoch()
    examples = iter(from_queue(feed, element_spec={"x": tf.TensorSpec(None, dtype)}))
    assert int(next(examples)["x"]) == 1
    with pytest.raises(RunError) as info:
        next(examples)
    assert str(info.value) == (
        f"feature 'x' must fit {dtype.name}, the dtype of its element_spec, and a value is {shown}"
        "; give it a wider dtype in element_spec"
    )


@pytest.mark.slow
def test_bench_keeps_the_features_named(tmp_path: Path, capsys: Any) -> None:
    path = written(tmp_path, [BIG, 2, 3, 4])
    spec = BenchSpec(path=str(path), batch_size=2, time=0.2)
    with pytest.raises(ReadError, match="a value is 3000000000"):
        bench.run(spec)
    assert bench.run(msgspec.structs.replace(spec, int64=("id",))) == 0
    assert "records/s" in capsys.readouterr().out


def test_numbers_that_fit_are_as_before(tmp_path: Path) -> None:
    path = write_numbers(tmp_path / "ds", [9])
    batch = next(iter(load(path, "train", batch_size=9, shuffle=False)))
    assert batch["row"].dtype == tf.int32
    assert batch["row"].numpy()[8].tolist() == [8, 9, 10]
    assert RecordTable(path, "train")[8]["row"].dtype == np.int32
