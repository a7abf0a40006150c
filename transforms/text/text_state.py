"""The small JSON files of a text job, which describe what scatter did and the plan of shards."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import field

from recordmill.records.state import Count, FileSum
from recordmill.transforms.dataset.content_sample import ContentSample
from recordmill.transforms.shuffle.run_files import RunFiles
from recordmill.transforms.shuffle.shard_ranges import PlannedShards


class ScatterResult(RunFiles, frozen=True, kw_only=True):
    """The results of a work item of scatter.

    Attributes:
      runs: mostly one run file; a file that cannot be cut may become several.
      chunks, tokens: of each split, in order; a word that a chunk carries counts as a token.
      documents_read: without those that were rejected; `documents_used` are those with tokens.
      inputs_read: what could have been rejected and was not: lines of plain text, else documents.
      rejected: reason -> how many of these were.
      rejected_file: bytes and crc32c of the list of rejects.
      labels: the labels that occur, sorted, where they become classes.
      contents: split -> a sample of its texts, where not their hash decides the split.
      dropped: reason -> documents that were left out, of each split, in order.
      dropped_file: bytes and crc32c of their list, zeros for none.
      documents_added: by the user's functions, of documents that became several.
    """

    chunks: tuple[Count, ...]
    tokens: tuple[Count, ...]
    documents_read: Count
    inputs_read: Count
    documents_used: Count
    rejected: dict[str, Count]
    rejected_file: FileSum
    labels: tuple[str, ...] = ()
    contents: dict[str, ContentSample] = field(default_factory=dict)
    dropped: dict[str, list[Count]] = field(default_factory=dict)
    dropped_file: FileSum = (0, 0)
    documents_added: Count = 0


class ShardPlan(PlannedShards, frozen=True, kw_only=True):
    """The shards of each split in chunks and tokens, and the totals of scatter.

    Attributes:
      documents_read, documents_used, documents_added, rejected: as in `ScatterResult`, over all
        work items.
      rejected_files: work item -> bytes and crc32c of its list of rejects, where it has one.
      classes: the names of class 0, 1, …; () for no classes.
      shared_contents: what splits have in common, for `statistics.json`.
      dropped, dropped_files: as `rejected` and `rejected_files`, of documents that were left out;
        of `dropped` the numbers are those of each split.
    """

    documents_read: Count
    documents_used: Count
    rejected: dict[str, Count]
    rejected_files: dict[Count, FileSum]
    classes: tuple[str, ...] = ()
    shared_contents: tuple[dict[str, Any], ...] = ()
    dropped: dict[str, list[Count]] = field(default_factory=dict)
    dropped_files: dict[Count, FileSum] = field(default_factory=dict)
    documents_added: Count = 0


class TextShardStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """The statistics of a shard.

    Attributes:
      counts: name -> a number to add.
      lengths: the examples of each length from 0 on.
      classes: class -> examples.
      feature_tokens, most_tokens: feature -> the tokens of all records, and the most of one, where
        they are counted.
    """

    counts: dict[str, Count]
    lengths: list[Count]
    classes: dict[str, Count] = {}
    feature_tokens: dict[str, Count] = {}
    most_tokens: dict[str, Count] = {}
