"""Tokenizers learned from word counts: the library's merges, exact sizes, ids equal in both."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable

import numpy as np
import pytest
import sentencepiece
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

from recordmill.records.errors import RunError, UsageError
from recordmill.transforms.sources.lines import Lines
from recordmill.transforms.subwords.preparation import Preparation
from recordmill.transforms.subwords.quick import QuickTokenizer
from recordmill.transforms.subwords.word_ends import GPT2
from recordmill.transforms.text.tokenizer_files import load_tokenizer
from recordmill.transforms.vocabulary.tokenizer_learning import learn_tokenizer
from recordmill.transforms.vocabulary.vocab_spec import BytePairSpec, Kind, UnigramSpec
from recordmill.transforms.vocabulary.word_cutting import (
    CountsWords,
    CutWordCounter,
    key_of,
    word_counter,
)

TEXT = [
    "The quick brown fox jumps over the lazy dog, and the dog's owner doesn't mind at all.",
    "We've seen 12,345 waters; they're    flowing\tdown to the sea's shore in 1984.  ",
    "In the beginning was the word: naïve café, Straße, “quoted” – the … end!!!",
    "吾輩は猫である。名前はまだ無い。どこで生れたかとんと見当がつかぬ。",
    "привет мир, как дела? שלום עולם مرحبا بالعالم 안녕하세요 세계 🙂🙃 e\u0301",
    "aaaaaaa aaaa abababab ababab ---------- ...... the the the water Water WATER",
    "Ａ ﬁne line\u3000of full width, and a \u00a0 no-break one; ½ ℌ \x07bell ▁mark",
] * 3


def count(kind: Kind, texts: Iterable[str], *, lower_case: bool = False) -> dict[str, int]:
    return count_by(word_counter(kind, lower_case=lower_case), kind, texts)


def count_by(counter: CountsWords, kind: Kind, texts: Iterable[str]) -> dict[str, int]:
    lines = Lines.from_list([text.encode() for text in texts])
    counts: Counter[str] = Counter()
    for table in [*counter.add(lines), counter.take()]:
        for word, number in table.items():
            counts[key_of(kind, word).decode()] += number
    return dict(counts)


def characters_of(words: dict[str, int]) -> dict[str, int]:
    counts: Counter[str] = Counter()
    for word, number in words.items():
        for char in word:
            counts[char] += number
    return dict(counts)


def library_bpe(size: int, min_count: int, *, lower_case: bool = False) -> Tokenizer:
    model = Tokenizer(models.BPE())
    if lower_case:
        model.normalizer = normalizers.Lowercase()
    model.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=size, min_frequency=min_count, special_tokens=["<|endoftext|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False,
    )  # fmt: skip
    model.train_from_iterator(TEXT, trainer)
    return model


@pytest.mark.parametrize("lower_case", [False, True])
def test_words_of_bpe_are_those_of_the_library(lower_case: bool) -> None:
    cut = pre_tokenizers.ByteLevel(add_prefix_space=False)
    form = normalizers.Lowercase() if lower_case else normalizers.Sequence([])
    expected = Counter(
        word for text in TEXT for word, _ in cut.pre_tokenize_str(form.normalize_str(text))
    )
    assert count("bpe", TEXT, lower_case=lower_case) == expected


@pytest.mark.parametrize(("rule", "lower_case"), [("nmt_nfkc", False), ("nmt_nfkc_cf", True)])
def test_words_of_unigram_are_those_of_sentencepiece(rule: str, lower_case: bool) -> None:
    library = sentencepiece.SentencePieceNormalizer(
        rule_name=rule,
        add_dummy_prefix=True,
        escape_whitespaces=True,
        remove_extra_whitespaces=True,
    )
    texts = [text for text in TEXT if "▁" not in text]
    expected = Counter(
        "▁" + word for text in texts for word in library.normalize(text).split("▁") if word
    )
    assert count("unigram", texts, lower_case=lower_case) == expected


def test_a_full_memory_loses_no_words() -> None:
    texts = [" ".join(f"w{i % 70}x{j}" for j in range(40)) for i in range(90)] + ["x" * 1025 + " y"]
    counter = CutWordCounter(Preparation(), GPT2, max_words=50, pool_bytes=1100)
    counts = count_by(counter, "bpe", texts)
    assert sum(counts.values()) == 90 * 40 * 4 + 1  # of each: w or " w", digits, x, digits
    assert counts["Ġy"] == 1
    assert "x" * 1025 not in counts


@pytest.mark.parametrize(
    ("size", "min_count", "lower_case"), [(320, 2, False), (2000, 1, False), (2000, 4, True)]
)
def test_merges_are_those_of_the_library(size: int, min_count: int, lower_case: bool) -> None:
    expected = json.loads(library_bpe(size, min_count, lower_case=lower_case).to_str())["model"]
    spec = BytePairSpec(vocab_size=size, do_lower_case=lower_case, min_count=min_count)
    made = learn_tokenizer(count("bpe", TEXT, lower_case=lower_case), {}, spec)
    model = json.loads(made.data)["model"]
    assert [merge.split(" ") for merge in model["merges"]] == expected["merges"]
    assert model["vocab"] == expected["vocab"]
    assert made.tokens == len(model["vocab"])
    assert (made.tokens == size) is (size == 320)


def check_ids(data: bytes, expected: list[list[int]]) -> None:
    """Our tokenizer of the file runs by kernels, and gives the library's ids."""
    tokenizer = load_tokenizer(data, "learned").start(lower_case=False)
    assert isinstance(tokenizer, QuickTokenizer)
    found = tokenizer.tokenize(Lines.from_list([text.encode() for text in TEXT]))
    np.testing.assert_array_equal(found.ids, np.concatenate(expected))


