"""--limit: the dataset of the first inputs, in order of the listing, is theirs alone."""

from __future__ import annotations

import gzip
import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from recordmill.pipelines.command_line import main
from recordmill.records.example_values import parse_any
from recordmill.transforms.sources.document_spec import READ_LIMITS, DocumentSpec
from recordmill.transforms.sources.documents import read_documents
from recordmill.transforms.sources.work_items import SourceRange

from ..conftest import make_documents, make_vocabulary
from ..pictures import jpeg
from ..transforms.examples.record_files import framed, unframed, write_records
from .jobs import manifest, shard_bytes
from .test_examples_job import numbered, records_of

FILES = 4
DOCUMENTS = 20  # of each
TEXTS = [
    [" ".join(lines) for lines in make_documents(DOCUMENTS, seed=seed)] for seed in range(FILES)
]


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("vocabulary") / "vocab.txt"
    path.write_text("\n".join(make_vocabulary()) + "\n", encoding="utf-8")
    return path


def write_texts(folder: Path, texts: list[list[str]], kind: str) -> Path:
    """Writes a file for each list of documents; the second is compressed, where that is usual."""
    folder.mkdir()
    for number, documents in enumerate(texts):
        path = folder / f"{number}.{kind}"
        if kind == "parquet":
            pq.write_table(pa.table({"text": documents}), path, row_group_size=7)
            continue
        content = "".join(
            json.dumps({"text": each}) + "\n" if kind == "jsonl" else each + "\n\n"
            for each in documents
        ).encode()
        if number == 1:
            path = path.with_name(f"{path.name}.gz")
            content = gzip.compress(content)
        path.write_bytes(content)
    return folder


def text(source: str, output: Path, vocabulary: Path, *flags: str, workers: int = 1) -> int:
    line = [f"--input={source}", f"--output={output}", f"--vocab_file={vocabulary}", "--task=mlm"]
    more = ["--dupe_factor=1", "--num_shards=2", f"--direct_num_workers={workers}"]
    return main(["text", *line, *more, *flags])


@pytest.mark.parametrize("limit", [20, 33])
@pytest.mark.parametrize("kind", ["txt", "jsonl", "parquet"])
def test_text(tmp_path: Path, vocabulary: Path, kind: str, limit: int) -> None:
    whole = write_texts(tmp_path / "whole", TEXTS, kind)
    first = [texts[: max(limit - DOCUMENTS * i, 0)] for i, texts in enumerate(TEXTS)]
    cut = write_texts(tmp_path / "cut", [texts for texts in first if texts], kind)
    assert text(f"{cut}", tmp_path / "expected", vocabulary) == 0
    assert text(f"{whole}", tmp_path / "ds", vocabulary, f"--limit={limit}") == 0
    assert shard_bytes(tmp_path / "ds") == shard_bytes(tmp_path / "expected")
    assert manifest(tmp_path / "ds")["config"]["limit"] == limit
    assert manifest(tmp_path / "ds")["counts"]["documents_read"] == limit
    assert "limit" not in manifest(tmp_path / "expected")["config"]
    assert text(f"{whole}", tmp_path / "two", vocabulary, f"--limit={limit}", workers=2) == 0
    assert shard_bytes(tmp_path / "two") == shard_bytes(tmp_path / "ds")


def test_a_limit_that_the_input_does_not_reach_is_none(tmp_path: Path, vocabulary: Path) -> None:
    whole = write_texts(tmp_path / "whole", TEXTS[:1], "jsonl")
    assert text(f"{whole}", tmp_path / "ds", vocabulary, "--limit=1000") == 0
    assert "limit" not in manifest(tmp_path / "ds")["config"]
    stamp = (tmp_path / "ds/_SUCCESS").stat().st_mtime_ns
    assert text(f"{whole}", tmp_path / "ds", vocabulary) == 0
    assert (tmp_path / "ds/_SUCCESS").stat().st_mtime_ns == stamp


