"""`WriteText` in pipelines of users' own."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import apache_beam as beam
import pyarrow as pa
import pytest
import tensorflow as tf
from apache_beam.options.pipeline_options import PipelineOptions

from recordmill.pipelines.command_line import main
from recordmill.records.errors import UsageError, WrongElementError
from recordmill.transforms import (
    T5,
    Bert,
    Classify,
    Document,
    Gpt,
    Mlm,
    MlmTokens,
    T5Tokens,
    Ul2,
    WriteText,
)
from recordmill.transforms.sources.document_batch import BatchMaker, DocumentBatch
from recordmill.transforms.sources.document_spec import DocumentSpec
from recordmill.transforms.sources.element_rows import DocumentSpool, RowDocuments, name_of
from recordmill.transforms.sources.formats import ELEMENTS
from recordmill.transforms.sources.work_items import SourceRange
from recordmill.transforms.text.write_text import row_spec

from ...conftest import make_documents
from ...pipelines.jobs import shard_bytes
from ..examples.record_files import unframed
from ..user_pipelines import counts, in_small_items, split_up, write_elements

SHORT = Bert(max_seq_length=64, dupe_factor=2)


def documents(count: int) -> list[Document]:
    texts = ["\n".join(lines) for lines in make_documents(count)]
    return [Document(text, key=f"d{i}") for i, text in enumerate(texts)]


def features(output: Path, name: str) -> list[list[int]]:
    """The values of a feature of integers in all records."""
    records = [record for data in shard_bytes(output).values() for record in unframed(data)]
    examples = [tf.train.Example.FromString(record).features.feature for record in records]
    return [list(feature[name].int64_list.value) for feature in examples]


@pytest.fixture(scope="module")
def write(vocab_file: str) -> Callable[..., dict[str, bytes]]:
    def run(
        output: Path,
        elements: list[Any],
        *,
        bundles: int = 1,
        repeats: int = 1,
        workers: int = 1,
        in_items: bool = False,
        **options: Any,
    ) -> dict[str, bytes]:
        given = {"objective": SHORT, "tokenizer": vocab_file} | options
        writing = WriteText(str(output), **given)
        if in_items:
            in_small_items(writing)
        write_elements(writing, elements, bundles=bundles, workers=workers, repeats=repeats)
        return shard_bytes(output)

    return run


Write = Callable[..., dict[str, bytes]]


@pytest.fixture(scope="module")
def first(write: Write, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """What 60 documents give in one bundle."""
    output = tmp_path_factory.mktemp("first") / "ds"
    found = write(output, documents(60), num_shards=3, splits={"train": 0.8, "test": 0.2})
    assert (counts(output)["documents_read"], counts(output)["documents_written"]) == (60, 60)
    assert main(["verify", str(output)]) == 0
    assert not (output / "_tmp").exists()
    return found


def test_any_bundles_and_any_order_give_the_same_shards(
    write: Write, first: dict[str, bytes], tmp_path: Path
) -> None:
    options = {"num_shards": 3, "splits": {"train": 0.8, "test": 0.2}}
    reordered = documents(60)[::-1]
    assert write(tmp_path / "ds", reordered, bundles=7, in_items=True, **options) == first
    again = write(tmp_path / "one", reordered, bundles=3, run_tokens=2000, **options)
    assert again == first
    assert counts(tmp_path / "ds")["documents_read"] == 60


@pytest.mark.slow
def test_two_workers_give_the_same_shards(
    write: Write, first: dict[str, bytes], tmp_path: Path
) -> None:
    options = {"num_shards": 3, "splits": {"train": 0.8, "test": 0.2}}
    assert write(tmp_path / "ds", documents(60), bundles=4, workers=2, **options) == first


def test_repeated_bundles_change_nothing(
    write: Write, first: dict[str, bytes], tmp_path: Path
) -> None:
    options = {"num_shards": 3, "splits": {"train": 0.8, "test": 0.2}}
    assert write(tmp_path / "ds", documents(60), bundles=3, repeats=2, **options) == first
    assert counts(tmp_path / "ds")["documents_read"] == 60
    assert not (tmp_path / "ds/_tmp").exists()


def test_batches_are_documents(write: Write, first: dict[str, bytes], tmp_path: Path) -> None:
    options = {"num_shards": 3, "splits": {"train": 0.8, "test": 0.2}}
    all_of_them = documents(60)
    texts, keys = [each.text for each in all_of_them], [each.key for each in all_of_them]
    table = pa.table({"text": texts[:20], "key": keys[:20], "lang": ["de"] * 20})
    batch = pa.record_batch(
        {"text": pa.array(texts[20:30]).dictionary_encode(), "key": keys[20:30]}
    )
    elements = [table, batch, all_of_them[30:40], *all_of_them[40:]]
    assert write(tmp_path / "ds", elements, **options) == first


def test_without_keys_equal_texts_may_come_from_any_bundle(write: Write, tmp_path: Path) -> None:
    texts = [each.text for each in documents(20)] * 3
    one = write(tmp_path / "a", texts, num_shards=2)
    assert write(tmp_path / "b", texts[::-1], num_shards=2, bundles=6) == one
    assert counts(tmp_path / "b")["documents_written"] == 60


def test_documents_of_one_key_may_come_from_any_bundle(write: Write, tmp_path: Path) -> None:
    same = [Document(each.text, key="same") for each in documents(12)] + documents(3)
    gpt = {"objective": Gpt(max_seq_length=32), "num_shards": 1}
    one = write(tmp_path / "a", same, **gpt)
    assert write(tmp_path / "b", same[::-1], bundles=5, **gpt) == one


def test_a_key_decides_the_position(write: Write, tmp_path: Path) -> None:
    options = {"objective": Gpt(max_seq_length=64, packing="none"), "num_shards": 1}
    before = [Document(text, key=f"k{i}") for i, text in enumerate("abcdefgh")]
    write(tmp_path / "a", before, **options)
    after = [Document(each.text.upper(), key=each.key) for each in before]
    write(tmp_path / "b", after[::-1], **options)
    assert shard_bytes(tmp_path / "a") == shard_bytes(
        tmp_path / "b"
    )  # lower-cased, so only keys differ
    moved = [Document(each.text, key=f"other {each.key}") for each in before]
    assert write(tmp_path / "c", moved, **options) != shard_bytes(tmp_path / "a")


def test_a_group_decides_the_split(write: Write, tmp_path: Path) -> None:
    grouped = [Document(each.text, each.key, group="one") for each in documents(30)]
    options = {"splits": {"train": 0.5, "test": 0.5}, "objective": Gpt(max_seq_length=32)}
    with pytest.raises(Exception, match="no text for split"):
        write(tmp_path / "ds", grouped, **options)
    assert not (tmp_path / "ds/_SUCCESS").exists()
    assert not list(tmp_path.glob("ds/t*/*"))


TASKS = (
    Mlm(max_seq_length=32, dupe_factor=2), Mlm(max_seq_length=32, packing="concat"),
    MlmTokens(max_seq_length=32), Gpt(max_seq_length=32), T5(max_seq_length=32),
    Ul2(max_seq_length=64, dupe_factor=1), T5Tokens(max_seq_length=32),
)  # fmt: skip


def test_all_objectives_from_one_pipeline(vocab_file: str, tmp_path: Path) -> None:
    for bundles in (1, 3):
        with beam.Pipeline(runner="FnApiRunner", options=PipelineOptions([])) as pipeline:
            made = split_up(pipeline, documents(20), bundles)
            for number, task in enumerate(TASKS):
                output = str(tmp_path / f"{bundles}-{number}")
                write = WriteText(output, objective=task, tokenizer=vocab_file, num_shards=2)
                _ = made | f"Write{number}" >> write
    for number in range(len(TASKS)):
        assert shard_bytes(tmp_path / f"1-{number}") == shard_bytes(tmp_path / f"3-{number}") != {}
        assert main(["verify", str(tmp_path / f"3-{number}")]) == 0


def test_labels_pairs_and_fields(write: Write, tmp_path: Path) -> None:
    rows = [
        Document(f"one w{i}", f"k{i}", label="spam" if i % 3 else "ham", pair="two",
                 fields={"id": i, "not_kept": "x"})
        for i in range(30)
    ]  # fmt: skip
    task = Classify(max_seq_length=32, pairs=True)
    write(tmp_path / "ds", rows, objective=task, keep_fields="id:int", num_shards=2, bundles=2)
    assert (tmp_path / "ds/labels.txt").read_text() == "ham\nspam\n"
    ids = [value[0] for value in features(tmp_path / "ds", "id")]
    labels = [value[0] for value in features(tmp_path / "ds", "label_ids")]
    assert dict(zip(ids, labels, strict=True)) == {i: int(i % 3 > 0) for i in range(30)}


def test_prompts_have_no_labels(write: Write, tmp_path: Path) -> None:
    rows = [Document("answer w1 w2", prompt="question w3", key=str(i)) for i in range(4)]
    task = Gpt(max_seq_length=64, prompts=True, loss_mask=True, packing="none")
    write(tmp_path / "ds", rows, objective=task)
    masks = features(tmp_path / "ds", "input_mask")
    assert len(masks) == 4
    assert all(0 < sum(mask) < sum(len(row) for row in masks) for mask in masks)
    whole = Gpt(max_seq_length=64, prompts=True, packing="none")
    write(tmp_path / "all", rows, objective=whole)
    assert sum(map(sum, features(tmp_path / "all", "input_mask"))) > sum(map(sum, masks))


def test_documents_without_tokens_are_counted(write: Write, tmp_path: Path) -> None:
    write(tmp_path / "ds", [*documents(10), Document(""), " \n", Document("\n", "k")])
    found = counts(tmp_path / "ds")
    assert (found["documents_read"], found["documents_written"]) == (13, 10)
    assert found["documents_without_tokens"] == 3


def maker(hashed_bytes: int = 0) -> BatchMaker:
    """Of the groups of elements, which are in no file."""
    return BatchMaker(SourceRange("", "", ELEMENTS, "", 0), hashed_bytes=hashed_bytes)


def made_of(spec: DocumentSpec, elements: list[Any]) -> tuple[DocumentBatch, list[str]]:
    """The documents that elements are read as, and what people find each by."""
    (rows,) = DocumentSpool(spec).batches(elements)
    batch = RowDocuments(spec, maker()).documents(rows)
    assert batch.describe
    return batch, [name_of(batch.describe(position)) for position in batch.positions.tolist()]


def test_half_of_a_surrogate_pair_becomes_a_question_mark() -> None:
    elements = [Document("a\ud800b", key="\udfff"), "fine"]
    batch, names = made_of(DocumentSpec(sentence_splitter="whole"), elements)
    assert [batch.lines[i] for i in range(2)] == [b"a?b", b"fine"]
    assert names == ["?", "the text 'fine'"]


@pytest.mark.parametrize(
    ("element", "message"),
    [
        (7, "WriteText takes Documents, str, lists of these and Arrow tables .* got int"),
        ({"text": "a"}, "got dict; make Documents"),
        ([Document("a"), None], "got NoneType"),
        (b"bytes", "got bytes"),
        (pa.table({"body": ["a"]}), "needs a column 'text', and has body"),
        (pa.table({"text": [1]}), "the column 'text' of a table must be text, and is int64"),
        (pa.table({"text": ["a", None]}), "null in 1 rows; drop these first"),
        (pa.table({"text": ["a"], "key": [0.5]}), "the column 'key' of a table must be text"),
        (
            Document("a", label="x"),
            r"has label, and .*objective=Classify\(\)",
        ),
        (Document("a", pair="x"), r"has pair, and .*pairs=True"),
        (Document("a", prompt="x"), r"has prompt, and .*prompts=True"),
        (Document("a", fields={"x": 1}), "has fields, and .*keep_fields"),
    ],
)
def test_elements_that_are_no_documents(element: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        list(DocumentSpool(DocumentSpec()).batches([element]))


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        (Document(" ", "k1", label="x"), ("k1", "no_text", "'text' is ' '")),
        (Document("a"), ("the text 'a'", "field_missing", "no 'label' among")),
        ("a", ("the text 'a'", "field_missing", "no 'label' among")),
        (
            Document("a", label=0.5, fields={"id": "x"}),
            ("the text 'a'", "bad_row", "'id': invalid literal"),
        ),
    ],
)
def test_rows_that_lack_what_is_written(document: Any, expected: tuple[str, ...]) -> None:
    row = row_spec(Classify(), "id:int")
    if isinstance(document, Document) and document.fields is None:
        row = row_spec(Classify(), "")
    good = Document("b", "k", label="x", fields={"id": 1} if row.keep_fields else None)
    batch, names = made_of(DocumentSpec(row=row), [good, document, good])
    (reject,) = batch.rejects
    assert (reject.source, reject.reason) == expected[:2]
    assert expected[2] in reject.detail
    assert batch.positions.tolist() == [0, 2]
    assert names == ["k", "k"]


def _arguments() -> Iterator[tuple[dict[str, Any], str]]:
    yield {"tokenizer": "nowhere.txt"}, "nowhere.txt cannot be read: No such file"
    yield {"objective": "bert"}, r"objective must be Bert\(\), .* got 'bert'"
    yield {"keep_fields": "id"}, "no meaning for objective=Bert"
    yield {"splits": {"train": 0.5}}, "add up to 1"
    yield {"num_shards": {"test": 3}}, "num_shards must be one of train, got 'test'"
    yield {"do_lower_case": False}, "has none: every word with one would be"
    yield {"allow_special_tokens": True}, "allow_special_tokens has no effect with a vocab.txt"
    yield {"dupe_splits": ("test",)}, "dupe_splits must be one of train"
    yield {"compression": "zip"}, "compression must be one of"


@pytest.mark.parametrize(("options", "message"), [*_arguments()])
def test_wrong_arguments(
    options: dict[str, Any], message: str, vocab_file: str, tmp_path: Path
) -> None:
    given = {"objective": Bert(), "tokenizer": vocab_file} | options
    with pytest.raises(UsageError, match=message):
        WriteText(str(tmp_path / "ds"), **given)
    assert not (tmp_path / "ds").exists()


def test_padding_of_another_id_than_the_tokenizers_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "v.txt").write_text("[UNK]\n[CLS]\n[SEP]\n[MASK]\n[PAD]\nthe\n")
    WriteText(str(tmp_path / "ds"), objective=Bert(), tokenizer=f"{tmp_path}/v.txt")
    assert "v.txt has the padding token as id 4, and objective=Bert" in caplog.text
    assert "--" not in caplog.text


def test_a_pipeline_ends_with_the_summary_of_the_command(
    write: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str], vocab_file: str
) -> None:
    gpt, output = {"objective": Gpt(max_seq_length=32), "num_shards": 1}, tmp_path / "ds"
    write(output, documents(20), **gpt)
    own = capsys.readouterr().out
    config = json.loads((output / "_meta/manifest.json").read_text())["config"]
    assert config["documents"].keys() == {"row", "sentence_splitter", "strips"}
    assert (config["objective"]["name"], config["objective"]["max_seq_length"]) == ("gpt", 32)
    assert str(config).count("max_seq_length") == 1
    assert "seqio" not in str(config)
    (tmp_path / "in.txt").write_text("\n\n".join(each.text for each in documents(20)))
    flags = ["--task=gpt", "--max_seq_length=32", "--num_shards=1", "--overwrite"]
    files = [f"--input={tmp_path}/in.txt", f"--output={output}", f"--tokenizer={vocab_file}"]
    assert main(["text", *files, *flags]) == 0
    *summary, speed = capsys.readouterr().out.splitlines()
    assert own.splitlines() == summary
    assert own.startswith(f"{output}  train: ")
    assert "B/s of input" in speed


@pytest.mark.parametrize("stdout", ["ascii", "full", "closed"])
def test_a_summary_that_cannot_be_printed_fails_no_pipeline(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stdout: str
) -> None:
    path = {"ascii": tmp_path / "out", "full": Path("/dev/full"), "closed": tmp_path / "out"}
    opened = path[stdout].open("w", encoding="ascii")
    if stdout == "closed":
        opened.close()
    monkeypatch.setattr(sys, "stdout", opened)
    assert write(tmp_path / "größe", documents(5), objective=Gpt(max_seq_length=32))
    monkeypatch.undo()
    with suppress(OSError):
        opened.close()
    if stdout == "ascii":
        assert "gr\\xf6\\xdfe  train: " in (tmp_path / "out").read_text()


def test_a_summary_is_logged_where_logs_are_asked_for(
    write: Write,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with caplog.at_level(logging.INFO, "recordmill"):
        write(tmp_path / "ds", documents(5), objective=Gpt(max_seq_length=32))
    assert caplog.messages[-1].startswith(f"{tmp_path}/ds  train: ")
    assert str(tmp_path) not in capsys.readouterr().out


def test_a_dataset_is_replaced_only_when_asked_for(
    write: Write, vocab_file: str, tmp_path: Path
) -> None:
    write(tmp_path / "ds", documents(10))
    with pytest.raises(UsageError, match="holds a dataset; choose another output, or overwrite"):
        WriteText(str(tmp_path / "ds"), objective=SHORT, tokenizer=vocab_file)
    write(tmp_path / "ds", documents(11), overwrite=True)
    assert counts(tmp_path / "ds")["documents_read"] == 11


def test_a_failing_pipeline_leaves_no_dataset_and_can_be_run_again(
    write: Write, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(WrongElementError, match="WriteText takes Documents") as error:
        write(tmp_path / "ds", [*documents(10), 7], bundles=3)
    # The line comes before the traceback, which is the only one.
    assert [(each.name, each.getMessage()) for each in caplog.records] == [
        ("recordmill", str(error.value))
    ]
    assert "while running" not in str(error.value)
    assert error.value.__context__ is None
    assert not (tmp_path / "ds/_SUCCESS").exists()
    assert not (tmp_path / "ds/train").exists()
    again = write(tmp_path / "ds", documents(10), num_shards=1)
    assert again == write(tmp_path / "other", documents(10), num_shards=1)
    assert not (tmp_path / "ds/_tmp").exists()


@pytest.mark.parametrize(
    ("task", "message"),
    [
        (lambda: Bert(replacement="per_line"), "replacement must be one of"),
        (lambda: Mlm(overlap_size=100), "overlap_size must be in"),
        (lambda: Gpt(format="mlm"), "format must be one of"),
        (lambda: Ul2(denoisers="1:2"), "denoisers must be DENSITY:SPAN:SHARE"),
        (lambda: T5(dupe_factor=0), "dupe_factor must be at least 1"),
        (lambda: Gpt(loss_mask=True), "loss_mask has no effect without prompts=True"),
        (
            lambda: row_spec(Gpt(prompt_field="question"), ""),
            "Gpt.prompt_field is for files, and a Document has attributes",
        ),
        (lambda: row_spec(Gpt(), "id"), "--keep_fields has no meaning with --packing=best_fit"),
    ],
)
def test_wrong_options_of_objectives(task: Callable[[], object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        task()
