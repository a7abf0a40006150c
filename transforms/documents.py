"""Input ranges to documents: batches of lines in one buffer, with the document of each line.

Reading goes in blocks and never holds a document whole: one that is longer than a batch goes on in
the next. What a batch's documents are depends on the file alone, never on block or range
boundaries: the range in which a document begins reads all of it, wherever it ends.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import json
import lzma
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import IO

import numpy as np
import orjson
import zstandard

from recordmill.records.errors import UsageError, one_of
from recordmill.records.hashing import U64, fingerprint64, mix64
from recordmill.records.jit import kernel
from recordmill.transforms import files
from recordmill.transforms.delimited import RecordScanner, parse_row
from recordmill.transforms.lines import Bools, Bytes, Int64s, Lines, split_lines
from recordmill.transforms.rejects import Reject
from recordmill.transforms.sentences import split_paragraphs, split_sentences
from recordmill.transforms.sources import SourceRange

_BLOCK_BYTES = 1 << 20
_MAX_RECORD_BYTES = 1 << 26
_MAX_LINE_BYTES = 1 << 16  # longer lines of plain text are cut at white space
_MAX_PARAGRAPH_LINES = 64
_OPEN_DOCUMENT_BYTES = 1 << 20  # a longer document is handed on in parts
_HASHED_BYTES = 1 << 16  # of a document's beginning, for the choice of its split

DOCUMENTS = ("blank_line", "line", "file")
SPLITTERS = ("auto", "none", "punctuation")


@dataclass(frozen=True, slots=True)
class DocumentSpec:
    """How documents lie in files.

    Attributes:
      documents: in plain text, a document is a block between blank lines, a line, or a file.
      sentence_splitter: "none": a line is a sentence; "punctuation": `sentences.py`; "auto": the
        first for text in blocks between blank lines, BERT's form, the second for all other.
      encoding: of the files; a BOM is dropped.
      encoding_errors: "strict" rejects a line with invalid bytes, "replace" puts U+FFFD there.
      text_field: of JSONL, CSV and TSV.
      split_by: the field whose value decides the split; "" is the text itself.
    """

    documents: str = "blank_line"
    sentence_splitter: str = "auto"
    encoding: str = "utf-8"
    encoding_errors: str = "strict"
    text_field: str = "text"
    split_by: str = ""

    def __post_init__(self) -> None:
        one_of("--documents", self.documents, DOCUMENTS)
        one_of("--sentence_splitter", self.sentence_splitter, SPLITTERS)
        one_of("--encoding_errors", self.encoding_errors, ("strict", "replace"))
        try:
            "".encode(self.encoding)
        except (LookupError, ValueError) as error:
            raise UsageError(
                f"--encoding must be one that Python knows (utf-8, latin-1, utf-16, …), got "
                f"{self.encoding!r}"
            ) from error

    @property
    def is_utf8(self) -> bool:
        """True where bytes need no other decoding."""
        return codecs.lookup(self.encoding).name in ("utf-8", "utf-8-sig", "ascii")

    def by_punctuation(self, input_format: str) -> bool:
        """Tells whether sentences are to be found in text of this format."""
        if self.sentence_splitter == "auto":
            return input_format != "text" or self.documents != "blank_line"
        return self.sentence_splitter == "punctuation"

    @property
    def splittable(self) -> bool:
        """True where a range of a file can be read without what comes before it."""
        return self.is_utf8 and self.documents != "file"


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
    """

    lines: Lines
    line_documents: Int64s
    keys: U64
    groups: U64
    continues: bool = False
    rejects: list[Reject] = field(default_factory=list)


class _BrokenFileError(Exception):
    """Reading cannot go on; `args[0]` says why."""


BROKEN_STREAM = (EOFError, zlib.error, lzma.LZMAError, zstandard.ZstdError)

