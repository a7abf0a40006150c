"""The small JSON files of a text job, which describe what scatter did and the plan of shards."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, TypedDict

from recordmill.records.state import Count, Uint32, convert
from recordmill.transforms.dataset.content_sample import ContentSample
from recordmill.transforms.shuffle.run_files import RunFileInfo
from recordmill.transforms.shuffle.shuffle_state import (
    RunFilesDescription,
    run_files_from_json,
    run_files_to_json,
)


class _OlderScatterDescription(RunFilesDescription):
    chunks: list[Count]
    tokens: list[Count]
    documents_read: Count
    documents_used: Count
    rejected: dict[str, Count]
    rejected_file: tuple[Count, Uint32]


class ScatterDescription(_OlderScatterDescription, total=False):
    """The description of a work item of scatter, on disk."""

    labels: list[str]
    contents: dict[str, list[Any]]
    dropped: dict[str, list[Count]]
    dropped_file: tuple[Count, Uint32]
    dropped_files: dict[str, tuple[Count, Uint32]]
    documents_added: Count


class _TextSplitDescription(TypedDict):
    name: str
    shards: Count
    chunks: Count
    tokens: Count
    expected_bytes: Count


class _OlderTotals(TypedDict):
    documents_read: Count
    documents_used: Count


class _DocumentTotals(_OlderTotals, total=False):
    documents_added: Count


class _OlderShardsDescription(TypedDict):
    splits: list[_TextSplitDescription]
    totals: _DocumentTotals
    rejected: dict[str, Count]
    rejected_files: dict[str, tuple[Count, Uint32]]
    sums: tuple[Count, Uint32]


class ShardPlanDescription(_OlderShardsDescription, total=False):
    """`shards.json` of a text job."""

    classes: list[str]
    shared_contents: list[dict[str, Any]]
    dropped: dict[str, list[Count]]
    dropped_files: dict[str, tuple[Count, Uint32]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScatterResult:
    """The results of a work item of scatter.

    Attributes:
      runs: mostly one run file; a file that cannot be cut may become several.
      chunks, tokens: of each split, in order; a word that a chunk carries counts as a token.
      documents_read: without those that were rejected; `documents_used` are those with tokens.
      rejected: reason -> number of documents.
      rejected_file: bytes and crc32c of the list of rejects.
      labels: the labels that occur, sorted, where they become classes.
      contents: split -> a sample of its texts, where not their hash decides the split.
      dropped: reason -> documents that were left out, of each split, in order.
      dropped_file: bytes and crc32c of their list, zeros for none.
      dropped_files: of users' pipelines: list -> its bytes and crc32c.
      documents_added: by the user's functions, of documents that became several.
    """

    runs: tuple[RunFileInfo, ...]
    chunks: tuple[int, ...]
    tokens: tuple[int, ...]
    documents_read: int
    documents_used: int
    rejected: dict[str, int]
    rejected_file: tuple[int, int]
    labels: tuple[str, ...] = ()
    contents: dict[str, ContentSample] = field(default_factory=dict)
    dropped: dict[str, list[int]] = field(default_factory=dict)
    dropped_file: tuple[int, int] = (0, 0)
    dropped_files: dict[int, tuple[int, int]] = field(default_factory=dict)
    documents_added: int = 0

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
            "labels": list(self.labels),
            "contents": {split: sample.to_json() for split, sample in self.contents.items()},
            "dropped": self.dropped,
            "dropped_file": list(self.dropped_file),
            "dropped_files": {str(k): list(v) for k, v in self.dropped_files.items()},
            "documents_added": self.documents_added,
        }

    @classmethod
    def from_json(cls, content: Mapping[str, Any], folder: str) -> ScatterResult:
        """Reads what `to_json` returned, from a description in a folder.

        Raises:
          ValueError: it is of wrong types.
        """
        content = convert(content, ScatterDescription)
        size, crc32c = content["rejected_file"]
        return cls(
            runs=run_files_from_json(content, folder),
            chunks=tuple(content["chunks"]),
            tokens=tuple(content["tokens"]),
            documents_read=content["documents_read"],
            documents_used=content["documents_used"],
            rejected=dict(content["rejected"]),
            rejected_file=(size, crc32c),
            labels=tuple(content.get("labels", ())),
            contents={
                split: ContentSample.from_json(sample)
                for split, sample in content.get("contents", {}).items()
            },
            dropped=dict(content.get("dropped", {})),
            dropped_file=content.get("dropped_file", (0, 0)),
            dropped_files=_of_numbers(content.get("dropped_files", {})),
            documents_added=content.get("documents_added", 0),
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
    """The shards of each split, and the totals of scatter.

    Attributes:
      splits: in order.
      documents_read, documents_used, documents_added, rejected: as in `ScatterResult`, over all
        work items.
      rejected_files: work item -> bytes and crc32c of its list of rejects, where it has one.
      classes: the names of class 0, 1, …; () for no classes.
      shared_contents: what splits have in common, for `statistics.json`.
      dropped, dropped_files: as `rejected` and `rejected_files`, of documents that were left out;
        of `dropped` the numbers are those of each split.
      sums: bytes and crc32c of the file of sums, which lies beside.
    """

    splits: tuple[PlannedSplit, ...]
    documents_read: int
    documents_used: int
    rejected: dict[str, int]
    rejected_files: dict[int, tuple[int, int]]
    classes: tuple[str, ...] = ()
    shared_contents: tuple[dict[str, Any], ...] = ()
    dropped: dict[str, list[int]] = field(default_factory=dict)
    dropped_files: dict[int, tuple[int, int]] = field(default_factory=dict)
    sums: tuple[int, int] = (0, 0)
    documents_added: int = 0

    def to_json(self) -> dict[str, Any]:
        """Returns the content of `shards.json`."""
        return {
            "splits": [asdict(split) for split in self.splits],
            "totals": {
                "documents_read": self.documents_read,
                "documents_used": self.documents_used,
                "documents_added": self.documents_added,
            },
            "rejected": dict(sorted(self.rejected.items())),
            "rejected_files": {str(k): list(v) for k, v in self.rejected_files.items()},
            "classes": list(self.classes),
            "shared_contents": list(self.shared_contents),
            "dropped": dict(sorted(self.dropped.items())),
            "dropped_files": {str(k): list(v) for k, v in self.dropped_files.items()},
            "sums": list(self.sums),
        }

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> ShardPlan:
        """Reads what `to_json` returned.

        Raises:
          ValueError: it is of wrong types.
        """
        content = convert(content, ShardPlanDescription)
        sums_bytes, sums_crc32c = content["sums"]
        return cls(
            splits=tuple(PlannedSplit(**split) for split in content["splits"]),
            documents_read=content["totals"]["documents_read"],
            documents_used=content["totals"]["documents_used"],
            rejected=dict(content["rejected"]),
            rejected_files=_of_numbers(content["rejected_files"]),
            classes=tuple(content.get("classes", ())),
            shared_contents=tuple(content.get("shared_contents", ())),
            dropped=dict(content.get("dropped", {})),
            dropped_files=_of_numbers(content.get("dropped_files", {})),
            sums=(sums_bytes, sums_crc32c),
            documents_added=content["totals"].get("documents_added", 0),
        )


def _of_numbers(lists: Mapping[str, tuple[int, int]]) -> dict[int, tuple[int, int]]:
    """Returns work item -> bytes and crc32c, as JSON has them by text."""
    return {int(number): (size, crc32c) for number, (size, crc32c) in lists.items()}
