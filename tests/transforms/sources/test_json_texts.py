"""The texts of JSON lines by a kernel, against a parser."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from recordmill.transforms.sources.document_spec import DocumentLimits, DocumentSpec
from recordmill.transforms.sources.documents import read_documents
from recordmill.transforms.sources.json_rows import JsonLines, parse_object
from recordmill.transforms.sources.json_texts import read_texts
from recordmill.transforms.sources.row_fields import RecordRejectedError, text_field
from recordmill.transforms.sources.work_items import SourceRange

TEXTS = st.text(max_size=40) | st.text('"\\/\n\t\u20ac\U0001f600é\x00\x1f\x7fabcdefg ', max_size=40)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | TEXTS
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(st.sampled_from(["text", "texts", "te", ""]) | TEXTS, VALUES, max_size=4)


def texts_of(lines: list[bytes], most_bytes: int = 1 << 20) -> list[bytes | None]:
    """Returns the text of each line, None where the kernel does not take it."""
    ends = np.cumsum([len(line) for line in lines], dtype=np.int64)
    starts = ends - np.array([len(line) for line in lines], np.int64)
    found = read_texts(b"".join(lines), starts, ends, name="text", most_bytes=most_bytes)
    texts = [found.pool[a:b].tobytes() for a, b in zip(found.starts, found.ends, strict=True)]
    return [text if taken else None for text, taken in zip(texts, found.taken, strict=True)]


def parsed(line: bytes) -> bytes | None:
    """Returns the text that a parser finds in a line, None where it rejects it."""
    try:
        line.decode("utf-8")
        return text_field(parse_object(line, "strict", ["text"]), "text", filled=False).encode()
    except (UnicodeDecodeError, RecordRejectedError):
        return None


class TestReadTexts:
    @given(
        st.lists(
            st.tuples(OBJECTS, st.text(max_size=90) | TEXTS, st.booleans(), st.booleans()),
            min_size=1, max_size=5,
        )
    )  # fmt: skip
    @settings(max_examples=60)
    def test_equals_a_parser(self, rows):
        lines = []
        for fields, text, ascii_only, wide in rows:
            separators = (" ,\t", " :\r ") if wide else (",", ":")
            content = json.dumps(
                {**fields, "text": text}, ensure_ascii=ascii_only, separators=separators
            )
            lines.append(content.encode("utf-8", "surrogatepass") + b"\n")
        for line, found in zip(lines, texts_of(lines), strict=True):
            assert found is None or found == parsed(line)

    @given(OBJECTS, TEXTS, st.data())
    @example({}, "\ud800", None)
    def test_what_is_taken_is_valid(self, fields: dict[str, Any], text: str, data: Any):
        line = json.dumps({**fields, "text": text}, ensure_ascii=data is None)
        changed = bytearray(line.encode("utf-8", "surrogatepass"))
        for _ in range(data.draw(st.integers(1, 3)) if data else 0):
            at = data.draw(st.integers(0, len(changed) - 1))
            if data.draw(st.booleans()):
                changed[at] = data.draw(st.integers(0, 255) | st.sampled_from(b'"\\{}[],:0 \n'))
            else:
                del changed[at : at + data.draw(st.integers(1, 4))]
            if not changed:
                return
        (found,) = texts_of([bytes(changed)])
        assert found is None or found == parsed(bytes(changed))

    @pytest.mark.parametrize(
        ("line", "text"),
        [
            (b'{"text":"a"}', b"a"),
            (
                b' { "id" : -0.5 , "text" : "a\\n\\u00e9\\ud83d\\ude00\\/" } \r\n',
                "a\né😀/".encode(),
            ),
            ('{"a":{"text":["x",{"text":"}"}],"b":[]},"text":"ä €"}\n'.encode(), "ä €".encode()),
            (b'{"a":[0.12345678901234567,-1.5E+10,2e-3],"b":1e999,"text":"t"}', b"t"),
            (b'{"text":"","a":true,"b":null,"c":false,"d":{}}', b""),
            (
                b'{"text":"0123456789abcdef\\"0123456789","x":"a\\\\"}',
                b'0123456789abcdef"0123456789',
            ),
        ],
    )
    def test_plain_lines_are_taken(self, line: bytes, text: bytes):
        assert texts_of([line]) == [text] == [parsed(line)]

    @pytest.mark.parametrize(
        "line",
        [
            b"", b"\n", b"{}", b"[]", b'"text"', b'{"text":1}', b'{"text":null}', b'{"txet":"a"}',
            b'{"text":"a","text":"b"}', b'{"te\\u0078t":"a"}', b'{"text":"a"} x', b'{"text":"a"',
            b'{"text":"a",}', b'{"text":"a" "b":1}', b'{"text":"\\ud800"}', b'{"text":"\\x"}',
            b'{"text":"\\u12g4"}', b'{"text":"a\tb"}', b'{"text":"\xff"}', b'{"text":"\xc0\x80"}',
            b'{"text":"\xed\xa0\x80"}', b'{"text":"\xf4\x90\x80\x80"}', b'{"text":"\xe2\x82"}',
            b'{"text":"a","b":01}', b'{"text":"a","b":1e}', b'{"text":"a","b":1e+}',
            b'{"text":"a","b":1e5.0}',             b'{"text":"a","b":NaN}',
            b'{"text":"a","b":1.}', b'{"text":"a","b":[1,]}', b'{"text":"a","b":{"c"}}',
            b'{"text":"a","b":' + b"[" * 70 + b"]" * 70 + b"}", b'\xef\xbb\xbf{"text":"a"}',
            b'{"text":"a","b":tru}', b'{"text":"a","b":[}', b'{"text":"a\\', b'{"text":"a","b":-}',
            b'{"text":"' + b"a" * 100 + b'"}',
        ],
    )  # fmt: skip
    def test_all_others_are_left(self, line: bytes):
        assert texts_of([line], most_bytes=100 if b"aaaa" in line else 1 << 20) == [None]

    def test_a_line_never_ends_in_the_next(self):
        assert texts_of([b'{"text":"a', b'b"}', b'{"text":"c"}']) == [None, None, b"c"]


LINES = [
    b'{"text": "a\\nb"}\n', b'{"text": "caf\\u00e9", "n": 1e3}\n', b"\n", b"  \n", b"no json\n",
    b'{"id": 3}\n', b'{"text": 7}\n', b'{"text": "\xff"}\n', b'{"text": "\\ud800x"}\n',
    b'{"text": ""}\n', b'{"text": "' + b"long " * 60 + b'"}\n', '{"text": "ä"}\n'.encode(),
    b'\xef\xbb\xbf{"text": "marked"}\n', b'{"text": "last"}',
]  # fmt: skip


class TestReadDocuments:
    @given(
        lines=st.lists(st.sampled_from(LINES), max_size=8),
        block=st.sampled_from([7, 64, 1 << 20]),
        errors=st.sampled_from(["strict", "replace"]),
    )
    def test_documents_and_rejects_are_those_of_the_parser(
        self, tmp_path_factory: pytest.TempPathFactory, lines: list[bytes], block: int, errors: str
    ):
        path = tmp_path_factory.mktemp("lines") / "a.jsonl"
        path.write_bytes(b"".join(lines))
        spec = DocumentSpec(sentence_splitter="whole", encoding_errors=errors)
        by_kernel = read(path, spec, block)
        with pytest.MonkeyPatch.context() as patch:
            patch.delattr(JsonLines, "block_rows")
            assert by_kernel == read(path, spec, block)


def read(path: Path, spec: DocumentSpec, block: int) -> list[list[Any]]:
    """Returns documents with what is known of them, and rejects."""
    source = SourceRange(str(path), path.name, "jsonl", "", path.stat().st_size)
    limits = DocumentLimits(block_bytes=block, record_bytes=200)
    rows: list[list[Any]] = [[], [], []]
    for batch in read_documents(source, spec, limits=limits):
        known = (batch.keys, batch.groups, batch.contents(), batch.positions, batch.lines.non_ascii)
        columns = [column.tolist() for column in known]
        texts = [batch.lines[i] for i in range(len(batch.lines))]
        assert batch.line_documents.tolist() == list(range(len(texts)))
        rows[0] += zip(texts, *columns, strict=True)
        rows[1] += batch.rejects
    return rows
