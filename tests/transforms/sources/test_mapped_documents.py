"""Documents that go through functions: what these see, and what becomes of what they return."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from recordmill.records.errors import RunError
from recordmill.transforms.dataset.rejects import REASONS, Reject
from recordmill.transforms.dataset.user_functions import MapSpec, ShippedModule, UserFunction
from recordmill.transforms.sources.document_batch import DocumentBatch
from recordmill.transforms.sources.document_spec import DocumentLimits, DocumentSpec
from recordmill.transforms.sources.input_spec import WHOLE_TEXT
from recordmill.transforms.sources.kept_fields import KeptField
from recordmill.transforms.sources.mapped_documents import DocumentMapper, MapSums
from recordmill.transforms.sources.row_fields import LabelSpec, RowSpec
from recordmill.transforms.sources.work_items import SourceRange

from .test_documents import FEW, SMALL, collect, ranges_of, specs, valid_text, write

# Where a line is longer than a line may be, a function sees the cuts as line ends.
WIDE = replace(SMALL, line_bytes=1 << 16)
FEWER = settings(FEW, max_examples=40)
PARTS = st.sampled_from(
    ["a b.", "One. Two", "word ", "é…", "日本。語", " ", "\u00a0", "\n", "\n\n", "\r\n", "\n \n"]
)
KEEP = "def function(document):\n    return document\n"


def maps(*sources: str, errors: str = "reject") -> MapSpec:
    functions = (
        UserFunction("a.py:function", "", "function", str(hash(s)), (ShippedModule("", "a.py", s),))
        for s in sources
    )
    return MapSpec(tuple(functions), errors)


def read(
    path: Path,
    *functions: str,
    spec: DocumentSpec | None = None,
    limits: DocumentLimits = SMALL,
    errors: str = "reject",
) -> tuple[list[DocumentBatch], MapSums]:
    sums = MapSums()
    mapper = DocumentMapper(
        maps(*functions, errors=errors), spec or DocumentSpec(), limits, groups=True
    )
    ranges = ranges_of(path, 1 << 20)
    return [batch for source in ranges for batch in mapper.read(source, sums)], sums


def texts_of(batches: list[DocumentBatch]) -> list[list[str]]:
    found = []
    for batch in batches:
        for i in range(len(batch.keys)):
            lines = np.flatnonzero(batch.line_documents == i)
            found.append([batch.lines[at].decode() for at in lines])
    return found


def values(batches: list[DocumentBatch], field: str) -> list[int]:
    return [int(value) for batch in batches for value in getattr(batch, field)]


def rejects_of(batches: list[DocumentBatch]) -> list[Reject]:
    return [reject for batch in batches for reject in batch.rejects]


def same_as_unmapped(path: Path, spec: DocumentSpec, limits: DocumentLimits = WIDE) -> None:
    """Checks that a function which returns what it gets changes nothing."""
    (source,) = ranges_of(path, 1 << 20)
    plain = collect([source], spec, limits)
    mapper = DocumentMapper(maps(KEEP), spec, limits, groups=True)
    batches = list(mapper.read(source, MapSums()))
    assert not any(batch.continues for batch in batches)
    keys = [int(key) for batch in batches for key in batch.keys]
    groups = [int(group) for batch in batches for group in batch.groups]
    assert keys == list(plain.documents)
    assert groups == [group for group, _ in plain.documents.values()]
    expected = [[line.decode() for line in lines] for _, lines in plain.documents.values()]
    assert texts_of(batches) == expected


class TestNothingChanges:
    """A function that returns what it gets."""

    @FEWER
    @given(text=valid_text, spec=specs, block=st.integers(1, 64), most=st.integers(1, 80))
    def test_plain_text(
        self, tmp_path_factory: pytest.TempPathFactory, text: bytes, spec: DocumentSpec,
        block: int, most: int,
    ) -> None:  # fmt: skip
        if not text:
            return
        folder = tmp_path_factory.mktemp("text")
        limits = replace(WIDE, block_bytes=block, open_document_bytes=most)
        same_as_unmapped(write(folder, text), spec, limits)

    @FEWER
    @given(
        texts=st.lists(st.lists(PARTS, max_size=9).map("".join), min_size=1, max_size=5),
        splitter=st.sampled_from(["auto", "none", WHOLE_TEXT]),
        parquet=st.booleans(),
    )
    def test_records(
        self, tmp_path_factory: pytest.TempPathFactory, texts: list[str], splitter: str,
        parquet: bool,
    ) -> None:  # fmt: skip
        assume(splitter != WHOLE_TEXT or all(map(str.strip, texts)))
        folder = tmp_path_factory.mktemp("records")
        if parquet:
            path = folder / "a.parquet"
            pq.write_table(pa.table({"text": texts}), path)
        else:
            path = folder / "a.jsonl"
            path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
        same_as_unmapped(path, DocumentSpec(sentence_splitter=splitter))

    def test_what_documents_carry(self, tmp_path: Path) -> None:
        rows = [{"text": f"text {i}", "label": "ab"[i % 2], "n": i, "s": "ab"[i % 2]} for i in "012"
                and range(3)]  # fmt: skip
        path = tmp_path / "a.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        row = RowSpec(LabelSpec("label"), keep_fields=(KeptField("n", "int"),))
        spec = DocumentSpec(row=row, split_from="s", split_names=("b", "a"))
        batches, _ = read(path, KEEP, spec=spec)
        assert [row for b in batches for row in b.carried or []] == [
            ("a", "0"), ("b", "1"), ("a", "2"),
        ]  # fmt: skip
        assert [n for b in batches for n in np.asarray(b.splits).tolist()] == [1, 0, 1]


def test_a_function_sees_the_text_as_it_was_read(tmp_path: Path) -> None:
    """Not the sentences that it is cut into afterwards."""
    path = write(tmp_path, b"One. Two\r\nthree. Four.\n\n\nFive.\n")
    see = (
        "import dataclasses\ndef function(document):\n"
        "    return dataclasses.replace(document, text=repr((document.key, document.text)))\n"
    )
    spec = DocumentSpec(documents="file", sentence_splitter="punctuation")
    batches, _ = read(path, see, spec=spec, limits=DocumentLimits())
    text = "One. Two\nthree. Four.\n\n\nFive."
    assert " ".join(texts_of(batches)[0]) == repr(("a.txt#0", text))


def test_one_document_becomes_none_itself_or_several(tmp_path: Path) -> None:
    path = write(tmp_path, b"one\n\ntwo two\n\nthree\n")
    split = (
        "from dataclasses import replace\ndef function(document):\n"
        "    if document.text == 'one':\n        return None\n"
        "    for word in document.text.split():\n        yield replace(document, text=word)\n"
    )
    dropped: list[int] = []

    def drop(batch: DocumentBatch, number: int, source: SourceRange) -> None:
        dropped.append(int(batch.positions[number]))

    sums = MapSums(drop)
    mapper = DocumentMapper(maps(KEEP, split), DocumentSpec(), SMALL, groups=True)
    batches = [b for source in ranges_of(path, 1 << 20) for b in mapper.read(source, sums)]
    assert texts_of(batches) == [["two"], ["two"], ["three"]]
    assert (sums.dropped, sums.added) == (1, 1)
    assert dropped == [0]
    assert len(set(values(batches, "keys"))) == 3, "of one position, and yet each its own"
    assert values(batches, "positions") == [5, 5, 14]
    groups = values(batches, "groups")
    assert groups[0] == groups[1] != groups[2]


def test_keys_and_groups_of_a_function(tmp_path: Path) -> None:
    path = write(tmp_path, b"one\n\ntwo\n\nthree\n")
    name = (
        "from dataclasses import replace\ndef function(document):\n"
        "    return replace(document, key=document.text[0], group=document.text[0])\n"
    )
    batches, _ = read(path, name)
    for field in ("keys", "groups"):
        found = values(batches, field)
        assert found[0] != found[1] == found[2]


class TestErrors:
    """Functions that raise, or return nonsense."""

    @pytest.mark.parametrize(
        ("body", "detail"),
        [
            ("return 1 / 0", "ZeroDivisionError: division by zero (a.py, line 2)"),
            ("raise ValueError('a\\nb')", "ValueError: a b (a.py, line 2)"),
            ("raise SystemExit", "SystemExit (a.py, line 2)"),
            ("return document.text", "TypeError: the function must return Document, None, or a "
             "list of Document; it returned str"),
            ("return True", "it returned bool"),
            ("return [document, 3]", "it returned a list with int"),
            ("return {'text': 3}", "it returned dict"),
            ("return type(document)(3)", "Document.text must be str, got int"),
        ],
    )  # fmt: skip
    def test_a_document_is_a_reject(self, tmp_path: Path, body: str, detail: str) -> None:
        path = write(tmp_path, b"one\n\ntwo\n")
        function = f"def function(document):\n    {body} if document.text == 'two' else document\n"
        if body.startswith("raise"):
            function = "def function(document):\n    raise ValueError('a\\nb')\n"
            function = function.replace("raise ValueError('a\\nb')", body)
        batches, sums = read(path, function)
        found = rejects_of(batches)
        assert found[-1].position == 5
        assert (found[-1].source, found[-1].stage, found[-1].reason) == (
            "a.txt",
            "map",
            "map_error",
        )
        assert found[-1].reason in REASONS
        assert found[-1].detail.startswith("a.py:function: ")
        assert detail in found[-1].detail
        assert (sums.dropped, sums.added) == (0, 0)
        if not body.startswith("raise"):
            assert texts_of(batches) == [["one"]]

    def test_or_the_run_ends(self, tmp_path: Path) -> None:
        path = write(tmp_path, b"one\n\ntwo\n")
        function = "def function(document):\n    raise ValueError('bad')\n"
        message = r"--map a\.py:function: ValueError: bad \(a\.py, line 2\), for the document of a"
        with pytest.raises(RunError, match=message):
            read(path, function, errors="fail")

    def test_no_text_for_a_row_to_classify(self, tmp_path: Path) -> None:
        path = tmp_path / "a.jsonl"
        path.write_text('{"text": "one", "label": "a"}\n')
        empty = "def function(document):\n    return type(document)(' ')\n"
        batches, _ = read(path, empty, spec=DocumentSpec(row=RowSpec(LabelSpec("label"))))
        assert [reject.reason for reject in rejects_of(batches)] == ["no_text"]

    def test_a_function_that_cannot_be_loaded_on_a_worker(self, tmp_path: Path) -> None:
        with pytest.raises(RunError, match=r"on a worker: --map a\.py:function cannot be imported"):
            read(write(tmp_path, b"one\n"), "import no_such_package\n")


def test_a_document_that_is_too_long_to_be_held_is_a_reject(tmp_path: Path) -> None:
    path = write(tmp_path, b"one\n\n" + b"two two\n" * 40 + b"\nthree\n")
    limits = replace(SMALL, record_bytes=100, open_document_bytes=16, block_bytes=16)
    batches, _ = read(path, KEEP, limits=limits)
    assert texts_of(batches) == [["one"], ["three"]]
    (reject,) = rejects_of(batches)
    assert (reject.position, reject.reason) == (5, "document_too_long")


def test_the_other_text_of_a_row_stays(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "one", "other": "two", "label": "a"}\n')
    upper = "def function(document):\n    return type(document)(document.text.upper())\n"

    def texts(row: RowSpec) -> Any:
        batches, _ = read(path, upper, spec=DocumentSpec(row=row))
        return texts_of(batches)

    assert texts(RowSpec(LabelSpec("label"), pair_field="other")) == [["ONE", "two"]]
    assert texts(RowSpec(prompt_field="other")) == [["two", "ONE"]]


def test_batches_stay_small_where_documents_grow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("recordmill.transforms.sources.mapped_documents._BATCH_BYTES", 100)
    path = write(tmp_path, b"one\n\ntwo\n\nthree\n")
    grow = "def function(document):\n    return type(document)(document.text * 20)\n"
    batches, _ = read(path, grow, limits=DocumentLimits())
    assert [len(batch.keys) for batch in batches] == [1, 1, 1]
