"""`.json`: the content decides whether it is JSONL, an array of objects, or whole objects."""

from __future__ import annotations

import gzip
import json
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recordmill.transforms.sources.document_spec import DocumentLimits, DocumentSpec
from recordmill.transforms.sources.documents import read_documents
from recordmill.transforms.sources.item_cutting import cut_work_items
from recordmill.transforms.sources.json_values import has_object_lines
from recordmill.transforms.sources.work_items import SourceRange, list_sources

SPEC = DocumentSpec(sentence_splitter="none")


def read(
    path: Path, *, limits: DocumentLimits | None = None, target_bytes: int = 1 << 25
) -> tuple[list[list[bytes]], list[str]]:
    """Returns the lines of each document, and the reasons of rejects."""
    documents: list[list[bytes]] = []
    reasons: list[str] = []
    for item in cut_work_items(list_sources([str(path)]), target_bytes, SPEC.cutting):
        for source in item:
            for batch in read_documents(source, SPEC, limits=limits or DocumentLimits()):
                found: list[list[bytes]] = [[] for _ in batch.keys]
                for i, document in enumerate(batch.line_documents.tolist()):
                    found[document].append(batch.lines[i])
                documents += found
                reasons += [reject.reason for reject in batch.rejects]
    return documents, reasons


def write(folder: Path, text: str | bytes, name: str = "a.json") -> Path:
    path = folder / name
    data = text.encode() if isinstance(text, str) else text
    path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    return path


RECORDS = [
    {"text": 'a "quoted" [x] {y}, \\ and \\" one\nb', "meta": {"list": [1, {"a": "}"}]}},
    {"text": "ä☃", "n": None},
    {"text": ""},
    {"id": 1, "text": "last, [one]"},
]
EXPECTED = [
    [b'a "quoted" [x] {y}, \\ and \\" one', b"b"], ["ä☃".encode()], [], [b"last, [one]"],
]  # fmt: skip
LAYOUTS = {
    "lines": "".join(json.dumps(r) + "\n" for r in RECORDS),
    "lines, blank ones too": "\n\n".join(json.dumps(r) for r in RECORDS),
    "array": json.dumps(RECORDS),
    "array, indented": json.dumps(RECORDS, indent=2),
    "array, a line each": "[\n" + ",\n".join(json.dumps(r) for r in RECORDS) + "\n]\n",
    "array, not ASCII": json.dumps(RECORDS, ensure_ascii=False, indent="\t") + "\n\n",
    "array, with BOM": "\ufeff" + json.dumps(RECORDS),
    "objects, indented": "\n".join(json.dumps(r, indent=4) for r in RECORDS),
    "objects, without line ends": "".join(json.dumps(r) for r in RECORDS),
}