@pytest.mark.parametrize("lower_case", [False, True])
def test_ids_of_bpe_are_those_of_the_library(lower_case: bool) -> None:
    words = count("bpe", TEXT, lower_case=lower_case)
    special = ("<|endoftext|>", "<|pad|>")
    made = learn_tokenizer(
        words, {}, BytePairSpec(vocab_size=400, do_lower_case=lower_case, special_tokens=special)
    )
    assert made.tokens == 400
    library = Tokenizer.from_str(made.data.decode())
    check_ids(made.data, [library.encode(text).ids for text in TEXT])
    assert [library.token_to_id(token) for token in special] == [0, 1]
    decoded = library.decode(library.encode(TEXT[3]).ids)
    assert decoded == TEXT[3]


@pytest.mark.parametrize("lower_case", [False, True])
def test_ids_of_unigram_are_those_of_sentencepiece(lower_case: bool) -> None:
    words = count("unigram", TEXT, lower_case=lower_case)
    special = ("<pad>", "</s>", "<unk>", "<s>", "<extra_id_0>")
    spec = UnigramSpec(vocab_size=150, do_lower_case=lower_case, special_tokens=special)
    made = learn_tokenizer(words, characters_of(words), spec)
    assert made.tokens == 150
    library = sentencepiece.SentencePieceProcessor(model_proto=made.data)
    assert [library.id_to_piece(i) for i in range(5)] == list(special)
    check_ids(made.data, library.encode(TEXT))
    assert library.unk_id() not in library.encode("привет water")


def test_the_order_of_counts_does_not_matter() -> None:
    for kind, spec in (
        ("bpe", BytePairSpec(vocab_size=400)),
        ("unigram", UnigramSpec(vocab_size=150)),
    ):
        words = count(kind, TEXT)  # type: ignore[arg-type]
        characters = characters_of(words)
        back, turned = dict(reversed(words.items())), dict(reversed(characters.items()))
        first = learn_tokenizer(words, characters, spec)  # type: ignore[arg-type]
        assert learn_tokenizer(back, turned, spec) == first  # type: ignore[arg-type]


def test_no_merge_makes_a_special_token() -> None:
    words = {"the": 50, "then": 9}
    made = learn_tokenizer(words, {}, BytePairSpec(vocab_size=300, special_tokens=("the",)))
    model = json.loads(made.data)["model"]
    assert model["vocab"]["the"] == 0
    assert ["t", "he"] not in [merge.split(" ") for merge in model["merges"]]
    assert len(model["vocab"]) == made.tokens


def test_characters_beyond_the_most_frequent_are_unknown() -> None:
    words = {"▁aab": 90, "▁abba": 80, "▁aq": 1}
    made = learn_tokenizer(
        words, characters_of(words), UnigramSpec(vocab_size=12, max_unique_chars=2)
    )
    library = sentencepiece.SentencePieceProcessor(model_proto=made.data)
    pieces = {library.id_to_piece(i) for i in range(made.tokens)}
    assert {"a", "b"} < pieces
    assert "q" not in pieces


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: BytePairSpec(vocab_size=256), "vocab_size must be at least 257"),
        (lambda: BytePairSpec(vocab_size=300, special_tokens=("a b",)), "without white space"),
        (lambda: BytePairSpec(vocab_size=300, special_tokens=("x1", "x1")), "contains x1 twice"),
        (lambda: BytePairSpec(vocab_size=300, special_tokens=("x",)), "x, which stands for a byte"),
        (lambda: BytePairSpec(vocab_size=300, min_count=0), "min_count must be at least 1"),
        (lambda: UnigramSpec(vocab_size=6), "vocab_size must be at least 7"),
        (lambda: UnigramSpec(vocab_size=100, special_tokens=("<pad>",)), "must contain <unk>"),
        (
            lambda: UnigramSpec(vocab_size=100, max_unique_chars=0),
            "max_unique_chars must be at least 1",
        ),
    ],
)
def test_wrong_values_are_refused(make: object, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        make()  # type: ignore[operator]


def test_too_little_text_for_sentencepiece_is_one_line() -> None:
    with pytest.raises(RunError, match="too little text for a Unigram of 100 tokens in 0 words"):
        learn_tokenizer({}, {}, UnigramSpec(vocab_size=100))
