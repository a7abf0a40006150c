"""WebDataset's tars of text: members of one name before the first dot, side by side, are a sample.

`0017.txt`, or the text in `0017.json`, is a document; other members and fields of the JSON are its
fields. Each line of a `0017.jsonl` is a document with fields of its own. A tar is read from its
beginning to its end mark, also inside of gzip and others.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from tarfile import TarInfo
from typing import IO, cast

from recordmill.records.hashing import fingerprint64
from recordmill.transforms.sources.blocks import BrokenFileError, broken, read_block
from recordmill.transforms.sources.changes import check_opened
from recordmill.transforms.sources.document_spec import DocumentSpec
from recordmill.transforms.sources.json_rows import parse_object
from recordmill.transforms.sources.row_fields import RecordRejectedError
from recordmill.transforms.sources.rows import NO_SCHEMA, RowMaker, RowOptions, Rows
from recordmill.transforms.sources.work_items import SourceRange
from recordmill.transforms.storage import files
from recordmill.transforms.storage.globs import is_hidden
from recordmill.transforms.storage.tar_files import (
    DamagedTarError,
    plain_name,
    read_headers,
    sample_key,
)
from recordmill.transforms.storage.unpacking import open_decompressed

KEY_FIELD = "__key__"  # WebDataset's own name
_TEXT, _TEXT_EXTENSION = "text", "txt"
_LINES_EXTENSION = "jsonl"
_KEPT_BYTES = 1 << 22  # of what was unpacked: long names of members are read again
_SKIP_BYTES = 1 << 20
_REJECT_BYTES = 512  # about what one takes in memory
_UNREADABLE = ("duplicate", "line_too_long", "broken_archive", "undecodable", "lone_surrogate")


@dataclass(slots=True)
class _OpenSample:
    """The members of one key.

    Attributes:
      position: of the first one's header in the tar.
      members: extension -> content, of those that flags may ask for.
      extensions: of all.
      problem: why it cannot be used.
      has_lines: a member's lines are documents.
    """

    key: str
    position: int
    members: dict[str, bytes] = field(default_factory=dict)
    extensions: list[str] = field(default_factory=list)
    problem: RecordRejectedError | None = None
    size: int = 0
    has_lines: bool = False


class SampleRows:
    """See `rows.RowSource`: the samples of a tar.

    A row's position is where the header of its first member is; its key is made of the key of
    its sample. That of a line is where the line begins, and its key is made of the sample's key and
    the position in the member. Memory: the members of a sample that flags ask for, up to 64 MiB, or
    a line and a block.

    Args:
      source: the tar.
      options: how it is read.
    """

    schema = NO_SCHEMA
    num_rows = 0

    def __init__(self, source: SourceRange, options: RowOptions) -> None:
        self._source = source
        self._spec = options.spec
        self._limits = options.limits
        self._texts = {_TEXT_EXTENSION, *options.spec.text_names}

    def rows(self, names: Sequence[str], batch_bytes: int) -> Iterator[Rows]:
        """Yields the samples, and the lines of members, in order."""
        self._wanted = {*names, "json", *([_TEXT_EXTENSION] if _TEXT in names else [])}
        self._maker = RowMaker(names)
        self._held, self._most = 0, batch_bytes  # bytes of what no rows have yet
        sample: _OpenSample | None = None
        at = 0
        try:
            with _opened(self._source, self._spec) as handle:
                for member in read_headers(handle):
                    at = member.offset
                    name = plain_name(member.name)
                    if member.isdir() or any(map(is_hidden, name.split("/"))):
                        continue
                    key = sample_key(name)
                    if sample is None or key != sample.key:
                        yield from self._finish(sample)
                        sample = _OpenSample(key, at)
                    if self._add(member, name, handle, sample):
                        yield from self._read_lines(member, sample, handle)
        except DamagedTarError as error:
            yield from self._finish(sample)
            sample = None
            detail = f"cannot be read on as tar from byte {error.position}: {error}"
            self._maker.reject(error.position, "read", "broken_archive", detail)
        except BrokenFileError as error:
            yield from self._finish(sample)
            sample = None
            self._maker.reject(at, "read", error.reason, str(error))
        yield from self._finish(sample)
        yield self._maker.take()

    def _add(self, member: TarInfo, name: str, handle: IO[bytes], sample: _OpenSample) -> bool:
        """Reads a member, if flags may ask for it; tells whether its lines are documents."""
        extension = name[len(sample.key) + 1 :].lower()
        if extension in sample.extensions:
            detail = f"it has two members .{extension}"
            sample.problem = RecordRejectedError("duplicate", detail)
        sample.extensions.append(extension)
        has_lines = extension == _LINES_EXTENSION and extension not in self._wanted
        if (extension not in self._wanted and not has_lines) or sample.problem:
            return False
        sample.size += 0 if has_lines else member.size
        if not member.isreg() or member.issparse():
            detail = f"its .{extension} is a link or sparse file"
            sample.problem = RecordRejectedError("bad_row", detail)
        elif has_lines:
            sample.has_lines = True
            return True
        elif sample.size > self._limits.record_bytes:
            sample.problem = RecordRejectedError("line_too_long", f"it has {sample.size} bytes")
        else:
            handle.seek(member.offset_data)
            sample.members[extension] = handle.read(member.size)
            if len(sample.members[extension]) < member.size:
                detail = f"the archive ends within its .{extension}"
                sample.problem = RecordRejectedError("broken_archive", detail)
        return False

    def _read_lines(
        self, member: TarInfo, sample: _OpenSample, handle: IO[bytes]
    ) -> Iterator[Rows]:
        """Adds the lines of a member, and yields rows where they are many."""
        read, end = member.offset_data, member.offset_data + member.size
        position, rest, is_long = read, b"", False
        while read < end:
            wanted = min(self._limits.block_bytes, end - read)
            handle.seek(read)
            block = handle.read(wanted)
            read += len(block)
            *lines, rest = (rest + block).split(b"\n")
            for line in lines:
                if not is_long:
                    self._add_line(line, position, member, sample)
                is_long = False
                position += len(line) + 1
                if self._held >= self._most:
                    yield self._take()
            if len(rest) > self._limits.record_bytes:
                if not is_long:
                    self._maker.reject(position, "read", "line_too_long", _shown(sample))
                is_long = True
                position += len(rest)
                rest = b""
            if len(block) < wanted:
                detail = f"{_shown(sample)}: the archive ends within its .{_LINES_EXTENSION}"
                self._maker.reject(position, "read", "broken_archive", detail)
                return
        if rest and not is_long:
            self._add_line(rest, position, member, sample)

    def _add_line(self, line: bytes, position: int, member: TarInfo, sample: _OpenSample) -> None:
        """Adds a line that is not blank, or rejects it."""
        if len(line) > self._limits.record_bytes:
            self._maker.reject(position, "read", "line_too_long", _shown(sample))
            return
        if not line.strip():
            return
        at = position - member.offset_data
        key = sample.key.encode("utf-8", "surrogateescape")
        try:
            text = self._decoded(_LINES_EXTENSION, line).encode()
            fields = parse_object(text, self._spec.encoding_errors, self._maker.names)
            fields.setdefault(KEY_FIELD, sample.key.encode("utf-8", "replace").decode())
            identity = fingerprint64(b"%b\0%d" % (key, at))
            self._maker.add(position, fields, identity, _shown(sample))
            self._held += len(line)
        except RecordRejectedError as error:
            stage = "read" if error.reason in _UNREADABLE else "parse"
            detail = f"{_shown(sample)}: {error.detail}"
            self._maker.reject(position, stage, error.reason, detail)
            self._held += _REJECT_BYTES

    def _take(self) -> Rows:
        self._held = 0
        return self._maker.take()

    def _finish(self, sample: _OpenSample | None) -> Iterator[Rows]:
        """Adds a sample, and yields rows where they are many."""
        if sample is None:
            return
        has_text = sample.members.keys() & (self._texts | {"json"})
        if sample.has_lines and not has_text and not sample.problem:
            return  # its lines are all that it has
        key = sample.key.encode("utf-8", "surrogateescape")
        try:
            if sample.problem:
                raise sample.problem
            fields = self._fields(sample)
            self._maker.add(sample.position, fields, fingerprint64(key), _shown(sample))
            self._held += sample.size
        except RecordRejectedError as error:
            stage = "read" if error.reason in _UNREADABLE else "parse"
            detail = f"{_shown(sample)}: {error.detail}"
            self._maker.reject(sample.position, stage, error.reason, detail)
            self._held += _REJECT_BYTES
        if self._held >= self._most:
            yield self._take()

    def _fields(self, sample: _OpenSample) -> dict[str, object]:
        """Returns what flags may ask for.

        Raises:
          RecordRejectedError: the JSON is none, or a text is in another encoding.
        """
        fields: dict[str, object] = {}
        members = {name: self._decoded(name, data) for name, data in sample.members.items()}
        if "json" in members:
            data, errors = members["json"].encode(), self._spec.encoding_errors
            fields |= parse_object(data, errors, self._maker.names)
        for name, text in members.items():
            fields[name] = text if name in self._texts else text.strip()
        if _TEXT not in fields and _TEXT_EXTENSION in fields:
            fields[_TEXT] = fields[_TEXT_EXTENSION]
        fields[KEY_FIELD] = sample.key.encode("utf-8", "replace").decode()
        return fields | {name: None for name in sample.extensions if name not in fields}

    def _decoded(self, name: str, data: bytes) -> str:
        try:
            return self._spec.decode(data, self._spec.encoding).lstrip("\ufeff")
        except UnicodeDecodeError as error:
            detail = f"its .{name}: {error.reason}"
            raise RecordRejectedError("undecodable", detail) from error


def _shown(sample: _OpenSample) -> str:
    return sample.key.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


@contextmanager
def _opened(source: SourceRange, spec: DocumentSpec) -> Iterator[IO[bytes]]:
    with files.open_read(source.path) as raw:
        check_opened(source.path, raw, source.size, source.modified_ns)
        if not source.compression:
            yield raw
            return
        most_bytes = spec.most_unpacked_bytes(source.size)
        stream = open_decompressed(raw, source.compression, most_bytes)
        yield cast("IO[bytes]", _Unpacked(stream, source))


class _Unpacked:
    """A compressed tar, unpacked: it can be read on, and back by some megabytes."""

    closed = False

    def __init__(self, stream: IO[bytes], source: SourceRange) -> None:
        self._stream = stream
        self._source = source
        self._at = 0
        self._held, self._held_at = b"", 0

    def tell(self) -> int:
        return self._at

    def seek(self, position: int) -> int:
        self._at = position
        return position

    def read(self, size: int) -> bytes:
        """Returns bytes, fewer at the end.

        Raises:
          BrokenFileError: the file is damaged.
        """
        if self._at < self._held_at:
            raise BrokenFileError("a header lies too far before the end of its long name")
        end = self._at + size
        parts = [self._held]
        reached = self._held_at + len(self._held)
        while reached < end:
            wanted = min(end - reached, _SKIP_BYTES)
            block, damage = read_block(self._stream, self._source.compression, wanted)
            if damage:
                raise broken(damage, self._source.size) from damage
            if not block:
                break
            reached += len(block)
            parts.append(block)
            if reached < self._at:  # what is passed over is not held
                parts = [b"".join(parts[-5:])[-_KEPT_BYTES:]]
        held = b"".join(parts)
        begin = len(held) - (reached - self._at)
        data = held[begin : begin + size] if reached > self._at else b""
        self._at += len(data)
        self._held = held[-_KEPT_BYTES:]
        self._held_at = reached - len(self._held)
        return data


@contextmanager
def open_samples(source: SourceRange, options: RowOptions) -> Iterator[SampleRows]:
    """Opens a tar, see `formats.SourceFormat.opened`."""
    yield SampleRows(source, options)
