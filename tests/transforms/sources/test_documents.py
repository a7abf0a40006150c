from __future__ import annotations

import bz2
import csv
import gzip
import io
import json
import lzma
import os
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest
from backports import zstd
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from recordmill.records.errors import UsageError
from recordmill.records.spec import naming_flags
from recordmill.transforms.dataset.rejects import REASONS, Reject
from recordmill.transforms.sources.delimited_rows import read_header
from recordmill.transforms.sources.document_spec import READ_LIMITS, DocumentLimits, DocumentSpec
from recordmill.transforms.sources.documents import read_documents
from recordmill.transforms.sources.formats import CutOptions
from recordmill.transforms.sources.item_cutting import cut_work_items
from recordmill.transforms.sources.work_items import SourceRange, list_sources
from recordmill.transforms.storage import files

from . import documents_reference as reference

Found = reference.Found
SMALL = DocumentLimits(line_bytes=24, paragraph_lines=3, hashed_bytes=16)

COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zst": zstd.compress,
}


def collect(
    ranges: Iterable[SourceRange], spec: DocumentSpec, limits: DocumentLimits = READ_LIMITS
) -> Found:
    """Reads ranges one by one and puts the parts of documents together."""
    found = Found()
    for source in ranges:
        last_key = None
        for batch in read_documents(source, spec, limits=limits):
            count = len(batch.keys)
            assert len(batch.groups) == count
            assert np.all(np.diff(batch.line_documents) >= 0)
            assert not len(batch.lines) or batch.line_documents[0] >= 0
            assert not len(batch.lines) or batch.line_documents[-1] < count
            found.rejects += [(reject.position, reject.reason) for reject in batch.rejects]
            assert {reject.source for reject in batch.rejects} <= {source.name}
            assert {reject.reason for reject in batch.rejects} <= set(REASONS)
            for number in range(count):
                key, group = int(batch.keys[number]), int(batch.groups[number])
                lines = [batch.lines[i] for i in np.flatnonzero(batch.line_documents == number)]
                assert not any(reference.is_blank(line) for line in lines)
                for line, ascii_only in zip(
                    lines, ~batch.lines.non_ascii[batch.line_documents == number], strict=True
                ):
                    line.decode("utf-8")
                    assert line.isascii() or not ascii_only
                if number == 0 and batch.continues:
                    assert key == last_key
                    assert group == found.documents[key][0]
                    found.documents[key][1].extend(lines)
                else:
                    assert key not in found.documents
                    found.documents[key] = (group, lines)
            if count:
                last_key = int(batch.keys[-1])
    found.rejects.sort()
    return found


def ranges_of(path: Path, target_bytes: int, *, splittable: bool = True) -> list[SourceRange]:
    sources = list_sources([str(path)])
    items = cut_work_items(sources, target_bytes, CutOptions(splittable))
    return [source for item in items for source in item]


def lines_of(found: Found) -> list[list[bytes]]:
    return [lines for _, lines in found.documents.values()]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("documents")


def write(folder: Path, data: bytes, name: str = "a.txt") -> Path:
    path = folder / name
    path.write_bytes(data)
    return path


FEW = settings(
    max_examples=250, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)

ends = st.sampled_from(["\n", "\n", "\n", "\r\n", "\n\n", "\r\n\r\n", " \n", "\n \t\r\n", "\r", ""])
words = st.sampled_from(
    ["a b.", "One. Two", "word ", "é…", "日本。語", " ", "\u00a0", "\u3000", "\x1c", "\x0b", "\r",
     "x" * 23, "x" * 24, "x" * 25, "y" * 60, "é" * 20, " " * 30, "z" * 20 + " " * 9,
     "many words in a line longer than the limit allows"]
)  # fmt: skip
valid_text = st.lists(st.tuples(st.lists(words, max_size=4).map("".join), ends), max_size=14).map(
    lambda lines: "".join(line + end for line, end in lines).encode()
)
raw_text = st.lists(
    st.one_of(valid_text, st.sampled_from([b"\xff", b"ok \xc3", b"\xe2\x82", b"\x80\n"])),
    max_size=4,
).map(b"".join)
boms = st.sampled_from([b"", b"", b"", b"\xef\xbb\xbf"])
specs = st.builds(
    DocumentSpec,
    documents=st.sampled_from(["blank_line", "line", "file"]),
    sentence_splitter=st.sampled_from(["auto", "none", "punctuation"]),
    encoding_errors=st.sampled_from(["strict", "replace"]),
)


