"""`WriteText` cleans, rejects and warns as `recordmill text` does."""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from recordmill.pipelines.command_line import main
from recordmill.records.errors import UsageError
from recordmill.transforms import Classify, Document, Gpt, WriteText
from recordmill.transforms.dataset import write_elements as write_elements_module
from recordmill.transforms.dataset.element_sink import SpoolFile
from recordmill.transforms.sources import element_rows
from recordmill.transforms.sources.document_spec import DocumentSpec
from recordmill.transforms.sources.element_items import ShuffledElements
from recordmill.transforms.sources.element_rows import DocumentSpool, RowDocuments
from recordmill.transforms.sources.kept_fields import KeptField
from recordmill.transforms.sources.row_fields import RowSpec
from recordmill.transforms.text.cleaning import find_duplicates

from ...pipelines.jobs import shard_bytes
from ..examples.record_files import unframed
from ..user_pipelines import counts, in_small_items, write_elements
from .test_write_text import documents, maker

TASK = Gpt(max_seq_length=32)
SPLITS = {"train": 0.5, "test": 0.5}


@pytest.fixture
def write(vocab_file: str, tmp_path: Path) -> Callable[..., Path]:
    def run(
        name: str, elements: list[Any], *, bundles: int = 1, workers: int = 1, **options: Any
    ) -> Path:
        given = {"objective": TASK, "tokenizer": vocab_file} | options
        writing = WriteText(str(tmp_path / name), **given)
        if bundles > 1:
            in_small_items(writing)
        write_elements(writing, elements, bundles=bundles, workers=workers)
        return tmp_path / name

    return run


Write = Callable[..., Path]