@pytest.mark.parametrize("name", ["a.json", "a.JSON", "a.json.gz"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_has_the_same_documents(tmp_path: Path, layout: str, name: str) -> None:
    assert read(write(tmp_path, LAYOUTS[layout], name)) == (EXPECTED, [])


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("block_bytes", [1, 7, 64])
def test_blocks_do_not_show(tmp_path: Path, layout: str, block_bytes: int) -> None:
    limits = DocumentLimits(block_bytes=block_bytes)
    assert read(write(tmp_path, LAYOUTS[layout]), limits=limits) == (EXPECTED, [])


@pytest.mark.parametrize("layout", ["lines", "array, indented"])
def test_work_items_do_not_show(tmp_path: Path, layout: str) -> None:
    assert read(write(tmp_path, LAYOUTS[layout]), target_bytes=30) == (EXPECTED, [])


def test_only_lines_are_cut(tmp_path: Path) -> None:
    for layout, count in (("lines", 8), ("array, a line each", 1)):
        path = write(tmp_path, LAYOUTS[layout])
        items = cut_work_items(list_sources([str(path)]), path.stat().st_size // 8)
        assert sum(len(item) for item in items) >= count


def test_one_object_over_several_lines(tmp_path: Path) -> None:
    path = write(tmp_path, json.dumps({"title": "t", "text": "the text"}, indent=2))
    assert read(path) == ([[b"the text"]], [])


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=6,
)


@given(
    records=st.lists(
        st.builds(
            lambda text, more: {**more, "text": text},
            st.text('ab \\"{}[],:\u00e9', max_size=12),
            st.dictionaries(st.text(max_size=3), json_values, max_size=3),
        ),
        min_size=1,
        max_size=6,
    ),
    indent=st.sampled_from([None, 0, 2]),
    block_bytes=st.integers(1, 40),
)
def test_any_array_is_read_as_its_lines_are(
    tmp_path_factory: pytest.TempPathFactory,
    records: list[dict[str, object]],
    indent: int | None,
    block_bytes: int,
) -> None:
    folder = tmp_path_factory.mktemp("json")
    lines = write(folder, "\n".join(map(json.dumps, records)), "a.jsonl")
    array = write(folder, json.dumps(records, indent=indent))
    limits = DocumentLimits(block_bytes=block_bytes)
    assert read(array, limits=limits) == read(lines)


class TestWhatCannotBeUsed:
    def test_elements_that_are_no_objects(self, tmp_path: Path) -> None:
        path = write(tmp_path, '["a", 1, {"text": "b"}, null, [2], {"text": "c"}]')
        assert read(path) == ([[b"b"], [b"c"]], ["not_json"] * 4)

    def test_a_cut_array_loses_its_last_element(self, tmp_path: Path) -> None:
        path = write(tmp_path, LAYOUTS["array"][:-10])
        assert read(path) == (EXPECTED[:-1], ["not_json"])

    def test_an_element_that_is_too_long(self, tmp_path: Path) -> None:
        records = [{"text": "a"}, {"text": "b" * 200}, {"text": "c"}]
        limits = DocumentLimits(block_bytes=16, record_bytes=100)
        path = write(tmp_path, json.dumps(records, indent=1))
        assert read(path, limits=limits) == ([[b"a"], [b"c"]], ["line_too_long"])

    @pytest.mark.parametrize("text", ["[]", "[\n]\n", " [ ] "])
    def test_an_empty_array_has_no_documents(self, tmp_path: Path, text: str) -> None:
        assert read(write(tmp_path, text)) == ([], [])

    def test_a_broken_line_is_one_reject(self, tmp_path: Path) -> None:
        path = write(tmp_path, '{"text": "a\n{"text": "b"}\n{"text": "c"}\n')
        assert read(path) == ([[b"b"], [b"c"]], ["not_json"])


@pytest.mark.parametrize(
    ("beginning", "lines"),
    [
        (b'{"text": "a"}\n{"text": "b"}\n', True),
        (b'{"text": "a"}', True),
        (b'\xef\xbb\xbf\n {"text": "a"}\r\n{', True),
        (b'{"text": "long and longer', True),
        (b'{"text": "no end\n{"text": "a"}\n', True),
        (b"", True),
        (b'{\n  "text": "a"\n}\n', False),
        (b'{"text":\n"a"}', False),
        (b'{"text": "a"}{"text": "b"}\n', False),
        (b' [{"text": "a"}]', False),
    ],
)
def test_the_first_value_tells_lines_from_other_layouts(beginning: bytes, lines: bool) -> None:
    assert has_object_lines(beginning) is lines


def test_memory_does_not_grow_with_an_array(tmp_path: Path) -> None:
    element = json.dumps({"text": "x" * 1000}) + ","
    peaks = []
    for count in (6_000, 30_000):
        path = write(tmp_path, "[" + (element * count)[:-1] + "]")
        source = SourceRange(str(path), "a.json", "json", "", path.stat().st_size)
        tracemalloc.start()
        assert sum(len(batch.keys) for batch in read_documents(source, SPEC)) == count
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.2 * peaks[0]
