"""Ids equal those of the libraries on all real text there is, in every language of it."""

from __future__ import annotations

import csv
import gzip
import io
import json
import sys
from pathlib import Path

import pytest
import sentencepiece
from tokenizers import BertWordPieceTokenizer
from tokenizers import Tokenizer as LibraryModel

from recordmill.transforms.subwords.library_lines import LibraryTokenizer
from recordmill.transforms.subwords.quick import QuickTokenizer
from recordmill.transforms.text.tokenizer_files import load_tokenizer, read_tokenizer

from . import trained
from .test_quick import ids_of

pytestmark = [pytest.mark.real, pytest.mark.slow]


@pytest.fixture(scope="module")
def lines(real_data: Path) -> list[str]:
    """Lines, and whole documents of many lines."""
    found: list[str] = []
    folder = real_data / "text"
    for path in sorted([*(folder / "awkward").iterdir(), *(folder / "books").iterdir()]):
        data = path.read_bytes()
        if path.suffix == ".gz":
            data = gzip.decompress(data)
        text = data.decode("latin-1" if "latin1" in path.name else "utf-8", "replace")
        found += text.split("\n")
        found.append(text[:200_000])
        if path.suffix == ".csv":
            csv.field_size_limit(sys.maxsize)
            found += [field for row in csv.reader(io.StringIO(text)) for field in row]
        if path.name.endswith(".jsonl.gz"):
            rows = [json.loads(line) for line in text.splitlines()]
            found += [str(value) for row in rows for value in row.values()]
    return found


def gpt2(real_data: Path) -> tuple[bytes, QuickTokenizer]:
    path = str(real_data / "vocab/gpt2-encoder.json")
    data, tokenizer = read_tokenizer(path, lambda name: Path(name).read_bytes())
    assert tokenizer.special.end_of_text_id == 50256
    quick = tokenizer.start(lower_case=True)
    assert isinstance(quick, QuickTokenizer)
    return data, quick


def different(found: list[list[int]], expected: list[list[int]], lines: list[str]) -> list[str]:
    return [line for line, a, b in zip(lines, found, expected, strict=True) if a != b]


def test_gpt2_is_that_of_tokenizers(real_data: Path, lines: list[str]) -> None:
    data, quick = gpt2(real_data)
    library = LibraryModel.from_str(data.decode())
    library.encode_special_tokens = True
    expected = [e.ids for e in library.encode_batch(lines, add_special_tokens=False)]
    assert different(ids_of(quick, lines), expected, lines) == []


def test_gpt2_is_that_of_tiktoken(real_data: Path, lines: list[str]) -> None:
    tiktoken = pytest.importorskip("tiktoken")
    load = pytest.importorskip("tiktoken.load")
    _, quick = gpt2(real_data)
    folder = real_data / "vocab"
    ranks = load.data_gym_to_mergeable_bpe_ranks(
        str(folder / "gpt2-vocab.bpe"), str(folder / "gpt2-encoder.json")
    )
    reference = tiktoken.Encoding(
        "gpt2", pat_str=r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
        mergeable_ranks=ranks, special_tokens={"<|endoftext|>": 50256},
    )  # fmt: skip
    expected = [reference.encode_ordinary(line) for line in lines]
    assert different(ids_of(quick, lines), expected, lines) == []


@pytest.mark.parametrize("pattern", [trained.LLAMA3, trained.QWEN2], ids=["llama3", "qwen2"])
def test_other_byte_pairs(pattern: str, lines: list[str]) -> None:
    data = trained.byte_pairs(pattern, size=20_000, lines=lines)
    library = LibraryModel.from_str(data.decode())
    library.encode_special_tokens = True
    expected = [e.ids for e in library.encode_batch(lines, add_special_tokens=False)]
    quick = load_tokenizer(data, "x").start(lower_case=True)
    assert isinstance(quick, QuickTokenizer)
    assert different(ids_of(quick, lines), expected, lines) == []


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
@pytest.mark.parametrize("byte_fallback", [False, True])
def test_sentence_pieces(kind: str, byte_fallback: bool, lines: list[str]) -> None:
    data = trained.pieces(
        kind, size=8000, lines=[line[:4000] for line in lines[::3]], byte_fallback=byte_fallback
    )
    quick = load_tokenizer(data, "x").start(lower_case=True)
    assert isinstance(quick, QuickTokenizer if kind == "unigram" else LibraryTokenizer)
    expected = sentencepiece.SentencePieceProcessor(model_proto=data).encode(lines)
    assert different(ids_of(quick, lines), expected, lines) == []


def test_the_model_of_seqio(real_data: Path, lines: list[str]) -> None:
    data = (real_data / "vocab/seqio_test.sentencepiece.model").read_bytes()
    quick = load_tokenizer(data, "x").start(lower_case=True)
    assert isinstance(quick, QuickTokenizer)
    expected = sentencepiece.SentencePieceProcessor(model_proto=data).encode(lines)
    assert different(ids_of(quick, lines), expected, lines) == []


def test_unigram_of_tokenizers(lines: list[str]) -> None:
    data = trained.unigram_json(size=8000, lines=[line[:4000] for line in lines[::5]])
    library = LibraryModel.from_str(data.decode())
    quick = load_tokenizer(data, "x").start(lower_case=True)
    assert isinstance(quick, QuickTokenizer)
    plain = [line for line in lines if not any(token in line for token in trained.SPECIAL)]
    expected = [e.ids for e in library.encode_batch(plain, add_special_tokens=False)]
    assert different(ids_of(quick, plain), expected, plain) == []


@pytest.mark.parametrize("lower_case", [True, False])
def test_word_pieces_of_tokenizers(real_data: Path, lines: list[str], lower_case: bool) -> None:
    vocabulary = str(real_data / "vocab/bert-base-uncased-vocab.txt")
    library = BertWordPieceTokenizer(vocabulary, lowercase=lower_case)._tokenizer
    library.encode_special_tokens = True
    quick = load_tokenizer(library.to_str().encode(), "x").start(lower_case=True)
    assert isinstance(quick, QuickTokenizer)
    expected = [e.ids for e in library.encode_batch(lines, add_special_tokens=False)]
    assert different(ids_of(quick, lines), expected, lines) == []