class TestText:
    @FEW
    @given(
        bom=boms,
        text=raw_text,
        spec=specs,
        block=st.integers(1, 64),
        open_document=st.integers(1, 80),
        target=st.integers(8, 64),
        most=st.integers(1, 5),
    )
    @example(b"", b"x" * 24 + b"\r\ny\n", DocumentSpec(), 25, 1, 8, 1)
    @example(b"", b"\x1c\nword\n", DocumentSpec(), 64, 1, 8, 1)
    @example(b"\xef\xbb\xbf", b"\nword\nword\n", DocumentSpec(), 3, 1, 8, 1)
    @example(b"", b"a " * 100 + b"\n" + b"b " * 50, DocumentSpec(documents="line"), 7, 1, 16, 1)
    def test_neither_blocks_nor_ranges_nor_parts_show(
        self, folder: Path, bom, text, spec, block, open_document, target, most
    ):
        data = bom + text
        path = write(folder, data)
        expected = reference.read_text(data, path.name, spec, SMALL)
        expected.rejects.sort()
        source = SourceRange(str(path), path.name, "text", "", len(data))
        limits = replace(SMALL, block_bytes=block, open_document_bytes=open_document)
        assert collect([source], spec, limits) == expected
        first = collect([replace(source, most=most)], spec, limits)
        assert list(first.documents.items()) == list(expected.documents.items())[:most]
        assert set(first.rejects) <= set(expected.rejects)
        if data and spec.splittable:
            assert collect(ranges_of(path, target), spec, limits) == expected

    @settings(FEW, max_examples=60)
    @given(text=raw_text, spec=specs, block=st.integers(1, 64), kind=st.sampled_from([*COMPRESS]))
    def test_compressed_files_read_the_same(self, folder: Path, text, spec, block, kind):
        path = write(folder, COMPRESS[kind](text), f"a.txt{kind}")
        expected = reference.read_text(text, path.name, spec, SMALL)
        expected.rejects.sort()
        compression = kind[1:]
        source = SourceRange(str(path), path.name, "text", compression, path.stat().st_size)
        limits = replace(SMALL, block_bytes=block, open_document_bytes=20)
        assert collect([source], spec, limits) == expected

    @settings(FEW, max_examples=100)
    @given(
        text=valid_text,
        spec=specs,
        block=st.integers(1, 64),
        encoding=st.sampled_from(["latin-1", "utf-16", "utf-16-le", "utf-32", "shift_jis"]),
    )
    def test_other_encodings_read_as_their_text(self, folder: Path, text, spec, block, encoding):
        errors = "strict" if encoding == "latin-1" else spec.encoding_errors
        spec = msgspec.structs.replace(spec, encoding=encoding, encoding_errors=errors)
        raw = text.decode().encode(encoding, "ignore")
        text = raw.decode(encoding).encode()
        path = write(folder, raw)
        expected = reference.read_text(text, path.name, spec, SMALL)
        source = SourceRange(str(path), path.name, "text", "", len(raw))
        limits = replace(SMALL, block_bytes=block, open_document_bytes=20)
        assert collect([source], spec, limits) == expected

    @pytest.mark.parametrize("errors", ["strict", "replace"])
    @pytest.mark.parametrize("block", [1, 2, 3, 7, 1 << 22])
    def test_undecodable_utf16_affects_its_line_only(self, folder: Path, errors, block):
        lone = b"\x41\xd8"  # half of a surrogate pair whose bytes are both below 128 or not
        raw = "one\nt".encode("utf-16-le") + b"\x00\xdc" + "wo\n".encode("utf-16-le")
        raw += lone + "three\nfour".encode("utf-16-le") + b"z"
        path = write(folder, raw)
        source = SourceRange(str(path), path.name, "text", "", len(raw))
        spec = DocumentSpec(documents="line", encoding="utf-16-le", encoding_errors=errors)
        limits = DocumentLimits(block_bytes=block)
        found = collect([source], spec, limits)
        if errors == "strict":
            assert lines_of(found)[0] == [b"one"]
            assert {reason for _, reason in found.rejects} == {"undecodable"}
        else:
            assert not found.rejects
            assert len(found.documents) == 4
        if errors == "replace":
            assert "�" in lines_of(found)[1][0].decode()

    def test_documents_as_users_know_them(self, folder: Path):
        path = write(folder, "\ufeffFirst line.\r\nSecond.\r\n\r\n \r\nThird\n\n\nLast".encode())
        [source] = list_sources([str(path)])
        assert lines_of(collect([source], DocumentSpec())) == [
            [b"First line.", b"Second."],
            [b"Third"],
            [b"Last"],
        ]
        assert lines_of(collect([source], DocumentSpec(documents="line"))) == [
            [b"First line."],
            [b"Second."],
            [b"Third"],
            [b"Last"],
        ]
        whole_file = DocumentSpec(documents="file", sentence_splitter="none")
        assert lines_of(collect([source], whole_file)) == [
            [b"First line.", b"Second.", b"Third", b"Last"]
        ]

    def test_punctuation_joins_the_lines_of_a_paragraph(self, folder: Path):
        path = write(folder, b"A sentence over\ntwo lines. And\nanother.\n\nNext Dr. No.\n")
        [source] = list_sources([str(path)])
        spec = DocumentSpec(documents="file")
        assert lines_of(collect([source], spec)) == [
            [b"A sentence over two lines.", b"And another.", b"Next Dr. No."]
        ]

    @pytest.mark.parametrize("documents_are", ["blank_line", "line", "file"])
    def test_real_sizes_with_documents_longer_than_a_block(self, folder: Path, documents_are):
        rng = np.random.default_rng(1)
        lines = []
        for _ in range(60):
            size = int(rng.choice([20, 3000, 70_000, 200_000]))
            lines.append(b"x" * 5 + rng.choice([b"a", b" ", b"b"], size).tobytes())
            lines += [b""] * int(rng.random() < 0.05)
        data = b"\n".join(lines)
        path = write(folder, data)
        spec = DocumentSpec(documents=documents_are, sentence_splitter="none")
        expected = reference.read_text(data, path.name, spec, DocumentLimits())
        limits = DocumentLimits(block_bytes=1 << 18, open_document_bytes=1 << 17)
        target = 1 << 19
        ranges = ranges_of(path, target, splittable=spec.splittable)
        assert collect(ranges, spec, limits) == expected

    def test_a_long_document_is_handed_on_in_parts(self, folder: Path):
        path = write(folder, b"some words on a line\n" * 400_000)
        [source] = list_sources([str(path)])
        limits = DocumentLimits(block_bytes=1 << 20)
        batches = list(read_documents(source, DocumentSpec(), limits=limits))
        assert [batch.continues for batch in batches] == [False] + [True] * (len(batches) - 1)
        assert len(batches) == 8
        assert sum(len(batch.lines) for batch in batches) == 400_000

    def test_a_range_inside_a_long_document_is_not_read_beyond(self, folder: Path, monkeypatch):
        path = write(folder, b"some words on a line\n" * 5000)
        [source] = list_sources([str(path)])
        read = []

        class Counting(io.BufferedReader):
            def read(self, size=-1):
                data = super().read(size)
                read.append(len(data))
                return data

        def counted(path, offset=0):
            handle = Counting(io.FileIO(path))
            handle.seek(offset)
            return handle

        monkeypatch.setattr(files, "open_read", counted)
        limits = DocumentLimits(block_bytes=1000, open_document_bytes=1000)
        source = replace(source, start=30_000, end=40_000)
        batches = list(read_documents(source, DocumentSpec(), limits=limits))
        assert not batches
        assert 10_000 <= sum(read) < 15_000

    def test_text_of_equal_words_has_one_group(self, folder: Path):
        path = write(folder, b"a b\nc\n\na\tb  \r\nc\r\n\nab\nd\n")
        [source] = list_sources([str(path)])
        groups = [group for group, _ in collect([source], DocumentSpec()).documents.values()]
        assert groups[0] == groups[1] != groups[2]

    def test_groups_are_computed_only_where_wanted(self, folder: Path):
        path = write(folder, b"one\n\ntwo\n")
        [source] = list_sources([str(path)])
        with_groups = list(read_documents(source, DocumentSpec()))
        without = list(read_documents(source, DocumentSpec(), groups=False))
        assert len({group for batch in with_groups for group in batch.groups.tolist()}) == 2
        assert len({group for batch in without for group in batch.groups.tolist()}) == 1
        assert [b.keys.tolist() for b in with_groups] == [b.keys.tolist() for b in without]


