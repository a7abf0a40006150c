"""`WriteText(list_dropped=True)` lists each dropped document, and what it repeats."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from recordmill.pipelines.command_line import main
from recordmill.records.errors import UsageError
from recordmill.transforms import Document, Gpt, WriteText
from recordmill.transforms.text import text_shard_plan
from recordmill.transforms.text.cleaning import find_duplicates

from ...pipelines.jobs import shard_bytes
from ..user_pipelines import counts, in_small_items, write_elements
from .test_write_text import documents

SPLITS = {"train": 0.5, "test": 0.5}
Write = Callable[..., Path]


@pytest.fixture
def write(vocab_file: str, tmp_path: Path) -> Write:
    def run(name: str, elements: list[Any], *, bundles: int = 1, **options: Any) -> Path:
        given = {"objective": Gpt(max_seq_length=32), "tokenizer": vocab_file, "splits": SPLITS}
        writing = WriteText(str(tmp_path / name), **{**given, "list_dropped": True, **options})
        if bundles > 1:
            in_small_items(writing)
        write_elements(writing, elements, bundles=bundles, workers=1)
        return tmp_path / name

    return run


def lists(output: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(output.glob("_meta/dropped/*"))}


def lines(output: Path) -> list[dict[str, Any]]:
    data = b"".join(map(gzip.decompress, lists(output).values()))
    return [json.loads(line) for line in data.split(b"\n")[:-1]]


def test_documents_of_a_wrong_length(write: Write) -> None:
    table = pa.table({"text": ["think"], "key": [7]})
    short = [Document("make part", "s\u2028ort"), "why make part", table]
    long = [Document("make " * 600, "long")]
    elements = [*documents(20), *short, *long, Document(" ", "empty")]
    options = {"min_tokens": 20, "max_tokens": 500}
    first = write("a", elements, **options)
    found = {line.get("key", line.get("text")): line for line in lines(first)}
    assert set(found) == {"7", "long", "s\u2028ort", "why make part"}
    assert {"text", "reason", "tokens"} == set(found["why make part"])
    assert found["long"].pop("tokens") >= 600
    assert found["long"] == {"key": "long", "reason": "too_long"}
    assert 1 <= found["7"]["tokens"] < found["why make part"]["tokens"] < 20
    assert Counter(line["reason"] for line in found.values()) == counts(first)["dropped"]
    assert list(lists(first)) == ["dropped-000000.jsonl.gz"]
    assert main(["verify", str(first)]) == 0
    again = write("b", elements[::-1], bundles=5, **options)
    assert lists(again) == lists(first)
    plain = write("c", elements, list_dropped=False, **options)
    assert shard_bytes(plain) == shard_bytes(first)
    assert lists(plain) == {}


@pytest.mark.parametrize("kind", ["exact", pytest.param("near", marks=pytest.mark.slow)])
def test_duplicates_name_what_they_repeat(
    kind: str, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = documents(16)
    copies = [Document(each.text, f"copy of {each.key}") for each in texts[:5]]
    twice = [Document(each.text, f"again {each.key}") for each in texts[:2]]
    short = [Document(text, f"s{i}") for i, text in enumerate(["make", "make", "part"])]
    elements = [*texts, *copies, *twice, *texts[10:12], *texts[10:11], *short, "why make"]
    options = {"deduplicate": kind, "min_tokens": 20}
    monkeypatch.setattr(find_duplicates, "PART_BYTES", 400)
    first = write("a", elements, **options)
    found = lines(first)
    dropped = counts(first)["dropped"]
    assert Counter(line["reason"] for line in found) == dropped
    reason = "duplicate" if kind == "exact" else "near_duplicate"
    assert dropped == {reason: 7 + 3 + 1, "too_short": 3}
    of = {line.get("key"): line for line in found if "duplicate_of" in line}
    # Which one of a text is kept follows from hashes; the others name it.
    for each in texts[:2]:
        names = {each.key, f"copy of {each.key}", f"again {each.key}"}
        (kept,) = names - set(of)
        assert {of[name]["duplicate_of"]["key"] for name in names - {kept}} == {kept}
    equal = [line for line in found if line.get("key") == texts[10].key]
    assert [line["duplicate_of"] for line in equal] == [{"key": texts[10].key}] * 2
    assert [line["reason"] for line in found if line.get("text") == "why make"] == ["too_short"]
    assert list(lists(first)) == ["dropped-000000.jsonl.gz"]
    assert main(["verify", str(first)]) == 0
    again = write("b", elements[::-1], bundles=4, **options)
    assert lists(again) == lists(first)
    plain = write("c", elements, list_dropped=False, **options)
    assert shard_bytes(plain) == shard_bytes(first) == shard_bytes(again)


def test_nothing_dropped_is_no_list(write: Write) -> None:
    output = write("ds", documents(10), deduplicate="exact")
    assert lists(output) == {}
    assert main(["verify", str(output)]) == 0


def test_a_lost_list_ends_the_pipeline(
    write: Write, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    add_up = text_shard_plan.ScatterTotals.add

    def lose(*args: Any) -> None:
        for path in (tmp_path / "ds/_tmp/lists").glob("**/*.gz"):
            path.unlink()
        add_up(*args)

    monkeypatch.setattr(text_shard_plan.ScatterTotals, "add", lose)
    with pytest.raises(Exception, match=r"jsonl.gz is missing; run the pipeline again"):
        write("ds", [*documents(10), *documents(2)], deduplicate="exact")
    assert not (tmp_path / "ds/_SUCCESS").exists()


def test_lists_without_drops_are_refused(write: Write) -> None:
    with pytest.raises(UsageError, match=r"list_dropped has no effect .*; add min_tok"):
        write("ds", documents(2))
