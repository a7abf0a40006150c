"""The services of BigQuery: their addresses, clients, patience, and errors in one line.

A program that stands in for the Storage Read API is named by BIGQUERY_STORAGE_EMULATOR_HOST, as
`localhost:9060`, one for queries by BIGQUERY_EMULATOR_HOST, as `http://localhost:9050`, which
Google's client reads itself. Neither is asked with credentials.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

from recordmill.records.errors import UsageError
from recordmill.transforms.storage import google_storage

STORAGE_EMULATOR = "BIGQUERY_STORAGE_EMULATOR_HOST"
QUERY_EMULATOR = "BIGQUERY_EMULATOR_HOST"
_SCHEME = "bigquery://"
_PROJECT = r"(?:[\w.-]+:)?[\w-]+"
_ADDRESS = re.compile(
    rf"(?P<project>{_PROJECT})(?:\.(?P<dataset>\w+)\.(?P<table>[^./@]+?)(?:@(?P<time>[^@/]+))?)?"
)
_MOST_CHARACTERS = 300
# What gRPC says, as if the service could not be reached, of credentials that are refused.
_REFUSED_CREDENTIALS = ("invalid_grant", "invalid_client", "Reauthentication is needed")


class BigQueryError(Exception):
    """BigQuery cannot be read; the message is one line, and says what to do.

    Attributes:
      is_lost: what was asked for is not there, or not any more.
    """

    def __init__(self, message: str, *, is_lost: bool = False) -> None:
        super().__init__(message)
        self.is_lost = is_lost


@dataclass(frozen=True, slots=True)
class BigQueryAddress:
    """What `bigquery://project.dataset.table@TIME` or `bigquery://project` says.

    Attributes:
      project, dataset, table: of the table; of a query the project alone.
      snapshot_ms: the time, in milliseconds since 1970; 0 where none is named.
    """

    project: str
    dataset: str = ""
    table: str = ""
    snapshot_ms: int = 0


def is_bigquery(pattern: str) -> bool:
    """Returns whether a value of --input is the address of a table or project of BigQuery."""
    return pattern.startswith(_SCHEME)


def parse_address(url: str) -> BigQueryAddress:
    """Returns what an address says.

    Raises:
      UsageError: it makes no sense.
    """
    found = _ADDRESS.fullmatch(url.removeprefix(_SCHEME))
    if not found:
        raise UsageError(
            f"--input {url} must be bigquery://PROJECT.DATASET.TABLE, or bigquery://PROJECT beside "
            "--query"
        )
    when = found["time"]
    snapshot = _milliseconds(url, when) if when else 0
    return BigQueryAddress(found["project"], found["dataset"] or "", found["table"] or "", snapshot)


def read_time(text: str) -> int:
    """Returns a time in milliseconds since 1970.

    Raises:
      ValueError: it is none, or without a time zone.
    """
    moment = datetime.fromisoformat(text.upper().replace("Z", "+00:00"))
    if moment.tzinfo is None:
        raise ValueError("no time zone")
    return round(moment.timestamp() * 1000)


def _milliseconds(url: str, text: str) -> int:
    try:
        return read_time(text)
    except ValueError as error:
        raise UsageError(
            f"--input {url} must name a time such as {show_time(int(time.time() * 1000))} behind "
            f"@, got {text!r}"
        ) from error


def show_time(milliseconds: int) -> str:
    """Returns a time as addresses have it."""
    moment = datetime.fromtimestamp(milliseconds / 1000, timezone.utc)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


@contextmanager
def storage_client() -> Iterator[Any]:
    """Opens a client of the Storage Read API.

    Raises:
      BigQueryError: Google's libraries are not installed, or there are no credentials; or what is
        asked meanwhile is refused.
    """
    with _reporting():
        from google.cloud.bigquery_storage_v1.services.big_query_read import BigQueryReadClient

        host = os.environ.get(STORAGE_EMULATOR)
        options: dict[str, Any] = {}
        if host:
            import grpc
            from google.cloud.bigquery_storage_v1.services.big_query_read.transports import (
                BigQueryReadGrpcTransport,
            )

            sizes = [("grpc.max_receive_message_length", -1)]
            channel = grpc.insecure_channel(host.removeprefix("http://"), options=sizes)
            options = {"transport": BigQueryReadGrpcTransport(channel=channel)}
        client = BigQueryReadClient(**options)
        with closing(client.transport):
            yield client


@contextmanager
def query_client(project: str) -> Iterator[Any]:
    """Opens a client for queries.

    Args:
      project: that is billed.

    Raises:
      BigQueryError: see `storage_client`.
    """
    with _reporting():
        from google.auth.credentials import AnonymousCredentials
        from google.cloud.bigquery import Client

        anonymous = AnonymousCredentials() if os.environ.get(QUERY_EMULATOR) else None
        with closing(Client(project, credentials=anonymous)) as client:
            yield client


def billed_project(address: BigQueryAddress) -> str:
    """Returns the project that reading a table is billed to: that of the account, or the table's.

    Raises:
      BigQueryError: see `storage_client`.
    """
    named = os.environ.get("GOOGLE_CLOUD_PROJECT")
    if named or os.environ.get(STORAGE_EMULATOR):
        return named or address.project
    with _reporting():
        import google.auth

        return google.auth.default()[1] or address.project


def retrying() -> Any:
    """Returns Google's retry by the patience of all services of theirs."""
    from google.api_core.retry import Retry

    patience = google_storage.patience
    return Retry(
        predicate=may_pass, initial=patience.first, maximum=patience.most, timeout=patience.total
    )


