"""--max_document_bytes: long documents are rejects, whatever the blocks and parts they came in."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recordmill.records.errors import UsageError
from recordmill.transforms.sources.document_spec import DocumentLimits, DocumentSpec
from recordmill.transforms.sources.documents import read_documents
from recordmill.transforms.sources.work_items import SourceRange

from . import documents_reference as reference
from .test_documents import FEW, SMALL, collect, folder, ranges_of, raw_text, specs, write

__all__ = ["folder"]


@FEW
@given(
    text=raw_text,
    spec=specs,
    most=st.integers(1, 120),
    block=st.integers(1, 64),
    open_document=st.integers(1, 80),
    target=st.integers(8, 64),
)
def test_those_that_are_too_long_are_left_out(
    folder: Path,
    text: bytes,
    spec: DocumentSpec,
    most: int,
    block: int,
    open_document: int,
    target: int,
) -> None:
    path = write(folder, text)
    expected = reference.read_text(text, path.name, spec, SMALL)
    sizes = {key: sum(map(len, lines)) for key, (_, lines) in expected.documents.items()}
    spec = msgspec.structs.replace(spec, max_document_bytes=most)
    limits = replace(SMALL, block_bytes=block, open_document_bytes=open_document)
    whole = [SourceRange(str(path), path.name, "text", "", len(text))]
    for ranges in [whole, ranges_of(path, target)] if text and spec.splittable else [whole]:
        found = collect(ranges, spec, limits)
        kept = {key: of for key, of in expected.documents.items() if sizes[key] <= most}
        assert found.documents == kept
        long = [at for at, reason in found.rejects if reason == "document_too_long"]
        assert [reference.key_of(path.name, at) for at in sorted(long)] == [
            key for key, size in sizes.items() if size > most
        ]
        others = [reject for reject in found.rejects if reject[1] != "document_too_long"]
        assert others == sorted(expected.rejects)


def test_records_too(tmp_path: Path) -> None:
    rows = [{"text": "x" * size, "label": str(size)} for size in (3, 11, 10, 12)]
    path = write(tmp_path, "".join(json.dumps(row) + "\n" for row in rows).encode(), "a.jsonl")
    source = SourceRange(str(path), path.name, "jsonl", "", path.stat().st_size)
    found = collect([source], DocumentSpec(max_document_bytes=10))
    assert [lines for _, lines in found.documents.values()] == [[b"x" * 3], [b"x" * 10]]
    assert [reason for _, reason in found.rejects] == ["document_too_long"] * 2


def test_no_more_is_held_than_the_limit(tmp_path: Path) -> None:
    line = b"some words of a document that goes on and on\n"
    path = write(tmp_path, b"first\n\n" + line * 20_000 + b"\nlast\n")
    source = SourceRange(str(path), path.name, "text", "", path.stat().st_size)
    limits = DocumentLimits(block_bytes=1 << 12, open_document_bytes=1 << 12)
    spec = DocumentSpec(max_document_bytes=10_000)
    batches = list(read_documents(source, spec, limits=limits))
    [reject] = [reject for batch in batches for reject in batch.rejects]
    assert (reject.position, reject.reason) == (7, "document_too_long")
    assert reject.detail == "more than 10000 bytes"
    assert [bytes(batch.lines[i]) for batch in batches for i in range(len(batch.lines))] == [
        b"first",
        b"last",
    ]


def test_the_limit_must_be_a_number_of_bytes() -> None:
    with pytest.raises(UsageError, match="max_document_bytes must be at least 0, got -1"):
        DocumentSpec(max_document_bytes=-1)