def statistics(output: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((output / "_meta/statistics.json").read_bytes())
    return found


def metadata(output: Path) -> dict[str, bytes]:
    """The rejects, and the statistics: all that bundles could show in, beside the shards."""
    paths = [*sorted(output.glob("_meta/rejected/*")), output / "_meta/statistics.json"]
    return {path.name: path.read_bytes() for path in paths}


def same(one: Path, other: Path) -> bool:
    return shard_bytes(one) == shard_bytes(other) and metadata(one) == metadata(other)


def test_documents_of_a_wrong_length_are_dropped_and_counted(write: Write) -> None:
    texts = [*(Document(f"w{i} " * 3, f"s{i}") for i in range(5)), *documents(40)]
    texts += [Document(f"w{i} " * 900, f"l{i}") for i in range(3)] + [Document(" ")]
    options = {"min_tokens": 10, "max_tokens": 800, "splits": SPLITS, "num_shards": 2}
    first = write("a", texts, **options)
    found = counts(first)
    assert found["dropped"] == {"too_long": 3, "too_short": 5}
    assert (found["documents_read"], found["documents_written"]) == (49, 40)
    assert found["documents_without_tokens"] == 1
    by_split = [statistics(first)[split]["dropped"] for split in SPLITS]
    assert sum(each.get("too_short", 0) for each in by_split) == 5
    assert main(["verify", str(first)]) == 0
    assert same(first, write("b", texts[::-1], bundles=7, **options))
    kept = write("c", documents(40), splits=SPLITS, num_shards=2)
    assert shard_bytes(kept) == shard_bytes(first)


def test_lengths_of_classes_and_their_labels(write: Write) -> None:
    rows = [Document("w1 w2 w3", str(i), label="ab"[i % 2]) for i in range(8)]
    rows.append(Document("w1", "short", label="never seen"))
    output = write("ds", rows, objective=Classify(max_seq_length=32), min_tokens=3)
    assert (output / "labels.txt").read_text() == "a\nb\n"
    assert counts(output)["dropped"] == {"too_short": 1}


def test_texts_are_normalized(write: Write) -> None:
    written = {}
    for form in ("none", "nfkc"):
        texts = [Document("\uff57\uff11 " * 40, "wide"), Document("w1 " * 40, "narrow")]
        written[form] = write(form, texts, normalize=form)
    narrow = write("narrow", [Document("w1 " * 40, key) for key in ("wide", "narrow")])
    assert shard_bytes(written["nfkc"]) == shard_bytes(narrow) != shard_bytes(written["none"])
    config = json.loads((written["nfkc"] / "_meta/manifest.json").read_bytes())["config"]
    assert config["clean"] == {
        "normalize": "nfkc", "min_tokens": 0, "max_tokens": None, "deduplicate": "none",
        "near_threshold": 0.8, "list_dropped": False,
    }  # fmt: skip


ROWS = [Document(f"w{i} w2", f"k{i}", label="ab"[i % 2]) for i in range(20)]
LACKING = [Document("w1", "no label"), Document(" ", "empty", label="a"), Document("w3 w4")]


def test_rejects_are_listed_in_any_bundles(write: Write) -> None:
    options = {"objective": Classify(max_seq_length=32), "max_rejected": 0.2}
    first = write("a", ROWS + LACKING, **options)
    assert counts(first)["rejected"] == {"field_missing": 2, "no_text": 1}
    assert counts(first)["documents_read"] == 20
    lines = (first / "_meta/rejected/rejected-000000.jsonl").read_text().splitlines()
    sources = {json.loads(line)["source"] for line in lines}
    assert sources == {"no label", "empty", "the text 'w3 w4'"}
    assert statistics(first)["inputs"]["rejected"]["no_text"] == {"inputs": 1, "first": "empty"}
    assert main(["verify", str(first)]) == 0
    assert same(first, write("b", (ROWS + LACKING)[::-1], bundles=5, **options))


def test_names_of_rejects_may_have_line_separators(write: Write) -> None:
    rows = [*ROWS, Document("w1 w2", "a\u2028b"), Document("w1 w3", "zz\r")]
    first = write("a", rows, objective=Classify(max_seq_length=32), max_rejected=0.5)
    lines = (first / "_meta/rejected/rejected-000000.jsonl").read_bytes().split(b"\n")
    assert {json.loads(line)["source"] for line in lines[:-1]} == {"a\u2028b", "zz\r"}
    assert main(["verify", str(first)]) == 0


def test_more_rejects_than_the_budget_end_the_pipeline(write: Write, tmp_path: Path) -> None:
    message = (
        r"3 of 23 elements rejected \(field_missing 2, no_text 1\), which is 13.043% where "
        r"max_rejected allows 1.000%; the first is empty: the text of a row to classify, .* "
        "filter them out before they are written, or raise max_rejected, and run the pipeline"
    )
    with pytest.raises(Exception, match=message):
        write("ds", ROWS + LACKING, objective=Classify(max_seq_length=32), max_rejected=0.01)
    assert not (tmp_path / "ds/_SUCCESS").exists()


def test_a_text_in_two_splits_is_noticed(write: Write, caplog: pytest.LogCaptureFixture) -> None:
    texts = documents(30)
    grouped = [Document(each.text, f"{each.key}/{g}", f"group {g}") for each in texts for g in "ab"]
    with caplog.at_level(logging.WARNING, "recordmill"):
        first = write("a", grouped, splits=SPLITS, num_shards=1)
    (shared,) = statistics(first)["inputs"]["shared_contents"]
    assert shared["documents"] == shared["of_sampled"] == 30
    assert sorted(name.partition("/")[0] for name in shared["first"]) == ["d0", "d0"]
    (warning,) = [w for w in statistics(first)["warnings"] if w["rule"] == "shared_content"]
    assert warning["text"] in caplog.text
    assert same(first, write("b", grouped[::-1], splits=SPLITS, num_shards=1, bundles=4))
    with pytest.raises(Exception, match=r"30 documents of .* WriteText with warnings='print'"):
        write("c", grouped, splits=SPLITS, num_shards=1, warnings="error")
    caplog.clear()
    with caplog.at_level(logging.WARNING, "recordmill"):
        write("d", grouped, splits=SPLITS, num_shards=1, warnings="none")
    assert "documents of" not in caplog.text
    once = write("f", grouped, splits=SPLITS, num_shards=1, deduplicate="exact", warnings="error")
    assert statistics(once)["inputs"].get("shared_contents", []) == []
    apart = write("e", texts, splits=SPLITS, num_shards=1)
    assert statistics(apart)["inputs"]["shared_contents"] == []


def test_of_equal_texts_one_is_kept(write: Write) -> None:
    texts = documents(30)
    spaced = [Document(each.text.replace(" ", "  "), f"spaced {each.key}") for each in texts[:10]]
    short = [Document("w1", "short"), Document(" w1", "short, too")]
    elements = [*texts, *spaced, *texts[:3], *texts[:3], *short, Document(" "), Document("  ")]
    apart = Gpt(max_seq_length=32, packing="none")  # a record does not depend on others
    options: dict[str, Any] = {
        "deduplicate": "exact", "min_tokens": 3, "objective": apart, "splits": SPLITS,
        "num_shards": 2,
    }  # fmt: skip
    first = write("a", elements, **options)
    found = counts(first)
    assert found["dropped"] == {"duplicate": 10 + 6 + 1, "too_short": 1}
    assert (found["documents_read"], found["documents_written"]) == (len(elements), 30)
    assert found["documents_without_tokens"] == 2
    assert main(["verify", str(first)]) == 0
    for name, parts in (("b", 1), ("c", 7)):
        other = write(name, elements[::-1], bundles=parts, **options)
        assert same(first, other)
    # Without draws and packing, whichever of equal texts is kept gives the records of any.
    alone = write("d", texts, num_shards=2, objective=apart)
    written = [
        sorted(record for data in shard_bytes(output).values() for record in unframed(data))
        for output in (first, alone)
    ]
    assert written[0] == written[1]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["exact", "near"])