# An error handler that makes a lone surrogate of every undecodable sequence. Its UTF-8 is invalid,
# so that lines with one are rejected or mended as those of UTF-8 files are.
_MARK_UNDECODABLE = "recordmill.mark_undecodable"
codecs.register_error(
    _MARK_UNDECODABLE,
    lambda error: ("\udcff", error.end),  # type: ignore[attr-defined]
)


def _blocks(source: SourceRange, spec: DocumentSpec, start: int) -> Iterator[bytes]:
    """Yields UTF-8 (valid where the file's encoding was) from byte `start` on.

    Raises:
      _BrokenFileError: damaged compression.
    """
    decoder = None
    if not spec.is_utf8:
        decoder = codecs.getincrementaldecoder(spec.encoding)(_MARK_UNDECODABLE)
    with files.open_read(source.path, start) as raw:
        stream = files.open_decompressed(raw, source.compression)
        damage: Exception | None = None
        ended = False
        while not ended:
            block, damage = _read_block(stream, source.compression)
            ended = damage is not None or not block
            if decoder:
                block = decoder.decode(block, final=ended).encode("utf-8", "surrogatepass")
            if block:
                yield block
        if damage:
            raise _BrokenFileError(f"{type(damage).__name__}: {damage}") from damage


def _read_block(stream: IO[bytes], compression: str) -> tuple[bytes, Exception | None]:
    """Reads a block, or what comes before the damage to a compressed file, and the damage."""
    if not compression:
        return stream.read(_BLOCK_BYTES), None
    parts: list[bytes] = []
    wanted = _BLOCK_BYTES
    damage: Exception | None = None
    try:
        while wanted and (part := stream.read1(wanted)):  # type: ignore[attr-defined]
            parts.append(part)
            wanted -= len(part)
    except BROKEN_STREAM as error:
        damage = error
    except OSError as error:
        # gzip, bz2 and xz report damage as a plain OSError without a number; the disk gives one,
        # and a lost connection is of a class of its own: the task is to be done again.
        if error.errno is not None or type(error) not in (OSError, gzip.BadGzipFile):
            raise
        damage = error
    return b"".join(parts), damage


@kernel
def _hash_beginnings(
    lines: tuple[Bytes, Int64s, Int64s], line_documents: Int64s, hashed_bytes: int, hashes: U64
) -> None:
    """Hashes each document's first bytes that are no white space: FNV-1a, 64 bits."""
    buffer, starts, ends = lines
    budget = 0
    for i in range(starts.shape[0]):
        document = line_documents[i]
        if i == 0 or document != line_documents[i - 1]:
            hashes[document] = np.uint64(0xCBF29CE484222325)
            budget = hashed_bytes
        for at in range(starts[i], ends[i]):
            if budget == 0:
                break
            if buffer[at] > 32:
                hashes[document] = (hashes[document] ^ np.uint64(buffer[at])) * np.uint64(
                    0x100000001B3
                )
                budget -= 1


