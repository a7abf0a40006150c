from __future__ import annotations

import gzip
import random
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from recordmill.records.errors import UsageError
from recordmill.transforms.sources.lines import Lines, split_lines
from recordmill.transforms.text import word_memory
from recordmill.transforms.text.text_spec import SPECIAL_TOKENS
from recordmill.transforms.text.tokenization import Vocabulary, WordPieceTokenizer

from .bert_reference import FullTokenizer

UNICODE_TOKENS = (
    "é", "##é", "naïve", "中", "文", "の", "##の", "ος", "##ς", "σ", "##σ", "ﬁ", "…", "—", "가",
    "\u1100\u1161", "##\u1161", "İ", "ı", "##ı", "ß", "##ß", "STRASSE", "Hello", "##W", "W", "A",
    "##A", "🙂", "##🙂", "$",
)  # fmt: skip


@pytest.fixture(scope="module")
def vocabulary(vocab_file: str) -> Vocabulary:
    tokens = Vocabulary.from_bytes(Path(vocab_file).read_bytes(), vocab_file).tokens
    return Vocabulary(tuple(dict.fromkeys((*tokens, *UNICODE_TOKENS))))


@pytest.fixture(scope="module", params=[True, False], ids=["uncased", "cased"])
def tokenizers(request, vocabulary: Vocabulary) -> tuple[WordPieceTokenizer, FullTokenizer]:
    lower_case = request.param
    return (
        WordPieceTokenizer(vocabulary, lower_case=lower_case),
        FullTokenizer(vocabulary.tokens, lower_case=lower_case),
    )


def ids_of(tokenizer: WordPieceTokenizer, lines: list[str]) -> list[list[int]]:
    tokens = tokenizer.tokenize(Lines.from_list([line.encode() for line in lines]))
    assert tokens.ids.dtype == np.int32
    assert tokens.row_splits[0] == 0
    assert tokens.row_splits[-1] == len(tokens.ids)
    return [part.tolist() for part in np.split(tokens.ids, tokens.row_splits[1:-1])][: len(lines)]


any_line = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
ascii_line = st.text(st.characters(max_codepoint=127), max_size=60)
wordy = st.lists(
    st.sampled_from(
        ["the", "Of", "WATER", "##s", "[MASK]", "naïve", "é", "中文", "のの", "ΟΔΟΣ", "ΑΣ.Α", "가",
         "İ", "ß", "🙂", " ", "\t", "\u3000", "\x00", "\x7f", "'", "-", "...", "a\u0301", "\u0301",
         "x" * 199, "é" * 200]
    ),
    max_size=12,
).map("".join)  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(lines=st.lists(st.one_of(any_line, ascii_line, wordy), max_size=8))
@example(lines=[])
@example(lines=["", " ", "\x00"])
def test_ids_are_those_of_bert(tokenizers, lines):
    tokenizer, reference = tokenizers
    assert ids_of(tokenizer, lines) == [reference.tokenize(line) for line in lines]


@pytest.mark.slow
def test_every_character(tokenizers):
    """Alone, within a word and between words."""
    tokenizer, reference = tokenizers
    codes = [code for code in range(sys.maxunicode + 1) if not 0xD800 <= code <= 0xDFFF]
    # Of the long blocks of ideographs, syllables and unassigned characters a sample will do.
    codes = [
        code
        for code in codes
        if code < 0x3400 or 0xA000 <= code < 0xAC00 or 0xF900 <= code < 0x20000 or code % 97 == 0
    ]
    lines = [f"{chr(code)} a{chr(code)}b The{chr(code)} in" for code in codes]
    expected = [reference.tokenize(line) for line in lines]
    assert ids_of(tokenizer, lines) == expected


@pytest.mark.parametrize("size", [1, 199, 200, 201, 799, 800, 801, 5000])
@pytest.mark.parametrize("char", ["a", "é", "中", "🙂", "'", "\u0301", "W"])
def test_long_words(tokenizers, size, char):
    tokenizer, reference = tokenizers
    word = char * size
    lines = [word, f"the {word} of", f"{word}.{word}", f"a{word}"]
    assert ids_of(tokenizer, lines) == [reference.tokenize(line) for line in lines]


@pytest.mark.parametrize(
    "unit",
    ["water ", "water\t", "the.", "x", "xé", "é ", "中", "のx、", "a\u3000", "ΑΣ.", "가",
     "\x00ab\x00", "\x01", "word\u2028", "É"],
)  # fmt: skip
@pytest.mark.parametrize("extra", [0, 5])
def test_lines_longer_than_the_memory_takes_at_once(tokenizers, unit, extra):
    tokenizer, reference = tokenizers
    limit = word_memory.MAX_LINE_BYTES
    count = limit // len(unit.encode()) + extra
    lines = ["the", unit * count, "of", "a " * 9 + unit * count + " water"]
    assert ids_of(tokenizer, lines) == [reference.tokenize(line) for line in lines]


