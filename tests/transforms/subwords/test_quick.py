"""Ids of the kernels equal those of the libraries, on any text."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Callable

import numpy as np
import pytest
import sentencepiece
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer as LibraryModel

from recordmill.transforms.sources.lines import Lines
from recordmill.transforms.subwords import remembered
from recordmill.transforms.subwords.quick import QuickTokenizer
from recordmill.transforms.text.tokenizer_files import load_tokenizer

from . import trained

Encode = Callable[[list[str]], list[list[int]]]
Both = tuple[QuickTokenizer, Encode]

JSON_MAKERS: dict[str, Callable[[], bytes]] = {
    "gpt2": trained.byte_pairs,
    "prefix_space": lambda: trained.byte_pairs(prefix_space=True),
    "llama3": lambda: trained.byte_pairs(trained.LLAMA3),
    "qwen2": lambda: trained.byte_pairs(trained.QWEN2),
    "ignore_merges": trained.ignoring_merges,
    "llama2": trained.marked_byte_pairs,
    "word_pieces": trained.word_pieces_json,
    "cased_word_pieces": lambda: trained.word_pieces_json(lower_case=False),
    "unigram_json": trained.unigram_json,
    "t5_json": lambda: trained.unigram_json(whitespace=True),
}
PIECE_MAKERS: dict[str, Callable[[], bytes]] = {
    "unigram": lambda: trained.pieces("unigram"),
    "unigram_bytes": lambda: trained.pieces("unigram", size=500, byte_fallback=True),
    "unigram_spaces": lambda: trained.pieces(
        "unigram", remove_extra_whitespaces=False, normalization_rule_name="identity"
    ),
    "unigram_symbols": lambda: trained.pieces("unigram", user_defined_symbols=["<x>", "ab"]),
}
MAKERS = JSON_MAKERS | PIECE_MAKERS


def ids_of(tokenizer: QuickTokenizer, lines: list[str]) -> list[list[int]]:
    tokens = tokenizer.tokenize(Lines.from_list([line.encode() for line in lines]))
    assert tokens.ids.dtype == np.int32
    splits = tokens.row_splits.tolist()
    assert len(splits) == len(lines) + 1
    assert splits[-1] == len(tokens.ids)
    return [tokens.ids[a:b].tolist() for a, b in itertools.pairwise(splits)]


@pytest.fixture(scope="module", params=MAKERS)
def both(request: pytest.FixtureRequest) -> Both:
    maker = request.param
    data = MAKERS[maker]()
    tokenizer = load_tokenizer(data, maker)
    quick = tokenizer.start(lower_case=True)
    assert isinstance(quick, QuickTokenizer)
    if maker in PIECE_MAKERS:
        return quick, sentencepiece.SentencePieceProcessor(model_proto=data).encode
    library = LibraryModel.from_str(data.decode())
    library.encode_special_tokens = True
    if tokenizer.kind != "unigram":
        return quick, encoder(library)
    # The library's own switch does not reach a Unigram, whose pieces special tokens are.
    content = json.loads(data)
    special = {token["content"] for token in content.pop("added_tokens")}
    vocab = content["model"]["vocab"]
    content["model"]["vocab"] = [[f"\U0010fffe{p}" if p in special else p, s] for p, s in vocab]
    without = encoder(LibraryModel.from_str(json.dumps(content)))
    plain = encoder(library)

    def encode(lines: list[str]) -> list[list[int]]:
        has_any = [any(token in line for token in special) for line in lines]
        pairs = zip(without(lines), plain(lines), has_any, strict=True)
        return [as_text if spelled else ids for as_text, ids, spelled in pairs]

    return quick, encode


def encoder(library: LibraryModel) -> Encode:
    return lambda lines: [
        encoding.ids for encoding in library.encode_batch(lines, add_special_tokens=False)
    ]


any_line = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
ascii_line = st.text(st.characters(max_codepoint=127), max_size=60)
wordy = st.lists(
    st.sampled_from(
        ["the", " the", "The", " WATER", "'s", "'S", "'ſ", "'ll", "'", "''", " '", "don't", "we've",
         "naïve", "é", "e\u0301", "中文", "のの", "ß", "🙂", " ", "  ", "   ", "\t", "\n", "\r\n",
         "\n\n ", "\u3000", "\xa0", "\u2028", "\x85", "\x1c", "\x00", "\x7f", "-", "...", "!!\n",
         "12", "12345", "Ⅷ", "²", "٣٤", "▁", "▁▁", "▁the", "\u200b", "\ufeff", "ﬁ", "…", "Ａ",
         "aaaaaaa", "abababab", "----------", "x" * 300, "é" * 200, "<x>", "ab", "def x():\n    ",
         "<s>", "</s>", "<unk>", "<pad>", "<mask>", "[MASK]", "<", "unk>"]
    ),
    max_size=12,
).map("".join)  # fmt: skip


@settings(max_examples=120, deadline=None)
@given(lines=st.lists(st.one_of(any_line, ascii_line, wordy), max_size=8))
@example(lines=[])
@example(lines=["", " ", "\x00", "▁", " ▁", "  a  b  "])
def test_ids_are_those_of_the_library(both: Both, lines: list[str]) -> None:
    quick, library = both
    assert ids_of(quick, lines) == library(lines)


@pytest.fixture(scope="module", params=JSON_MAKERS)
def allowing(request: pytest.FixtureRequest) -> Both:
    data = JSON_MAKERS[request.param]()
    quick = load_tokenizer(data, request.param).start(lower_case=True, allow_special_tokens=True)
    assert isinstance(quick, QuickTokenizer)
    return quick, encoder(LibraryModel.from_str(data.decode()))


@settings(max_examples=60, deadline=None)
@given(lines=st.lists(st.one_of(any_line, wordy), max_size=8))
def test_special_tokens_that_are_allowed_are_those_of_the_library(
    allowing: Both, lines: list[str]
) -> None:
    quick, library = allowing
    assert ids_of(quick, lines) == library(lines)


@pytest.mark.slow
def test_every_character(both: Both) -> None:
    """Alone, within a word and between words."""
    quick, library = both
    codes = [code for code in range(0x110000) if not 0xD800 <= code < 0xE000]
    codes = [
        code
        for code in codes
        if code < 0x3400 or 0xA000 <= code < 0xAC00 or 0xF900 <= code < 0x20000 or code % 97 == 0
    ]
    lines = [f"{chr(code)} a{chr(code)}b 1{chr(code)} '{chr(code)}e{chr(code)}" for code in codes]
    expected = library(lines)
    found = ids_of(quick, lines)
    wrong = [line for line, a, b in zip(lines, found, expected, strict=True) if a != b]
    assert not wrong


@pytest.mark.parametrize("seed", range(2))
def test_long_lines(both: Both, seed: int) -> None:
    """Where scores of 32 bits are rounded, and merges are kept in a heap."""
    quick, library = both
    rng = random.Random(seed)
    units = ["the ", "water", " dog", "ab", *"a-.é中の 1\nx", "'s"]
    weights = [rng.random() ** 3 for _ in units]
    sizes = rng.choices((50, 900, 9000), k=9)
    lines = ["".join(rng.choices(units, weights, k=size)) for size in sizes]
    assert ids_of(quick, lines) == library(lines)


@pytest.mark.slow
def test_a_full_memory_starts_anew() -> None:
    data = trained.pieces("unigram")
    quick = load_tokenizer(data, "x").start(lower_case=True)
    assert isinstance(quick, QuickTokenizer)
    rng = random.Random(1)
    count = remembered.MAX_WORDS + 70_000
    words = ["".join(rng.choices("abcdefgh", k=rng.choice((6, 9, 20)))) for _ in range(count)]
    lines = [" ".join(words[i : i + 700]) for i in range(0, count, 700)]
    found = ids_of(quick, lines)
    quick.clear()
    assert ids_of(quick, lines[:40]) == found[:40]
    assert ids_of(quick, lines[-40:]) == found[-40:]
    assert found[-40:] == sentencepiece.SentencePieceProcessor(model_proto=data).encode(lines[-40:])
