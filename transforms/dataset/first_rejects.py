"""Counts of rejects by reason, each with the name of one input as an example."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any

from recordmill.records import manifest as m
from recordmill.records.state import FormatError, decode
from recordmill.transforms.dataset.rejects import Reject
from recordmill.transforms.dataset.workspace import Workspace
from recordmill.transforms.storage import files

_MOST_BYTES = 1 << 24  # of lines that are read for names


def first_rejects(
    workspace: Workspace, numbers: Iterable[int], counts: Mapping[str, int]
) -> dict[str, dict[str, Any]]:
    """Returns reason -> the number of inputs, and the least of their names.

    Args:
      workspace: of the job, whose commit may have moved the files of rejects to the output.
      numbers: of these files.
      counts: reason -> inputs.
    """
    names: dict[str, str] = {}
    for reason, source in _rejects(workspace, sorted(numbers)):
        names[reason] = min(source, names.get(reason, source))
    return {
        reason: {"inputs": count, "first": names.get(reason, "")}
        for reason, count in sorted(counts.items())
    }


def _rejects(workspace: Workspace, numbers: list[int]) -> Iterator[tuple[str, str]]:
    left = _MOST_BYTES
    for number in numbers:
        path = workspace.rejected_path(number)
        if not files.exists(path):  # an earlier commit that was killed has moved it
            path = files.join(workspace.output, m.REJECTED_PATH, path.rpartition("/")[2])
        data = files.read_bytes(path, 0, left)
        left -= len(data)
        for line in data.splitlines():
            with suppress(FormatError):  # cut
                reject = decode(line, Reject)
                yield reject.reason, reject.source
        if left <= 0:
            return