def test_a_split_without_input_is_refused(
    tmp_path: Path, vocabulary: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = write_texts(tmp_path / "whole", TEXTS, "jsonl")
    source = f"train={whole}/[01]*"
    more = (f"--input=test={whole}/[23]*", "--limit=30")
    assert text(source, tmp_path / "ds", vocabulary, *more) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "--limit=30 ends before the first file of test, in order of name; give a larger" in error


def test_a_split_whose_first_documents_are_empty_is_refused(
    tmp_path: Path, vocabulary: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.txt").write_text("a line\n")
    (tmp_path / "b.txt").write_bytes(b"\xff\n\nanother line\n")
    more = (f"--input=test={tmp_path}/b.txt", "--limit=2", "--max_rejected=1")
    assert text(f"train={tmp_path}/a.txt", tmp_path / "ds", vocabulary, *more) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "--input test=… has nothing but empty files and documents up to --limit=2;" in error


def test_what_is_rejected_behind_the_last_document_is_not_counted(
    tmp_path: Path, vocabulary: Path
) -> None:
    lines = ["{bad"] * 2 + [json.dumps({"text": each}) for each in TEXTS[0][:10]]
    (tmp_path / "a.jsonl").write_text("\n".join([*lines, *["{bad"] * 20, lines[-1]]) + "\n")
    more = ("--limit=10", "--max_rejected=0.5")
    assert text(f"{tmp_path}/a.jsonl", tmp_path / "ds", vocabulary, *more) == 0
    counts = manifest(tmp_path / "ds")["counts"]
    assert (counts["documents_read"], counts["rejected"]) == (10, {"not_json": 2})


@pytest.mark.parametrize("block_bytes", [1, 16, 1 << 20])
def test_rejects_up_to_the_last_document_do_not_depend_on_blocks(
    tmp_path: Path, block_bytes: int
) -> None:
    rows = [b"{bad", b'{"text": "one"}', b"{bad", b'{"text": "two"}', b"{bad", b'{"text": "3"}']
    long = b"long " * 40
    parts = [b"\xff\n1", long + b"\n\xff", b"2\n\xff\n\xff", long + b"\n\xff", b"\xff\n3"]
    for name, content in (("jsonl", b"\n".join(rows)), ("text", b"\n\n".join(parts))):
        path = tmp_path / name
        path.write_bytes(content)
        source = SourceRange(str(path), name, name, "", len(content), most=2)
        limits = replace(READ_LIMITS, block_bytes=block_bytes)
        spec = DocumentSpec(max_document_bytes=100 if name == "text" else 0)
        batches = [*read_documents(source, spec, limits=limits)]
        found = [reject.position for batch in batches for reject in batch.rejects]
        bad = 4 if name == "jsonl" else content.index(b"2\n\xff")
        assert sum(len(batch.lines) for batch in batches) == 2
        if name == "jsonl":
            assert found == [0, content.index(b"{bad", bad)]
        else:
            begin = content.index(b"long")
            assert sorted(found) == [0, begin, content.index(b"\xff", begin), bad + 2, bad + 4]


def test_a_dataset_with_another_limit_is_another(
    tmp_path: Path, vocabulary: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = write_texts(tmp_path / "whole", TEXTS[:1], "jsonl")
    assert text(f"{whole}", tmp_path / "ds", vocabulary, "--limit=5") == 0
    assert text(f"{whole}", tmp_path / "ds", vocabulary) == 2
    assert "--limit was 5, is unset" in capsys.readouterr().err


@pytest.mark.parametrize("order", ["shuffle", "input"])
def test_records(tmp_path: Path, order: str, capsys: pytest.CaptureFixture[str]) -> None:
    write_records(tmp_path / "a.tfrecord", numbered(40))
    write_records(tmp_path / "b.tfrecord.gz", numbered(3000, 40), "GZIP")
    flags = [f"--order={order}", "--num_shards=3", "--direct_num_workers=1"]
    source = f"--input={tmp_path}/?.tfrecord*"
    assert main(["examples", source, f"--output={tmp_path}/ds", "--limit=100", *flags]) == 0
    found = records_of(tmp_path / "ds")
    assert sorted(found) == sorted(numbered(100))
    assert order == "shuffle" or found == numbered(100)
    sizes = [len(unframed(data)) for data in shard_bytes(tmp_path / "ds").values()]
    assert min(sizes) > 20
    assert manifest(tmp_path / "ds")["config"]["limit"] == 100
    assert main(["inspect", f"{tmp_path}/ds"]) == 0
    assert f"{tmp_path}/?.tfrecord*; the first 100 alone (--limit)\n" in capsys.readouterr().out
    assert main(["examples", source, f"--output={tmp_path}/all", "--limit=3041", *flags]) == 0
    assert "limit" not in manifest(tmp_path / "all")["config"]


@pytest.mark.parametrize("rejected", [range(100), range(150, 200)])
def test_rejected_records(tmp_path: Path, rejected: range) -> None:
    data = bytearray(framed(numbered(200)))
    bounds = np.cumsum([0, *(len(each) + 16 for each in numbered(200))]).tolist()
    for number in rejected:
        data[bounds[number] + 12] ^= 1
    (tmp_path / "a.tfrecord").write_bytes(data)
    kept = [each for i, each in enumerate(numbered(200)) if i not in rejected]
    limit = 50 if rejected.start == 0 else len(kept)
    line = [f"--input={tmp_path}/a.tfrecord", f"--limit={limit}", "--order=input"]
    more = ["--num_shards=3", f"--max_rejected={int(limit == 50)}", "--direct_num_workers=1"]
    assert main(["examples", *line, *more, f"--output={tmp_path}/ds"]) == 0
    assert records_of(tmp_path / "ds") == kept[:limit]
    sizes = [len(unframed(shard)) for shard in shard_bytes(tmp_path / "ds").values()]
    assert min(sizes) > limit // 4


@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_rows_as_records(tmp_path: Path, kind: str) -> None:
    rows = [f"row {i}" for i in range(500)]
    if kind == "parquet":
        pq.write_table(pa.table({"text": rows}), tmp_path / "a.parquet", row_group_size=7)
    else:
        (tmp_path / "a.csv").write_text("\n".join(["text", *rows]) + "\n")
    line = [f"--input={tmp_path}/a.{kind}", "--order=input", "--num_shards=2", "--limit=60"]
    assert main(["examples", *line, f"--output={tmp_path}/ds", "--direct_num_workers=1"]) == 0
    found = [bytes(parse_any(record)["text"][0]).decode() for record in records_of(tmp_path / "ds")]
    assert found == rows[:60]


def test_images(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number in range(12):
        path = tmp_path / f"in/{'cat' if number < 6 else 'dog'}/{number:02}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(jpeg(seed=number))
    line = [f"--input={tmp_path}/in", "--direct_num_workers=1"]
    assert main(["images", *line, f"--output={tmp_path}/ds", "--limit=8"]) == 0
    assert manifest(tmp_path / "ds")["config"]["limit"] == 8
    assert re.search(r" s, [1-9][\d.]* k?B/s of input", capsys.readouterr().out)
    for number in range(8, 12):
        (tmp_path / f"in/dog/{number:02}.jpg").unlink()
    assert main(["images", *line, f"--output={tmp_path}/expected", "--limit=9"]) == 0
    assert "limit" not in manifest(tmp_path / "expected")["config"]
    assert shard_bytes(tmp_path / "ds") == shard_bytes(tmp_path / "expected")


@pytest.mark.parametrize("flag", ["--num_shards=train:2,test:1", "--augment_splits=train"])
def test_a_split_without_images(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], flag: str
) -> None:
    for number, split in enumerate(("test", "test", "train")):
        path = tmp_path / f"in/{split}/cat/{number}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(jpeg(seed=number))
    line = [f"--input={tmp_path}/in", f"--output={tmp_path}/ds", "--split_from=folder", flag]
    assert main(["images", *line, "--augmentations=flip", "--limit=2"]) == 2
    assert capsys.readouterr().err.endswith(
        "; --limit=2 may end before the first image of a split: give a larger one\n"
    )


def test_an_estimate_is_of_the_first_inputs(
    tmp_path: Path, vocabulary: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = write_texts(tmp_path / "whole", TEXTS, "jsonl")
    line = [f"--input={whole}", "--output=ds", f"--vocab_file={vocabulary}", "--task=mlm"]
    assert main(["plan", "text", *line, "--limit=30"]) == 0
    assert "2 files" in capsys.readouterr().out