json_texts = st.one_of(
    st.text(alphabet=st.sampled_from("ab. \n\r\té日\ud800"), max_size=30),
    st.just("A sentence. Another one.\n\nNew paragraph."),
)
json_records = st.one_of(
    st.builds(lambda text, lang: {"text": text, "lang": lang}, json_texts, st.sampled_from("xy")),
    st.builds(lambda text: {"text": text}, json_texts),
    st.sampled_from([{"other": 1}, {"text": 1, "lang": "x"}, {"text": None}, [1], "text", 7, None]),
)


class TestJsonLines:
    @settings(FEW, max_examples=150)
    @given(
        bom=boms,
        records=st.lists(
            st.one_of(
                json_records.map(lambda r: json.dumps(r).encode()),
                st.sampled_from([b"", b"  ", b"{not json", b'{"text": "\xff"}']),
            ),
            max_size=12,
        ),
        end=st.sampled_from([b"\n", b"\r\n"]),
        last_end=st.booleans(),
        spec=specs,
        split_by=st.sampled_from(["", "lang"]),
        block=st.integers(1, 64),
        target=st.integers(8, 80),
    )
    def test_neither_blocks_nor_ranges_show(
        self, folder, bom, records, end, last_end, spec, split_by, block, target
    ):
        spec = msgspec.structs.replace(spec, split_by=split_by)
        data = bom + end.join(records) + end * last_end
        path = write(folder, data, "a.jsonl")
        expected = reference.read_records(data, path.name, "jsonl", spec, SMALL)
        expected.rejects.sort()
        source = SourceRange(str(path), path.name, "jsonl", "", len(data))
        limits = replace(SMALL, block_bytes=block)
        assert collect([source], spec, limits) == expected
        if data and spec.splittable:
            assert collect(ranges_of(path, target), spec, limits) == expected

    def test_fields_by_name(self, folder: Path):
        records = [{"body": "One. Two.", "id": 1}, {"text": "x"}, {"body": ["x"]}]
        path = write(folder, "\n".join(map(json.dumps, records)).encode(), "b.jsonl")
        [source] = list_sources([str(path)])
        spec = DocumentSpec(text_field="body")
        assert lines_of(collect([source], spec)) == [[b"One.", b"Two."]]
        rejects = [reject for batch in read_documents(source, spec) for reject in batch.rejects]
        assert [(reject.reason, reject.detail) for reject in rejects] == [
            ("field_missing", "no 'body' among text"),
            ("field_not_text", "'body' is list"),
        ]
        assert Counter(reject.reason for reject in rejects) == {
            "field_missing": 1,
            "field_not_text": 1,
        }

    def test_what_pythons_json_writes_is_read(self, folder: Path):
        records = [
            {"text": "a", "x": float("nan"), "of": "\ud800", "\udc00": 1}, {"text": "a\ud800b"},
            {"text": "😀"},
        ]  # fmt: skip
        path = write(folder, "\n".join(map(json.dumps, records)).encode(), "n.jsonl")
        found = collect(list_sources([str(path)]), DocumentSpec())
        assert sorted(lines_of(found)) == [[b"a"], ["😀".encode()]]
        assert found.rejects == [(53, "lone_surrogate")]
        found = collect(list_sources([str(path)]), DocumentSpec(encoding_errors="replace"))
        assert sorted(lines_of(found)) == [[b"a"], ["a\ufffdb".encode()], ["😀".encode()]]

    @pytest.mark.parametrize("block", [1, 5, 32, 1 << 22])
    @pytest.mark.parametrize("target", [16, 64, 1 << 20])
    def test_a_record_beyond_the_limit_is_rejected_once(self, folder, block, target):
        long = json.dumps({"text": "x" * 100})
        records = [json.dumps({"text": "a"}), long, json.dumps({"text": "b"}), long]
        path = write(folder, "\n".join(records).encode(), "c.jsonl")
        limits = DocumentLimits(block_bytes=block, record_bytes=40)
        found = collect(ranges_of(path, target), DocumentSpec(), limits)
        assert sorted(lines_of(found)) == [[b"a"], [b"b"]]
        first = len(records[0]) + 1
        assert found.rejects == [
            (first, "line_too_long"),
            (first + len(long) + 1 + len(records[2]) + 1, "line_too_long"),
        ]


