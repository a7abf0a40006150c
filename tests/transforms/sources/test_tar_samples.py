"""WebDataset's tars as input of text: samples to documents, what is broken, compressed ones."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from backports import zstd
from msgspec.structs import replace

from recordmill.records.errors import UsageError
from recordmill.transforms.sources import document_spec
from recordmill.transforms.sources.document_spec import DocumentLimits, DocumentSpec
from recordmill.transforms.sources.documents import read_documents
from recordmill.transforms.sources.input_spec import WHOLE_TEXT
from recordmill.transforms.sources.item_cutting import cut_work_items
from recordmill.transforms.sources.kept_fields import parse_fields
from recordmill.transforms.sources.row_fields import LabelSpec, RowSpec
from recordmill.transforms.sources.source_checks import check_contents
from recordmill.transforms.sources.tables import is_table
from recordmill.transforms.sources.work_items import list_sources

from .column_files import TEXTS, Read, read, read_sources

COMPRESS = {
    ".tar": bytes, ".tar.gz": gzip.compress, ".tgz": gzip.compress, ".tar.bz2": bz2.compress,
    ".tar.xz": lzma.compress, ".tar.zst": zstd.compress,
}  # fmt: skip
ROWS = [
    {"text": text, "label": f"l{i % 3}", "n": i, "pair": f"p {i}"} for i, text in enumerate(TEXTS)
]
SPECS = {
    "sentences": DocumentSpec(),
    "whole": DocumentSpec(sentence_splitter=WHOLE_TEXT),
    "split_by": DocumentSpec(split_by="label"),
    "classify": DocumentSpec(row=RowSpec(label=LabelSpec("label"), pair_field="pair")),
    "kept": DocumentSpec(row=RowSpec(keep_fields=parse_fields("n:int,label"))),
}


def tar(members: Sequence[tuple[str, bytes | str]], kind: int = tarfile.PAX_FORMAT) -> bytes:
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w", format=kind) as archive:
        for name, data in members:
            content = data.encode() if isinstance(data, str) else data
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return target.getvalue()


def read_tar(path: Path, data: bytes, spec: DocumentSpec | None = None, **limits: int) -> Read:
    path.write_bytes(data)
    (source,) = list_sources([str(path)])
    assert source.format == "webdataset"
    return read_sources([source], spec or DocumentSpec(), DocumentLimits(**limits))


def texts(found: Read) -> list[bytes]:
    return [b"\n".join(lines) for lines, *_ in found[0]]


def reasons(found: Read) -> list[tuple[str, str]]:
    return [(each.reason, each.detail) for each in found[3]]


@pytest.mark.parametrize("name", SPECS)
def test_documents_are_those_of_jsonl(tmp_path: Path, name: str) -> None:
    """Whether the text is a member or a field, and beside pictures, which are not read."""
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    wanted = read(tmp_path / "a.jsonl", SPECS[name])
    whole, apart = [], []
    for i, row in enumerate(ROWS):
        whole += [(f"d/{i:04}.json", json.dumps(row)), (f"d/{i:04}.jpg", b"\xff\xd8" * 600)]
        fields = json.dumps({"n": row["n"], "pair": row["pair"], "text": "not this"})
        apart += [
            (f"d/{i:04}.txt", str(row["text"])), (f"d/{i:04}.json", fields),
            (f"d/{i:04}.label", f"{row['label']}\n"),
        ]  # fmt: skip
    of_parts = replace(SPECS[name], text_field="txt")
    for members, spec in ((whole, SPECS[name]), (apart, of_parts)):
        found = read_tar(tmp_path / "a.tar", tar(members), spec, block_bytes=100)
        assert found[0] == wanted[0]
        assert [r for r, _ in reasons(found)] == [each.reason for each in wanted[3]]
        assert found[1] == sorted(set(found[1]))


@pytest.mark.parametrize("name", SPECS)
@pytest.mark.parametrize("block_bytes", [7, 100, 1 << 20])
def test_lines_of_members_are_documents(tmp_path: Path, name: str, block_bytes: int) -> None:
    lines = "".join(json.dumps(row) + "\n" for row in ROWS)
    (tmp_path / "a.jsonl").write_text(lines)
    wanted = read(tmp_path / "a.jsonl", SPECS[name])
    half = len("".join(json.dumps(row) + "\n" for row in ROWS[:4]))
    members = [
        ("d/0.jsonl", "\n" + lines[:half]),
        ("d/0.jpg", b"\xff"),
        ("d/1.jsonl", lines[half:-1]),
    ]
    data = tar(members)
    found = read_tar(tmp_path / "a.tar", data, SPECS[name], block_bytes=block_bytes)
    assert found[0] == wanted[0]
    for position, text in zip(found[1], texts(found), strict=True):
        line = json.loads(data[position:].partition(b"\n")[0].rstrip(b"\0"))
        assert "".join(text.decode().split()[:1]) in line["text"]
    rejects = [each for each in found[3] if each.reason != "no_text"]
    assert not rejects


def test_a_sample_may_have_lines_beside_its_text(tmp_path: Path) -> None:
    lines = '{"text": "of a line", "lang": "de"}\r\n{"text": "of another", "lang": "en"}'
    members: list[tuple[str, bytes | str]] = [
        ("0.cls", "7"), ("0.jsonl", lines), ("0.txt", "of the sample"), ("1.jsonl", lines),
        ("2.jsonl.gz", b"x"), ("3.jsonl", ""),
    ]  # fmt: skip
    row = RowSpec(keep_fields=parse_fields("__key__"))
    found = read_tar(tmp_path / "a.tar", tar(members), DocumentSpec(row=row))
    assert sorted(texts(found)) == sorted(
        [b"of a line", b"of another", b"of the sample", b"of a line", b"of another"]
    )
    assert sorted(carried for *_, carried in found[0]) == [("0",)] * 3 + [("1",)] * 2
    assert reasons(found) == [("field_missing", "2: no 'text' among __key__, jsonl.gz")]
    assert len(set(found[2])) == 5
    as_text = read_tar(tmp_path / "a.tar", tar(members[3:4]), DocumentSpec(text_field="jsonl"))
    assert [text.count(b"of a") for text in texts(as_text)] == [2]


@pytest.mark.parametrize("extension", [".tar", ".tar.gz"])
def test_damaged_lines_are_rejects_with_their_position(tmp_path: Path, extension: str) -> None:
    lines = [
        b'{"text": "good"}', b"nonsense", b"[1]", b'{"other": 1}', b'{"text": "caf\xe9"}',
        b'{"text": "' + b"x" * 3000 + b'"}', b'{"text": "last"}',
    ]  # fmt: skip
    data = tar([("d/k.jsonl", b"\n".join(lines))])
    for block_bytes in (50, 1 << 20):
        found = read_tar(
            tmp_path / f"a{extension}", COMPRESS[extension](data), block_bytes=block_bytes,
            record_bytes=2000,
        )  # fmt: skip
        assert texts(found) == [b"good", b"last"]
        rejected = {each.position: each.reason for each in found[3]}
        assert rejected == {
            data.index(lines[1]): "not_json", data.index(lines[2]): "not_json",
            data.index(lines[3]): "field_missing", data.index(lines[4]): "undecodable",
            data.index(lines[5]): "line_too_long",
        }  # fmt: skip
        assert all(each.detail.startswith("d/k") for each in found[3])


def test_a_tar_that_ends_within_lines_is_used_up_to_there(tmp_path: Path) -> None:
    data = tar([("k.jsonl", b"".join(b'{"text": "t%d"}\n' % i for i in range(100)))])
    cut = data[: data.index(b'{"text": "t50"}') + 5]
    found = read_tar(tmp_path / "a.tar", cut)
    assert len(found[0]) == 50
    assert ("broken_archive", "k: the archive ends within its .jsonl") in reasons(found)


def test_members_are_fields(tmp_path: Path) -> None:
    members = [
        ("0.txt", "one text\n"), ("0.cls", "7\n"), ("0.json", '{"lang": "de"}'), ("0.JPG", b"\xff"),
        ("dir/1.caption.txt", "of a caption"), ("dir/1.txt", "two\n\nlines"), ("dir/1.cls", "8"),
        ("dir/1.json", '{"lang": "en"}'),
    ]  # fmt: skip
    row = RowSpec(keep_fields=parse_fields("cls:int,lang,__key__"))
    found = read_tar(tmp_path / "a.tar", tar(members), DocumentSpec(row=row))
    assert texts(found) == [b"one text", b"two\nlines"]
    assert [carried for *_, carried in found[0]] == [("7", "de", "0"), ("8", "en", "dir/1")]
    spec = DocumentSpec(text_field="caption.txt")
    found = read_tar(tmp_path / "a.tar", tar(members), spec)
    assert texts(found) == [b"of a caption"]
    assert reasons(found) == [
        ("field_missing", "0: no 'caption.txt' among lang, json, __key__, txt, cls, jpg"),
    ]


@pytest.mark.parametrize("extension", COMPRESS)
@pytest.mark.parametrize("kind", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT, tarfile.USTAR_FORMAT])
def test_compressed_tars_have_the_same_documents(tmp_path: Path, extension: str, kind: int) -> None:
    long = "" if kind == tarfile.USTAR_FORMAT else "long/" * 60
    members: list[tuple[str, bytes | str]] = []
    for i in range(40):
        members += [(f"{long}{i}.png", b"\x89" * (i * 5000)), (f"{long}{i}.txt", f"text {i}. b")]
    data = tar(members, kind)
    wanted = read_tar(tmp_path / "shard.tar", data)
    assert len(wanted[0]) == 40
    path = tmp_path / f"shard{extension}"
    found = read_tar(path, COMPRESS[extension](data))
    assert found[:2] == wanted[:2]
    assert not found[3]


def test_keys_are_of_the_sample_and_of_the_shard(tmp_path: Path) -> None:
    """What stands before a sample does not matter to it."""

    def keys(path: Path, members: list[tuple[str, bytes | str]]) -> list[int]:
        path.write_bytes(tar(members))
        (source,) = list_sources([str(path)])
        return [int(k) for batch in read_documents(source, DocumentSpec()) for k in batch.keys]

    one, two = ("0.txt", "a"), ("1.txt", "b")
    first = keys(tmp_path / "a.tar", [one, two])
    assert keys(tmp_path / "a.tar", [("x.jpg", b"\xff" * 999), two])[-1] == first[1]
    assert keys(tmp_path / "b.tar", [one])[0] != first[0]
    assert len(set(first)) == 2


def test_broken_samples_are_rejects(tmp_path: Path) -> None:
    members: list[tuple[str, Any]] = [
        ("good.txt", "good"), ("twice.txt", "a"), ("twice.txt", "b"), ("json.json", "[1]"),
        ("latin.txt", b"caf\xe9"), ("number.json", '{"text": 5}'), ("picture.jpg", b"\xff\xd8"),
        ("._good.txt", "of macOS"), ("long.txt", "x" * 3000), ("last.txt", "last"),
    ]  # fmt: skip
    data = tar(members)
    link = tarfile.TarInfo("link.txt")
    link.type, link.linkname = tarfile.SYMTYPE, "good.txt"
    target = io.BytesIO(data)
    with tarfile.open(fileobj=target, mode="a") as archive:
        archive.addfile(link)
    found = read_tar(tmp_path / "a.tar", target.getvalue(), record_bytes=2000)
    assert texts(found) == [b"good", b"last"]
    assert reasons(found) == [
        ("duplicate", "twice: it has two members .txt"),
        ("not_json", "json: list"),
        ("undecodable", "latin: its .txt: unexpected end of data"),
        ("field_not_text", "number: 'text' is int"),
        ("field_missing", "picture: no 'text' among __key__, jpg"),
        ("line_too_long", "long: it has 3000 bytes"),
        ("bad_row", "link: its .txt is a link or sparse file"),
    ]
    latin = DocumentSpec(encoding="latin-1")
    assert "café".encode() in texts(read_tar(tmp_path / "a.tar", data, latin))
    lax = DocumentSpec(encoding_errors="replace")
    assert "caf\ufffd".encode() in texts(read_tar(tmp_path / "a.tar", data, lax))


@pytest.mark.parametrize("extension", [".tar", ".tar.gz"])
def test_a_cut_tar_is_used_up_to_there(tmp_path: Path, extension: str) -> None:
    whole = tar([(f"{i}.txt", f"text {i} " * 100) for i in range(9)])
    for size in range(700, len(whole) - 11_000, 700):
        path = tmp_path / f"a{extension}"
        if extension == ".tar":
            found = read_tar(path, whole[:size])
        else:
            found = read_tar(path, gzip.compress(whole[:size]))
        count = len(found[0])
        assert texts(found) == [f"text {i} ".encode().strip() * 1 + (f" text {i}".encode() * 99)
                                for i in range(count)]  # fmt: skip
        assert {reason for reason, _ in reasons(found)} <= {"broken_archive"}
        assert found[3]


@pytest.mark.parametrize("extension", list(COMPRESS)[1:])
def test_a_damaged_stream_is_used_up_to_there(tmp_path: Path, extension: str) -> None:
    data = COMPRESS[extension](tar([(f"{i}.txt", f"text {i} " * 9999) for i in range(30)]))
    found = read_tar(tmp_path / f"a{extension}", data[: len(data) * 2 // 3])
    assert len(found[0]) < 30
    assert "broken_file" in {reason for reason, _ in reasons(found)}


def test_a_tar_that_unpacks_to_too_much_is_a_reject(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(document_spec, "READ_LIMITS", DocumentLimits(unpacked_bytes=1 << 20))
    data = gzip.compress(tar([("a.txt", "a"), ("b.txt", "x" * (2 << 20)), ("c.txt", "c")]))
    found = read_tar(tmp_path / "a.tgz", data, DocumentSpec(max_compression_ratio=1))
    assert texts(found) == [b"a"]
    assert "decompression_bomb" in {reason for reason, _ in reasons(found)}


def test_tars_are_whole_work_items_and_checked(tmp_path: Path) -> None:
    for name in ("a.tar", "b.tar"):
        (tmp_path / name).write_bytes(tar([("0.txt", "x" * 5000)]))
    sources = list(list_sources([f"{tmp_path}/*.tar"]))
    assert len(list(cut_work_items(sources, 100))) == 2
    check_contents(sources, DocumentSpec())
    (tmp_path / "c.tar").write_bytes(b"PAR1" + b"x" * 500)
    with pytest.raises(UsageError, match=r"c.tar is a Parquet file, not WebDataset; give --input_"):
        check_contents(list_sources([f"{tmp_path}/c.tar"]), DocumentSpec())
    (tmp_path / "d.txt").write_bytes(tar([("0.txt", "a")]))
    assert not is_table(str(tmp_path / "a.tar"))
    with pytest.raises(UsageError, match=r"d.txt is a tar archive, not plain text; give --input_f"):
        check_contents(list_sources([f"{tmp_path}/d.txt"]), DocumentSpec())