class _Reader:
    """What the readers of all formats share: names, keys, rejects, the choice of lines."""

    def __init__(self, source: SourceRange, spec: DocumentSpec, *, groups: bool) -> None:
        self.source = source
        self.spec = spec
        self._wants_groups = groups
        self.rejects: list[Reject] = []
        self._file_key = np.uint64(fingerprint64(source.name.encode()))
        self._open: tuple[U64, U64] | None = None

    def reject(self, position: int, stage: str, reason: str, detail: str = "") -> None:
        self.rejects.append(Reject(self.source.name, position, stage, reason, detail[:200]))

    def keys(self, positions: Int64s) -> U64:
        return mix64(mix64(positions.astype(np.uint64)) ^ self._file_key)

    def groups(self, lines: Lines, line_documents: Int64s, count: int) -> U64:
        """Returns `[count] uint64`: equal for documents that begin alike, white space aside."""
        hashes = np.zeros(count, np.uint64)
        if self._wants_groups:
            spans = (lines.buffer, lines.starts, lines.ends)
            _hash_beginnings(spans, line_documents, _HASHED_BYTES, hashes)
        return mix64(hashes)

    def batch(
        self,
        lines: Lines,
        line_documents: Int64s,
        positions: Int64s,
        *,
        groups: U64 | None = None,
        continues: bool = False,
        goes_on: bool = False,
    ) -> DocumentBatch:
        """Makes a batch; a document that goes on keeps its first key and group."""
        keys = self.keys(positions)
        if groups is None:
            groups = self.groups(lines, line_documents, len(positions))
        if continues and self._open:
            keys[0], groups[0] = self._open[0][0], self._open[1][0]
        self._open = (keys[-1:], groups[-1:]) if goes_on else None
        rejects, self.rejects = self.rejects, []
        return DocumentBatch(lines, line_documents, keys, groups, continues, rejects)

    def valid(self, lines: Lines, base: int) -> tuple[Lines, Bools]:
        """Replaces or marks lines that are no valid UTF-8; returns which to keep."""
        keep = np.ones(len(lines), np.bool_)
        try:
            lines.buffer.tobytes().decode("utf-8")
        except UnicodeDecodeError:
            pass
        else:
            return lines, keep
        replaced: dict[int, bytes] = {}
        for i in np.flatnonzero(lines.non_ascii).tolist():
            try:
                lines[i].decode("utf-8")
            except UnicodeDecodeError as error:
                if self.spec.encoding_errors == "replace":
                    replaced[i] = lines[i].decode("utf-8", "replace").encode()
                else:
                    keep[i] = False
                    at = base + int(lines.starts[i]) + error.start
                    self.reject(at, "read", "undecodable", f"{error.reason}: {lines[i]!r}")
        if replaced:
            lines = _with_replaced(lines, replaced)
        return lines, keep


def _with_replaced(lines: Lines, replaced: dict[int, bytes]) -> Lines:
    extra = Lines.from_list(list(replaced.values()))
    at = np.array(list(replaced), np.int64)
    starts, ends = lines.starts.copy(), lines.ends.copy()
    starts[at] = extra.starts + len(lines.buffer)
    ends[at] = extra.ends + len(lines.buffer)
    return Lines(np.concatenate([lines.buffer, extra.buffer]), starts, ends, lines.non_ascii)


def _without_bom(data: bytes, position: int) -> tuple[bytes, int]:
    if position == 0 and data.startswith(codecs.BOM_UTF8):
        return data[3:], 3
    return data, position


def _line_start(source: SourceRange) -> tuple[int, bool]:
    """Returns the first line that begins in the range, and whether the line before it is blank."""
    if source.start == 0:
        return 0, True
    with files.open_read(source.path, source.start - 1) as handle:
        at = source.start - 1
        while True:
            if 0 <= source.end <= at + 1:
                return source.end, False  # no line begins in the range
            block = handle.read(_BLOCK_BYTES)
            if not block:
                return source.size, True
            found = block.find(b"\n")
            if found >= 0:
                at += found + 1
                break
            at += len(block)
    begin = max(0, at - _MAX_LINE_BYTES - 3)  # of a longer line no more is needed
    before, _ = _without_bom(files.read_bytes(source.path, begin, at - begin), begin)
    line = split_lines(before[before.rfind(b"\n", 0, -1) + 1 :])
    return at, bool(line.blank()[0] and line.ends[0] <= _MAX_LINE_BYTES)


