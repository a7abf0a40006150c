"""Tables and answers of BigQuery as input: what they have, and the streams that they are cut into.

A query is run once, while a job is planned; its answer is a table that BigQuery keeps for a day. A
table is read as it was at one time, so all streams, retries and resumed runs see the same rows.
"""

from __future__ import annotations

import base64
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from recordmill.records.errors import UsageError
from recordmill.transforms.sources.bigquery_service import (
    BigQueryAddress,
    BigQueryError,
    billed_project,
    parse_address,
    query_client,
    retrying,
    storage_client,
)
from recordmill.transforms.sources.formats import CutOptions
from recordmill.transforms.sources.rows import column_type
from recordmill.transforms.sources.work_items import SourceRange, TableStream
from recordmill.transforms.storage import google_storage

_MOST_STREAMS = 1000  # the service's own limit
_CLOCK_MS = 1000  # by which the clock of this machine may be ahead


def list_table(url: str, statement: str, names: Sequence[str], snapshot_ms: int = 0) -> SourceRange:
    """Returns a table, or the answer to a query, as a source.

    Args:
      url: as `parse_address` takes it.
      statement: a SELECT; "" for a table.
      names: of the columns that are read.
      snapshot_ms: the time as of which a run that is resumed reads the table; 0 for none.

    Raises:
      UsageError: it cannot be read, or has no row.
    """
    address = parse_address(url)
    try:
        if statement:
            table, name, snapshot = _run_query(address.project, statement), "query", 0
            project = address.project
        else:
            table, name = _table_path(address), f"{address.dataset}.{address.table}"
            snapshot = address.snapshot_ms or snapshot_ms or int(time.time() * 1000) - _CLOCK_MS
            project = billed_project(address)
        whole = TableStream(table, project, "", 0, snapshot, (), "")
        with storage_client() as client:
            session = open_session(client, whole, streams=1)
    except BigQueryError as error:
        raise UsageError(f"--input {url} cannot be read: {error}") from error
    if not session.streams:
        what = "--query finds no row; see its conditions" if statement else f"{url} has no row"
        raise UsageError(what if statement else f"--input {what}")
    schema = session_schema(session)
    columns = tuple(each for each in names if column_type(schema, each) is not None)
    rows, size = int(session.estimated_row_count), int(session.estimated_total_bytes_scanned)
    what = str(address.snapshot_ms) if address.snapshot_ms else str(rows)
    stream = replace(
        whole, rows=rows, columns=columns, schema=encode_schema(session),
        identity=f"{statement or table} {what}",
    )  # fmt: skip
    return SourceRange(url, name, "bigquery", "", max(size, 1), stream=stream)


def cut_table(source: SourceRange, target_bytes: int, options: CutOptions) -> Iterator[SourceRange]:
    """Yields the streams of a table, of about so many bytes each.

    Raises:
      UsageError: the service refuses it.
    """
    del options  # of text
    whole = source.stream
    if whole is None or whole.name:
        yield source
        return
    wanted = min(max(1, -(-source.size // target_bytes)), _MOST_STREAMS)
    try:
        with storage_client() as client:
            session = open_session(client, whole, streams=wanted)
    except BigQueryError as error:
        raise UsageError(f"--input {source.path} cannot be read: {error}") from error
    for stream in session_streams(session, whole):
        size = max(1, source.size // len(session.streams))
        yield replace(source, size=size, stream=stream)


def open_session(client: Any, stream: TableStream, *, streams: int) -> Any:
    """Opens a session that reads columns of a table.

    Args:
      client: see `storage_client`.
      stream: names the table, its time and the columns.
      streams: how many there may be.
    """
    from google.cloud.bigquery_storage_v1 import types

    options = types.ReadSession.TableReadOptions(
        selected_fields=list(stream.columns),
        arrow_serialization_options=types.ArrowSerializationOptions(
            buffer_compression=types.ArrowSerializationOptions.CompressionCodec.LZ4_FRAME
        ),
    )
    session = types.ReadSession(
        table=stream.table, data_format=types.DataFormat.ARROW, read_options=options
    )
    if stream.snapshot_ms:
        seconds, milliseconds = divmod(stream.snapshot_ms, 1000)
        when = {"seconds": seconds, "nanos": milliseconds * 10**6}
        session.table_modifiers = types.ReadSession.TableModifiers(snapshot_time=when)
    return client.create_read_session(
        parent=f"projects/{stream.project}", read_session=session, max_stream_count=streams,
        retry=retrying(), timeout=google_storage.patience.request,
    )  # fmt: skip


def session_streams(session: Any, whole: TableStream) -> Iterator[TableStream]:
    """Yields the streams of a session."""
    expires = int(session.expire_time.timestamp() * 1000)
    for each in session.streams:
        yield replace(whole, name=each.name, schema=encode_schema(session), expires_ms=expires)


def encode_schema(session: Any) -> str:
    """Returns the schema of a session as `TableStream` has it."""
    return base64.b64encode(session.arrow_schema.serialized_schema).decode()


def session_schema(session: Any) -> pa.Schema:
    """Returns the columns of a session."""
    return pa.ipc.read_schema(pa.py_buffer(session.arrow_schema.serialized_schema))


def _table_path(address: BigQueryAddress) -> str:
    return f"projects/{address.project}/datasets/{address.dataset}/tables/{address.table}"


def _run_query(project: str, statement: str) -> str:
    """Runs a query; returns the resource name of the table that holds its answer.

    Raises:
      UsageError: it is no SELECT.
      BigQueryError: it cannot be run.
    """
    from google.cloud.bigquery import QueryJobConfig

    with query_client(project) as client:
        request = google_storage.patience.request
        dry = client.query(
            statement, QueryJobConfig(dry_run=True), retry=retrying(), job_retry=None,
            timeout=request,
        )  # fmt: skip
        if dry.statement_type != "SELECT":
            raise UsageError(f"--query must be a SELECT, and is {dry.statement_type}")
        job = client.query(statement, retry=retrying(), timeout=request)
        job.result(max_results=0, retry=retrying())
        table = job.destination
    return f"projects/{table.project}/datasets/{table.dataset_id}/tables/{table.table_id}"
