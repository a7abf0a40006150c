"""`ReadDocuments`: the documents that files hold, whatever the ranges, and their rejects."""

from __future__ import annotations

import gzip
import json
import sqlite3
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apache_beam as beam
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from apache_beam.metrics import MetricsFilter
from apache_beam.testing.util import assert_that, equal_to

from recordmill.records.errors import RunError, UsageError
from recordmill.records.spec import naming_arguments
from recordmill.records.state import convert
from recordmill.transforms import Document, ReadDocuments
from recordmill.transforms.dataset.rejects import Reject
from recordmill.transforms.sources.input_spec import SOURCE_ARGUMENTS
from recordmill.transforms.sources.read_documents import DocumentReader, list_items
from recordmill.transforms.sources.read_documents import _ReadDocumentsDoFn as ReadDoFn
from recordmill.transforms.sources.work_items import SourceRange
from recordmill.transforms.storage import google_storage

from ...bigquery import FakeBigQuery, serve_bigquery, table_path
from .test_arrow import save

TEXTS = [f"document {i}\nline {i % 7} of it " + "x" * (i % 50) for i in range(200)]


def read(*patterns: str, **options: Any) -> list[Any]:
    """All documents, and rejects unless they fail, without a pipeline."""
    spec = ReadDocuments(*patterns, **options)._spec
    reader = ReadDoFn(spec)
    reader.setup()
    return [found for item in list_items(spec) for found in reader.process(item)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "a.txt").write_text("\n\n".join(TEXTS[:100]))
    rows = [{"text": text, "n": i} for i, text in enumerate(TEXTS)]
    (tmp_path / "b.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows[100:150]))
    pq.write_table(pa.Table.from_pylist(rows[150:]), tmp_path / "c.parquet", row_group_size=7)
    return tmp_path


def test_all_formats_whatever_the_ranges(folder: Path) -> None:
    whole = read(str(folder))
    assert [each.text.rstrip() for each in whole] == [text.rstrip() for text in TEXTS]
    assert len({each.key for each in whole}) == 200
    assert whole[0].key == "a.txt#0"
    assert whole[150].key == "c.parquet#0"
    parts = read(str(folder), item_bytes=500)
    assert Counter(parts) == Counter(whole)
    with beam.Pipeline(runner="FnApiRunner") as pipeline:
        found = pipeline | ReadDocuments(f"{folder}/*", item_bytes=3000)
        assert_that(found, equal_to(whole))


def test_names_need_not_say_how_files_are_compressed(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(gzip.compress(b"one\n\ntwo\n"))
    found = read(f"{tmp_path}/a.txt", input_compression="gz")
    assert [each.text.strip() for each in found] == ["one", "two"]
    with (
        pytest.raises(UsageError, match="does not say so; give input_compression='gz'"),
        naming_arguments(SOURCE_ARGUMENTS),
    ):
        read(f"{tmp_path}/a.txt")


def test_saved_datasets_are_named_by_their_folders(tmp_path: Path) -> None:
    for split in ("train", "test"):
        save(tmp_path / "ds" / split, split, 2)
    assert [each.text for each in read(f"{tmp_path}/ds/train")] == ["train 0", "train 1"]
    (tmp_path / "ds/dataset_dict.json").write_text(json.dumps({"splits": ["train", "test"]}))
    with pytest.raises(UsageError, match=r"ds/ has the splits test, train; read one, .*ds/te"):
        read(f"{tmp_path}/ds/")


def test_labels_pairs_prompts_and_fields(tmp_path: Path) -> None:
    row = {"text": "one\ntwo", "other": "three", "label": 1, "id": 7, "score": "0.5", "ask": ""}
    (tmp_path / "in.jsonl").write_text(json.dumps(row))
    (found,) = read(
        f"{tmp_path}/in.jsonl", label_field="label", text_pair_field="other",
        keep_fields="id:int,score:float",
    )  # fmt: skip
    assert found == Document(
        "one\ntwo", "in.jsonl#0", label="1", pair="three", fields={"id": 7, "score": 0.5}
    )
    (found,) = read(f"{tmp_path}/in.jsonl", prompt_field="ask")
    assert found == Document("one\ntwo", "in.jsonl#0", prompt="")


def test_answers_of_databases(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "db.sqlite") as database:
        database.execute("CREATE TABLE docs (id INTEGER, text TEXT)")
        database.executemany("INSERT INTO docs VALUES (?, ?)", list(enumerate(TEXTS)))
    database.close()
    url, query = f"sqlite:///{tmp_path}/db.sqlite", "SELECT id, text FROM docs"
    found = read(url, query=query, partition_column="id", item_bytes=1000)
    assert [each.text for each in found] == TEXTS


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeBigQuery]:
    monkeypatch.setattr(google_storage, "patience", google_storage.Patience(0.01, 0.02, 1.0))
    with serve_bigquery() as fake:
        rows = [{"text": text, "id": i, "label": "ab"[i % 2]} for i, text in enumerate(TEXTS)]
        fake.put("mill.corpus.docs", pa.Table.from_pylist(rows))
        yield fake


def test_tables_of_bigquery(served: FakeBigQuery) -> None:
    """Each session spreads the rows in another way; the documents and their keys stay."""
    options = {"label_field": "label", "keep_fields": "id:int"}
    whole = read("bigquery://mill.corpus.docs", **options)
    assert sorted(each.text for each in whole) == sorted(TEXTS)
    assert {each.fields["id"]: each.label for each in whole}[7] == "b"
    assert len({each.key for each in whole}) == 200
    assert all(str(each.key).startswith("corpus.docs#") for each in whole)
    served.sessions.clear()
    with beam.Pipeline(runner="FnApiRunner") as pipeline:
        url = "bigquery://mill.corpus.docs"
        found = pipeline | ReadDocuments(url, item_bytes=1000, **options)
        assert_that(found, equal_to(whole))
    assert max(asked.max_stream_count for asked in served.sessions) > 1


def test_answers_of_bigquery(served: FakeBigQuery) -> None:
    served.answers["*"] = table_path("mill.corpus.docs")
    found = read("bigquery://mill", query="SELECT text FROM corpus.docs")
    assert sorted(each.text for each in found) == sorted(TEXTS)
    assert served.statements


def test_tables_of_bigquery_that_cannot_be_used(served: FakeBigQuery) -> None:
    with pytest.raises(UsageError, match=r"bigquery://mill.corpus.docs has no column 'body'"):
        read("bigquery://mill.corpus.docs", text_field="body")
    with pytest.raises(UsageError, match=r"mill.corpus.other cannot be read: "):
        read("bigquery://mill.corpus.other")


def test_rejects_fail_or_are_counted_or_given(tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text('{"text": "one"}\nnonsense\n{"text": "two"}\n')
    with pytest.raises(RunError, match=r"in.jsonl at position 16: .* give rejects='count'"):
        read(f"{tmp_path}/in.jsonl")
    assert [each.text for each in read(f"{tmp_path}/in.jsonl", rejects="count")] == ["one", "two"]
    pipeline = beam.Pipeline(runner="FnApiRunner")
    found = pipeline | ReadDocuments(f"{tmp_path}/in.jsonl", rejects="output")
    texts = found["documents"] | beam.Map(lambda document: document.text)
    reasons = found["rejects"] | beam.Map(lambda reject: (reject["source"], reject["reason"]))
    assert_that(texts, equal_to(["one", "two"]), "texts")
    assert_that(reasons, equal_to([("in.jsonl", "not_json")]), "reasons")
    result = pipeline.run()
    result.wait_until_finish()
    counters = result.metrics().query(MetricsFilter().with_namespace("recordmill"))["counters"]
    counts = {counter.key.metric.name: counter.committed for counter in counters}
    assert counts == {"documents_read": 2, "rejected_not_json": 1}


def test_a_document_that_is_too_long_is_a_reject(folder: Path) -> None:
    spec = ReadDocuments(f"{folder}/a.txt", max_document_bytes=50, rejects="count")._spec
    reader = DocumentReader(spec)
    found = [each for item in list_items(spec) for each in _read_item(reader, item)]
    long = sum(len(text.replace("\n", "")) > 50 for text in TEXTS[:100])
    assert Counter(isinstance(each, Reject) for each in found) == {True: long, False: 100 - long}


def _read_item(reader: DocumentReader, item: bytes) -> list[Any]:
    ranges = convert(json.loads(item), list[SourceRange])
    return [found for each in ranges for found in reader.read(each)]


@pytest.mark.parametrize(
    ("patterns", "options", "message"),
    [
        ((), {}, "ReadDocuments needs a glob"),
        (("x",), {"rejects": "skip"}, "rejects must be one of count, fail, output"),
        (("x",), {"input_format": "xml"}, "input_format must be one of"),
        (("x",), {"documents": "word"}, "^documents must be one of"),
        (("x",), {"query": "SELECT 1"}, "query needs the URL of one database"),
        (("bigquery://p.d.t",), {"query": "SELECT 1"}, "or the project alone, .* beside query"),
        (("bigquery://p",), {}, "must name a table, bigquery://PROJECT.DATASET.TABLE"),
        (("bigquery://p.d.t", "x"), {}, "bigquery://p.d.t must be the only input"),
        (("bigquery://p.d.t",), {"partition_column": "id"}, "have no effect on BigQuery"),
        (("bigquery://p.d.t",), {"input_format": "jsonl"}, "have no effect on BigQuery"),
        (("x",), {"text_pair_field": "b"}, "text_pair_field needs label_field"),
        (("x",), {"columns": ["a"]}, "^header=.none. and columns belong together"),
    ],
)
def test_wrong_arguments(patterns: tuple[str, ...], options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        ReadDocuments(*patterns, **options)


def test_inputs_that_cannot_be_used(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="matches no file"):
        read(f"{tmp_path}/*.txt")
    (tmp_path / "image.txt").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(100))
    with pytest.raises(UsageError, match=r"image.txt is a"):
        read(f"{tmp_path}/*.txt")