def may_pass(error: BaseException) -> bool:
    """Returns whether a request may succeed when it is repeated."""
    from google.api_core import exceptions
    from google.api_core.retry import if_transient_error

    if any(sign in str(error) for sign in _REFUSED_CREDENTIALS):
        return False
    passing = (
        exceptions.Unknown, exceptions.GatewayTimeout, exceptions.BadGateway, exceptions.Aborted,
        exceptions.Cancelled,
    )  # fmt: skip
    return bool(if_transient_error(error)) or isinstance(error, passing)


@contextmanager
def _reporting() -> Iterator[None]:
    """Makes a line of the errors of Google's libraries.

    Raises:
      BigQueryError: of each.
    """
    try:
        from google.api_core import exceptions
        from google.auth.exceptions import GoogleAuthError
    except ImportError as error:
        raise BigQueryError("BigQuery needs pip install 'recordmill[gcp]'") from error
    try:
        yield
    except ImportError as error:
        raise BigQueryError("BigQuery needs pip install 'recordmill[gcp]'") from error
    except exceptions.RetryError as error:
        raise _explained(error.cause or error) from error
    except (exceptions.GoogleAPICallError, GoogleAuthError, OSError) as error:
        raise _explained(error) from error


def _explained(error: BaseException) -> BigQueryError:
    """Returns what went wrong, and what to do about it."""
    from google.api_core import exceptions
    from google.auth.exceptions import GoogleAuthError

    said = getattr(error, "message", "") or error
    with suppress(LookupError, TypeError):  # HTTP's errors begin with the address that was asked
        said = getattr(error, "errors", [])[0]["message"]
    text = " ".join(str(said).split()).rstrip(".")
    text = text if len(text) <= _MOST_CHARACTERS else f"{text[:_MOST_CHARACTERS]}…"
    refused = any(sign in text for sign in _REFUSED_CREDENTIALS)
    if refused or isinstance(error, (GoogleAuthError, exceptions.Unauthorized)):
        return BigQueryError(
            f"there are no valid credentials ({text}); sign in with `gcloud auth "
            "application-default login`, or name a service account's file in "
            "GOOGLE_APPLICATION_CREDENTIALS"
        )
    if isinstance(error, exceptions.Forbidden):
        return BigQueryError(
            f"permission denied ({text}); the account needs the roles BigQuery Data Viewer and "
            "BigQuery Read Session User, for --query BigQuery Job User too"
        )
    if isinstance(error, exceptions.NotFound):
        return BigQueryError(f"not found ({text}); see the names", is_lost=True)
    if isinstance(error, exceptions.TooManyRequests):
        return BigQueryError(f"over a quota ({text}); wait, or raise the project's quota")
    lost = isinstance(error, exceptions.FailedPrecondition) or "expired" in text
    return BigQueryError(text or type(error).__name__, is_lost=lost)