def _read_text(reader: _Reader) -> Iterator[DocumentBatch]:
    source, spec = reader.source, reader.spec
    start, after_blank = (0, True) if source.compression else _line_start(source)
    blocks = _blocks(source, spec, start)
    # Whether the data begins within a document of ours, and whether within a line that was cut.
    inside = in_line = False
    carry, position = b"", start
    finished = 0 <= source.end <= start
    while not finished:
        try:
            block = next(blocks, b"")
        except _BrokenFileError as error:
            reader.reject(position + len(carry), "read", "broken_file", str(error))
            block = b""
        ended = not block
        data, position = _without_bom(carry + block, position)
        if ended and not data:
            break
        if not ended and b"\n" not in block and len(data) < _OPEN_DOCUMENT_BYTES:
            carry = data
            continue
        lines, line_begins = _cut_long(split_lines(data), whole=ended or data.endswith(b"\n"))
        line_begins[0] = not in_line
        blank = lines.blank()
        # A line that was cut separates no documents, however blank a part of it is.
        blank_line = blank & line_begins & np.concatenate([line_begins[1:], [True]])
        previous_blank = np.concatenate([[after_blank], blank_line[:-1]])
        if spec.documents == "line":
            begins = line_begins & ~blank_line
        elif spec.documents == "file":
            begins = np.zeros(len(lines), np.bool_)
            begins[0] = position <= 3
        else:
            begins = line_begins & ~blank_line & previous_blank
        if inside:
            begins[0] = False
        begin_at = np.flatnonzero(begins)
        last = len(lines) if ended else len(lines) - (not data.endswith(b"\n"))
        if source.end >= 0:
            beyond = begin_at[lines.starts[begin_at] + position >= source.end]
            if len(beyond):
                last, finished = min(last, int(beyond[0])), True
        begin_at = begin_at[begin_at < last]
        first = 0 if inside else int(begin_at[0]) if len(begin_at) else last
        goes_on = False
        if not (ended or finished):
            # The last document may go on: keep it for the next round, or hand on the part so far.
            tail = int(begin_at[-1]) if len(begin_at) else 0 if inside else last
            if spec.documents == "line":
                open_ended = last < len(lines) and not line_begins[last]
            else:
                open_ended = spec.documents == "file" or not (last and blank_line[last - 1])
            if open_ended and last > tail:
                size = int(lines.ends[last - 1] - lines.starts[tail])
                whole = (last - tail) // _MAX_PARAGRAPH_LINES * _MAX_PARAGRAPH_LINES
                begun = len(begin_at) > 0 and not _is_hashed(lines, blank, tail, tail + whole)
                if size < _OPEN_DOCUMENT_BYTES or not whole or begun:
                    last = tail
                else:
                    last, goes_on = tail + whole, True
                begin_at = begin_at[begin_at < last]
        if last > first:
            chosen = np.arange(first, last)
            documents = np.cumsum(begins[first:last]) - (0 if inside else 1)
            starts = lines.starts[begin_at] + position
            if inside:
                starts = np.concatenate([[0], starts])
            yield from _text_batch(
                reader, lines.select(chosen), blank[first:last], documents.astype(np.int64),
                starts, base=position, continues=inside, goes_on=goes_on,
            )  # fmt: skip
        if ended:
            break
        used = int(lines.starts[last]) if last < len(lines) else len(data)
        if used:
            after_blank = bool(blank_line[last - 1]) if last else after_blank
            in_line = last < len(lines) and not line_begins[last]
            inside = goes_on
        carry, position = data[used:], position + used
        # Of a document that begins before the range no more is read than the range.
        finished = finished or (source.end >= 0 and position >= source.end and not inside)
    if reader.rejects:
        yield reader.batch(_NO_LINES, np.zeros(0, np.int64), np.zeros(0, np.int64))


_NO_LINES = Lines.from_list([])


def _is_hashed(lines: Lines, blank: Bools, first: int, end: int) -> bool:
    """Tells whether some lines are all that a document's group depends on."""
    left = _HASHED_BYTES
    for i in range(first, end):
        if left <= 0:
            break
        if not blank[i]:
            span = lines.buffer[lines.starts[i] : lines.ends[i]]
            left -= int(np.count_nonzero(span > 32))
    return left <= 0


