"""Users of the Python API read arguments in messages, and never flags, which they cannot give."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest

from recordmill.records.errors import UsageError
from recordmill.records.spec import name_arguments, naming_flags, python_names
from recordmill.transforms import (
    T5,
    AugmentationSpec,
    Bert,
    Classify,
    Document,
    EncodeSpec,
    Gpt,
    Image,
    ImageSpec,
    Mlm,
    MlmTokens,
    ReadDocuments,
    ReadExamples,
    ReadImages,
    TransformSpec,
    Ul2,
    WriteExamples,
    WriteImages,
    WriteText,
)
from recordmill.transforms.dataset.output_spec import OutputSpec
from recordmill.transforms.images.image_spec import ImagesSpec
from recordmill.transforms.images.source_spec import SourceSpec
from recordmill.transforms.text.text_spec import TextSpec

from .user_pipelines import write_elements

TEXT_ARGUMENTS, IMAGE_ARGUMENTS = python_names(TextSpec), python_names(ImagesSpec)
CASED = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "The", "End", "Of", "a"]


@pytest.mark.parametrize(
    ("message", "turned"),
    [
        ("--max_tokens must be at least 1", "max_tokens must be at least 1"),
        ("give --no-check_case.", "give check_case=False."),
        ("with --packing=none, or --seed=7; see --x", "with packing='none', or seed=7; see x"),
        ("--vocab_file a.txt is cased", "tokenizer a.txt is cased"),
        ("give --task=mlm", "give objective=Mlm()"),
        (
            "longer documents (--documents=file)",
            "longer documents (a Document for each whole text)",
        ),
        ("for --task=bert, whose", "for objective=Bert(), whose"),
        ("in --label_field=kind, such as", "in Document.label, such as"),
        ("(--splits=a,b)", "(splits='a,b')"),
        ("--mask_values=0:0,255:1 if", "mask_values='0:0,255:1' if"),
        ("anew with --overwrite", "anew with overwrite=True"),
        ("a--b and a -- b, or ---", "a--b and a -- b, or ---"),
        ("/data/--foo/bar is gone, and --x", "/data/--foo/bar is gone, and x"),
        ("--input=/x/y.txt is empty", "the input is empty"),
        ("with --documents=paragraph", "with the documents"),
        ("give --encoding=utf-8", "give how the texts were decoded"),
        ("of --map=f", "of your function"),
        (
            "with --documents=file. Or --map=a.py.",
            "with a Document for each whole text. Or your function.",
        ),
        ("--overwrite=yes", "overwrite='yes'"),
    ],
)
def test_flags_become_arguments(message: str, turned: str) -> None:
    assert name_arguments(message, TEXT_ARGUMENTS) == turned


def test_commands_name_flags() -> None:
    with naming_flags(), pytest.raises(UsageError, match=r"^--quality must be"):
        EncodeSpec("JPEG", 0)
    with pytest.raises(UsageError, match=r"^EncodeSpec\.quality must be"):
        EncodeSpec("JPEG", 0)


def test_values_of_images() -> None:
    message = "--resize=fit must have one side in --image_size, --labels=number"
    turned = "TransformSpec.mode='fit' must have one side in TransformSpec.size, "
    names = python_names(ImagesSpec)
    assert name_arguments(message, names) == turned + "ImageSpec.numbers=True"
    assert name_arguments("--label_field=kind", names) == "Image.label"
    assert name_arguments("--labels=auto", names) == "ImageSpec.labels='auto'"
    assert name_arguments("--label_field=kind", python_names(SourceSpec)) == "label_field='kind'"
    assert name_arguments("--labels=auto", python_names(OutputSpec)) == "labels='auto'"


@pytest.fixture
def cased(tmp_path: Path) -> str:
    (tmp_path / "cased.txt").write_text("\n".join(CASED))
    return str(tmp_path / "cased.txt")


Make = Callable[..., Any]
TEXT: list[tuple[dict[str, Any], str]] = [
    ({"tokenizer": "missing.txt"}, "tokenizer missing.txt cannot be read"),
    ({"tokenizer": "{cased}"}, r"tokenizer .*cased.txt is cased .* do_lower_case=False, or check_"),
    ({"do_lower_case": False}, "do_lower_case=False needs .*, and tokenizer .*check_case=False if"),
    ({"allow_special_tokens": True}, "allow_special_tokens has no effect with a vocab.txt"),
    ({"normalize": "nfd"}, "normalize must be one of"),
    ({"min_tokens": 5, "max_tokens": 4}, "max_tokens must be .* below min_tokens, .* min_tokens=5"),
    ({"keep_fields": "n:int"}, r"keep_fields has no meaning for objective=Bert\(\), .*=Mlm\(\)"),
    ({"dupe_splits": ("test",)}, "dupe_splits must be one of"),
    ({"compression": "LZ"}, "compression must be one of"),
    ({"max_rejected": 2}, "max_rejected must be in"),
    ({"splits": {"a": 0.5}}, "splits must have shares that add up to 1"),
    ({"num_shards": {"a": 3}}, "num_shards must be one of"),
    ({"shard_bytes": 0}, "shard_bytes must be"),
    ({"objective": "gpt"}, "objective must be"),
]


@pytest.mark.parametrize(("options", "message"), TEXT)
def test_write_text(
    options: dict[str, Any], message: str, vocab_file: str, cased: str, tmp_path: Path
) -> None:
    given = {"objective": Bert(), "tokenizer": vocab_file} | options
    given["tokenizer"] = given["tokenizer"].format(cased=cased)
    with pytest.raises(UsageError, match=f"^{message}") as raised:
        WriteText(str(tmp_path / "ds"), **given)
    assert "--" not in str(raised.value)


OTHERS: list[tuple[Make, str]] = [
    (lambda out: Bert(masked_lm_prob=2), "masked_lm_prob must be in"),
    (lambda out: Bert(max_seq_length=4), "max_seq_length must be in"),
    (lambda out: Mlm(overlap_size=1000), r"overlap_size must be in .* for max_seq_length=128"),
    (lambda out: MlmTokens(record_type="rows"), "record_type must be one of"),
    (lambda out: Gpt(fim_rate=2), "fim_rate must be in"),
    (lambda out: Gpt(packing="tight"), "packing must be one of"),
    (lambda out: T5(dupe_factor=0), "dupe_factor must be at least 1"),
    (lambda out: Ul2(denoisers="x"), "denoisers must be"),
    (lambda out: WriteExamples(out, compression="LZ"), "compression must be one of"),
    (lambda out: WriteExamples(out, splits={"a": 0.5}), "splits must have shares"),
    (lambda out: WriteImages(out, copies=2), r"copies=2 must go with ImageSpec.augmentation"),
    (lambda out: WriteImages(out, copies=0), "copies must be at least 1"),
    (lambda out: WriteImages(out, statistics="all"), "statistics must be one of"),
    (lambda out: WriteImages(out, warnings="all"), "warnings must be one of"),
    (
        lambda out: ImageSpec("detection", "imagenet"),
        "format must be one of .* for task=",
    ),
    (lambda out: ImageSpec("sorting", "tfds"), "task must be one of"),
    (
        lambda out: ImageSpec("classification", "tfds", channels=2),
        r"ImageSpec\.channels must be one of 1, 3",
    ),
    (lambda out: TransformSpec((0, 5)), r"TransformSpec\.size must be sides"),
    (lambda out: TransformSpec((4, 5), "longest"), r"TransformSpec\.mode='longest' must have one"),
    (lambda out: EncodeSpec("BMP"), r"EncodeSpec\.format must be one of"),
    (lambda out: EncodeSpec("JPEG", 0), r"EncodeSpec\.quality must be from 1"),
    (lambda out: AugmentationSpec.parse("bend"), r"ImageSpec\.augmentation must be one of"),
    (lambda out: ReadDocuments("x", documents="page"), "documents must be one of"),
    (lambda out: ReadDocuments("x", encoding="utf-9"), "encoding must be one that Python knows"),
    (lambda out: ReadDocuments("x", header="none"), "header='none' and columns belong together"),
    (lambda out: ReadDocuments("x", keep_fields="a:b"), "keep_fields"),
    (lambda out: ReadImages("x", layout="piles"), "layout must be one of"),
    (lambda out: ReadImages("x", layout="pairs"), "layout='pairs' needs masks"),
    (lambda out: ReadImages("x", label_folder=0), "label_folder must be 1 or more"),
    (lambda out: ReadImages(), "patterns must be a glob"),
]


@pytest.mark.parametrize(("make", "message"), OTHERS)
def test_others(make: Make, message: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=f"^{message}") as raised:
        make(str(tmp_path / "ds"))
    assert "--" not in str(raised.value)


def run(transform: Any) -> str:
    with pytest.raises(Exception, match=r"patterns|must|missing|given") as raised:  # noqa: SIM117
        with beam.Pipeline() as pipeline:
            _ = pipeline | transform
    return str(raised.value)


@pytest.mark.parametrize("transform", [ReadDocuments, ReadImages, ReadExamples])
def test_what_is_found_while_the_pipeline_runs(transform: Make, tmp_path: Path) -> None:
    message = run(transform(str(tmp_path / "nothing-*")))
    assert "nothing-" in message
    assert not re.search(r"--[a-z]", message)


def test_errors_and_warnings_of_stages(vocab_file: str, tmp_path: Path) -> None:
    rows = [Document("a text", str(i), label=f"{i}.5") for i in range(200)]
    options = {"objective": Classify(), "tokenizer": vocab_file}
    with pytest.raises(Exception, match=r"labels='number' is needed .* Document.label") as raised:
        write_elements(WriteText(str(tmp_path / "a"), **options), rows, bundles=1, workers=1)
    assert not re.search(r"--[a-z]", str(raised.value))
    grouped = [Document(f"text {i}", f"{i}{g}", g) for i in range(30) for g in "abcdef"]
    writing = WriteText(
        str(tmp_path / "b"), objective=Gpt(), tokenizer=vocab_file,
        splits={"train": 0.5, "test": 0.5}, num_shards=1,
    )  # fmt: skip
    write_elements(writing, grouped, bundles=1, workers=1)
    found = json.loads((tmp_path / "b/_meta/statistics.json").read_bytes())["warnings"]
    texts = " ".join(warning["text"] for warning in found)
    assert "deduplicate='exact'" in texts
    assert "--" not in texts


def test_rejects_of_images(tmp_path: Path) -> None:
    writing = WriteImages(str(tmp_path / "ds"), ImageSpec("classification", "tfds"))
    with pytest.raises(Exception, match="max_rejected allows") as raised:
        write_elements(writing, [Image(b"none", key="a", label="b")], bundles=1, workers=1)
    assert not re.search(r"--[a-z]", str(raised.value))
