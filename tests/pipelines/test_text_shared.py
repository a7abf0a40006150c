"""The same text in two splits is noticed, where the splits are named and not drawn by hash."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from recordmill.pipelines.command_line import main

FLAGS = (
    "--task=mlm", "--max_seq_length=16", "--max_predictions_per_seq=2", "--dupe_factor=1",
    "--direct_num_workers=1", "--num_shards=1",
)  # fmt: skip


def run(output: Path, vocab_file: str, *flags: str) -> int:
    return main(
        ["text", f"--output={output}", f"--vocab_file={vocab_file}", *FLAGS, *flags]
    )  # fmt: skip


def judged(output: Path) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Returns what splits share, and the warnings of it."""
    content = json.loads((output / "_meta/statistics.json").read_bytes())
    warnings = [w for w in content["warnings"] if w["rule"] == "shared_content"]
    return content["inputs"].get("shared_contents", []), warnings


def text_of(number: int) -> str:
    return f"the number {number} of all that was said to be one of them"


@pytest.mark.parametrize("form", ["named globs", "split_from", "parquet", "split_by"])
def test_shared_texts_are_counted(
    tmp_path: Path, vocab_file: str, form: str, capsys: pytest.CaptureFixture[str]
) -> None:
    # 8 of 20 in test are also in train; other white space makes no other text.
    texts = [("train", text_of(i)) for i in range(80)]
    texts += [("test", text_of(i).replace(" ", "  ")) for i in range(72, 92)]
    if form == "named globs":
        for split in ("train", "test"):
            mine = [text for name, text in texts if name == split]
            (tmp_path / f"{split}.txt").write_text("\n\n".join(mine) + "\n")
        flags = [f"--input={split}={tmp_path}/{split}.txt" for split in ("train", "test")]
    else:
        rows = [
            json.dumps({"text": text, "set": name, "number": i})
            for i, (name, text) in enumerate(texts)
        ]
        (tmp_path / "in.jsonl").write_text("\n".join(rows) + "\n")
        flags = [f"--input={tmp_path}/in.jsonl"]
        if form == "parquet":
            table = [json.loads(row) for row in rows]
            pq.write_table(pa.Table.from_pylist(table), tmp_path / "in.parquet")
            flags = [f"--input={tmp_path}/in.parquet"]
        if form in ("split_from", "parquet"):
            flags += ["--split_from=set", "--splits=train,test"]
        else:  # each text has a number of its own, so equal texts may part
            flags += ["--split_by=number", "--splits=train:0.7,test:0.3"]
    assert run(tmp_path / "ds", vocab_file, *flags) == 0
    (shared,), (warning,) = judged(tmp_path / "ds")
    assert shared["splits"] == ["test", "train"]
    if form == "split_by":
        assert 0 < shared["documents"] <= 8
    else:
        assert (shared["documents"], shared["of_sampled"]) == (8, 20)
    error = capsys.readouterr().err
    assert warning["text"] in error
    assert f"{shared['documents']} documents of test are also in train" in warning["text"]
    assert "without --split_by" in warning["text"]


def test_the_hash_of_the_text_keeps_equal_ones_together(tmp_path: Path, vocab_file: str) -> None:
    texts = [text_of(i % 40) for i in range(120)]
    (tmp_path / "in.txt").write_text("\n\n".join(texts) + "\n")
    flags = (f"--input={tmp_path}/in.txt", "--splits=train:0.5,test:0.5")
    assert run(tmp_path / "ds", vocab_file, *flags) == 0
    assert judged(tmp_path / "ds") == ([], [])


def test_the_number_of_work_items_does_not_matter(
    tmp_path: Path, vocab_file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from recordmill.pipelines.planning import text_planner

    flags = []
    for split, numbers in (("train", range(300)), ("test", range(290, 340))):
        path = tmp_path / f"{split}.txt"
        path.write_text("\n\n".join(map(text_of, numbers)) + "\n")
        flags.append(f"--input={split}={path}")
    assert run(tmp_path / "one", vocab_file, *flags) == 0
    monkeypatch.setattr(text_planner, "work_item_bytes", lambda *_: 2_000)
    assert run(tmp_path / "many", vocab_file, *flags) == 0
    assert judged(tmp_path / "one") == judged(tmp_path / "many")
    assert judged(tmp_path / "one")[0][0]["documents"] == 10
