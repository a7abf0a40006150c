"""fastokens gives the ids of a BPE where they are those of `tokenizers`, else that does."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from tokenizers import BertWordPieceTokenizer
from tokenizers import Tokenizer as LibraryModel

from recordmill.pipelines.command_line import main
from recordmill.records.arrays import Bools
from recordmill.transforms.dataset.workspace import read_manifest
from recordmill.transforms.sources.lines import Lines
from recordmill.transforms.subwords import byte_pairs, library_lines
from recordmill.transforms.subwords.library_lines import LibraryTokenizer
from recordmill.transforms.subwords.quick import QuickTokenizer
from recordmill.transforms.subwords.tokenizer import Tokens
from recordmill.transforms.text.tokenizer_files import load_tokenizer

from . import trained
from .test_quick import ids_of

WRONG = "qwx"  # a word of which the ids are wrong below


@pytest.fixture
def wrong_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    """fastokens is one id off in lines with a word."""
    right = byte_pairs.BytePairs.tokenize

    def tokenize(self: byte_pairs.BytePairs, lines: Lines) -> tuple[Tokens, Bools]:
        tokens, doubtful = right(self, lines)
        wrong = tokens.ids.copy()
        for i in range(len(lines)):
            wrong[tokens.row_splits[i]] += WRONG.encode() in lines[i]
        return Tokens(wrong, tokens.row_splits), doubtful

    monkeypatch.setattr(byte_pairs.BytePairs, "tokenize", tokenize)


def test_of_a_file_that_fastokens_cannot_do_all_ids_are_the_librarys() -> None:
    content = json.loads(trained.byte_pairs())
    content["pre_tokenizer"] = {"type": "Whitespace"}
    tokenizer = load_tokenizer(json.dumps(content).encode(), "x").start(lower_case=True)
    assert isinstance(tokenizer, LibraryTokenizer)


def test_wrong_ids_of_an_awkward_line_are_noticed(
    wrong_ids: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = trained.byte_pairs(size=590)
    assert isinstance(load_tokenizer(data, "x").start(lower_case=True), QuickTokenizer)
    monkeypatch.setattr(byte_pairs, "_PARTS", (*byte_pairs._PARTS, WRONG))
    assert isinstance(load_tokenizer(data, "x").start(lower_case=True), LibraryTokenizer)


@pytest.mark.parametrize("differs", [False, True])
def test_a_sample_of_the_corpus_decides(tmp_path: Path, wrong_ids: None, differs: bool) -> None:
    (tmp_path / "tokenizer.json").write_bytes(trained.byte_pairs(size=595))
    for number in range(20):
        words = f"Some {WRONG} words {number}." if differs else f"Some words {number}."
        (tmp_path / f"{number:02}.txt").write_text(words)
    arguments = [
        f"--input={tmp_path}/*.txt", f"--output={tmp_path}/out", "--task=gpt",
        f"--tokenizer={tmp_path}/tokenizer.json", "--max_seq_length=16",
        "--direct_num_workers=1", "--progress=none",
    ]  # fmt: skip
    assert main(["text", *arguments]) == 0
    manifest = read_manifest(str(tmp_path / "out"))
    assert manifest
    versions = manifest.versions
    assert ("fastokens" in versions) is not differs
    assert "tokenizers" in versions


def test_lines_come_in_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    data = trained.byte_pairs(size=580)
    tokenizer = load_tokenizer(data, "x").start(lower_case=True)
    lines = ["the water " * n for n in (1, 0, 30, 2, 0, 7, 100, 3)]
    whole = ids_of(tokenizer, lines)
    for size in (1, 10, 300, 4000):
        monkeypatch.setattr(library_lines, "_BATCH_BYTES", size)
        assert ids_of(tokenizer, lines) == whole
    assert ids_of(tokenizer, []) == []


def test_a_file_that_truncates_cuts_no_document() -> None:
    content = json.loads(trained.byte_pairs(size=570))
    rules = {"max_length": 8192, "stride": 0, "strategy": "LongestFirst", "direction": "Right"}
    padding = {"strategy": {"Fixed": 16}, "direction": "Right", "pad_to_multiple_of": None}
    padding |= {"pad_id": 0, "pad_type_id": 0, "pad_token": "<pad>"}
    content |= {"truncation": rules, "padding": padding}
    tokenizer = load_tokenizer(json.dumps(content).encode(), "x").start(lower_case=True)
    assert isinstance(tokenizer, QuickTokenizer)
    short, long = ids_of(tokenizer, ["the", "the water " * 9000])
    assert len(short) < 4
    assert len(long) > 9000


def test_a_line_with_which_fastokens_fails_is_the_librarys() -> None:
    content = json.loads(trained.byte_pairs(trained.LLAMA3, size=610))
    split = content["pre_tokenizer"]["pretokenizers"][0]
    split["pattern"]["Regex"] = r"\p{N}{1,3}(?=(?:\p{N}{3})*(?!\p{N}))|" + trained.LLAMA3
    data = json.dumps(content).encode()
    tokenizer = load_tokenizer(data, "x").start(lower_case=True)
    assert isinstance(tokenizer, QuickTokenizer)
    lines = ["the water", "7" * 30_000, "and 1984", ""]
    library = LibraryModel.from_str(data.decode())
    expected = [e.ids for e in library.encode_batch(lines, add_special_tokens=False)]
    assert ids_of(tokenizer, lines) == expected
    pairs = byte_pairs.BytePairs(data, allow_special_tokens=False)
    _, doubtful = pairs.tokenize(Lines.from_list([line.encode() for line in lines]))
    assert doubtful.tolist() == [False, True, False, False]


def mixed_text(size: int) -> list[str]:
    """Prose of made words in eight scripts, code, numbers, white space and broken UTF-8."""
    rng = random.Random(3)
    alphabets = [
        range(0x61, 0x7B), range(0xE0, 0xFF), range(0x391, 0x3CA), range(0x410, 0x450),
        range(0x5D0, 0x5EB), range(0x904, 0x940), range(0x3041, 0x3097), range(0x4E00, 0x4F00),
        range(0xAC00, 0xAC80), range(0x1F600, 0x1F640),
    ]  # fmt: skip
    words = [
        "".join(chr(rng.choice(letters)) for _ in range(rng.randint(1, 9)))
        for letters in alphabets
        for _ in range(400)
    ]
    code = ["def f(x):\n    return x ** 2\n", "if (a<=b) {\r\n\tc += 1;\r\n}", "  \n\n", "x_1=0x7F"]
    marks = [" ", " ", " ", ", ", ". ", "\n", "\t", "  ", " 'tis ", " don't ", " 1984 ", "-", "…"]
    texts = []
    while size > 0:
        parts = [
            rng.choice(code) if rng.random() < 0.02 else rng.choice(words) + rng.choice(marks)
            for _ in range(rng.randint(1, 900))
        ]
        data = bytearray("".join(parts).encode())
        for _ in range(len(data) // 2000):
            data[rng.randrange(len(data))] = rng.randrange(128, 256)
        texts.append(data.decode("utf-8", "replace"))
        size -= len(data)
    return texts


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["gpt2", "llama3", "qwen2", "bert"])
def test_ids_of_20_mb_are_those_of_tokenizers(kind: str) -> None:
    texts = mixed_text(20_000_000)
    if kind == "bert":
        learned = BertWordPieceTokenizer()
        learned.train_from_iterator(texts[:400], vocab_size=8000, show_progress=False)
        data = learned.to_str().encode()
    else:
        pattern = {"gpt2": "", "llama3": trained.LLAMA3, "qwen2": trained.QWEN2}[kind]
        data = trained.byte_pairs(pattern, size=16_000, lines=texts[:400])
        if kind == "qwen2":
            data = json.dumps(json.loads(data) | {"normalizer": {"type": "NFC"}}).encode()
    tokenizer = load_tokenizer(data, "x").start(lower_case=True)
    assert isinstance(tokenizer, QuickTokenizer)
    library = LibraryModel.from_str(data.decode())
    library.encode_special_tokens = True
    for begin in range(0, len(texts), 500):
        some: Sequence[str] = texts[begin : begin + 500]
        tokens = tokenizer.tokenize(Lines.from_list([text.encode() for text in some]))
        expected = [e.ids for e in library.encode_batch_fast(list(some), add_special_tokens=False)]
        assert np.array_equal(np.diff(tokens.row_splits), [len(row) for row in expected])
        assert np.array_equal(tokens.ids, np.concatenate([np.array(r, np.int32) for r in expected]))
