"""Documents that are dropped: which, how they are counted, and where they are listed."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from recordmill.pipelines.command_line import main

from ..conftest import make_vocabulary
from .jobs import shard_bytes

KNOWN = ["the", "of", "and", "to", "in", "is", "that"]
SPLITS = "--splits=train:0.7,validation:0.3"


def run(folder: Path, name: str, *flags: str) -> Path:
    output = folder / name
    plain = (
        f"--vocab_file={folder}/vocab.txt", f"--output={output}", "--max_seq_length=32",
        "--task=mlm", "--max_predictions_per_seq=5", "--dupe_factor=1", "--direct_num_workers=1",
    )  # fmt: skip
    given = [flag.format(folder=folder) for flag in flags]
    names = {flag.partition("=")[0] for flag in given}
    if "--task=classify" in given:  # which predicts none
        names.add("--max_predictions_per_seq")
    assert main(["text", *(f for f in plain if f.partition("=")[0] not in names), *given]) == 0
    return output


def counts(output: Path) -> dict[str, Any]:
    return dict(json.loads((output / "_meta/manifest.json").read_bytes())["counts"])


def dropped(output: Path) -> list[dict[str, Any]]:
    """The lines of the lists of dropped documents, which the manifest has with checksums."""
    files = json.loads((output / "_meta/manifest.json").read_bytes())["files"]
    paths = sorted((output / "_meta/dropped").glob("*.jsonl.gz"))
    assert all(str(path.relative_to(output)) in files for path in paths)
    lines = b"".join(gzip.decompress(path.read_bytes()) for path in paths)
    return [json.loads(line) for line in lines.splitlines()]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Documents of 1 to 60 tokens, one of them without any."""
    folder = tmp_path_factory.mktemp("cleaning")
    tokens = dict.fromkeys([*make_vocabulary(), *KNOWN])
    (folder / "vocab.txt").write_text("\n".join(tokens) + "\n", encoding="utf-8")
    documents = [" ".join(KNOWN[(i * j) % 7] for j in range(i + 1)) for i in range(60)]
    rows = [*documents, "\u200b"]
    with (folder / "rows.jsonl").open("w", encoding="utf-8") as handle:
        for i, text in enumerate(rows):
            handle.write(json.dumps({"text": text, "number": i, "label": "ab"[i % 2]}) + "\n")
    return folder


@pytest.fixture(scope="module")
def output(folder: Path) -> Path:
    flags = ("--min_tokens=11", "--max_tokens=50", "--list_dropped", SPLITS)
    return run(folder, "lengths", "--input={folder}/rows.jsonl", *flags)


class TestLengths:
    """--min_tokens and --max_tokens on documents of 0 to 60 tokens."""

    def test_every_document_is_counted_once(self, output: Path) -> None:
        found = counts(output)
        assert found["dropped"] == {"too_long": 10, "too_short": 10}
        assert found["documents_read"] == 61
        assert found["documents_without_tokens"] == 1
        assert found["documents_written"] == 40

    def test_the_list_says_which_and_why(self, output: Path, folder: Path) -> None:
        lines = dropped(output)
        assert Counter(line["reason"] for line in lines) == {"too_long": 10, "too_short": 10}
        rows = (folder / "rows.jsonl").read_bytes()
        for line in lines:
            assert line["source"] == "rows.jsonl"
            row = json.loads(rows[line["position"] :].split(b"\n")[0])
            assert row["number"] + 1 == line["tokens"]

    def test_statistics_have_them_by_split(self, output: Path) -> None:
        statistics = json.loads((output / "_meta/statistics.json").read_bytes())
        found: Counter[str] = Counter()
        for split in ("train", "validation"):
            found.update(statistics[split]["dropped"])
        assert found == {"too_long": 10, "too_short": 10}

    def test_the_rest_is_what_the_kept_documents_give(self, output: Path, folder: Path) -> None:
        """Keys come from positions, so the others leave lines of white space."""
        lines = (folder / "rows.jsonl").read_text(encoding="utf-8").splitlines()
        kept = [
            line if 10 <= json.loads(line)["number"] < 50 else " " * len(line) for line in lines
        ]
        (folder / "kept").mkdir(exist_ok=True)
        (folder / "kept/rows.jsonl").write_text("\n".join(kept) + "\n", encoding="utf-8")
        alone = run(folder, "alone", "--input={folder}/kept/rows.jsonl", SPLITS)
        assert shard_bytes(alone) == shard_bytes(output)


def test_classes_are_those_of_the_documents_that_are_kept(folder: Path) -> None:
    rows = [{"text": "the of", "label": "short"}, {"text": "the of and to", "label": "long"}] * 3
    (folder / "labels.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    output = run(
        folder, "classes", "--task=classify", "--input={folder}/labels.jsonl", "--min_tokens=3"
    )
    assert (output / "labels.txt").read_text().split() == ["long"]
    assert counts(output)["dropped"] == {"too_short": 3}


def test_the_summary_names_what_was_dropped(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(folder, "summary", "--input={folder}/rows.jsonl", "--min_tokens=11")
    assert "1 without tokens, 10 dropped as too_short; rejected: none" in capsys.readouterr().out


def test_without_these_flags_nothing_is_said_of_them(folder: Path) -> None:
    output = run(folder, "plain", "--input={folder}/rows.jsonl")
    assert "dropped" not in counts(output)
    assert not (output / "_meta/dropped").exists()


def test_a_document_that_is_read_in_parts_is_dropped_as_a_whole(folder: Path) -> None:
    """Scatter sees a document of 3 MB in parts, and must not have written the first ones."""
    long = "\n".join(["the of and to in is that"] * 120_000)
    short = [" ".join(KNOWN * (1 + i % 3)) for i in range(30)]
    (folder / "long.txt").write_text("\n\n".join([*short[:9], long, *short[9:]]) + "\n")
    blank = " " * len(long)
    (folder / "gone").mkdir()
    (folder / "gone/long.txt").write_text("\n\n".join([*short[:9], blank, *short[9:]]) + "\n")
    flags = ("--max_tokens=500000", "--list_dropped")
    output = run(folder, "parts", "--input={folder}/long.txt", *flags)
    without = run(folder, "without", "--input={folder}/gone/long.txt")
    assert shard_bytes(output) == shard_bytes(without)
    position = sum(len(text) + 2 for text in short[:9])
    (line,) = dropped(output)
    assert line.pop("tokens") > 500_000
    assert line == {"source": "long.txt", "position": position, "reason": "too_long"}
    kept = run(folder, "kept-parts", "--input={folder}/long.txt", "--max_tokens=900000")
    plain = run(folder, "plain-parts", "--input={folder}/long.txt")
    assert shard_bytes(kept) == shard_bytes(plain)
