"""Files that have the name of text and are none are refused by name while a job is planned."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import zipfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from backports import zstd
from PIL import Image

from recordmill.records.errors import UsageError
from recordmill.transforms.sources.document_spec import DocumentSpec
from recordmill.transforms.sources.documents import read_documents
from recordmill.transforms.sources.source_checks import check_contents
from recordmill.transforms.sources.work_items import SourceRange, list_sources

SPEC = DocumentSpec()
TEXT = b"a line of text\n" * 20


def picture(name: str) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (8, 8)).save(buffer, name)
    return buffer.getvalue()


def parquet() -> bytes:
    buffer = io.BytesIO()
    pq.write_table(pa.table({"text": ["a", "b"]}), buffer)
    return buffer.getvalue()


def array() -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, np.arange(5))
    return buffer.getvalue()


def archive() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as packed:
        packed.writestr("a.txt", TEXT)
    return buffer.getvalue()


CASES = {
    "a.txt": (parquet(), "a Parquet file, not plain text; give --input_format=parquet"),
    "a.parquet": (TEXT, "no Parquet file; leave it out, or name the format with --input_format"),
    "b.parquet": (archive(), "a zip archive, not a Parquet file; leave it out, or"),
    "c.parquet": (b"PARE" + parquet()[4:], "an encrypted Parquet file; decrypt it first"),
    "d.parquet.gz": (gzip.compress(parquet()), "Parquet inside of gzip; unpack it"),
    "a.jsonl": (picture("PNG"), "a PNG picture, not text"),
    "b.txt": (picture("JPEG"), "a JPEG picture, not text"),
    "c.txt": (picture("WEBP"), "a WebP picture, not text"),
    "d.txt": (picture("TIFF"), "a TIFF picture, not text"),
    "a.csv": (b"%PDF-1.7\n1 0 obj", "a PDF, not text"),
    "a.json": (archive(), "a zip archive, not text"),
    "e.txt": (array(), "a NumPy array, not text"),
    "f.txt": (gzip.compress(TEXT), "gzip-compressed, and its name does not say so; give "
                                   "--input_compression=gz"),
    "g.txt": (zstd.compress(TEXT), "Zstandard-compressed, and its name does not say so"),
    "h.txt.gz": (bz2.compress(TEXT), "bzip2-compressed, and its name does not say so"),
    "i.txt": (lzma.compress(TEXT), "xz-compressed, and its name does not say so"),
    "j.txt.gz": (gzip.compress(gzip.compress(TEXT)), "gzip-compressed and holds gzip-compressed"),
    "k.txt.gz": (gzip.compress(parquet()), "gzip-compressed and holds a Parquet file, not text"),
    "l.txt": (b"some\0thing", "binary (byte 4 is NUL), not text; leave it out"),
    "m.txt": ("text".encode("utf-16"), "UTF-16; give --encoding=utf-16"),
    "n.txt": (b'\n{"id": 1, "text": "a"}\n{"id": 2}\n', "JSONL by its content, and its name does "
              "not say so; give --input_format=jsonl, or --input_format=text if it is plain text, "
              "each with an --input of such files alone; or leave it out with --skip_files"),
    "o.dat": (b'\xef\xbb\xbf{"text": "' + b"a " * 50000, "JSONL by its content"),
    "o.txt.gz": (gzip.compress(b'{"text": "a"}'), "JSONL by its content"),
    "o2.txt": (b'{"id": 1}\n{"id": 2, "content": "' + b"a " * 50000, "JSONL by its content"),
    "p": (b'[\n  {"text": "a"}]', "JSON by its content, and its name does not say so; give "
                                  "--input_format=json,"),
    "q.txt": (b'id,text\r\n1,"Yes, ""a\n\nb"""\r\n', "CSV by its content, and its name does not "
                                                      "say so; give --input_format=csv,"),
    "r.txt": (b'"3","a, b",x\n"4","c, d",y\n' * 5000, "CSV by its content"),
    "s.txt": (b'label,text\n1,"' + b"a, b\n" * 50000, "CSV by its content"),
    "t.txt": (b",text,label\n0,a,1\n1,b,0\n\n", "CSV by its content"),
    "u.tab": (b'sentence\tlabel\n' + b'"a" sentence, no more\t1\nanother\t0\n' * 2,
              "TSV by its content"),
    "v.txt": (b"1;Yes, a;3,50\n2;b;4,20\n" * 3, "CSV by its content, and its name does "
                                                    "not say so; give --input_format=csv "
                                                    "--delimiter=';',"),
}  # fmt: skip