cells = st.one_of(
    st.text(alphabet=st.sampled_from('ab. \n\t,"é'), max_size=12),
    st.sampled_from(["two\r\nlines", 'quote " here', "", " padded "]),
)


def csv_bytes(rows: list[list[str]], *, delimiter: str, end: str) -> bytes:
    out = io.StringIO()
    csv.writer(out, delimiter=delimiter, lineterminator=end).writerows(rows)
    return out.getvalue().encode()


class TestDelimited:
    @settings(FEW, max_examples=150)
    @given(
        rows=st.lists(
            st.one_of(st.tuples(cells, cells), st.tuples(cells), st.tuples(cells, cells, cells)),
            max_size=10,
        ),
        kind=st.sampled_from(["csv", "tsv"]),
        end=st.sampled_from(["\n", "\r\n"]),
        spec=specs,
        header=st.sampled_from([["text", "lang"], ["lang", "text"], ["lang"], ["text"]]),
        split_by=st.sampled_from(["", "lang"]),
        last_end=st.booleans(),
        block=st.integers(1, 64),
        target=st.integers(8, 80),
    )
    def test_neither_blocks_nor_ranges_show(
        self, folder, rows, kind, end, spec, header, split_by, last_end, block, target
    ):
        spec = msgspec.structs.replace(spec, split_by=split_by)
        delimiter = "\t" if kind == "tsv" else ","
        data = csv_bytes([header, *map(list, rows)], delimiter=delimiter, end=end)
        if not last_end:
            data = data[: -len(end)]
        path = write(folder, data, f"a.{kind}")
        expected = reference.read_records(data, path.name, kind, spec, SMALL)
        source = SourceRange(str(path), path.name, kind, "", len(data))
        limits = replace(SMALL, block_bytes=block)
        assert collect([source], spec, limits) == expected
        if spec.splittable:
            assert collect(ranges_of(path, target), spec, limits) == expected

    def test_a_bom_is_no_part_of_the_first_column(self, folder: Path):
        path = write(folder, b"\xef\xbb\xbftext,lang\r\nOne.,x\r\n", "b.csv")
        [source] = list_sources([str(path)])
        assert lines_of(collect([source], DocumentSpec())) == [[b"One."]]
        assert read_header(source, DocumentSpec()) == ["text", "lang"]

    def test_wrong_rows_say_what_was_found(self, folder: Path):
        path = write(folder, b"text,lang\nok,x\nalone\na,b,c\n\na\rb,c\n", "c.csv")
        [source] = list_sources([str(path)])
        [*batches] = read_documents(source, DocumentSpec())
        assert [(r.position, r.reason, r.detail) for b in batches for r in b.rejects] == [
            (15, "wrong_number_of_fields", "1 where the header has 2"),
            (21, "wrong_number_of_fields", "3 where the header has 2"),
            (28, "broken_row", "more than one row"),
        ]

    def test_header_of_an_unreadable_file_is_empty(self, folder: Path):
        path = write(folder, b"not gzip", "d.csv.gz")
        [source] = list_sources([str(path)])
        assert read_header(source, DocumentSpec()) == []

    @pytest.mark.parametrize("kind", [*COMPRESS])
    def test_compressed(self, folder: Path, kind):
        data = csv_bytes([["text"], ["a\nb"], ["c"]], delimiter=",", end="\n")
        path = write(folder, COMPRESS[kind](data), f"e.csv{kind}")
        [source] = list_sources([str(path)])
        spec = DocumentSpec(sentence_splitter="none")
        assert lines_of(collect([source], spec)) == [[b"a", b"b"], [b"c"]]