def _cut_long(lines: Lines, *, whole: bool) -> tuple[Lines, Bools]:
    """Cuts lines over the limit at white space, counted from the line's own beginning.

    Where the last line is not `whole`, its cuts are those that it will have when it is.

    Returns:
      The parts, and `[num_parts] bool`: True where one begins a line.
    """
    long = np.flatnonzero(lines.ends - lines.starts > _MAX_LINE_BYTES)
    if not len(long):
        return lines, np.ones(len(lines), np.bool_)
    starts, ends, flags, begins = [], [], [], []
    at = 0
    for i in long.tolist():
        starts.append(lines.starts[at:i])
        ends.append(lines.ends[at:i])
        flags.append(lines.non_ascii[at:i])
        begins.append(np.ones(i - at, np.bool_))
        begin, end = int(lines.starts[i]), int(lines.ends[i])
        data = lines.buffer[begin:end].tobytes()
        # The carriage return at the end of an unfinished line may be half of its end.
        half = not whole and i == len(lines) - 1 and data.endswith(b"\r")
        cuts = [0]
        while len(data) - half - cuts[-1] > _MAX_LINE_BYTES:
            cut = data.rfind(b" ", cuts[-1] + 1, cuts[-1] + _MAX_LINE_BYTES)
            if cut < 0:
                cut = cuts[-1] + _MAX_LINE_BYTES
                while data[cut] & 0xC0 == 0x80 and cut > cuts[-1] + 1:
                    cut -= 1
            cuts.append(cut)
        bounds = np.array([*cuts, len(data)], np.int64) + begin
        starts.append(bounds[:-1])
        ends.append(bounds[1:])
        flags.append(
            np.array([not data[a:b].isascii() for a, b in pairwise([*cuts, len(data)])], np.bool_)
        )
        begins.append(np.arange(len(cuts)) == 0)
        at = i + 1
    starts.append(lines.starts[at:])
    ends.append(lines.ends[at:])
    flags.append(lines.non_ascii[at:])
    begins.append(np.ones(len(lines) - at, np.bool_))
    columns = (np.concatenate(starts), np.concatenate(ends), np.concatenate(flags))
    return Lines(lines.buffer, *columns), np.concatenate(begins)


def _text_batch(
    reader: _Reader,
    lines: Lines,
    blank: Bools,
    documents: Int64s,
    positions: Int64s,
    *,
    base: int,
    continues: bool,
    goes_on: bool,
) -> Iterator[DocumentBatch]:
    # The group comes from the text as it stands in the file.
    groups = reader.groups(lines.select(~blank), documents[~blank], len(positions))
    lines, keep = reader.valid(lines, base)
    keep &= ~blank
    kept = reader.batch(
        lines.select(keep), documents[keep], positions, groups=groups, continues=continues,
        goes_on=goes_on,
    )  # fmt: skip
    if reader.spec.by_punctuation("text"):
        paragraphs = np.cumsum(_paragraph_begins(documents, blank), dtype=np.int64)[keep]
        split, of_line = _split_lines_into_sentences(kept.lines, paragraphs)
        kept = DocumentBatch(
            split, kept.line_documents[of_line], kept.keys, kept.groups, continues, kept.rejects
        )
    yield kept


def _paragraph_begins(documents: Int64s, blank: Bools) -> Bools:
    """Marks the first line of each paragraph: after a blank line, and every so many lines."""
    new = np.ones(len(documents), np.bool_)
    new[1:] = documents[1:] != documents[:-1]
    first_line = np.maximum.accumulate(np.where(new, np.arange(len(documents)), 0))
    in_document = np.arange(len(documents)) - first_line
    begins = new | (in_document % _MAX_PARAGRAPH_LINES == 0)
    begins[1:] |= blank[:-1]
    return begins


def _split_lines_into_sentences(lines: Lines, paragraphs: Int64s) -> tuple[Lines, Int64s]:
    """Returns the sentences, and for each the first line of the paragraph that it is from."""
    if not len(lines):
        return lines, np.zeros(0, np.int64)
    firsts = np.flatnonzero(np.concatenate([[True], paragraphs[1:] != paragraphs[:-1]]))
    sentences: list[bytes] = []
    of_line: list[int] = []
    for first, end in zip(firsts.tolist(), [*firsts[1:].tolist(), len(lines)], strict=True):
        text = b" ".join(lines[i] for i in range(first, end)).decode("utf-8")
        found = split_sentences(text)
        sentences += [sentence.encode() for sentence in found]
        of_line += [first] * len(found)
    return Lines.from_list(sentences), np.array(of_line, np.int64)