PROSE = (
    "Yes, he said.\nNo, he said.\n", "1,000 men.\n\n2,000 women.\n", "one,two\n", "text\na,b\n",
    "\tIndented.\n\tAs in books.\n", "Like verse,\nOf lines,\n", '"Go," he said, "on."\n"No,"\n',
    'one,two\nthree,four\n"Go," he said.\n', "{a: 1}\n", "[1, 2]\n", '{"a set"}\n',
    '"never closed, and\nmore\n' * 9, "Population: 1,204\nDensity: 3,500\n" * 9,
    "1,000 men\n2,000 women\n" * 9, "Il costo e 3,50 euro\nIl prezzo e 4,20 euro\n" * 9,
    "Between 1,204,500 and 2\n" * 9, "你好,世界\n我是,学生\n" * 9,
    "12 May,1990\n13 June,1991\n" * 9,
    "1.\tFirst we do this.\n2.\tThen that.\n" * 9, "alice\tHi\nbob\tHello there\n" * 9,
    "2024-01-01 10:33:00,123 INFO Started\n2024-01-01 10:33:01,456 WARN slow\n" * 9,
    "roses are red;violets are blue\nsugar is sweet;and so are you\n" * 9, "a,b,c\nd,e,f\n",
    '{"name": "x"} is how JSON looks.\n\nMore prose follows.\n', '{"a": 1}\n\nThe object above.\n',
    '{\n "cells": [],\n "nbformat": 4\n}\n', '{\n "cells": ["' + "a " * 50_000 + '"]\n}\n',
    "\n" * (1 << 16), " " * (1 << 16),
)  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_file_that_is_no_text_is_named(tmp_path: Path, name: str) -> None:
    data, problem = CASES[name]
    (tmp_path / "0.txt").write_bytes(TEXT)
    (tmp_path / name).write_bytes(data)
    with pytest.raises(UsageError) as caught:
        check_contents(list_sources([f"{tmp_path}/*"]), SPEC)
    assert str(caught.value).startswith(f"--input {tmp_path / name} is {problem}")
    assert "\n" not in str(caught.value)


def test_text_passes(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(TEXT)
    (tmp_path / "b.txt").write_bytes(b"BM and PK and GIF, %PDF and PAR: all of them words\n")
    (tmp_path / "c.txt.gz").write_bytes(gzip.compress(TEXT))
    (tmp_path / "d.txt.gz").write_bytes(gzip.compress(TEXT)[:20])
    (tmp_path / "e.txt").write_bytes(b"")
    for number, prose in enumerate(PROSE):
        (tmp_path / f"{number}.txt").write_text(prose, encoding="utf-8")
    check_contents(list_sources([f"{tmp_path}/*"]), SPEC)


def test_rows_may_be_asked_for_as_plain_text(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b'{"text": "a"}\n')
    check_contents(list_sources([f"{tmp_path}/*"]), SPEC, by_name=False)
    (tmp_path / "a.txt").write_bytes('{"text": "a"}\n'.encode("utf-16"))
    with pytest.raises(UsageError, match="is JSONL by its content"):
        check_contents(list_sources([f"{tmp_path}/*"]), DocumentSpec(encoding="utf-16"))


def test_nul_bytes_are_utf_16(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes("some text".encode("utf-16"))
    check_contents(list_sources([f"{tmp_path}/a.txt"]), DocumentSpec(encoding="utf-16"))


@pytest.mark.parametrize("kind", ["text", "jsonl", "json", "csv"])
def test_a_worker_rejects_it_by_name(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "a"
    path.write_bytes(parquet())
    source = SourceRange(str(path), "a", kind, "", path.stat().st_size)
    batches = list(read_documents(source, SPEC))
    rejects = [reject for batch in batches for reject in batch.rejects]
    assert [(reject.reason, reject.detail) for reject in rejects] == [
        ("not_text", "a Parquet file, not text")
    ]
    assert not sum(len(batch.keys) for batch in batches)
