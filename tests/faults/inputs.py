"""Input from a stranger: mutated files of every format, hostile names, files that are no files."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import os
import random
import socket
import tarfile
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from recordmill.transforms.dataset.rejects import REASONS
from recordmill.transforms.sources.document_spec import DocumentSpec
from recordmill.transforms.sources.documents import read_documents
from recordmill.transforms.sources.item_cutting import cut_work_items
from recordmill.transforms.sources.work_items import list_sources

from ..pictures import drawn, encoded
from ..transforms.examples.record_files import example, framed, packed
from ..transforms.sources.test_mediawiki import dump, multistream, page
from .cases import Case, Shown, UntriedError, hold, run_main
from .columns import COLUMNS, sqlite
from .mutations import mutated, mutated_json
from .workshop import Workshop, accounts

_ANY_SHARE = "--max_rejected=1"
_HONEST = -1  # the seed of input that is not changed: it becomes a dataset, or nothing is tried
_SENTENCES = "The cat sat on the mat. It was happy. Then 3 dogs came by, and 9 birds left.\n"
_NAMES = (
    "a\nb", "a\rb", "tab\tb", "two  words", "-rf", "--output=x", "%s%n", "$(touch hacked)", "`id`",
    "a;b", "a|b", "a&b", "a'b", 'a"b', "a\\b", "[a]", "a*b", "a?b", "{a,b}", "~", "#a", "\u2028",
    "\u202egpj", "\U0001f600", "\udcff\udcfe", "e\u0301", "x" * 240, "nul\x01", "..a", "CON", "a:b",
    "gs:", "=1+1", "a,b", "train", "_tmp", "_SUCCESS", "a.tfrecord",
)  # fmt: skip


def _changed(data: bytes, rng: random.Random, seed: int) -> bytes:
    return data if seed == _HONEST else mutated(data, rng)


def _accounts(folder: Path, shown: Shown, seed: int) -> None:
    """Checks how a command ended, and that honest input became records, all of it."""
    accounts(folder, shown, folder / "ds")
    if seed == _HONEST:
        manifest = folder / "ds" / "_meta" / "manifest.json"
        hold(shown.status == 0 and manifest.exists(), f"honest input: {shown.text[-400:]}")
        rejected = [path.read_text() for path in folder.glob("ds/_meta/rejected/*")]
        hold(not any(rejected), f"honest input is rejected: {rejected}")


def _table(separator: str) -> bytes:
    rows = [separator.join(("text", "label"))]
    rows += [separator.join((f'"Line {i}, with a ""quote"" in it."', str(i % 3))) for i in range(9)]
    return "\n".join(rows).encode()


def _tar() -> bytes:
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w") as archive:
        for number in range(9):
            for extension, data in (("txt", f"{_SENTENCES} {number}"), ("json", '{"id": 1}')):
                member = tarfile.TarInfo(f"{'long' * 30 * (number % 2)}/{number}.{extension}")
                member.size = len(data)
                archive.addfile(member, io.BytesIO(data.encode()))
    return target.getvalue()


def _json_lines() -> bytes:
    rows = ({"text": f"{_SENTENCES} {i}", "id": i, "more": [1, {"a": None}]} for i in range(9))
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def _pages() -> list[str]:
    markup = "{{Box|a={{b}}}}\n[[File:x.jpg|thumb|A [[cap]]]]<ref>[[x|y]]</ref>\n{|\n|-\n| a\n|}\n"
    return [page(number, f"{markup}'''{number}''' {_SENTENCES}") for number in range(9)]


_OPTIONS: dict[str, dict[str, Any]] = {".xml": {"wiki_markup": "keep"}}
_TEXTS: dict[str, tuple[str, Callable[[], bytes], int]] = {
    "plain text": (".txt", lambda: (_SENTENCES * 9).encode(), 30),
    "JSON lines": (".jsonl", _json_lines, 60),
    "JSON": (".json", lambda: json.dumps([{"text": _SENTENCES}] * 5).encode(), 30),
    "CSV": (".csv", lambda: _table(","), 50),
    "TSV": (".tsv", lambda: _table("\t"), 20),
    "gzip": (".txt.gz", lambda: gzip.compress(_SENTENCES.encode() * 50, mtime=0), 20),
    "bzip2": (".txt.bz2", lambda: bz2.compress(_SENTENCES.encode() * 50), 12),
    "WebDataset": (".tar", _tar, 30),
    "packed WebDataset": (".tgz", lambda: gzip.compress(_tar(), mtime=0), 20),
    "MediaWiki": (".xml", lambda: dump(_pages()), 60),
    "packed MediaWiki": (".xml.bz2", lambda: multistream(_pages(), 2), 30),
    "xz": (".csv.xz", lambda: lzma.compress((_table(",") + b"\n") * 20), 20),
    **COLUMNS,
}


def _text_case(workshop: Workshop, form: str, seed: int) -> Callable[[Path], None]:
    extension, make, _ = _TEXTS[form]

    def check(folder: Path) -> None:
        rng = random.Random(f"{form}{seed}")
        (folder / "in").mkdir()
        (folder / "in" / f"fuzzed{extension}").write_bytes(_changed(make(), rng, seed))
        (folder / "in" / f"whole{extension}").write_bytes(make())
        line = workshop.arguments("text", folder / "ds", _ANY_SHARE)
        line[1] = f"--input={folder}/in/*"
        _accounts(folder, run_main(folder, line), seed)

    return check


_READ_AT_ONCE = 300
_MOST_SECONDS = 20


def _many_case(form: str, seed: int) -> Callable[[Path], None]:
    """Reads many mutated files in one process, which none may end or hold up."""
    extension, make, _ = _TEXTS[form]

    def check(folder: Path) -> None:
        good, rng = make(), random.Random(f"many {form}{seed}")
        path = folder / f"a{extension}"
        spec = DocumentSpec(encoding_errors="replace", **_OPTIONS.get(extension, {}))
        for number in range(_READ_AT_ONCE):
            path.write_bytes(mutated(good, rng))
            began = time.monotonic()
            items = cut_work_items(list_sources([str(path)]), 1000)
            for source in (source for item in items for source in item):
                for batch in read_documents(source, spec):
                    is_named = all(reject.reason in REASONS for reject in batch.rejects)
                    hold(is_named, f"file {number} has a reject without reason")
            seconds = time.monotonic() - began
            hold(seconds < _MOST_SECONDS, f"file {number} took {seconds:.0f} s")

    return check


def _database_case(workshop: Workshop, seed: int) -> Callable[[Path], None]:
    def check(folder: Path) -> None:
        path = folder / "fuzzed.db"
        path.write_bytes(_changed(sqlite(), random.Random(f"SQLite{seed}"), seed))
        flags = ("--query=SELECT id, text FROM docs", "--partition_column=id")
        line = workshop.arguments("text", folder / "ds", _ANY_SHARE, *flags)
        line[1] = f"--input=sqlite:///{path}"
        _accounts(folder, run_main(folder, line), seed)

    return check


_IMAGES = {"jpg": "JPEG", "png": "PNG", "gif": "GIF", "bmp": "BMP", "webp": "WEBP", "tif": "TIFF"}


def _image_case(workshop: Workshop, extension: str, seed: int) -> Callable[[Path], None]:
    def check(folder: Path) -> None:
        rng = random.Random(f"{extension}{seed}")
        (folder / "in" / "a").mkdir(parents=True)
        mode = rng.choice(("RGB", "L", "P", "1"))
        picture = drawn().convert(mode if extension in ("png", "gif", "bmp", "tif") else "RGB")
        whole = encoded(picture, _IMAGES[extension])
        for number in range(3):
            path = folder / "in" / "a" / f"{number}.{extension}"
            path.write_bytes(_changed(whole, rng, seed) if number == 1 else whole)
        line = workshop.arguments("images", folder / "ds", _ANY_SHARE)
        line[1] = f"--input={folder}/in"
        _accounts(folder, run_main(folder, line), seed)

    return check


def _records(compression: str) -> bytes:
    rows = [example(id=i, text=_SENTENCES, scores=[0.5] * (i % 3)) for i in range(20)]
    return packed(framed(rows), compression)


_RECORDS = {"": 45, "GZIP": 20, "ZLIB": 20}


def _record_case(workshop: Workshop, compression: str, seed: int) -> Callable[[Path], None]:
    def check(folder: Path) -> None:
        rng = random.Random(f"records{compression}{seed}")
        (folder / "in").mkdir()
        (folder / "in" / "a.tfrecord").write_bytes(_records(compression))
        (folder / "in" / "b.tfrecord").write_bytes(_changed(_records(compression), rng, seed))
        line = workshop.arguments("examples", folder / "ds", _ANY_SHARE)
        line[1] = f"--input={folder}/in/*"
        _accounts(folder, run_main(folder, line), seed)

    return check


_XML = """<?xml version="1.0" encoding="UTF-8"?>
<annotation><filename>0.jpg</filename><size><width>48</width><height>32</height><depth>3</depth>
</size><object><name>cat</name><truncated>0</truncated><bndbox><xmin>4</xmin><ymin>5</ymin>
<xmax>20</xmax><ymax>25</ymax></bndbox></object></annotation>"""
_COCO = {
    "images": [{"id": i, "file_name": f"{i}.jpg", "width": 48, "height": 32} for i in range(3)],
    "annotations": [
        {"id": 9, "image_id": 0, "category_id": 1, "bbox": [4, 5, 16, 20], "area": 10000,
         "iscrowd": 0, "segmentation": [[4, 5, 20, 5, 20, 25]]},
        {"id": 10, "image_id": 1, "category_id": 1, "bbox": [4, 5, 16, 20], "iscrowd": 1,
         "segmentation": {"size": [32, 48], "counts": [100, 1300, 136]}},
    ],
    "categories": [{"id": 1, "name": "cat", "supercategory": "animal"}],
}  # fmt: skip
_ANNOTATIONS: dict[str, tuple[int, tuple[str, ...]]] = {
    "VOC XML": (55, ("--task=detection", "--layout=voc", "--annotations={folder}/xml")),
    "COCO JSON": (65, ("--task=detection", "--annotations={folder}/coco.json")),
    "COCO masks": (35, ("--task=segmentation", "--annotations={folder}/coco.json")),
    "table of images": (45, ("--annotations={folder}/labels.csv",)),
    "YOLO": (30, ("--task=detection", "--layout=yolo")),
}


def _annotation_case(workshop: Workshop, form: str, seed: int) -> Callable[[Path], None]:
    def check(folder: Path) -> None:
        rng = random.Random(f"{form}{seed}")
        images = folder / "in" / "images"
        images.mkdir(parents=True)
        for number in range(3):
            (images / f"{number}.jpg").write_bytes(encoded(drawn(seed=number), "JPEG"))
        if form == "VOC XML":
            (folder / "xml").mkdir()
            for number in range(3):
                data = _XML.replace("0.jpg", f"{number}.jpg").encode()
                changed = data if number else _changed(data, rng, seed)
                (folder / "xml" / f"{number}.xml").write_bytes(changed)
        elif form.startswith("COCO"):
            plain = json.dumps(_COCO).encode()
            if seed != _HONEST:
                plain = mutated(plain, rng) if seed % 4 == 0 else mutated_json(_COCO, rng)
            (folder / "coco.json").write_bytes(plain)
        elif form == "YOLO":
            (folder / "in" / "labels").mkdir()
            row = b"0 0.5 0.5 0.25 0.25\n1 0.1 0.1 0.1 0.1 0.2 0.2\n"
            (folder / "in" / "labels" / "0.txt").write_bytes(_changed(row, rng, seed))
            (folder / "in" / "classes.txt").write_text("cat\ndog\n")
        else:
            table = b"filename,label\n0.jpg,cat\n1.jpg,dog\n2.jpg,cat\n"
            (folder / "labels.csv").write_bytes(_changed(table, rng, seed))
        flags = [flag.format(folder=folder) for flag in _ANNOTATIONS[form][1]]
        line = workshop.arguments("images", folder / "ds", _ANY_SHARE, *flags)
        line[1] = f"--input={folder / 'in' if form == 'YOLO' else images}"
        _accounts(folder, run_main(folder, line), seed)

    return check


def _archive(form: str) -> bytes:
    out = io.BytesIO()
    pictures = {f"{'ab'[i % 2]}/{i}.png": encoded(drawn(8, 8, i), "PNG") for i in range(6)}
    if form == "zip":
        with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, data in pictures.items():
                archive.writestr(name, data)
    else:
        with tarfile.open(fileobj=out, mode="w") as tar:
            for name, data in pictures.items():
                entry = tarfile.TarInfo(name)
                entry.size = len(data)
                tar.addfile(entry, io.BytesIO(data))
    return out.getvalue()


def _archive_case(workshop: Workshop, form: str, seed: int) -> Callable[[Path], None]:
    def check(folder: Path) -> None:
        data = _changed(_archive(form), random.Random(f"{form}{seed}"), seed)
        (folder / f"fuzzed.{form}").write_bytes(data)
        (folder / f"whole.{form}").write_bytes(_archive(form))
        line = workshop.arguments("images", folder / "ds", _ANY_SHARE)
        line[1] = f"--input={folder}/*.{form}"
        _accounts(folder, run_main(folder, line), seed)

    return check


def _name_case(workshop: Workshop, job: str, name: str) -> Callable[[Path], None]:
    def check(folder: Path) -> None:
        source = folder / "in" / name
        source.mkdir(parents=True)
        data = _SENTENCES.encode() * 5 if job == "text" else encoded(drawn(), "JPEG")
        path = source / f"{name}{'.txt' if job == 'text' else '.jpg'}"
        path.write_bytes(data)
        line = workshop.arguments(job, folder / "ds", _ANY_SHARE)
        line[1] = f"--input={folder}/in"
        accounts(folder, run_main(folder, line), folder / "ds")
        hold(path.read_bytes() == data, "the input has changed")
        hold(not (folder / "hacked").exists(), "a name was run as a command")

    return check


def _no_file(path: Path, what: str) -> None:
    if what == "fifo":
        os.mkfifo(path)
    elif what == "socket":
        with socket.socket(socket.AF_UNIX) as each:
            os.chdir(path.parent)
            each.bind(path.name)
    elif what == "device":
        try:
            os.mknod(path, 0o20600, os.makedev(1, 5))  # /dev/zero
        except PermissionError as error:
            raise UntriedError("a device cannot be made") from error
    elif what == "folder":
        path.mkdir()
    elif what == "loop of links":
        path.symlink_to(path)
    elif what == "link to nothing":
        path.symlink_to("nowhere")
    elif what == "link to /proc/self/mem":
        path.symlink_to("/proc/self/mem")
    elif what == "link to the outside":
        (path.parent.parent / "secret").write_bytes(b"SECRET " * 40)
        path.symlink_to(path.parent.parent / "secret")


_NO_FILES = (
    "fifo", "socket", "device", "folder", "loop of links", "link to nothing",
    "link to /proc/self/mem", "link to the outside",
)  # fmt: skip


def _no_file_case(workshop: Workshop, job: str, what: str, named: bool) -> Callable[[Path], None]:
    extension = ".txt" if job == "text" else ".jpg"

    def check(folder: Path) -> None:
        (folder / "in").mkdir()
        whole = _SENTENCES.encode() * 5 if job == "text" else encoded(drawn(), "JPEG")
        (folder / "in" / f"whole{extension}").write_bytes(whole)
        path = folder / "in" / f"odd{extension}"
        _no_file(path, what)
        os.chdir(folder)
        flags = () if job == "text" else ("--labels=none",)
        line = workshop.arguments(job, folder / "ds", _ANY_SHARE, *flags)
        line[1] = f"--input={path}" if named else f"--input={folder}/in/*{extension}"
        accounts(folder, run_main(folder, line), folder / "ds")
        written = [p for p in folder.joinpath("ds").rglob("*") if p.is_file()]
        hold(not any(b"SECRET" in p.read_bytes() for p in written), "a file of the outside is read")

    return check


def inputs(workshop: Workshop, seed: int) -> Iterator[Case]:  # noqa: C901, PLR0912 - a case for each kind
    """Yields all cases of this module."""
    for form, (_, _, count) in _TEXTS.items():
        for n in range(count):
            yield Case(f"fuzzed {form}", str(n), _text_case(workshop, form, seed + n))
        yield Case("honest", form, _text_case(workshop, form, _HONEST))
        for n in range(10):
            yield Case(f"many {form}", str(n), _many_case(form, seed + n))
    yield Case("honest", "SQLite", _database_case(workshop, _HONEST))
    for n in range(40):
        yield Case("fuzzed SQLite", str(n), _database_case(workshop, seed + n))
    for extension in _IMAGES:
        yield Case("honest", extension, _image_case(workshop, extension, _HONEST))
        for n in range(25):
            check = _image_case(workshop, extension, seed + n)
            yield Case("fuzzed images", f"{extension}-{n}", check)
    for form, (count, _) in _ANNOTATIONS.items():
        yield Case("honest", form, _annotation_case(workshop, form, _HONEST))
        for n in range(count):
            yield Case(f"fuzzed {form}", str(n), _annotation_case(workshop, form, seed + n))
    for compression, count in _RECORDS.items():
        yield Case("honest", f"records {compression}", _record_case(workshop, compression, _HONEST))
        for n in range(count):
            check = _record_case(workshop, compression, seed + n)
            yield Case("fuzzed records", f"{compression or 'plain'}-{n}", check)
    for form in ("zip", "tar"):
        yield Case("honest", form, _archive_case(workshop, form, _HONEST))
        for n in range(40):
            yield Case("fuzzed archives", f"{form}-{n}", _archive_case(workshop, form, seed + n))
    for job in ("text", "images"):
        for n, name in enumerate(_NAMES):
            yield Case("hostile names", f"{job}-{n}", _name_case(workshop, job, name))
        for what in _NO_FILES:
            for named in (False, True):
                check = _no_file_case(workshop, job, what, named)
                label = f"{job}-{what.replace(' ', '_')}-{'named' if named else 'globbed'}"
                yield Case("files that are no files", label, check)
