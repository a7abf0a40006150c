"""Documents of a whole file, in plain Python: what ranges, blocks and batches must not change."""

from __future__ import annotations

import csv
import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from recordmill.transforms.sources.document_spec import DocumentLimits, DocumentSpec

from .sentences_reference import split_paragraph, split_text

ASCII_SPACE = b"\t\n\x0b\x0c\r "
MASK = (1 << 64) - 1


@dataclass
class Found:
    """Document key -> group and lines, in order; rejects as (position, reason)."""

    documents: dict[int, tuple[int, list[bytes]]] = field(default_factory=dict)
    rejects: list[tuple[int, str]] = field(default_factory=list)


def mix64(value: int) -> int:
    value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9 & MASK
    value = (value ^ (value >> 27)) * 0x94D049BB133111EB & MASK
    return value ^ (value >> 31)


def fingerprint64(data: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little")


def key_of(name: str, position: int) -> int:
    return mix64(mix64(position) ^ fingerprint64(name.encode()))


def group_of(lines: list[bytes], limits: DocumentLimits) -> int:
    """FNV-1a of the first bytes that are no white space or control character."""
    if not lines:
        return mix64(0)
    hashed = 0xCBF29CE484222325
    seen = [byte for line in lines for byte in line if byte > 32]
    for byte in seen[: limits.hashed_bytes]:
        hashed = (hashed ^ byte) * 0x100000001B3 & MASK
    return mix64(hashed)


def is_blank(line: bytes) -> bool:
    if not line.strip(ASCII_SPACE):
        return True
    return not line.isascii() and len(line) < 64 and line.decode("utf-8", "replace").isspace()


def _lines(data: bytes) -> Iterator[tuple[int, bytes]]:
    """(position, line without its end) of each line."""
    at = 0
    while at < len(data):
        end = data.find(b"\n", at)
        if end < 0:
            yield at, data[at:]
            return
        stop = end - 1 if end > at and data[end - 1] == 13 else end
        yield at, data[at:stop]
        at = end + 1


def _cut(line: bytes, most: int) -> list[bytes]:
    parts = []
    while len(line) > most:
        cut = line.rfind(b" ", 1, most)
        if cut < 0:
            cut = most
            while line[cut] & 0xC0 == 0x80 and cut > 1:
                cut -= 1
        parts.append(line[:cut])
        line = line[cut:]
    return [*parts, line]


def _decode(line: bytes, position: int, spec: DocumentSpec, found: Found) -> bytes | None:
    try:
        line.decode()
    except UnicodeDecodeError as error:
        if spec.encoding_errors == "replace":
            return line.decode("utf-8", "replace").encode()
        found.rejects.append((position + error.start, "undecodable"))
        return None
    return line


def _sentences_of(parts: list[tuple[int, bytes]], spec: DocumentSpec, limits: DocumentLimits,
                  found: Found) -> list[bytes]:  # fmt: skip
    """The lines of a document from its (position, line) parts, blank ones included."""
    paragraphs: list[list[bytes]] = []
    after_blank = True
    for number, (position, part) in enumerate(parts):
        if after_blank or number % limits.paragraph_lines == 0:
            paragraphs.append([])
        after_blank = is_blank(part)
        kept = None if after_blank else _decode(part, position, spec, found)
        if kept is not None:
            paragraphs[-1].append(kept)
    if not spec.by_punctuation("text"):
        return [line for paragraph in paragraphs for line in paragraph]
    return [
        sentence.encode()
        for paragraph in paragraphs
        for sentence in split_paragraph(b" ".join(paragraph).decode())
    ]


def read_text(data: bytes, name: str, spec: DocumentSpec, limits: DocumentLimits) -> Found:
    found = Found()
    base = 0
    if data.startswith(b"\xef\xbb\xbf"):
        data, base = data[3:], 3
    documents: list[list[tuple[int, bytes]]] = []
    after_blank = True
    for at, line in _lines(data):
        blank = is_blank(line) and len(line) <= limits.line_bytes
        if spec.documents == "file":
            begins = not documents
        elif spec.documents == "line":
            begins = not blank
        else:
            begins = after_blank and not blank
        after_blank = blank
        if begins:
            documents.append([])
        position = base + at
        for part in _cut(line, limits.line_bytes):
            if documents:
                documents[-1].append((position, part))
            position += len(part)
    for parts in documents:
        raw = [part for _, part in parts if not is_blank(part)]
        lines = _sentences_of(parts, spec, limits, found)
        found.documents[key_of(name, parts[0][0])] = (group_of(raw, limits), lines)
    return found


def _json_records(data: bytes, spec: DocumentSpec, found: Found) -> Iterator[tuple[int, object]]:
    at = 0
    for record in data.split(b"\n"):
        position, at = at, at + len(record) + 1
        if position == 0 and record.startswith(b"\xef\xbb\xbf"):
            record = record[3:]
        if not record.strip():
            continue
        kept = _decode(record, position, spec, found)
        if kept is None:
            continue
        try:
            value = json.loads(kept)
        except json.JSONDecodeError:
            yield position, None
            continue
        shown = json.dumps(value, ensure_ascii=False)
        if any("\ud800" <= character <= "\udfff" for character in shown):
            text = value.get(spec.text_field) if isinstance(value, dict) else None
            text = json.dumps(text, ensure_ascii=False)
            lone = any("\ud800" <= character <= "\udfff" for character in text)
            if lone and spec.encoding_errors == "strict":
                found.rejects.append((position, "lone_surrogate"))
                continue
            value = json.loads(re.sub("[\ud800-\udfff]", "\ufffd", shown))
        yield position, value


def _rows(data: bytes, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """(position, row) by the csv module, which is fed line by line."""
    at = 0

    def lines() -> Iterator[str]:
        nonlocal at
        for line in data.split(b"\n"):
            at += len(line) + 1
            yield line.decode() + "\n"

    position = 0
    for row in csv.reader(lines(), delimiter=delimiter):
        if row:
            yield position, row
        position = at


def read_records(
    data: bytes, name: str, input_format: str, spec: DocumentSpec, limits: DocumentLimits
) -> Found:
    found = Found()
    records: Iterator[tuple[int, object]]
    if input_format == "jsonl":
        records = _json_records(data, spec, found)
    else:
        rows = _rows(data, "\t" if input_format == "tsv" else ",")
        header = next(rows, (0, []))[1]
        records = (
            (at, dict(zip(header, row, strict=True)) if len(row) == len(header) else len(row))
            for at, row in rows
        )
    for position, record in records:
        fields = [spec.text_field, spec.split_by] if spec.split_by else [spec.text_field]
        if isinstance(record, int) and not isinstance(record, bool) and input_format != "jsonl":
            found.rejects.append((position, "wrong_number_of_fields"))
        elif not isinstance(record, dict):
            found.rejects.append((position, "not_json"))
        elif not all(name in record for name in fields):
            found.rejects.append((position, "field_missing"))
        elif not isinstance(record[spec.text_field], str):
            found.rejects.append((position, "field_not_text"))
        else:
            text = record[spec.text_field]
            if spec.by_punctuation(input_format):
                lines = [sentence.encode() for sentence in split_text(text)]
            else:
                lines = [line.encode() for line in text.split("\n") if line.strip()]
            group = group_of(lines, limits)
            if spec.split_by:
                group = fingerprint64(str(record[spec.split_by]).encode())
            found.documents[key_of(name, position)] = (group, lines)
    return found
