"""Rows of BigQuery's tables, as the Storage Read API streams them: batches of Arrow's, in no order.

Which rows a stream has is the service's choice, so a hash of what is read of a row stands for its
number: what is made of the rows does not depend on how they are spread. A call that breaks off is
made again from the row on at which it did.
"""

from __future__ import annotations

import base64
import random
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pyarrow as pa

from recordmill.records.errors import RunError
from recordmill.transforms.dataset.run_state import DamagedStateError
from recordmill.transforms.sources.bigquery_service import (
    BigQueryError,
    may_pass,
    show_time,
    storage_client,
)
from recordmill.transforms.sources.bigquery_tables import open_session, session_streams
from recordmill.transforms.sources.row_hashes import hash_rows
from recordmill.transforms.sources.rows import RowOptions, Rows, slice_batch
from recordmill.transforms.sources.work_items import SourceRange, TableStream
from recordmill.transforms.storage import google_storage

_CALL_SECONDS = 600.0  # of a call, while it sends rows; then it is made again from there on


class LostStreamsError(DamagedStateError):
    """The streams that a run was planned with are not there any more."""


class TableRows:
    """See `rows.RowSource`.

    Args:
      source: the stream, or the whole table, of which this is then a stream of its own.
      client: of the Storage Read API.
    """

    def __init__(self, source: SourceRange, client: Any) -> None:
        assert source.stream is not None  # all sources of this format have one
        self._stream = source.stream
        self._client = client
        self.schema: pa.Schema = _schema(source.stream)

    @property
    def num_rows(self) -> int:
        """About how many rows the table has."""
        return max(self._stream.rows, 1)

    def rows(self, names: Sequence[str], batch_bytes: int) -> Iterator[Rows]:
        """Yields the rows."""
        streams = [self._stream]
        if not self._stream.name:
            session = open_session(self._client, self._stream, streams=1)
            streams = list(session_streams(session, self._stream))
        first = 0
        for stream in streams:
            schema = _schema(stream)
            for response in _responses(self._client, stream.name):
                data = response.arrow_record_batch.serialized_record_batch
                batch = pa.ipc.read_record_batch(pa.py_buffer(data), schema)
                if not names:
                    yield Rows(first, batch.num_rows, {})
                    first += batch.num_rows
                    continue
                for rows in slice_batch(batch, names, batch_bytes, first):
                    yield replace(rows, offsets=hash_rows(rows.columns, rows.count))
                    first += rows.count


@contextmanager
def open_table(source: SourceRange, options: RowOptions) -> Iterator[TableRows]:
    """Opens a stream, or a whole table.

    Raises:
      LostStreamsError: its session has expired.
      RunError: it cannot be read.
    """
    del options  # of files
    try:
        with storage_client() as client:
            yield TableRows(source, client)
    except pa.ArrowException as error:
        detail = " ".join(str(error).split())
        raise RunError(
            f"{source.path} cannot be read: a batch is damaged ({detail}); run the same command "
            "again"
        ) from error
    except BigQueryError as error:
        raise _run_error(source, error) from error


def _run_error(source: SourceRange, error: BigQueryError) -> RunError:
    stream = source.stream
    is_over = stream is not None and 0 < stream.expires_ms < time.time() * 1000
    if not stream or not stream.name or not (is_over or error.is_lost):
        return RunError(f"{source.path} cannot be read: {error}; run the same command again")
    same = ""
    if stream.snapshot_ms:
        address = source.path.partition("@")[0]
        same = f", with --input={address}@{show_time(stream.snapshot_ms)} for the same rows"
    return LostStreamsError(
        f"{source.path} cannot be read on: {error}; BigQuery keeps a session for 6 hours, this one "
        f"until {show_time(stream.expires_ms)}; start anew with --overwrite{same}"
    )


def _responses(client: Any, name: str) -> Iterator[Any]:
    """Yields the batches of a stream; errors that may pass are tried again, where it broke off."""
    from google.api_core.exceptions import GoogleAPICallError

    offset, failed_since, pause = 0, 0.0, 0.0
    while True:
        try:
            for response in client.read_rows(
                read_stream=name, offset=offset, retry=None, timeout=_CALL_SECONDS
            ):
                offset += response.row_count
                failed_since = 0.0
                yield response
            return
        except GoogleAPICallError as error:
            patience, now = google_storage.patience, time.monotonic()
            if not failed_since:
                failed_since, pause = now, patience.first
            if not may_pass(error) or now - failed_since + pause > patience.total:
                raise
            time.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(2 * pause, patience.most)


def _schema(stream: TableStream) -> pa.Schema:
    return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(stream.schema)))
