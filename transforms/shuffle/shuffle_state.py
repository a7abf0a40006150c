"""The small JSON files that describe run files.

Stages exchange numbers only; a stage reads what the one before wrote from these files. A file that
is there, and has the token of the run, says that its work is done.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

from recordmill.records.state import Count, convert
from recordmill.transforms.shuffle.run_files import RunFileInfo


class RunFileDescription(TypedDict):
    """A run file, as descriptions on disk have it."""

    name: str
    tail: tuple[Count, Count]
    splits: Count


class RunFilesDescription(TypedDict):
    """The description of a work item of regroup, on disk; that of scatter has more."""

    runs: list[RunFileDescription]


def run_files_to_json(runs: Sequence[RunFileInfo]) -> dict[str, Any]:
    """Returns the description of a work item of regroup: the run files that it wrote."""
    return {"runs": [run.to_json() for run in runs]}


def run_files_from_json(content: Mapping[str, Any], folder: str) -> tuple[RunFileInfo, ...]:
    """Returns the run files of a description in a folder, of scatter or of regroup."""
    typed = convert(content, RunFilesDescription)
    return tuple(RunFileInfo.from_json(run, folder) for run in typed["runs"])