def _read_records(
    reader: _Reader,
    parse: Callable[[bytes], dict[str, object] | str],
    record_ends: Callable[[bytes], Int64s],
) -> Iterator[DocumentBatch]:
    """Reads files with a document a record: JSONL, CSV and TSV."""
    source, spec = reader.source, reader.spec
    start = source.start
    if source.format == "jsonl" and not source.compression:
        start, _ = _line_start(source)
    blocks = _blocks(source, spec, start)
    carry, position = b"", start
    skipping = False
    while source.end < 0 or position < source.end:
        try:
            block = next(blocks, b"")
        except _BrokenFileError as error:
            reader.reject(position + len(carry), "read", "broken_file", str(error))
            block, carry = b"", b""
        ends = record_ends(block) + len(carry)
        data = carry + block
        if not block and data:
            ends = np.array([len(data)], np.int64)
        if len(data) > _MAX_RECORD_BYTES and not len(ends):
            if not skipping:
                reader.reject(position, "read", "line_too_long")
            skipping = True
            position, carry = position + len(data), b""
            continue
        if skipping and len(ends):
            data, position = data[ends[0] :], position + int(ends[0])
            ends, skipping = ends[1:] - ends[0], False
        starts = np.concatenate([[0], ends[:-1]]).astype(np.int64) if len(ends) else ends
        if source.end >= 0:
            ours = starts + position < source.end
            finished = not ours.all()
            starts, ends = starts[ours], ends[ours]
        else:
            finished = False
        yield from _record_batch(reader, parse, data, starts, ends, position)
        if not block or finished:
            return
        used = int(ends[-1]) if len(ends) else 0
        carry, position = data[used:], position + used
    if reader.rejects:
        yield reader.batch(_NO_LINES, np.zeros(0, np.int64), np.zeros(0, np.int64))


def _record_batch(
    reader: _Reader,
    parse: Callable[[bytes], dict[str, object] | str],
    data: bytes,
    starts: Int64s,
    ends: Int64s,
    base: int,
) -> Iterator[DocumentBatch]:
    spec = reader.spec
    by_punctuation = spec.by_punctuation(reader.source.format)
    sentences: list[bytes] = []
    counts: list[int] = []
    positions: list[int] = []
    groups: list[int] = []
    for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
        record = data[start:end]
        position = base + start
        if len(record) > _MAX_RECORD_BYTES:
            reader.reject(position, "read", "line_too_long")
            continue
        if position == 0:
            record, _ = _without_bom(record, 0)
        # White space alone can be a row of TSV or CSV.
        if not record.strip(None if reader.source.format == "jsonl" else b"\r\n"):
            continue
        try:
            record.decode("utf-8")
        except UnicodeDecodeError as error:
            if spec.encoding_errors == "strict":
                reader.reject(position + error.start, "read", "undecodable", error.reason)
                continue
            record = record.decode("utf-8", "replace").encode()
        fields = parse(record)
        if isinstance(fields, str):
            if fields != _HEADER:
                reader.reject(position, "parse", *fields.split(": ", 1))
            continue
        problem = _field_problem(fields, spec)
        if problem:
            reader.reject(position, "parse", *problem)
            continue
        found = _sentences(str(fields[spec.text_field]), by_punctuation)
        sentences += found
        counts.append(len(found))
        positions.append(position)
        if spec.split_by:
            groups.append(fingerprint64(str(fields[spec.split_by]).encode()))
    documents = np.repeat(np.arange(len(counts)), counts)
    yield reader.batch(
        Lines.from_list(sentences), documents, np.array(positions, np.int64),
        groups=np.array(groups, np.uint64) if spec.split_by else None,
    )  # fmt: skip