LINES = [f"line {i} {i * 7919 % 1_000_003}".encode() for i in range(40_000)]


class TestDamage:
    @pytest.mark.parametrize("block", [1000, 1 << 22])
    @pytest.mark.parametrize("kind", [".gz", ".bz2", ".xz", ".zst"])
    def test_a_cut_file_is_rejected_and_what_came_before_is_used(self, folder, kind, block):
        whole = COMPRESS[kind](b"\n".join(LINES))
        path = write(folder, whole[: len(whole) * 3 // 4], f"cut.txt{kind}")
        [source] = list_sources([str(path)])
        limits = DocumentLimits(block_bytes=block)
        found = collect([source], DocumentSpec(documents="line", sentence_splitter="none"), limits)
        assert [reason for _, reason in found.rejects] == ["broken_file"]
        read = [line for [line] in lines_of(found)]
        if kind == ".bz2":
            return  # it gives whole blocks of 900 kB only
        assert read[:-1] == LINES[: len(read) - 1]
        assert len(read) > 20_000

    @pytest.mark.parametrize("kind", [".gz", ".bz2", ".xz", ".zst"])
    @pytest.mark.parametrize("name", ["x.txt", "x.jsonl", "x.csv"])
    def test_a_file_that_is_not_compressed_is_rejected(self, folder, kind, name):
        path = write(folder, b"plain text, not compressed at all\n", name + kind)
        [source] = list_sources([str(path)])
        found = collect([source], DocumentSpec())
        assert found.rejects == [(0, "broken_file")]
        assert not found.documents

    def test_a_cut_json_file_loses_its_last_record_only(self, folder: Path):
        records = [json.dumps({"text": f"a{i * 7919 % 1000003}"}) for i in range(5000)]
        whole = gzip.compress("\n".join(records).encode())
        path = write(folder, whole[:-400], "cut.jsonl.gz")
        [source] = list_sources([str(path)])
        found = collect([source], DocumentSpec())
        assert [reason for _, reason in found.rejects] == ["broken_file"]
        assert 1000 < len(found.documents) < 5000
        last = json.loads(records[len(found.documents) - 1])["text"]
        assert lines_of(found)[-1] == [last.encode()]

    @pytest.mark.parametrize("name", ["gone.txt", "gone.jsonl", "gone.csv"])
    def test_a_file_that_is_gone_is_a_reject(self, folder: Path, name):
        path = write(folder, b"text\n", name)
        [source] = list_sources([str(path)])
        os.remove(path)
        [batch] = read_documents(source, DocumentSpec())
        [reject] = batch.rejects
        assert (reject.source, reject.stage, reject.reason) == (name, "read", "unreadable_file")
        assert "No such file" in reject.detail

    def test_rejects_are_one_json_line(self):
        line = Reject("a.txt", 3, "read", "undecodable", "é\n").to_line()
        assert line.count("\n") == 1
        assert json.loads(line) == {
            "source": "a.txt",
            "position": 3,
            "stage": "read",
            "reason": "undecodable",
            "detail": "é\n",
        }


class TestSpec:
    @pytest.mark.parametrize(
        ("option", "message"),
        [
            ({"documents": "lines"}, "--documents must be one of .*, got 'lines'; did you mean"),
            ({"sentence_splitter": "spacy"}, "--sentence_splitter must be one of .*got 'spacy'"),
            ({"encoding_errors": "ignore"}, "--encoding_errors must be one of replace, strict"),
            ({"encoding": "utf8000"}, "--encoding must be one that Python knows .* got 'utf8000'"),
            (
                {"encoding": "latin-1", "encoding_errors": "replace"},
                "--encoding_errors has no effect with an encoding in which every byte is",
            ),
            (
                {"header": "none", "columns": ("a", "a")},
                "--columns must name each column once, got a,a",
            ),
        ],
    )
    def test_errors(self, option, message):
        with naming_flags(), pytest.raises(UsageError, match=message):
            DocumentSpec(**option)

    @pytest.mark.parametrize(
        ("spec", "input_format", "expected"),
        [
            (DocumentSpec(), "text", False),
            (DocumentSpec(), "jsonl", True),
            (DocumentSpec(documents="line"), "text", True),
            (DocumentSpec(documents="file"), "text", True),
            (DocumentSpec(sentence_splitter="none"), "csv", False),
            (DocumentSpec(sentence_splitter="punctuation"), "text", True),
        ],
    )
    def test_auto_splitting(self, spec, input_format, expected):
        assert spec.by_punctuation(input_format) is expected

    @pytest.mark.parametrize(
        ("spec", "expected"),
        [
            (DocumentSpec(), True),
            (DocumentSpec(encoding="UTF8"), True),
            (DocumentSpec(encoding="utf-8-sig"), True),
            (DocumentSpec(encoding="latin-1"), False),
            (DocumentSpec(documents="file"), False),
        ],
    )
    def test_splittable(self, spec, expected):
        assert spec.splittable is expected


@pytest.mark.real
class TestRealFiles:
    @pytest.mark.parametrize("documents_are", ["blank_line", "line"])
    @pytest.mark.parametrize(
        "name",
        ["blns.txt", "gutenberg_52834-0_utf8_bom_crlf.txt", "wagahai_neko_ja_utf8.txt",
         "debian_handbook_zh-CN.txt"],
    )  # fmt: skip
    def test_text_in_ranges(self, real_data: Path, name, documents_are):
        path = real_data / "text" / "awkward" / name
        spec = DocumentSpec(documents=documents_are)
        expected = reference.read_text(path.read_bytes(), name, spec, DocumentLimits())
        expected.rejects.sort()
        assert collect(ranges_of(path, 99_991), spec) == expected

    def test_csv_with_quoted_newlines(self, real_data: Path):
        path = real_data / "text" / "awkward" / "prompts_quoted_newlines.csv"
        spec = DocumentSpec(text_field="prompt")
        expected = reference.read_records(
            path.read_bytes(), path.name, "csv", spec, DocumentLimits()
        )
        with path.open(newline="", encoding="utf-8") as handle:
            rows = sum(1 for _ in csv.DictReader(handle))
        found = collect(ranges_of(path, 99_991), spec)
        assert found == expected
        assert len(found.documents) + len(found.rejects) == rows

    def test_json_lines_with_code(self, real_data: Path):
        path = real_data / "text" / "awkward" / "HumanEval.jsonl.gz"
        spec = DocumentSpec(text_field="prompt", sentence_splitter="none")
        found = collect(list_sources([str(path)]), spec)
        with gzip.open(path) as handle:
            prompts = [json.loads(line)["prompt"] for line in handle]
        assert lines_of(found) == [
            [line.encode() for line in prompt.split("\n") if line.strip()] for prompt in prompts
        ]

    def test_latin_1(self, real_data: Path):
        path = real_data / "text" / "awkward" / "gutenberg_24675-8_latin1_crlf.txt"
        spec = DocumentSpec(encoding="latin-1")
        text = path.read_bytes().decode("latin-1").encode()
        assert collect(list_sources([str(path)]), spec) == reference.read_text(
            text, path.name, spec, DocumentLimits()
        )
        strict = collect(list_sources([str(path)]), DocumentSpec())
        assert {reason for _, reason in strict.rejects} == {"undecodable"}
