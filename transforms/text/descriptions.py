"""The small JSON files of a text job: what scatter and regroup wrote, and how many shards follow.

Stages exchange numbers only; a stage reads what the one before wrote from these files. A file that
is there says that its work is done.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypedDict

from recordmill.records.typed_json import Count, Uint32
from recordmill.transforms.dataset.workspace import damaged, read_json
from recordmill.transforms.text.run_files import RunFileInfo


class RunFileDescription(TypedDict):
    """A run file, as descriptions on disk have it."""

    path: str
    tail: tuple[Count, Count]
    splits: Count


class RunFilesDescription(TypedDict):
    """The description of a work item of regroup, on disk; that of scatter has more."""

    runs: list[RunFileDescription]


class ScatterDescription(RunFilesDescription):
    """The description of a work item of scatter, on disk."""

    chunks: list[Count]
    tokens: list[Count]
    documents_read: Count
    documents_used: Count
    rejected: dict[str, Count]
    rejected_file: tuple[Count, Uint32]


class _TextSplitDescription(TypedDict):
    name: str
    shards: Count
    chunks: Count
    tokens: Count
    expected_bytes: Count


class _DocumentTotals(TypedDict):
    documents_read: Count
    documents_used: Count


class ShardPlanDescription(TypedDict):
    """`shards.json` of a text job."""

    splits: list[_TextSplitDescription]
    totals: _DocumentTotals
    rejected: dict[str, Count]
    rejected_files: dict[str, tuple[Count, Uint32]]


def run_files_to_json(runs: Sequence[RunFileInfo]) -> dict[str, Any]:
    """Returns the description of a work item of regroup: the run files that it wrote."""
    return {"runs": [run.to_json() for run in runs]}


def run_files_from_json(content: Mapping[str, Any]) -> tuple[RunFileInfo, ...]:
    """Returns the run files of a description, of scatter or of regroup."""
    return tuple(RunFileInfo.from_json(run) for run in content["runs"])


@dataclass(frozen=True, slots=True, kw_only=True)
class ScatterResult:
    """What a work item of scatter read and wrote.

    Attributes:
      runs: mostly one run file; a file that cannot be cut may become several.
      chunks, tokens: of each split, in order.
      documents_read: without those that were rejected; `documents_used` are those with tokens.
      rejected: reason -> number of documents.
      rejected_file: bytes and crc32c of the list of rejects.
    """

    runs: tuple[RunFileInfo, ...]
    chunks: tuple[int, ...]
    tokens: tuple[int, ...]
    documents_read: int
    documents_used: int
    rejected: dict[str, int]
    rejected_file: tuple[int, int]

    def to_json(self) -> dict[str, Any]:
        """Returns the content of the description."""
        return {
            **run_files_to_json(self.runs),
            "chunks": list(self.chunks),
            "tokens": list(self.tokens),
            "documents_read": self.documents_read,
            "documents_used": self.documents_used,
            "rejected": dict(sorted(self.rejected.items())),
            "rejected_file": list(self.rejected_file),
        }

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> ScatterResult:
        """Reads what `to_json` returned."""
        size, crc32c = content["rejected_file"]
        return cls(
            runs=run_files_from_json(content),
            chunks=tuple(content["chunks"]),
            tokens=tuple(content["tokens"]),
            documents_read=content["documents_read"],
            documents_used=content["documents_used"],
            rejected=dict(content["rejected"]),
            rejected_file=(size, crc32c),
        )


@dataclass(frozen=True, slots=True)
class PlannedSplit:
    """The size of a split.

    Attributes:
      name: of the split.
      shards: their number.
      chunks, tokens: a copy counted once.
      expected_bytes: of all shards.
    """

    name: str
    shards: int
    chunks: int
    tokens: int
    expected_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardPlan:
    """How many shards each split gets, and what scatter read in total.

    Attributes:
      splits: in order.
      documents_read, documents_used, rejected: as in `ScatterResult`, over all work items.
      rejected_files: work item -> bytes and crc32c of its list of rejects, where it has one.
    """

    splits: tuple[PlannedSplit, ...]
    documents_read: int
    documents_used: int
    rejected: dict[str, int]
    rejected_files: dict[int, tuple[int, int]]

    def to_json(self) -> dict[str, Any]:
        """Returns the content of `shards.json`."""
        return {
            "splits": [asdict(split) for split in self.splits],
            "totals": {
                "documents_read": self.documents_read,
                "documents_used": self.documents_used,
            },
            "rejected": dict(sorted(self.rejected.items())),
            "rejected_files": {str(k): list(v) for k, v in self.rejected_files.items()},
        }

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> ShardPlan:
        """Reads what `to_json` returned."""
        return cls(
            splits=tuple(PlannedSplit(**split) for split in content["splits"]),
            documents_read=content["totals"]["documents_read"],
            documents_used=content["totals"]["documents_used"],
            rejected=dict(content["rejected"]),
            rejected_files={
                int(number): (size, crc32c)
                for number, (size, crc32c) in content["rejected_files"].items()
            },
        )


def load_run_files(path: str) -> tuple[RunFileInfo, ...]:
    """Reads the run files of a description, of scatter or of regroup.

    Raises:
      RunError: it is cut, or of wrong types.
    """
    return run_files_from_json(read_json(path, RunFilesDescription))


def load_scatter_result(path: str) -> ScatterResult:
    """Reads the description of a work item of scatter.

    Raises:
      RunError: it is cut, or of wrong types.
    """
    return ScatterResult.from_json(read_json(path, ScatterDescription))


def load_shard_plan(path: str) -> ShardPlan:
    """Reads `shards.json`.

    Raises:
      RunError: it is cut, or of wrong types.
    """
    try:
        return ShardPlan.from_json(read_json(path, ShardPlanDescription))
    except ValueError as error:  # the number of a work item
        raise damaged(path, error) from error