def test_much_longer_lines(tokenizers):
    tokenizer, reference = tokenizers
    rng = random.Random(5)
    units = ["water ", "the", ".", "é", "中", "\t", " of ", "Σ", "x" * 300, "の" * 99]
    line = "".join(rng.choices(units, k=15_000))
    assert ids_of(tokenizer, ["the", line, "of", line]) == [
        reference.tokenize(line) for line in ["the", line, "of", line]
    ]


def test_more_words_than_are_remembered(vocabulary):
    tokenizer = WordPieceTokenizer(vocabulary, lower_case=True)
    reference = FullTokenizer(vocabulary.tokens, lower_case=True)
    numbers = range(word_memory.MAX_WORDS + 60_000)
    lines = [
        " ".join(f"{n:x}" for n in numbers[at : at + 1000]) for at in range(0, len(numbers), 1000)
    ]
    for batch in (lines[:5], lines, lines[:5]):
        expected = [[i for n in line.split() for i in reference.word_chunks(n)] for line in batch]
        assert ids_of(tokenizer, batch) == expected


def test_more_bytes_of_words_than_are_remembered(vocabulary):
    tokenizer = WordPieceTokenizer(vocabulary, lower_case=True)
    reference = FullTokenizer(vocabulary.tokens, lower_case=True)
    count = word_memory.POOL_BYTES // 590 + 1000
    lines = [f"{'€' * 195}{n:x} {n:o}" for n in range(count)]
    expected = [[i for word in line.split() for i in reference.word_chunks(word)] for line in lines]
    assert ids_of(tokenizer, lines) == expected


def test_lines_of_a_buffer_that_holds_more(tokenizers):
    tokenizer, reference = tokenizers
    lines = split_lines("the of\nÉté\r\n\nwater 中".encode())
    tokens = tokenizer.tokenize(lines.select([3, 1]))
    found = np.split(tokens.ids, tokens.row_splits[1:-1])
    assert [ids.tolist() for ids in found] == [
        reference.tokenize("water 中"),
        reference.tokenize("Été"),
    ]


class TestVocabulary:
    def test_line_number_is_id(self):
        data = "\n".join([*SPECIAL_TOKENS, "é", "##s"]).encode()
        for form in (data, data + b"\n", data.replace(b"\n", b"\r\n")):
            vocabulary = Vocabulary.from_bytes(form, "v")
            assert len(vocabulary) == 7
            assert vocabulary.ids["é"] == 5
            assert vocabulary.continues_word.tolist() == [False] * 6 + [True]

    def test_checksum_is_of_the_tokens(self):
        data = "\n".join(SPECIAL_TOKENS).encode()
        one = Vocabulary.from_bytes(data, "a")
        two = Vocabulary.from_bytes(data.replace(b"\n", b"\r\n"), "b")
        assert one.checksum == two.checksum == "2748c3791961f1a8126ca098ef294107"
        assert Vocabulary.from_bytes(data + b"\nx", "a").checksum != one.checksum

    @pytest.mark.parametrize(
        ("data", "message"),
        [
            (
                b"[PAD]\n[UNK]\nthe",
                r"must contain .*; it lacks \[CLS\], \[SEP\], \[MASK\]: make one",
            ),
            (b"", r"--vocab_file v\.txt must contain \[PAD\], "),
            ("\n".join([*SPECIAL_TOKENS, "a", "a"]).encode(), r"v\.txt contains 'a' twice"),
            ("\n".join(SPECIAL_TOKENS).encode() + b"\n\xff", r"v\.txt must be UTF-8: .*0xff"),
        ],
    )
    def test_errors(self, data, message):
        with pytest.raises(UsageError, match=message):
            Vocabulary.from_bytes(data, "v.txt")


@pytest.fixture(scope="module")
def bert_base(real_data: Path) -> tuple[WordPieceTokenizer, FullTokenizer]:
    path = real_data / "vocab" / "bert-base-uncased-vocab.txt"
    vocabulary = Vocabulary.from_bytes(path.read_bytes(), path.name)
    assert len(vocabulary) == 30_522
    return (
        WordPieceTokenizer(vocabulary, lower_case=True),
        FullTokenizer(vocabulary.tokens, lower_case=True),
    )


@pytest.mark.slow
@pytest.mark.real
@pytest.mark.parametrize(
    "name",
    ["bench_gutenberg_bertfmt.txt", "bert_sample_text.txt", "awkward/blns.txt",
     "awkward/gutenberg_24675-8_latin1_crlf.txt", "awkward/debian_handbook_zh-CN.txt",
     "awkward/gutenberg_52834-0_utf8_bom_crlf.txt", "awkward/wagahai_neko_ja_utf8.txt",
     "awkward/prompts_quoted_newlines.csv", "awkward/HumanEval.jsonl.gz"],
)  # fmt: skip
def test_every_line_of_real_text(real_data: Path, bert_base, name):
    tokenizer, reference = bert_base
    data = (real_data / "text" / name).read_bytes()
    if name.endswith(".gz"):
        data = gzip.decompress(data)
    if "latin1" in name:
        data = data.decode("latin-1").encode()
    lines = [line.decode("utf-8", "replace") for line in data.split(b"\n")]
    assert len(lines) > 30
    for line, found in zip(lines, ids_of(tokenizer, lines), strict=True):
        assert found == reference.tokenize(line), line