def test_two_workers_drop_the_same(write: Write, kind: str) -> None:
    elements = [*documents(20), *documents(8)]
    options = {"deduplicate": kind, "num_shards": 2}
    first = write("a", elements, **options)
    assert sum(counts(first)["dropped"].values()) == 8
    assert same(first, write("b", elements[::-1], bundles=5, workers=2, **options))


@pytest.mark.slow
def test_deduplication_changes_no_byte_where_all_texts_differ(write: Write) -> None:
    options = {"splits": SPLITS, "num_shards": 2, "bundles": 3}
    plain = write("a", documents(30), **options)
    for kind in ("exact", "near"):
        found = write(kind, documents(30), deduplicate=kind, **options)
        assert shard_bytes(found) == shard_bytes(plain)
        assert counts(found)["dropped"] == {}


def test_of_similar_texts_one_is_kept(write: Write) -> None:
    texts = documents(20)
    similar = [Document(f"{each.text} again", f"again {each.key}") for each in texts[:8]]
    elements = [*texts, *similar, *texts[:2]]
    options = {"deduplicate": "near", "num_shards": 2}
    first = write("a", elements, **options)
    dropped = counts(first)["dropped"]
    assert dropped == {"near_duplicate": 10}
    assert same(first, write("b", elements[::-1], bundles=5, **options))
    all_kept = write("c", elements, deduplicate="near", near_threshold=1.0, num_shards=2)
    assert counts(all_kept)["dropped"] == {"near_duplicate": 2}


