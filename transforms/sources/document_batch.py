"""Batches of documents: their lines in one buffer, their keys, and the groups of their splits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from recordmill.records.arrays import Bools, Int64s
from recordmill.records.codec.jit import kernel
from recordmill.records.hashing import FNV_OFFSET, FNV_PRIME, U64, fingerprint64, mix64
from recordmill.transforms.dataset.rejects import Reject
from recordmill.transforms.sources.document_spec import DocumentSpec
from recordmill.transforms.sources.lines import Lines
from recordmill.transforms.sources.work_items import SourceRange

_DETAIL_CHARACTERS = 200


@dataclass(frozen=True, slots=True)
class DocumentBatch:
    """Documents, or parts of long ones.

    Attributes:
      lines: the lines that are not blank, in order.
      line_documents: `[num_lines] int64`, ascending: which document of the batch a line is of.
      keys: `[num_documents] uint64`, stable: from the file's name and the document's position.
      groups: `[num_documents] uint64`, stable: equal for documents that must share a split.
      continues: the first document is the rest of the last one of the batch before.
      rejects: what was rejected on the way.
      splits: `[num_documents] int64`, where a field of the documents names them; else None.
      carried: the label and the kept fields of each document, as text; None without any.
      contents: returns `[num_documents] uint64`, stable: equal for documents that begin alike; all
        equal where groups are not wanted.
      positions: `[num_documents] int64`: bytes from the file's beginning, or numbers of rows.
      describe: (position) -> what a person finds a document by; None: its file and position.
      ranks: returns `[num_documents, 2] uint64`, stable, in order of which documents come that are
        alike; None: positions say it.
      more_inputs: by how many what can be a reject, of plain text a line, is more than documents.
    """

    lines: Lines
    line_documents: Int64s
    keys: U64
    groups: U64
    continues: bool = False
    rejects: list[Reject] = field(default_factory=list)
    splits: Int64s | None = None
    carried: list[tuple[str, ...]] | None = None
    contents: Callable[[], U64] = lambda: np.zeros(0, np.uint64)
    positions: Int64s = field(default_factory=lambda: np.zeros(0, np.int64))
    describe: Callable[[int], dict[str, str]] | None = None
    ranks: Callable[[], U64] | None = None
    more_inputs: int = 0

    def description(self, source: str, position: int) -> dict[str, Any]:
        """Returns what a person finds a document by.

        Args:
          source: the name of its file.
          position: of it.
        """
        if self.describe:
            return dict(self.describe(position))
        return {"source": source, "position": position}

    def select(self, keep: Bools) -> DocumentBatch:
        """Returns the documents where `keep`, `[num_documents] bool`, is True; all rejects stay."""
        lines = keep[self.line_documents]
        numbers = np.cumsum(keep, dtype=np.int64) - 1
        carried = self.carried
        if carried is not None:
            carried = [carried[i] for i in np.flatnonzero(keep).tolist()]
        return DocumentBatch(
            self.lines.select(lines), numbers[self.line_documents[lines]], self.keys[keep],
            self.groups[keep], self.continues and bool(keep[0]), self.rejects,
            None if self.splits is None else self.splits[keep], carried,
            lambda: self.contents()[keep], self.positions[keep], self.describe,
            more_inputs=self.more_inputs,
        )  # fmt: skip


class BatchMaker:
    """Makes the batches of one source: gives documents keys and groups, and collects rejects.

    Args:
      source: names the input in keys and rejects.
      hashed_bytes: how much of a document's beginning decides its group; 0 makes all groups equal.
    """

    def __init__(self, source: SourceRange, *, hashed_bytes: int) -> None:
        self._name = source.name
        self._hashed_bytes = hashed_bytes
        self._rejects: list[Reject] = []
        self._file_key = np.uint64(fingerprint64(source.name.encode()))
        self._unfinished: tuple[U64, U64] | None = None

    def reject(self, position: int, stage: str, reason: str, detail: str = "") -> None:
        """Adds a reject to the next batch."""
        detail = detail[:_DETAIL_CHARACTERS]
        self._rejects.append(Reject(self._name, position, stage, reason, detail))

    def groups(
        self, lines: Lines, line_documents: Int64s, count: int, hashed_ends: Int64s | None = None
    ) -> U64:
        """Returns groups that are equal for documents that begin alike, white space aside.

        Args:
          lines: of the documents.
          line_documents: `[num_lines] int64`, ascending.
          count: of documents.
          hashed_ends: `[count] int64`: where in the buffer nothing counts any more of a document;
            None where all of it may.

        Returns:
          `[count] uint64`.
        """
        hashes = np.zeros(count, np.uint64)
        if self._hashed_bytes:
            if hashed_ends is None:
                hashed_ends = np.full(count, len(lines.buffer), np.int64)
            spans = (lines.buffer, lines.starts, lines.ends, hashed_ends)
            _hash_beginnings(spans, line_documents, self._hashed_bytes, hashes)
        return mix64(hashes)

    def batch(
        self,
        lines: Lines,
        line_documents: Int64s,
        positions: Int64s,
        *,
        groups: U64 | None = None,
        splits: Int64s | None = None,
        carried: list[tuple[str, ...]] | None = None,
        continues: bool = False,
        goes_on: bool = False,
        identities: U64 | None = None,
        more_inputs: int = 0,
    ) -> DocumentBatch:
        """Makes a batch, with the rejects since the last one.

        Args:
          lines: of all documents.
          line_documents: `[num_lines] int64`, ascending.
          positions: `[num_documents] int64`, in bytes from the file's beginning, or of rows.
          groups: `[num_documents] uint64`; None takes them from the lines.
          splits: `[num_documents] int64`, where a field names them.
          carried: the label and the kept fields of each document.
          continues: the first document is the rest of the last one before; it keeps that one's key
            and group.
          goes_on: the next batch has the rest of the last document.
          identities: `[num_documents] uint64`: what their keys are made of; None: the positions.
          more_inputs: see `DocumentBatch`.
        """
        identities = positions.astype(np.uint64) if identities is None else identities
        keys = mix64(mix64(identities) ^ self._file_key)
        contents = partial(self.groups, lines, line_documents, len(positions))
        if groups is None:
            groups = contents()
        if continues and self._unfinished:
            keys[0], groups[0] = self._unfinished[0][0], self._unfinished[1][0]
        self._unfinished = (keys[-1:], groups[-1:]) if goes_on else None
        rejects, self._rejects = self._rejects, []
        return DocumentBatch(
            lines, line_documents, keys, groups, continues, rejects, splits, carried, contents,
            positions, more_inputs=more_inputs,
        )  # fmt: skip

    def remaining(self) -> list[DocumentBatch]:
        """Returns a batch without documents where rejects wait for one, else nothing."""
        if not self._rejects:
            return []
        return [self.batch(Lines.from_list([]), np.zeros(0, np.int64), np.zeros(0, np.int64))]

    def decodable(self, lines: Lines, position: int, spec: DocumentSpec) -> tuple[Lines, Bools]:
        """Replaces or rejects lines that are not valid UTF-8.

        Args:
          lines: any bytes.
          position: of the lines' buffer in the file.
          spec: says which of the two.

        Returns:
          The lines, and `[num_lines] bool`: which to keep.
        """
        keep = np.ones(len(lines), np.bool_)
        try:
            lines.buffer.tobytes().decode("utf-8")  # a hundred times as fast as line by line
        except UnicodeDecodeError:
            pass
        else:
            return lines, keep
        replaced: dict[int, bytes] = {}
        for i in np.flatnonzero(lines.non_ascii).tolist():
            try:
                text = spec.decode(lines[i]).encode()
            except UnicodeDecodeError as error:
                keep[i] = False
                at = position + int(lines.starts[i]) + error.start
                self.reject(at, "read", "undecodable", f"{error.reason}: {lines[i]!r}")
                continue
            if text != lines[i]:
                replaced[i] = text
        return (lines.replace(replaced) if replaced else lines), keep


@kernel
def _hash_beginnings(lines: Any, line_documents: Int64s, hashed_bytes: int, hashes: U64) -> None:
    """Hashes each document's first bytes that are no white space: FNV-1a, 64 bits."""
    buffer, starts, ends, hashed_ends = lines
    budget = 0
    for i in range(starts.shape[0]):
        document = line_documents[i]
        if i == 0 or document != line_documents[i - 1]:
            hashes[document] = FNV_OFFSET
            budget = hashed_bytes
        for at in range(starts[i], min(ends[i], hashed_ends[document])):
            if budget == 0:
                break
            if buffer[at] > 32:
                hashes[document] = (hashes[document] ^ np.uint64(buffer[at])) * FNV_PRIME
                budget -= 1
