"""Arguments of public transforms: one that is wrong is one line where it is given."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recordmill.pipelines.command_table import COMMANDS
from recordmill.pipelines.faces import Given, checked_values
from recordmill.records.errors import UsageError
from recordmill.records.spec import check_type
from recordmill.transforms import (
    T5,
    AugmentationSpec,
    Bert,
    Classify,
    DecodeSpec,
    EncodeSpec,
    Gpt,
    ImageSpec,
    MaskClassSpec,
    Mlm,
    ReadDocuments,
    ReadExamples,
    ReadImages,
    SplitSpec,
    TransformSpec,
    Ul2,
    WriteExamples,
    WriteImages,
    WriteText,
)
from recordmill.transforms.images.shard_cutting import cut_shards
from recordmill.transforms.text.label_spec import label_spec
from recordmill.transforms.text.text_spec import TextSpec

Make = Callable[..., Any]


@pytest.fixture(scope="module")
def vocab(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("types") / "vocab.txt"
    path.write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b"]))
    return path


@pytest.fixture
def writers(vocab: Path, tmp_path: Path) -> dict[str, Make]:
    def text(**options: Any) -> WriteText:
        given = {"output": str(tmp_path / "ds"), "objective": Mlm(), "tokenizer": str(vocab)}
        return WriteText(**given | options)

    return {
        "text": text,
        "examples": lambda **options: WriteExamples(**{"output": tmp_path / "ds"} | options),
        "images": lambda **options: WriteImages(**{"output": tmp_path / "ds"} | options),
    }


COUNTS = r"num_shards must be a whole number, or one for each split, such as \{'train': 80\}, got "
SHARES = r"splits must be names with shares, such as \{'train': 0.9, 'validation': 0.1\}, "
OF_ALL: list[tuple[dict[str, Any], str]] = [
    ({"num_shards": -1}, "num_shards must be at least 1, got -1"),
    ({"num_shards": 0}, "num_shards must be at least 1, got 0"),
    ({"num_shards": {"train": 0}}, "num_shards must be at least 1, got 0"),
    ({"num_shards": 2.5}, f"{COUNTS}2.5"),
    ({"num_shards": "2"}, f"{COUNTS}'2'"),
    ({"num_shards": True}, f"{COUNTS}True"),
    ({"num_shards": {"train": "2"}}, rf"{COUNTS}\{{'train': '2'\}}"),
    (
        {"splits": {"train": 0.5, "test": 0.5}, "num_shards": {"test": 2}},
        r"num_shards must give one for train, got \{'test': 2\}",
    ),
    ({"splits": {"train": "1"}}, SHARES),
    ({"splits": {"train": 2}}, r"splits: the share of train must be in \(0, 1\], got 2"),
    ({"splits": "train:0.9,test:0.1"}, SHARES),
    ({"shard_bytes": 2.5e6}, "shard_bytes must be a whole number, got 2500000.0"),
    ({"shard_bytes": 0}, "shard_bytes must be at least 1"),
    ({"seed": "7"}, "seed must be a whole number, got '7'"),
    ({"output": None}, "output must be a string or a path, got None"),
    ({"output": 3}, "output must be a string or a path, got 3"),
    ({"output": ""}, "output must be the folder of the dataset, got ''"),
    ({"output": Path("gs://bucket/ds")}, "output must be a string to be a URL"),
    ({"compression": "NONE"}, "compression must be one of '', GZIP, ZLIB, got 'NONE'"),
    ({"compression": None}, "compression must be one of '', GZIP, ZLIB, got None"),
    ({"overwrite": "yes"}, "overwrite must be True or False, got 'yes'"),
]
OF_SOME: list[tuple[str, dict[str, Any], str]] = [
    ("text", {"splits": ["train", "test"]}, f"{SHARES}got \\['train', 'test'\\]"),
    (
        "text",
        {"keep_fields": ["id:int"]},
        r"keep_fields must be a string such as 'caption,.* got \[",
    ),
    ("text", {"deduplicate": True}, "deduplicate must be one of none, exact, near, got True"),
    ("text", {"dupe_splits": "train"}, "dupe_splits must be a list of strings, got 'train'"),
    ("text", {"min_tokens": 1.5}, "min_tokens must be a whole number, got 1.5"),
    ("text", {"max_rejected": "1"}, "max_rejected must be a number, got '1'"),
    ("text", {"max_rejected": float("nan")}, "max_rejected must be in"),
    ("text", {"objective": Mlm}, r"objective must be Bert\(\), .* or Ul2\(\), got <class"),
    ("text", {"tokenizer": None}, "tokenizer must be a string or a path, got None"),
    ("text", {"run_tokens": 0}, "run_tokens must be at least 1, got 0"),
    ("examples", {"splits": ["train", "test"]}, SHARES),
    (
        "examples",
        {"key": "id"},
        r"key must be a function of an element, such as lambda .* got 'id'",
    ),
    ("examples", {"deduplicate": "exact"}, "deduplicate must be True or False, got 'exact'"),
    ("examples", {"run_bytes": -1}, "run_bytes must be at least 1, got -1"),
    (
        "images",
        {"images": "classification"},
        r"images must be ImageSpec\(…\), got 'classification'",
    ),
    (
        "images",
        {"splits": 3},
        r"splits must be names .* or names, such as \['train', 'test'\], got 3",
    ),
    ("images", {"first_label": -1}, "first_label must be one of 0, 1, got"),
    ("images", {"copies": "2"}, "copies must be a whole number, got '2'"),
    ("images", {"augment_splits": "train"}, "augment_splits must be a list of strings"),
    ("images", {"statistics": True}, "statistics must be one of none, sample, full, got True"),
    ("images", {"pack_bytes": 0}, "pack_bytes must be at least 1, got 0"),
]
CASES = [(kind, *case) for kind in ("text", "examples", "images") for case in OF_ALL] + OF_SOME


@pytest.mark.parametrize(("kind", "options", "message"), CASES)
def test_writers(
    kind: str, options: dict[str, Any], message: str, writers: dict[str, Make], tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=f"^{message}") as raised:
        writers[kind](**options)
    assert "\n" not in str(raised.value)
    assert not (tmp_path / "ds").exists()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Mlm(max_seq_length="32"), r"max_seq_length must be a whole number, got '32'"),
        (lambda: Bert(dupe_factor=1.5), r"dupe_factor must be a whole number, got 1.5"),
        (lambda: Bert(sentence_splitter="dots"), "sentence_splitter must be one of"),
        (lambda: Gpt(packing=True), "packing must be one of none, concat, best_fit, got True"),
        (lambda: T5(format="maxtext"), "format must be one of cerebras, seqio, got 'maxtext'"),
        (lambda: T5(eos_id="1"), r"eos_id must be a whole number, got '1'"),
        (lambda: Ul2(denoisers=[(0.5, 3, 1)]), r"denoisers must be a string, got \["),
        (lambda: Classify(labels=["a", "b"]), "labels must be a string, got"),
        (lambda: TransformSpec(224), r"TransformSpec\.size must be \(a whole number, a whole num"),
        (lambda: TransformSpec(fill=(1.5, 0, 0)), r"TransformSpec\.fill must be \(a whole"),
        (lambda: EncodeSpec("JPEG", "9"), r"EncodeSpec\.quality must be a whole number, got '9'"),
        (lambda: DecodeSpec(max_pixels=1e6), r"DecodeSpec\.max_pixels must be a whole number"),
        (
            lambda: MaskClassSpec(values={0: 1}),
            r"MaskClassSpec\.values must be a list of \(a whole",
        ),
        (lambda: AugmentationSpec("flip"), r"ImageSpec\.augmentation must be a list of"),
        (lambda: AugmentationSpec.parse(None), "text must be a string, got None"),
        (
            lambda: ImageSpec(3, "tfds"),
            "task must be one of classification, det.* got 3",
        ),
        (
            lambda: ImageSpec("detection", "tfds", ["a"]),
            r"ImageSpec\.labels must be a dict from str",
        ),
        (
            lambda: ImageSpec("detection", "tfds", {"a": -1}),
            r"ImageSpec\.labels must be numbers from 0 on, got -1",
        ),
        (
            lambda: ImageSpec("detection", "tfds", decode={"gif": "first"}),
            r"ImageSpec\.decode must be DecodeSpec\(…\), got",
        ),
        (lambda: SplitSpec("train", 1.0, 0), "num_shards must be at least 1, got 0"),
        (lambda: ReadDocuments(["a", "b"]), r"patterns must be a string or a path, got \['a', 'b'"),
        (lambda: ReadDocuments("x", columns="id"), "columns must be a list of strings, got 'id'"),
        (lambda: ReadDocuments("x", item_bytes=0), "item_bytes must be at least 1, got 0"),
        (lambda: ReadDocuments("x", rejects=True), "rejects must be one of fail, count, output"),
        (lambda: ReadDocuments("x", max_compression_ratio=2.5), "max_compression_ratio must be a"),
        (lambda: ReadImages("x", label_folder="1"), "label_folder must be a whole number, got '1'"),
        (lambda: ReadImages("x", allow_outside="y"), "allow_outside must be a list of"),
        (lambda: ReadImages(Path("s3://b/x")), "patterns must be a string to be a URL"),
        (lambda: ReadExamples(), "patterns must be a glob of TFRecord files, got none"),
        (lambda: ReadExamples("x", range_bytes=0), "range_bytes must be at least 1, got 0"),
        (lambda: ReadExamples("x", skip_damaged="no"), "skip_damaged must be True or False"),
    ],
)
def test_objectives_specs_and_readers(make: Make, message: str) -> None:
    with pytest.raises(UsageError, match=f"^{message}") as raised:
        make()
    assert "\n" not in str(raised.value)


def test_paths_and_numbers_of_numpy(writers: dict[str, Make], vocab: Path, tmp_path: Path) -> None:
    output = tmp_path / "ds"
    splits = {"train": np.float32(0.5), "test": np.float64(0.5)}
    many = {"train": np.int64(2)}
    paths = writers["text"](
        output=output, tokenizer=vocab, splits=splits, num_shards=many, dupe_splits=["train"],
        objective=Mlm(max_seq_length=np.int32(64)), check_case=np.bool_(True),
    )._sink  # fmt: skip
    plain = writers["text"](
        output=str(output), tokenizer=str(vocab), splits={"train": 0.5, "test": 0.5},
        num_shards={"train": 2}, dupe_splits=("train",), objective=Mlm(max_seq_length=64),
    )._sink  # fmt: skip
    assert paths.job.fingerprint_options() == plain.job.fingerprint_options()
    assert type(paths.job.splits[0].num_shards) is int
    assert paths.job.workspace.output == str(output)
    assert TransformSpec([np.int64(4), 5]) == TransformSpec((4, 5))
    read = ReadImages(tmp_path, annotations=tmp_path / "a.csv", allow_outside=[tmp_path])._source
    assert (read.patterns, read.annotations) == ((str(tmp_path),), (str(tmp_path / "a.csv"),))
    assert read.allow_outside == (str(tmp_path),)
    assert ReadDocuments(tmp_path / "*.txt")._spec.patterns == (str(tmp_path / "*.txt"),)
    assert ReadExamples(tmp_path)._patterns == (str(tmp_path),)
    (tmp_path / "labels.txt").write_text("a\nb\n")
    task = Classify(labels=tmp_path / "labels.txt")
    assert label_spec("label", task.labels).names == ("a", "b")


def test_job_functions_take_paths_and_numbers_of_numpy() -> None:
    known = COMMANDS["text"].options()
    given = {"input": [Path("a"), Path("b")], "output": Path("ds"), "max_seq_length": np.int64(64)}
    spec = Given(checked_values(given, known, "arguments:")).make(TextSpec)
    assert (spec.input.input, spec.output.output) == (("a", "b"), "ds")
    assert spec.objective.max_seq_length == 64
    with pytest.raises(UsageError, match="output must be a string to be a URL"):
        Given({"output": Path("gs://bucket/ds")}).make(TextSpec)


def test_passwords_and_long_values_are_not_shown() -> None:
    with pytest.raises(UsageError, match=r"got \['postgresql://me:\*\*\*@host/db'\]"):
        ReadDocuments(["postgresql://me:secret@host/db"])
    with pytest.raises(UsageError) as raised:
        check_type("x", list(range(1000)), int)
    assert len(str(raised.value)) < 130


def test_a_split_that_no_image_names(tmp_path: Path) -> None:
    job = WriteImages(tmp_path / "ds", splits=["train", "test"])._sink.job
    sizes = [array("q", [9] * 10), array("q")]
    with pytest.raises(UsageError, match=r"none of 10 images names the split test; set Image"):
        cut_shards(job, sizes, named=True)
    with pytest.raises(UsageError, match="give it a larger share"):
        cut_shards(job, sizes)


def test_what_can_stand_for_a_list_is_taken() -> None:
    given = [{"train": 1, "test": 2}.keys(), np.array(["train", "test"]), iter(["train", "test"])]
    for splits in given:
        assert check_type("splits", splits, Sequence[str]) == ("train", "test")
    with pytest.raises(UsageError, match="splits must be a list of strings, got"):
        check_type("splits", {"train", "test"}, Sequence[str])  # without an order


def test_missing_and_unknown_arguments_are_named() -> None:
    with pytest.raises(TypeError, match=r"^WriteText\(\) needs the argument objective$"):
        WriteText("ds", tokenizer="vocab.txt")
    with pytest.raises(TypeError, match=r"__init__\(\) missing .* 'output'"):
        WriteText(objective=Mlm(), tokenizer="vocab.txt")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="no argument named min_token; did you mean min_tokens"):
        WriteText("ds", objective=Mlm(), tokenizer="vocab.txt", min_token=3)
