"""BigQuery for tests: a server of the Storage Read API, made from its own messages, and one of
queries over HTTP. Each session spreads the rows over its streams in another way.
"""

from __future__ import annotations

import json
import os
import random
import re
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread
from typing import Any
from unittest import mock

import grpc
import pyarrow as pa
from google.cloud.bigquery_storage_v1 import types

from recordmill.transforms.sources.bigquery_service import QUERY_EMULATOR, STORAGE_EMULATOR

_SERVICE = "google.cloud.bigquery.storage.v1.BigQueryRead"
_ROWS = 7  # of a response
_SIX_HOURS = 6 * 3600
Fault = Callable[[str, int], tuple[grpc.StatusCode, str] | None]


def table_path(name: str) -> str:
    """Returns the resource name of project.dataset.table."""
    project, dataset, table = name.split(".")
    return f"projects/{project}/datasets/{dataset}/tables/{table}"


@dataclass
class FakeBigQuery:
    """What the servers have, and what they were asked.

    Attributes:
      tables: resource name -> versions: from when on, in seconds since 1970, and the rows.
      answers: statement, or "*" for any -> the resource name of the table that has its answer.
      most_streams: of a session.
      lifetime: of a session, in seconds.
      fault: called with what is asked and, of rows, their number in the stream; the error to give.
      sessions: what was asked for; and for each stream its rows.
      calls: `(stream, offset)` of each call for rows.
      statements: that were run.
    """

    tables: dict[str, list[tuple[float, pa.Table]]] = field(default_factory=dict)
    answers: dict[str, str] = field(default_factory=dict)
    most_streams: int = 4
    lifetime: float = _SIX_HOURS
    fault: Fault = lambda *_: None
    sessions: list[Any] = field(default_factory=list)
    streams: dict[str, tuple[float, pa.Table]] = field(default_factory=dict)
    calls: list[tuple[str, int]] = field(default_factory=list)
    statements: list[str] = field(default_factory=list)
    lock: Any = field(default_factory=Lock)

    def put(self, name: str, table: pa.Table, since: float = 0.0) -> None:
        """Makes a table, or a later version of it."""
        self.tables.setdefault(table_path(name), []).append((since, table))

    def create_session(self, request: Any, context: Any) -> Any:
        self._fail(context, "create", 0)
        asked = request.read_session
        with self.lock:
            self.sessions.append(request)
        if not request.parent.startswith("projects/"):
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"no project: {request.parent}")
        modifiers = asked.table_modifiers
        when = modifiers.snapshot_time.timestamp() if modifiers.snapshot_time else time.time()
        found = [table for since, table in self.tables.get(asked.table, []) if since <= when]
        if not found:
            context.abort(grpc.StatusCode.NOT_FOUND, f"Not found: Table {asked.table}")
        whole = found[-1]
        fields = list(asked.read_options.selected_fields)
        missing = [name for name in fields if name.partition(".")[0] not in whole.column_names]
        if missing:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"no such field: {missing[0]}")
        names = list(dict.fromkeys(name.partition(".")[0] for name in fields))
        table = whole.select(names) if names else whole
        number = len(self.sessions)
        count = min(request.max_stream_count or 1, self.most_streams, len(table))
        rows = list(range(len(table)))
        random.Random(number).shuffle(rows)
        expires = time.time() + self.lifetime
        names = [f"{request.parent}/sessions/s{number}/streams/{i}" for i in range(count)]
        with self.lock:
            for i, name in enumerate(names):
                self.streams[name] = (expires, table.take(rows[i::count]))
        return types.ReadSession(
            name=f"{request.parent}/sessions/s{number}", table=asked.table,
            expire_time={"seconds": int(expires), "nanos": int(expires % 1 * 10**9)},
            data_format=asked.data_format, estimated_row_count=len(whole),
            estimated_total_bytes_scanned=whole.nbytes,
            arrow_schema={"serialized_schema": table.schema.serialize().to_pybytes()},
            streams=[types.ReadStream(name=name) for name in names],
        )  # fmt: skip

    def read_rows(self, request: Any, context: Any) -> Iterator[Any]:
        with self.lock:
            self.calls.append((request.read_stream, request.offset))
        expires, table = self.streams.get(request.read_stream, (0.0, None))
        if table is None or expires < time.time():
            context.abort(grpc.StatusCode.NOT_FOUND, f"Session expired: {request.read_stream}")
        options = pa.ipc.IpcWriteOptions(compression="lz4")
        for at in range(request.offset, len(table), _ROWS):
            self._fail(context, request.read_stream, at)
            part = table.slice(at, _ROWS).combine_chunks().to_batches()[0]
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
                writer.write_batch(part)
            stream = sink.getvalue().to_pybytes()
            begin = len(table.schema.serialize())
            yield types.ReadRowsResponse(
                arrow_record_batch={"serialized_record_batch": stream[begin:]},
                row_count=part.num_rows,
            )

    def _fail(self, context: Any, asked: str, at: int) -> None:
        with self.lock:
            found = self.fault(asked, at)
        if found:
            context.abort(*found)