def _field_problem(fields: dict[str, object], spec: DocumentSpec) -> tuple[str, str] | None:
    for name in filter(None, (spec.text_field, spec.split_by)):
        if name not in fields:
            return "field_missing", f"no {name!r} among {', '.join(list(fields)[:20])}"
    if not isinstance(fields[spec.text_field], str):
        return "field_not_text", f"{spec.text_field!r} is {type(fields[spec.text_field]).__name__}"
    return None


def _sentences(text: str, by_punctuation: bool) -> list[bytes]:
    # Lone surrogates, which JSON's escapes can spell, are no text.
    text = text.encode("utf-8", "replace").decode("utf-8")
    if by_punctuation:
        return [s.encode() for part in split_paragraphs(text) for s in split_sentences(part)]
    return [line.encode() for line in text.split("\n") if line.strip()]


def _parse_json(record: bytes) -> dict[str, object] | str:
    try:
        content = orjson.loads(record)
    except orjson.JSONDecodeError as error:
        try:
            content = json.loads(record)  # takes NaN and lone surrogates, which Python writes
        except (ValueError, RecursionError):
            return f"not_json: {error}"
    return content if isinstance(content, dict) else f"not_json: {type(content).__name__}"


_HEADER = "header"


def read_header(source: SourceRange, spec: DocumentSpec) -> list[str]:
    """Returns the column names of a CSV or TSV file, [] where it has no whole first record."""
    delimiter = "\t" if source.format == "tsv" else ","
    scanner = RecordScanner(delimiter)
    data = b""
    ends = np.zeros(0, np.int64)
    try:
        for block in _blocks(source, spec, 0):
            ends = scanner.record_ends(np.frombuffer(block, np.uint8)) + len(data)
            data += block
            if len(ends) or len(data) > _MAX_RECORD_BYTES:
                break
        first, _ = _without_bom(data[: int(ends[0])] if len(ends) else data, 0)
        return parse_row(first.decode("utf-8"), delimiter)
    except (_BrokenFileError, UnicodeDecodeError, csv.Error):
        return []


def _read_delimited(reader: _Reader) -> Iterator[DocumentBatch]:
    source, spec = reader.source, reader.spec
    delimiter = "\t" if source.format == "tsv" else ","
    header = read_header(source, spec)
    scanner = RecordScanner(delimiter)
    before_header = source.start == 0

    def parse(record: bytes) -> dict[str, object] | str:
        nonlocal before_header
        if before_header:
            before_header = False
            return _HEADER
        try:
            row = parse_row(record.decode("utf-8"), delimiter)
        except csv.Error as error:
            return f"broken_row: {error}"
        if len(row) != len(header):
            return f"wrong_number_of_fields: {len(row)} where the header has {len(header)}"
        return dict(zip(header, row, strict=True))

    def ends(block: bytes) -> Int64s:
        return scanner.record_ends(np.frombuffer(block, np.uint8))

    csv.field_size_limit(_MAX_RECORD_BYTES)
    return _read_records(reader, parse, ends)


def _json_ends(block: bytes) -> Int64s:
    return np.flatnonzero(np.frombuffer(block, np.uint8) == 10) + 1


def read_documents(
    source: SourceRange, spec: DocumentSpec, *, groups: bool = True
) -> Iterator[DocumentBatch]:
    """Yields the documents that begin in a range; a file that cannot be read is a reject.

    Args:
      source: the range.
      spec: how documents lie in it.
      groups: whether groups are wanted; else they are all 0, which saves a pass over the text.
    """
    reader = _Reader(source, spec, groups=groups)
    try:
        if source.format == "jsonl":
            yield from _read_records(reader, _parse_json, _json_ends)
        elif source.format in ("csv", "tsv"):
            yield from _read_delimited(reader)
        else:
            yield from _read_text(reader)
    except (FileNotFoundError, PermissionError, IsADirectoryError) as error:
        reader.reject(0, "read", "unreadable_file", str(error))
        yield reader.batch(_NO_LINES, np.zeros(0, np.int64), np.zeros(0, np.int64))