@pytest.mark.parametrize("kind", ["exact", "near"])
def test_documents_whose_first_64_bits_collide_are_kept(
    kind: str, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All documents share the first half of their identities; only duplicates are dropped."""
    texts = documents(12)
    similar = [Document(f"{each.text} again", f"again {each.key}") for each in texts[:4]]
    elements = [*texts, *similar, *texts[:3], *texts[:2]]
    identify = element_rows._identities

    def collide(*given: Any) -> Any:
        identities = identify(*given)
        identities[:, 0] = 7
        return identities

    monkeypatch.setattr(element_rows, "_identities", collide)
    found = write("a", elements, deduplicate=kind)
    expected = {"exact": {"duplicate": 5}, "near": {"near_duplicate": 9}}
    assert counts(found)["dropped"] == expected[kind]
    other = write("b", elements[::-1], deduplicate=kind, bundles=3)
    assert same(found, other)


def test_both_halves_of_an_identity_tell_documents_apart() -> None:
    row = RowSpec(keep_fields=(KeptField("n"),))
    spec = DocumentSpec(row=row)
    base = Document("a text", "key", "group", fields={"n": "1"})
    changed = [
        replace(base, text="another"), replace(base, key="other"), replace(base, group="other"),
        replace(base, fields={"n": "2"}), replace(base, key=None), replace(base, group=None),
    ]  # fmt: skip
    (rows,) = DocumentSpool(spec).batches([base, *changed, base])
    ranks = RowDocuments(spec, maker(1 << 16)).documents(rows).ranks
    assert ranks
    identities = ranks()
    for half in identities.T.tolist():
        assert half[0] == half[-1]
        assert len(set(half)) == 1 + len(changed)
    assert not set(identities[:, 0].tolist()) & set(identities[:, 1].tolist())


def test_labels_of_duplicates_are_no_classes(write: Write) -> None:
    rows = [Document(f"w{i} w2", f"k{i}", label="ab"[i % 2]) for i in range(10)]
    rows += [Document("w1 w2", f"other {i}", label=f"c{i}") for i in range(3)]
    options = {"objective": Classify(max_seq_length=32), "deduplicate": "exact"}
    first = write("a", rows, **options)
    assert counts(first)["dropped"] == {"duplicate": 3}
    labels = (first / "labels.txt").read_text().split()
    assert {"a", "b"} <= set(labels)
    assert len(labels) <= 3
    assert same(first, write("b", rows[::-1], bundles=4, **options))


@pytest.mark.parametrize("cut", [0, 100, None])
def test_a_lost_or_cut_file_of_elements_ends_the_pipeline(
    cut: int | None, write: Write, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    plan = ShuffledElements.plan

    def lose(sink: ShuffledElements[Any], spooled: list[SpoolFile]) -> None:
        path = Path(spooled[0].path(sink.job))
        if cut is None:
            path.unlink()
        else:
            path.write_bytes(bytes(cut) + path.read_bytes()[cut + (not cut) :])
        plan(sink, spooled)

    monkeypatch.setattr(ShuffledElements, "plan", lose)
    with pytest.raises(Exception, match=r"elements/\w* is missing or damaged; run the pipeline"):
        write("ds", documents(10), deduplicate="exact")
    assert not (tmp_path / "ds/_SUCCESS").exists()


def test_a_list_that_an_engine_makes_once_more_changes_nothing(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Flink does when a worker is lost: the elements are spooled again, in other bundles."""
    elements = [*documents(40), *documents(15)]
    options = {"deduplicate": "exact", "splits": SPLITS, "num_shards": 2}
    expected = write("a", elements, **options)
    planned: list[tuple[ShuffledElements[Any], list[SpoolFile]]] = []
    plan, count = ShuffledElements.plan, find_duplicates.count_parts

    def remember(sink: ShuffledElements[Any], spooled: list[SpoolFile]) -> None:
        planned.append((sink, spooled))
        plan(sink, spooled)

    def spool_again(*args: Any) -> int:
        if len(planned) == 1:
            sink, spooled = planned[0]
            again = [structs.replace(each, name=f"{i}") for i, each in enumerate(reversed(spooled))]
            for one, other in zip(spooled, reversed(again), strict=True):
                shutil.copy(one.path(sink.job), other.path(sink.job))
            list(write_elements_module._ListDoFn(sink).process(again))
            write_elements_module._PlanElements(sink).do(0)
        return count(*args)

    monkeypatch.setattr(ShuffledElements, "plan", remember)
    monkeypatch.setattr(find_duplicates, "count_parts", spool_again)
    assert same(expected, write("b", elements, bundles=6, **options))
    assert len(planned) == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"normalize": "nfd"}, "normalize must be one of .*, got 'nfd'"),
        ({"min_tokens": -1}, "min_tokens must be at least 0, got -1"),
        ({"min_tokens": 5, "max_tokens": 4}, "max_tokens must be at least 1 and not below"),
        ({"deduplicate": "fuzzy"}, "deduplicate must be one of .*, got 'fuzzy'"),
        ({"near_threshold": 0.0}, r"near_threshold must be in \[0.1, 1\], got 0.0"),
        ({"max_rejected": 2}, r"max_rejected must be in \[0, 1\], got 2"),
        ({"warnings": "fail"}, "warnings must be one of .*, got 'fail'"),
    ],
)
def test_wrong_options(options: dict[str, Any], message: str, write: Write) -> None:
    with pytest.raises(UsageError, match=message):
        write("ds", [], **options)
