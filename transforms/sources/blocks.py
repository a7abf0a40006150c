"""Input ranges as blocks of UTF-8 bytes: decompression, other encodings, where a range begins."""

from __future__ import annotations

import codecs
import gzip
import lzma
import zlib
from collections.abc import Iterator
from typing import IO, cast

from backports import zstd

from recordmill.transforms.sources.changes import check_opened
from recordmill.transforms.sources.content import binary_format
from recordmill.transforms.sources.document_spec import DocumentLimits, DocumentSpec
from recordmill.transforms.sources.lines import split_lines
from recordmill.transforms.sources.work_items import SourceRange
from recordmill.transforms.storage import files
from recordmill.transforms.storage.unpacking import UnpacksTooMuchError, open_decompressed

# The errors that decompressors raise if a compressed file is damaged or cut.
BROKEN_STREAM = (EOFError, zlib.error, lzma.LZMAError, zstd.ZstdError)

# An error handler that makes a lone surrogate of every undecodable sequence. Its UTF-8 is invalid,
# so that lines with one are rejected or repaired as those of UTF-8 files are.
_MARK_UNDECODABLE = "recordmill.mark_undecodable"
codecs.register_error(
    _MARK_UNDECODABLE,
    lambda error: ("\udcff", error.end),  # type: ignore[attr-defined]
)


class BrokenFileError(Exception):
    """A file is damaged and cannot be read further; `args[0]` is the reason."""

    reason = "broken_file"


class CompressionBombError(BrokenFileError):
    """A file unpacks to far more than its size; `args[0]` has the numbers."""

    reason = "decompression_bomb"


class NotTextError(BrokenFileError):
    """A file has a format that is not text; `args[0]` names the format."""

    reason = "not_text"


def read_blocks(
    source: SourceRange, spec: DocumentSpec, start: int, block_bytes: int
) -> Iterator[bytes]:
    """Yields a file as UTF-8 (valid where the file's encoding was) from byte `start` on.

    Args:
      source: the file; its range does not matter.
      spec: names the encoding.
      start: of compressed files that of the range, else 0 or where a document begins.
      block_bytes: the size of a block before it is converted to UTF-8; no block is empty.

    Raises:
      BrokenFileError: the compressed file is damaged; everything before the damage was yielded.
      CompressionBombError: it unpacks to too much; everything up to the limit was yielded.
      NotTextError: the file has the signature of a picture, an archive or another binary format.
      InputChangedError: it is another file than was planned.
    """
    decoder = None
    if not spec.is_utf8:
        decoder = codecs.getincrementaldecoder(spec.encoding)(_MARK_UNDECODABLE)
    with files.open_read(source.path, start) as raw:
        check_opened(source.path, raw, source.size, source.modified_ns)
        most_bytes = spec.most_unpacked_bytes(source.size)
        if source.compression and source.end >= 0:
            raw = cast("IO[bytes]", _FilePart(raw, source.end - start))
        stream = open_decompressed(raw, source.compression, most_bytes)
        damage: Exception | None = None
        ended = False
        at_beginning = is_empty = start == 0
        while not ended:
            block, damage = read_block(stream, source.compression, block_bytes)
            ended = damage is not None or not block
            if at_beginning and (form := binary_format(block)):
                raise NotTextError(f"{form}, not text")
            at_beginning = False
            if decoder:
                block = decoder.decode(block, final=ended).encode("utf-8", "surrogatepass")
            if block:
                is_empty = False
                yield block
        if damage:
            raise broken(damage, source.size, nothing_before=is_empty) from damage


class _FilePart:
    """The next bytes of an open file, as a file of its own."""

    def __init__(self, handle: IO[bytes], size: int) -> None:
        self._handle = handle
        self._left = size

    def read(self, size: int = -1) -> bytes:
        """Returns `size` bytes, fewer at the end; -1: all the rest."""
        data = self._handle.read(self._left if size < 0 else min(size, self._left))
        self._left -= len(data)
        return data


def broken(damage: Exception, size: int, *, nothing_before: bool = False) -> BrokenFileError:
    """Returns the error for a damage that `read_block` found in a file of so many bytes.

    With nothing before it, the file may not be compressed at all.
    """
    if isinstance(damage, UnpacksTooMuchError):
        text = str(damage).removeprefix("it unpacks")
        return CompressionBombError(f"{size} bytes unpack{text}; see --max_compression_ratio")
    hint = "; if it is not compressed, give --input_compression=none" if nothing_before else ""
    return BrokenFileError(f"{type(damage).__name__}: {damage}{hint}")


def read_block(
    stream: IO[bytes], compression: str, block_bytes: int
) -> tuple[bytes, Exception | None]:
    """Returns a block, and the damage to a compressed file that ends it early, if there is any.

    Args:
      stream: as `open_decompressed` gives it.
      compression: of the file, "" for none.
      block_bytes: of the block; fewer at the end.
    """
    if not compression:
        return stream.read(block_bytes), None
    parts: list[bytes] = []
    wanted = block_bytes
    damage: Exception | None = None
    try:
        while wanted and (part := stream.read1(wanted)):  # type: ignore[attr-defined]
            parts.append(part)
            wanted -= len(part)
    except BROKEN_STREAM as error:
        damage = error
    except OSError as error:
        # gzip, bz2 and xz report damage as a plain OSError without a number; the disk gives one,
        # and a lost connection has a class of its own: then the work item must be repeated.
        known = (OSError, gzip.BadGzipFile, UnpacksTooMuchError)
        if error.errno is not None or type(error) not in known:
            raise
        damage = error
    return b"".join(parts), damage


def without_bom(data: bytes, position: int) -> tuple[bytes, int]:
    """Drops the byte order mark of a file that begins with `data`.

    Args:
      data: UTF-8.
      position: of `data` in the file.

    Returns:
      The data behind the mark, and its position.
    """
    if position == 0 and data.startswith(codecs.BOM_UTF8):
        return data[3:], 3
    return data, position


def first_line(source: SourceRange, limits: DocumentLimits) -> tuple[int, bool]:
    """Returns where the first line of a range begins, and whether the line before it is blank.

    If no line begins there, the offset is the end of the range or of the file.
    """
    if source.start == 0:
        return 0, True
    with files.open_read(source.path, source.start - 1) as handle:
        at = source.start - 1
        while True:
            if 0 <= source.end <= at + 1:
                return source.end, False  # no line begins in the range
            block = handle.read(limits.block_bytes)
            if not block:
                return source.size, True
            line_end = block.find(b"\n")
            if line_end >= 0:
                at += line_end + 1
                break
            at += len(block)
    begin = max(0, at - limits.line_bytes - 3)  # a longer line counts as not blank
    before, _ = without_bom(files.read_bytes(source.path, begin, at - begin), begin)
    line = split_lines(before[before.rfind(b"\n", 0, -1) + 1 :])
    return at, bool(line.blank()[0] and line.ends[0] <= limits.line_bytes)
