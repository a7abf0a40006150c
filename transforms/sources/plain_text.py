"""Plain text to documents: blocks between blank lines, lines, or whole files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from recordmill.records.arrays import Bools, Int64s
from recordmill.transforms.sources.blocks import (
    BrokenFileError,
    first_line,
    read_blocks,
    without_bom,
)
from recordmill.transforms.sources.document_batch import BatchMaker, DocumentBatch
from recordmill.transforms.sources.document_spec import DocumentLimits, DocumentSpec
from recordmill.transforms.sources.input_spec import RAW_TEXT, WHOLE_TEXT
from recordmill.transforms.sources.lines import Lines, split_lines
from recordmill.transforms.sources.long_lines import cut_at_white_space
from recordmill.transforms.sources.paragraphs import number_paragraphs, split_paragraph_lines
from recordmill.transforms.sources.text_pieces import join_pieces, piece_ends
from recordmill.transforms.sources.work_items import SourceRange

_BOM_BYTES = 3
_COUNTED_LINES = 4096


@dataclass(frozen=True, slots=True)
class _Window:
    """The text of one round: the rest of the round before, and a new block.

    Attributes:
      position: of the text in the file, in bytes.
      size: of the text, in bytes.
      ends_file: nothing follows.
      lines: lines, or parts of those over the limit; the last one may be unfinished.
      num_finished: how many of `lines` are finished.
      line_begins: `[num_lines] bool`: False for a part in the middle of a line.
      blank: `[num_lines] bool`: nothing but white space.
      separates: `[num_lines] bool`: a whole line that is blank.
      begins: `[num_lines] bool`: where a document begins.
    """

    position: int
    size: int
    ends_file: bool
    lines: Lines
    num_finished: int
    line_begins: Bools
    blank: Bools
    separates: Bools
    begins: Bools

    def next_starts(self) -> Int64s:
        """Returns `[num_lines] int64`: where the line after each begins, in the text."""
        return np.concatenate([self.lines.starts[1:], [self.size]])


class TextReader:
    """Reads the documents that begin in a range of a file of plain text.

    A round reads a block after the rest of the round before, and yields the documents that are
    finished. If a document is longer than `limits.open_document_bytes`, it yields the part so far.
    The documents depend on the file alone, so every decision about a line depends on that line and
    the one before it, and never on the bounds of blocks.

    Args:
      source: the range.
      spec: how documents lie in it.
      limits: sizes.
      maker: of the batches.
    """

    def __init__(
        self, source: SourceRange, spec: DocumentSpec, limits: DocumentLimits, maker: BatchMaker
    ) -> None:
        self._source = source
        self._spec = spec
        self._limits = limits
        self._maker = maker
        # The text that was read and not yielded yet, and its position in the file.
        self._rest = b""
        self._position = 0
        # The state of the text before it.
        self._within_document = False  # the beginning of its first document was handed on
        self._within_line = False  # the beginning of its first line was handed on
        self._after_blank_line = True
        self._range_ended = False

    def read(self) -> Iterator[DocumentBatch]:
        """Yields the documents, each batch as soon as it is read."""
        if not self._source.compression:
            self._position, self._after_blank_line = first_line(self._source, self._limits)
        self._range_ended = 0 <= self._source.end <= self._position
        if not self._range_ended:
            for block in self._blocks():
                window = self._next_window(block)
                if window is not None:
                    yield from self._take_documents(window)
                if not block or self._range_ended:
                    break
        yield from self._maker.remaining()

    def _blocks(self) -> Iterator[bytes]:
        """Yields blocks, and b"" once at the end of the file or at its damage."""
        limits = self._limits
        try:
            yield from read_blocks(self._source, self._spec, self._position, limits.block_bytes)
        except BrokenFileError as error:
            at = self._position + len(self._rest)
            self._maker.reject(at, "read", error.reason, str(error))
        yield b""

    def _next_window(self, block: bytes) -> _Window | None:
        """Returns the rest and the block as lines; None if more must be read first."""
        text, self._position = without_bom(self._rest + block, self._position)
        ends_file = not block
        if ends_file and not text:
            return None
        if block and b"\n" not in block and len(text) < self._limits.open_document_bytes:
            self._rest = text
            return None
        self._rest = text
        whole = ends_file or text.endswith(b"\n")
        lines, line_begins = cut_at_white_space(
            split_lines(text), self._limits.line_bytes, whole=whole
        )
        line_begins[0] = not self._within_line
        blank = lines.blank()
        # A line that was cut separates no documents, however blank a part of it is.
        separates = blank & line_begins & np.concatenate([line_begins[1:], [True]])
        begins = self._document_begins(line_begins, separates)
        num_finished = len(lines) - (not whole)
        return _Window(
            self._position, len(text), ends_file, lines, num_finished, line_begins, blank,
            separates, begins,
        )  # fmt: skip

    def _document_begins(self, line_begins: Bools, separates: Bools) -> Bools:
        """Returns `[num_lines] bool`: True for the first line of a document."""
        if self._spec.documents == "file":
            begins = np.zeros(len(line_begins), np.bool_)
            begins[0] = self._position <= _BOM_BYTES
        else:
            begins = line_begins & ~separates
            if self._spec.documents == "blank_line":
                begins &= np.concatenate([[self._after_blank_line], separates[:-1]])
        if self._within_document:
            begins[0] = False
        return begins

    def _take_documents(self, window: _Window) -> Iterator[DocumentBatch]:
        """Yields the finished documents of a window, and keeps the rest for the next round."""
        begins = np.flatnonzero(window.begins)
        end = self._end_in_range(window, begins)
        begins = begins[begins < end]
        first = 0 if self._within_document else int(begins[0]) if len(begins) else end
        goes_on = False
        if not (window.ends_file or self._range_ended):
            end, goes_on = self._hold_back(window, begins, end)
        if end > first:
            yield self._batch(window, first, end, goes_on=goes_on)
        self._advance(window, end, goes_on=goes_on)

    def _end_in_range(self, window: _Window, begins: Int64s) -> int:
        """Returns the end of the finished lines that are of documents in the range."""
        end = len(window.lines) if window.ends_file else window.num_finished
        if self._source.end >= 0:
            positions = window.lines.starts[begins] + window.position
            beyond = begins[positions >= self._source.end]
            if len(beyond):
                self._range_ended = True
                end = min(end, int(beyond[0]))
        return end

    def _hold_back(self, window: _Window, begins: Int64s, end: int) -> tuple[int, bool]:
        """Ends before a last document that may go on, or within it where it is long.

        Returns:
          The end of the lines to yield, and whether the last document continues after it.
        """
        last = int(begins[-1]) if len(begins) else 0 if self._within_document else end
        if end <= last or not self._may_go_on(window, end):
            return end, False
        size = int(window.lines.ends[end - 1] - window.lines.starts[last])
        if size < self._limits.open_document_bytes:
            return last, False
        # A part ends where a piece or a paragraph is cut anyway, and the first holds all that is
        # hashed.
        if self._spec.sentence_splitter == WHOLE_TEXT:
            cuts = np.flatnonzero(self._piece_ends(window, last, end))
            part_end = last + int(cuts[-1]) + 1 if len(cuts) else last
        else:
            step = self._limits.paragraph_lines
            part_end = last + (end - last) // step * step
        if part_end == last:
            return last, False
        if len(begins) and not self._holds_hashed(window, last, part_end):
            return last, False
        return part_end, True

    def _may_go_on(self, window: _Window, end: int) -> bool:
        """Returns whether the lines after `end` may belong to the document before it."""
        if self._spec.documents == "line":
            return end < len(window.lines) and not window.line_begins[end]
        return self._spec.documents == "file" or not (end and window.separates[end - 1])

    def _holds_hashed(self, window: _Window, first: int, end: int) -> bool:
        """Returns whether some lines hold all bytes that decide a document's group."""
        lines, left = window.lines, self._limits.hashed_bytes
        begin = int(lines.starts[first])
        if int(lines.ends[end - 1]) - begin >= self._limits.hashed_within_bytes:
            return True
        for at in range(first, end, _COUNTED_LINES):
            chosen = slice(at, min(at + _COUNTED_LINES, end))
            starts, ends = lines.starts[chosen], lines.ends[chosen]
            base = int(starts[0])
            text = lines.buffer[base : int(ends[-1])] > 32
            before = np.concatenate([[0], np.cumsum(text, dtype=np.int32)])
            counts = before[ends - base] - before[starts - base]
            left -= int(counts[~window.blank[chosen]].sum())
            if left <= 0:
                return True
        return False

    def _batch(self, window: _Window, first: int, end: int, *, goes_on: bool) -> DocumentBatch:
        """Makes a batch of some lines of a window."""
        chosen = slice(first, end)
        begins, blank = window.begins[chosen], window.blank[chosen]
        lines = window.lines.select(chosen)
        documents = np.cumsum(begins, dtype=np.int64) - (not self._within_document)
        positions = lines.starts[begins] + window.position
        if self._within_document:
            positions = np.concatenate([[0], positions])  # its key is known and replaces this one's
        # The group comes from the text of the file, before it is split into sentences.
        hashed_ends = positions - window.position + self._limits.hashed_within_bytes
        groups = self._maker.groups(
            lines.select(~blank), documents[~blank], len(positions), hashed_ends
        )
        lines, keep = self._maker.decodable(lines, window.position, self._spec)
        # What is rejected is a line, so lines are what the budget of rejects counts.
        num_lines = int(np.count_nonzero(window.line_begins[chosen] & keep & ~blank))
        more_inputs = num_lines - int(np.count_nonzero(begins))
        if self._spec.sentence_splitter == WHOLE_TEXT:
            lines, line_documents = self._pieces(
                window, chosen, lines, keep, documents, goes_on=goes_on
            )
            return self._maker.batch(
                lines, line_documents, positions, groups=groups,
                continues=self._within_document, goes_on=goes_on, more_inputs=more_inputs,
            )  # fmt: skip
        if self._spec.sentence_splitter != RAW_TEXT or self._spec.documents != "file":
            keep &= ~blank
        lines, line_documents = lines.select(keep), documents[keep]
        if self._spec.by_punctuation("text"):
            paragraphs = number_paragraphs(documents, blank, self._limits.paragraph_lines)
            lines, of_line = split_paragraph_lines(lines, paragraphs[keep])
            line_documents = line_documents[of_line]
        return self._maker.batch(
            lines, line_documents, positions, groups=groups, continues=self._within_document,
            goes_on=goes_on, more_inputs=more_inputs,
        )  # fmt: skip

    def _piece_ends(self, window: _Window, first: int, end: int) -> Bools:
        """Returns behind which lines of a window pieces end; see `piece_ends`."""
        chosen = slice(first, end)
        return piece_ends(
            window.lines.select(chosen), window.begins[chosen], window.next_starts()[chosen],
            self._limits.piece_bytes,
        )  # fmt: skip

    def _pieces(
        self, window: _Window, chosen: slice, lines: Lines, keep: Bools, documents: Int64s,
        *, goes_on: bool,
    ) -> tuple[Lines, Int64s]:  # fmt: skip
        """Returns documents in pieces, and `[num_pieces] int64`: of which document each is.

        Args:
          window: what was read.
          chosen: its lines.
          lines: these, valid UTF-8 where they are kept.
          keep: `[num_lines] bool`: which are.
          documents: `[num_lines] int64`: of which document each is.
          goes_on: the last document does not end here.
        """
        if self._spec.documents != "file":
            keep = keep & ~window.separates[chosen]
        ends = self._piece_ends(window, chosen.start, chosen.stop)
        pieces: Int64s = (np.cumsum(ends) - ends)[keep]
        lines, of_line = lines.select(keep), documents[keep]
        ends_text = np.zeros(len(lines), np.bool_)
        if self._spec.documents != "file" and len(lines):
            ends_text[:-1] = of_line[1:] != of_line[:-1]
            ends_text[-1] = not goes_on
        firsts = np.concatenate([[True], pieces[1:] != pieces[:-1]])[: len(lines)]
        joined = join_pieces(
            lines, window.next_starts()[chosen][keep], pieces, ends_text, window.lines.buffer
        )
        return joined, of_line[firsts]

    def _advance(self, window: _Window, end: int, *, goes_on: bool) -> None:
        """Keeps the text after line `end` for the next round, and the state of the text before."""
        used = int(window.lines.starts[end]) if end < len(window.lines) else window.size
        if used:
            if end:
                self._after_blank_line = bool(window.separates[end - 1])
            self._within_line = end < len(window.lines) and not window.line_begins[end]
            self._within_document = goes_on
        self._rest = self._rest[used:]
        self._position += used
        # A document that begins before the range is not read beyond the range.
        if 0 <= self._source.end <= self._position and not self._within_document:
            self._range_ended = True


def read_text(
    source: SourceRange, spec: DocumentSpec, limits: DocumentLimits, maker: BatchMaker
) -> Iterator[DocumentBatch]:
    """Yields the documents of a range of plain text, see `formats.SourceFormat.read`."""
    return TextReader(source, spec, limits, maker).read()
