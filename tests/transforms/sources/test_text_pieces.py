"""Plain text for language models: documents byte for byte, in pieces that tokens do not show."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recordmill.transforms.sources.document_spec import READ_LIMITS, DocumentLimits, DocumentSpec
from recordmill.transforms.sources.documents import read_documents
from recordmill.transforms.sources.input_spec import WHOLE_TEXT
from recordmill.transforms.sources.lines import Lines
from recordmill.transforms.sources.text_pieces import piece_ends, strip_texts
from recordmill.transforms.sources.whole_documents import whole_documents
from recordmill.transforms.sources.work_items import SourceRange, ranges_at

Pieces = list[list[bytes]]
MODES = ("blank_line", "line", "file")
TEXTS = st.lists(
    st.sampled_from([
        "a", "bc d", " ", "\n", "\n", "\n\n", "\r\n", "\r", "\t", "日本", "é", "\u3000", "\u00a0",
        "1", ".", "Я", "\x1c",
    ]), max_size=40,
).map("".join)  # fmt: skip


def spec_of(documents: Any, **more: Any) -> DocumentSpec:
    return DocumentSpec(documents=documents, sentence_splitter=WHOLE_TEXT, **more)


def read(
    path: Path, spec: DocumentSpec, limits: DocumentLimits, step: int = 0
) -> list[list[bytes]]:
    """Returns the pieces of each document, read in ranges of so many bytes."""
    size = path.stat().st_size
    source = SourceRange(str(path), path.name, "text", "", size)
    ranges = [source]
    if step and spec.splittable and size:
        ranges = list(ranges_at(source, range(0, size, step)))
    return [
        document.lines
        for each in ranges
        for _, documents in whole_documents(read_documents(each, spec, limits=limits))
        for document in documents
    ]


def is_blank(line: str) -> bool:
    return not line.strip("\t\n\x0b\x0c\r ") or (not line.isascii() and line.isspace())


def wanted(text: str, documents: str) -> list[str]:
    """Returns the documents of a text, in plain Python."""
    if documents == "file":
        return [text] if text else []
    lines = [(line, end) for line, end in re.findall(r"([^\n]*?)(\r?\n|\Z)", text) if line or end]
    if documents == "line":
        return [line for line, _ in lines if not is_blank(line)]
    groups = itertools.groupby(lines, key=lambda each: is_blank(each[0]))
    found = []
    for blank, group in groups:
        if not blank:
            joined = "".join(line + end for line, end in group)
            found.append(re.sub(r"\r?\n\Z", "", joined))
    return found


@given(
    text=TEXTS, documents=st.sampled_from(MODES), piece=st.sampled_from([1, 6, 40, 10_000]),
    block=st.integers(1, 60), open_bytes=st.sampled_from([1, 20, 10_000]), step=st.integers(1, 50),
)  # fmt: skip
def test_documents_are_what_the_file_has(
    tmp_path_factory: pytest.TempPathFactory, text: str, documents: str, piece: int, block: int,
    open_bytes: int, step: int,
) -> None:  # fmt: skip
    path = tmp_path_factory.mktemp("a") / "a.txt"
    path.write_bytes(text.encode())
    spec = spec_of(documents)
    limits = replace(READ_LIMITS, piece_bytes=piece, hashed_bytes=2)
    pieces = read(path, spec, limits)
    assert [b"".join(each).decode() for each in pieces] == wanted(text, documents)
    small = replace(limits, block_bytes=block, open_document_bytes=open_bytes)
    assert read(path, spec, small, step) == pieces


def test_a_long_line_and_a_mark_at_the_beginning(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    text = "one " * 9 + "\n\n" + "日本" * 30 + "\r\nend"
    path.write_bytes(b"\xef\xbb\xbf" + text.encode())
    limits = replace(READ_LIMITS, line_bytes=10, piece_bytes=16, block_bytes=7, hashed_bytes=2)
    (pieces,) = read(path, spec_of("file"), replace(limits, open_document_bytes=1))
    assert b"".join(pieces).decode() == text
    assert len(pieces) > 5
    assert max(map(len, pieces)) < 50
    assert read(path, spec_of("file"), replace(limits, block_bytes=1000)) == [pieces]


def test_lines_that_are_no_utf8(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b" first\n\nbad \xff\r\n last\n")
    (text,) = read(path, spec_of("file", encoding_errors="replace"), READ_LIMITS)
    assert b"".join(text).decode() == " first\n\nbad \ufffd\r\n last\n"
    (text,) = read(path, spec_of("file"), READ_LIMITS)
    assert b"".join(text) == b" first\n\n last\n"
    source = SourceRange(str(path), path.name, "text", "", path.stat().st_size)
    (batch,) = read_documents(source, spec_of("file"))
    assert [(each.position, each.reason) for each in batch.rejects] == [(12, "undecodable")]


@pytest.mark.parametrize(
    ("before", "after", "is_safe"),
    [
        ("a", "b", True), (".", "1", True), ("本", "本", True), ("é", "Я", True),
        ("。", "本", True),
        ("a", " b", False), ("a ", "b", False), ("a", "\nb", False), ("a", ".", False),
        ("a\r", "b", False), ("\u3000", "b", False), ("\u00a0", "b", False), ("a", "\u3000", False),
        ("\u2003", "b", False), ("a", "é", False), ("a", "'s", False), ("", "b", False),
    ],
)  # fmt: skip
def test_where_a_piece_may_end(before: str, after: str, is_safe: bool) -> None:
    data = f"{before}\n{after}".encode()
    at = len(before.encode())
    lines = Lines(
        np.frombuffer(data, np.uint8), np.array([0, at + 1]), np.array([at, len(data)]),
        np.zeros(2, np.bool_),
    )  # fmt: skip
    if before.endswith("\r"):
        lines.ends[0] -= 1
    begins, next_starts = np.zeros(2, np.bool_), np.array([at + 1, len(data)])
    assert piece_ends(lines, begins, next_starts, at + 1).tolist() == [is_safe, False]
    assert piece_ends(lines, begins, next_starts, 1 << 20).tolist() == [False, False]
    assert piece_ends(lines, np.array([True, True]), next_starts, 99).tolist() == [True, False]


@given(
    texts=st.lists(TEXTS, max_size=8),
    sides=st.lists(st.tuples(st.booleans(), st.booleans()), min_size=8, max_size=8),
)
def test_white_space_at_both_ends(texts: list[str], sides: list[tuple[bool, bool]]) -> None:
    lines = Lines.from_list([text.encode() for text in texts])
    begins, ends = (np.array([side[i] for side in sides[: len(texts)]], np.bool_) for i in (0, 1))
    found = strip_texts(lines, begins, ends)
    for i, text in enumerate(texts):
        expected = text.lstrip() if begins[i] else text
        assert found[i].decode() == (expected.rstrip() if ends[i] else expected)
