"""Private parts of other packages that `transforms` uses, each with a test that names it.

Nothing else in `transforms` may touch a name of another package that begins with an underscore.
`tests/transforms/test_compat.py` fails when a release changes one of these.
"""

from __future__ import annotations

import tarfile
from collections.abc import Callable, Iterator
from typing import Any


def beam_options() -> Any:
    """Returns the options that Beam's file systems were given, None if they were given none."""
    from apache_beam.io.filesystems import FileSystems

    return FileSystems._pipeline_options


def list_remote(file_system: Any, prefix: str) -> Iterator[Any]:
    """Yields the metadata of files below a prefix; the public `match` makes a list of them all."""
    metadata: Iterator[Any] = file_system._list(prefix)
    return metadata


def may_pass() -> Callable[[Exception], bool]:
    """Returns google-cloud-storage's test whether a request is worth repeating after an error."""
    from google.cloud.storage.retry import DEFAULT_RETRY

    predicate: Callable[[Exception], bool] = DEFAULT_RETRY._predicate
    return predicate


def batch_responses(batch: Any) -> Any:
    """Returns the responses to the requests of a finished batch of google-cloud-storage."""
    return batch._responses


def next_tar_member(archive: tarfile.TarFile) -> tuple[tarfile.TarInfo | None, int]:
    """Returns the next member of an open tar, None where tarfile finds none, and where the header
    behind it is.

    A TarFile keeps every member that it has read in its list `members`, which is emptied here.
    """
    member = archive.next()
    archive.members = []  # type: ignore[attr-defined]
    return member, archive.offset
