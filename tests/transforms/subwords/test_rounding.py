"""SentencePiece's rounding of scores: our kernels repeat that of known releases."""

from __future__ import annotations

import itertools
import random

import pytest
import sentencepiece

from recordmill.transforms.subwords import sentence_pieces
from recordmill.transforms.subwords.library_lines import LibraryTokenizer
from recordmill.transforms.subwords.quick import QuickTokenizer
from recordmill.transforms.text.tokenizer_files import load_tokenizer

from . import trained
from .test_quick import ids_of


def test_the_installed_release_is_a_known_one() -> None:
    """Else Unigram is slow: see that the tests below hold with it, and add it to the known ones."""
    assert sentencepiece.__version__ in sentence_pieces.KNOWN_ROUNDING


def test_what_is_not_known_is_the_librarys(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    unigram = load_tokenizer(trained.pieces("unigram"), "m")
    bpe = load_tokenizer(trained.pieces("bpe"), "m")
    assert isinstance(unigram.start(lower_case=True), QuickTokenizer)
    monkeypatch.setattr(sentencepiece, "__version__", "0.2.99")
    assert isinstance(unigram.start(lower_case=True), LibraryTokenizer)
    assert isinstance(bpe.start(lower_case=True), LibraryTokenizer)


@pytest.mark.parametrize("byte_fallback", [False, True])
def test_ties_are_decided_as_the_library_does(byte_fallback: bool) -> None:
    data = trained.tied_pieces(1, size=500 if byte_fallback else 300, byte_fallback=byte_fallback)
    library = sentencepiece.SentencePieceProcessor(model_proto=data)
    quick = load_tokenizer(data, "m").start(lower_case=True)
    assert isinstance(quick, QuickTokenizer)
    rng = random.Random(2)
    words = sorted({word for line in trained.TEXT for word in line.split()} | {"語", "ω", "zzq"})
    lines = [" ".join(rng.choices(words, k=rng.choice((3, 30, 300)))) for _ in range(60)]
    expected = library.encode(lines)
    assert ids_of(quick, lines) == expected
    # What decides is what stands before: the same words are segmented in several ways.
    ways: dict[str, set[tuple[str, ...]]] = {}
    for row in library.encode(lines, out_type=str):
        begins = [i for i, piece in enumerate(row) if piece.startswith("▁")]
        for a, b in itertools.pairwise(begins):
            ways.setdefault("".join(row[a:b]), set()).add(tuple(row[a:b]))
    assert max(map(len, ways.values())) > 1


@pytest.mark.parametrize("byte_fallback", [False, True])
def test_long_lines_of_a_bpe_are_encoded_in_parts(
    byte_fallback: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = trained.pieces("bpe", size=500, byte_fallback=byte_fallback)
    library = sentencepiece.SentencePieceProcessor(model_proto=data)
    rng = random.Random(3)
    words = [word for line in trained.TEXT for word in line.split(" ")]
    lines = [" ".join(rng.choices([*words, "", "語"], k=k)) for k in (3, 90, 900)]
    monkeypatch.setattr(sentence_pieces, "_PART_CHARS", 50)
    assert len(list(sentence_pieces._parts(lines[2]))) > 9
    tokenizer = load_tokenizer(data, "m").start(lower_case=True)
    assert ids_of(tokenizer, lines) == library.encode(lines)