class _Queries(BaseHTTPRequestHandler):
    """Runs statements: those of `answers` are known, others wrong."""

    bigquery: FakeBigQuery

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self._answer(body["configuration"], body["jobReference"]["jobId"])

    def do_GET(self) -> None:
        found = re.search(r"/(?:queries|jobs)/([^/?]+)", self.path)
        assert found
        job, dry = found[1], False
        statement = self.server.jobs[job]  # type: ignore[attr-defined]
        self._answer({"query": {"query": statement}, "dryRun": dry}, job)

    def _answer(self, configuration: dict[str, Any], job: str) -> None:
        statement = configuration["query"]["query"]
        dry = configuration.get("dryRun", False)
        self.server.jobs[job] = statement  # type: ignore[attr-defined]
        answers = self.bigquery.answers
        path = answers.get(statement, answers.get("*"))
        if path is None:
            status, message = 400, f'Syntax error: Unexpected "{statement.split()[0]}" at [1:1]'
            if statement.startswith("DENIED"):
                status, message = 403, "Access Denied: Project p: no permission to create jobs"
            error = {"code": status, "message": message, "errors": [{"message": message}]}
            self._send(status, {"error": error})
            return
        if self.command == "POST" and not dry:
            self.bigquery.statements.append(statement)
        _, project, _, dataset, _, table = path.split("/")
        destination = {"projectId": project, "datasetId": dataset, "tableId": table}
        kind = statement.split()[0].upper()
        self._send(200, {
            "kind": "bigquery#job", "id": job,
            "jobReference": {"projectId": project, "jobId": job, "location": "US"},
            "configuration": {
                "jobType": "QUERY", "dryRun": dry,
                "query": {"query": statement, "destinationTable": destination},
            },
            "statistics": {"query": {"statementType": kind}}, "status": {"state": "DONE"},
            "jobComplete": True, "totalRows": "1", "schema": {"fields": []},
        })  # fmt: skip

    def _send(self, status: int, answer: dict[str, Any]) -> None:
        data = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Prints nothing."""


@contextmanager
def serve_bigquery() -> Iterator[FakeBigQuery]:
    """Serves until the block ends; the environment names the servers meanwhile."""
    fake = FakeBigQuery()
    handlers = {
        "CreateReadSession": grpc.unary_unary_rpc_method_handler(
            fake.create_session, types.CreateReadSessionRequest.deserialize,
            types.ReadSession.serialize,
        ),
        "ReadRows": grpc.unary_stream_rpc_method_handler(
            fake.read_rows, types.ReadRowsRequest.deserialize, types.ReadRowsResponse.serialize
        ),
    }  # fmt: skip
    server = grpc.server(ThreadPoolExecutor(8))
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(_SERVICE, handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    queries = ThreadingHTTPServer(
        ("127.0.0.1", 0), type("Queries", (_Queries,), {"bigquery": fake})
    )
    queries.jobs = {}  # type: ignore[attr-defined]
    thread = Thread(target=queries.serve_forever, daemon=True)
    thread.start()
    hosts = {
        STORAGE_EMULATOR: f"127.0.0.1:{port}",
        QUERY_EMULATOR: f"http://127.0.0.1:{queries.server_port}",
    }
    try:
        with mock.patch.dict(os.environ, hosts):
            yield fake
    finally:
        queries.shutdown()
        queries.server_close()
        thread.join()
        server.stop(None).wait()
