"""Tables and answers of BigQuery as input of text, from a server made of the API's own messages."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pyarrow as pa
import pytest

from recordmill.records.errors import RunError, UsageError
from recordmill.transforms.sources import bigquery_service
from recordmill.transforms.sources.bigquery_tables import list_table
from recordmill.transforms.sources.document_spec import DocumentLimits, DocumentSpec
from recordmill.transforms.sources.documents import read_documents
from recordmill.transforms.sources.item_cutting import cut_work_items
from recordmill.transforms.sources.kept_fields import parse_fields
from recordmill.transforms.sources.row_documents import column_names
from recordmill.transforms.sources.row_fields import LabelSpec, RowSpec
from recordmill.transforms.sources.row_hashes import hash_rows
from recordmill.transforms.sources.work_items import SourceRange
from recordmill.transforms.storage import google_storage

from ...bigquery import FakeBigQuery, serve_bigquery
from .column_files import ROWS, Read, read, read_sources

URL = "bigquery://mill.corpus.docs"
SPECS = {
    "sentences": DocumentSpec(),
    "lines": DocumentSpec(sentence_splitter="none"),
    "struct": DocumentSpec(text_field="meta.text"),
    "split_by": DocumentSpec(split_by="split"),
    "kept": DocumentSpec(row=RowSpec(keep_fields=parse_fields("id:int,score:float,other"))),
    "classify": DocumentSpec(row=RowSpec(label=LabelSpec("label"), pair_field="other")),
}


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeBigQuery]:
    monkeypatch.setattr(google_storage, "patience", google_storage.Patience(0.01, 0.02, 1.0))
    with serve_bigquery() as fake:
        fake.put("mill.corpus.docs", pa.Table.from_pylist(ROWS))
        yield fake


def ranges(
    spec: DocumentSpec, target_bytes: int = 1 << 25, url: str = URL, query: str = ""
) -> list[SourceRange]:
    listed = [list_table(url, query, column_names(spec))]
    items = cut_work_items(listed, target_bytes)
    return [source for item in items for source in item]


def by_position(found: Read) -> list[Any]:
    """What was read, in order of position, as rows come in none."""
    documents, positions, _, rejects = found
    read_rows = sorted(zip(positions, documents, strict=True), key=lambda each: each[0])
    return [*read_rows, *sorted((each.position, each.reason, each.detail) for each in rejects)]


def read_table(spec: DocumentSpec, target_bytes: int = 1 << 25) -> list[Any]:
    return by_position(read_sources(ranges(spec, target_bytes), spec, DocumentLimits(300)))


@pytest.mark.parametrize("name", SPECS)
def test_documents_are_those_of_jsonl(tmp_path: Path, name: str, served: FakeBigQuery) -> None:
    """Whatever streams there are, each row has the same position, which its content decides."""
    spec = SPECS[name]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    wanted, _, _, wanted_rejects = read(tmp_path / "a.jsonl", spec)
    source = list_table(URL, "", column_names(spec))
    documents, positions, _, rejects = read_sources([source], spec, DocumentLimits(300))
    assert sorted(lines for lines, *_ in documents) == sorted(lines for lines, *_ in wanted)
    assert sorted(carried for *_, carried in documents) == sorted(c for *_, c in wanted)
    assert sorted(r.reason for r in rejects) == sorted(r.reason for r in wanted_rejects)
    assert min(positions) >= 0
    whole = by_position((documents, positions, [], rejects))
    for streams, target_bytes in ((1, 1 << 25), (3, 1500), (40, 100)):
        served.most_streams = streams
        assert len(ranges(spec, target_bytes)) >= min(streams, 3)
        assert read_table(spec, target_bytes) == whole
    asked = served.sessions[-1].read_session
    assert list(asked.read_options.selected_fields) == column_names(spec)
    assert asked.table == "projects/mill/datasets/corpus/tables/docs"


def test_rows_of_equal_values_have_equal_hashes() -> None:
    columns = {
        "a": pa.array(["x", "x", "y", None, "", "x"]),
        "b": pa.array([1.5, 1.5, 1.5, None, None, -1.5]),
        "c": pa.array([{"n": 1}] * 6),
        "d": pa.array([b"\xff", b"\xff", b"\xff", None, None, b"\xff"]),
    }
    hashes = hash_rows(columns, 6)
    assert hashes[0] == hashes[1]
    assert len(set(hashes.tolist())) == 5
    turned = {name: columns[name] for name in reversed(columns)}
    assert hash_rows(turned, 6).tolist() == hashes.tolist()
    assert hash_rows({"z": columns["a"]}, 6)[0] != hash_rows({"a": columns["a"]}, 6)[0]
    chunked = {name: array.slice(2, 2) for name, array in columns.items()}
    assert hash_rows(chunked, 2).tolist() == hashes[2:4].tolist()
    assert hash_rows({"a": columns["a"]}, 6).tolist() == [
        7874044533140573585, 7874044533140573585, 769315966136558561, 962109061066364488,
        1746710295775333479, 7874044533140573585,
    ]  # fmt: skip


@pytest.mark.parametrize(
    "status",
    [grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.INTERNAL, grpc.StatusCode.DEADLINE_EXCEEDED,
     grpc.StatusCode.RESOURCE_EXHAUSTED],
)  # fmt: skip
def test_a_stream_that_breaks_off_is_read_on(served: FakeBigQuery, status: grpc.StatusCode) -> None:
    whole = read_table(DocumentSpec())
    failed: list[tuple[str, int]] = []

    def fault(asked: str, at: int) -> tuple[grpc.StatusCode, str] | None:
        if asked != "create" and at == 7 and failed.count((asked, at)) < 3:
            failed.append((asked, at))
            return status, "try again"
        return None

    served.fault = fault
    served.calls.clear()
    assert read_table(DocumentSpec(), 1500) == whole
    assert len(failed) >= 6
    assert {offset for _, offset in served.calls} == {0, 7}


def test_a_service_that_stays_away_is_one_line(
    served: FakeBigQuery, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(google_storage, "patience", google_storage.Patience(0.01, 0.02, 0.1))
    (source,) = ranges(DocumentSpec())
    batches = read_documents(source, DocumentSpec())
    served.fault = lambda *_: (grpc.StatusCode.UNAVAILABLE, "down")
    with pytest.raises(RunError, match=r"mill.corpus.docs cannot be read: down; run the same"):
        list(batches)
    with pytest.raises(UsageError, match=r"--input bigquery://mill.corpus.docs cannot be read: "):
        ranges(DocumentSpec())
    assert len(served.calls) > 2


def test_a_session_that_expired_says_how_to_read_the_same_rows(served: FakeBigQuery) -> None:
    served.lifetime = -1.0
    (source,) = ranges(DocumentSpec())
    with pytest.raises(
        RunError,
        match=r"docs cannot be read on: .*expired.* keeps a session for 6 hours, .*start anew with "
        r"--overwrite, with --input=(bigquery://mill.corpus.docs@\S+Z) for the same rows$",
    ) as caught:
        list(read_documents(source, DocumentSpec()))
    served.lifetime = 60
    whole = read_table(DocumentSpec())
    served.put("mill.corpus.docs", pa.table({"text": ["later"]}), since=time.time())
    url = str(caught.value).partition("--input=")[2].partition(" ")[0]
    found = read_sources(ranges(DocumentSpec(), url=url), DocumentSpec(), DocumentLimits(300))
    assert by_position(found) == whole


def test_all_streams_see_the_table_of_one_time(served: FakeBigQuery) -> None:
    before = read_table(DocumentSpec())
    listed = list_table(URL, "", ["text"])
    time.sleep(0.01)
    served.put("mill.corpus.docs", pa.table({"text": ["later"]}), since=time.time())
    items = cut_work_items([listed], 1500)
    cut = [source for item in items for source in item]
    assert by_position(read_sources(cut, DocumentSpec(), DocumentLimits(300))) == before
    assert len({s.read_session.table_modifiers.snapshot_time for s in served.sessions[-2:]}) == 1


def test_a_query_is_run_once_and_its_answer_read(served: FakeBigQuery) -> None:
    query = "SELECT text FROM corpus.docs WHERE lang = 'de'"
    served.put("mill._anonymous.answer1", pa.Table.from_pylist(ROWS).select(["text"]))
    served.answers[query] = "projects/mill/datasets/_anonymous/tables/answer1"
    found = ranges(DocumentSpec(), 300, "bigquery://mill", query)
    assert len(found) > 1
    assert {each.name for each in found} == {"query"}
    documents, _, _, _ = read_sources(found, DocumentSpec(), DocumentLimits(300))
    wanted, _, _, _ = read_sources(ranges(DocumentSpec()), DocumentSpec(), DocumentLimits(300))
    assert sorted(lines for lines, *_ in documents) == sorted(lines for lines, *_ in wanted)
    assert served.statements == [query]
    assert not served.sessions[0].read_session.table_modifiers.snapshot_time


@pytest.mark.parametrize(
    ("url", "query", "message"),
    [
        ("bigquery://mill.corpus", "", "must be bigquery://PROJECT.DATASET.TABLE, or bigquery://"),
        ("bigquery://", "SELECT 1", "must be bigquery://PROJECT.DATASET.TABLE, or bigquery://"),
        (f"{URL}@yesterday", "", "must name a time such as 20.*Z behind @, got 'yesterday'"),
        (f"{URL}@2026-11-22T10:00:00", "", "must name a time such as"),
        ("bigquery://mill.corpus.books", "", "cannot be read: not found .*tables/books.*names"),
        ("bigquery://mill.corpus.none", "", "none has no row"),
        ("bigquery://mill", "SELEC 1", 'cannot be read: Syntax error: Unexpected "SELEC"'),
        ("bigquery://mill", "DENIED 1", "cannot be read: permission denied .*Job User"),
        ("bigquery://mill", "DELETE FROM corpus.docs", "--query must be a SELECT, and is DELETE"),
        ("bigquery://mill", "SELECT 1 WHERE false", "--query finds no row; see its conditions"),
    ],
)
def test_mistakes_are_one_line(served: FakeBigQuery, url: str, query: str, message: str) -> None:
    served.put("mill.corpus.none", pa.table({"text": pa.array([], pa.string())}))
    for statement in ("DELETE FROM corpus.docs", "SELECT 1 WHERE false"):
        served.answers[statement] = "projects/mill/datasets/corpus/tables/none"
    with pytest.raises(UsageError, match=message) as caught:
        list_table(url, query, ["text"])
    assert "\n" not in str(caught.value)
    assert not served.statements or query == "SELECT 1 WHERE false"


@pytest.mark.parametrize(
    ("status", "said", "message"),
    [
        (grpc.StatusCode.PERMISSION_DENIED, "Access Denied: Table mill:corpus.docs",
         "permission denied .*Access Denied.* roles BigQuery Data Viewer and BigQuery Read Ses"),
        (grpc.StatusCode.UNAUTHENTICATED, "Request had invalid authentication credentials",
         "there are no valid credentials .*gcloud auth application-default login"),
        (grpc.StatusCode.UNAVAILABLE, "Getting metadata from plugin failed: invalid_grant",
         "there are no valid credentials .*gcloud auth application-default login"),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, "Quota exceeded: concurrent sessions",
         "over a quota .*concurrent sessions.; wait, or raise"),
        (grpc.StatusCode.INVALID_ARGUMENT, "docs is of type VIEW; only tables are supported",
         "cannot be read: .*docs is of type VIEW; only tables are supported$"),
    ],
)  # fmt: skip
def test_refusals_are_one_line(
    served: FakeBigQuery,
    monkeypatch: pytest.MonkeyPatch,
    status: grpc.StatusCode,
    said: str,
    message: str,
) -> None:
    monkeypatch.setattr(google_storage, "patience", google_storage.Patience(0.01, 0.02, 0.1))
    served.fault = lambda *_: (status, said)
    with pytest.raises(UsageError, match=message) as caught:
        list_table(URL, "", ["text"])
    assert "\n" not in str(caught.value)


def test_without_credentials(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("GOOGLE_APPLICATION_CREDENTIALS", bigquery_service.STORAGE_EMULATOR):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path))
    monkeypatch.setenv("NO_GCE_CHECK", "true")
    with pytest.raises(UsageError, match="cannot be read: there are no valid credentials"):
        list_table(URL, "", ["text"])


def test_columns_of_many_types(served: FakeBigQuery) -> None:
    """Their text is what is kept, and they count in the hashes of rows."""
    from datetime import date, datetime, timezone
    from decimal import Decimal

    row = {
        "text": "a", "day": date(2026, 1, 2), "at": datetime(2026, 1, 2, tzinfo=timezone.utc),
        "amount": Decimal("1.50"), "flag": True, "tags": ["x", "y"],
    }  # fmt: skip
    served.put("mill.corpus.many", pa.Table.from_pylist([row, row | {"flag": False}]))
    fields = parse_fields("day,at,amount,flag,tags")
    spec = DocumentSpec(row=RowSpec(keep_fields=fields))
    found = ranges(spec, url="bigquery://mill.corpus.many")
    documents, positions, _, rejects = read_sources(found, spec, DocumentLimits(300))
    assert not rejects
    assert len(set(positions)) == 2
    flags = sorted(carried[3] for *_, carried in documents)
    assert flags == ["false", "true"]
    assert documents[0][3][:3] == ("2026-01-02", "2026-01-02 00:00:00.000000Z", "1.50")


def test_a_damaged_batch_is_one_line(served: FakeBigQuery, monkeypatch: pytest.MonkeyPatch) -> None:
    (source,) = ranges(DocumentSpec())
    read_batch = pa.ipc.read_record_batch
    monkeypatch.setattr(pa.ipc, "read_record_batch", lambda data, schema: read_batch(
        pa.py_buffer(data.to_pybytes()[:100]), schema))  # fmt: skip
    with pytest.raises(RunError, match=r"docs cannot be read: a batch is damaged \(.*run the same"):
        list(read_documents(source, DocumentSpec()))
