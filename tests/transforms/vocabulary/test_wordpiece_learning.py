"""What the learner is given and what becomes of its answer."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter

import pytest

from recordmill.records.errors import UsageError
from recordmill.transforms.text.text_spec import SPECIAL_TOKENS
from recordmill.transforms.vocabulary.vocab_spec import LearnSpec
from recordmill.transforms.vocabulary.wordpiece_learning import (
    _search,
    _without_surplus,
    choose_words,
    learn_vocabulary,
)

WORDS = {
    f"{stem}{end}": 100 // (i + 1) + j + 2
    for i, stem in enumerate(["walk", "talk", "jump", "look", "turn", "open", "play", "work"])
    for j, end in enumerate(["", "s", "ed", "ing", "er"])
}


def characters_of(words: dict[str, int]) -> dict[str, int]:
    counts: Counter[str] = Counter()
    for word, count in words.items():
        for character in word:
            counts[character] += count
    return counts


def test_words_come_by_count_then_by_word() -> None:
    chosen = choose_words({"b": 2, "c": 9, "a": 2}, {}, LearnSpec(vocab_size=100))
    assert chosen == [("c", 9), ("a", 2), ("b", 2)]


def test_words_end_where_the_budget_does_and_characters_stay() -> None:
    spec = LearnSpec(vocab_size=100, min_substrings=12, substrings_per_token=0)
    words = {"abc": 9, "bcd": 8, "xyz": 7}
    chosen = choose_words(words, characters_of(words), spec)
    assert chosen == [("abc", 9), ("bcd", 8), ("x", 7), ("y", 7), ("z", 7)]


def test_words_over_the_longest_piece_give_only_their_characters() -> None:
    words = {"q" * 51: 5, "aa": 3}
    assert choose_words(words, {"q": 255, "a": 6}, LearnSpec(vocab_size=100)) == [
        ("q", 255),
        ("aa", 3),
    ]


@pytest.mark.parametrize("vocab_size", [40, 60, 80, 1000])
def test_special_tokens_come_first_and_the_size_is_kept(vocab_size: int) -> None:
    spec = LearnSpec(vocab_size=vocab_size, special_tokens=("[NEW]", *SPECIAL_TOKENS))
    tokens = learn_vocabulary(choose_words(WORDS, characters_of(WORDS), spec), spec)
    assert tuple(tokens[:6]) == spec.special_tokens
    assert len(set(tokens)) == len(tokens) <= vocab_size
    letters = spec.vocab_size // 2
    if letters > 2 * len(set("".join(WORDS))):
        assert set("".join(WORDS)) <= set(tokens)


def test_a_large_vocabulary_holds_all_words() -> None:
    spec = LearnSpec(vocab_size=1000)
    tokens = learn_vocabulary(choose_words(WORDS, characters_of(WORDS), spec), spec)
    assert set(WORDS) <= set(tokens)


def test_a_small_vocabulary_holds_the_endings() -> None:
    spec = LearnSpec(vocab_size=70)
    tokens = learn_vocabulary(choose_words(WORDS, characters_of(WORDS), spec), spec)
    assert {"##ing", "##ed"} <= set(tokens)


def test_min_count_leaves_rare_pieces_out() -> None:
    words = {**WORDS, "zebra": 2}
    seen = {}
    for min_count in (2, 3):
        spec = LearnSpec(vocab_size=1000, min_count=min_count)
        tokens = learn_vocabulary(choose_words(words, characters_of(words), spec), spec)
        seen[min_count] = "zebra" in tokens
        assert "z" in tokens
    assert seen == {2: True, 3: False}


def test_max_unique_chars_limits_the_alphabet() -> None:
    words = {"aaa": 50, "ab": 40, "c": 2}
    spec = LearnSpec(vocab_size=100, max_unique_chars=2)
    tokens = learn_vocabulary(choose_words(words, characters_of(words), spec), spec)
    assert {"a", "##a", "b", "##b"} <= set(tokens)
    assert not {"c", "##c"} & set(tokens)


def test_the_search_finds_the_smallest_threshold_that_fits() -> None:
    counts = [(f"w{i}", 5000 // (i + 1) + 1) for i in range(4000)]
    tried: list[int] = []

    def learn(threshold: int) -> list[str]:
        tried.append(threshold)
        return [word for word, count in counts if count >= threshold]

    tokens = _search(learn, counts, LearnSpec(vocab_size=500))
    assert 475 <= len(tokens) <= 500
    assert len(tried) <= 5


def test_the_search_ends_where_no_threshold_is_near() -> None:
    counts = [(f"w{i}", 1000 if i < 100 else 10) for i in range(4000)]
    tokens = _search(lambda t: [w for w, c in counts if c >= t], counts, LearnSpec(vocab_size=500))
    assert len(tokens) == 100


def test_surplus_takes_the_last_pieces_and_no_character() -> None:
    tokens = [*SPECIAL_TOKENS, "a", "b", "ab", "abc", "##a", "##bc", "##b"]
    kept = _without_surplus(tokens, LearnSpec(vocab_size=10))
    assert kept == [*SPECIAL_TOKENS, "a", "b", "ab", "##a", "##b"]


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"vocab_size": 6}, "vocab_size must be at least 7"),
        ({"vocab_size": 9, "min_count": 0}, "min_count must be at least 1, got 0"),
        ({"vocab_size": 9, "max_unique_chars": 0}, "max_unique_chars must be at least 1"),
        ({"vocab_size": 9, "special_tokens": ("[PAD]",)}, "lacks .UNK.,.CLS.,.SEP.,.MASK."),
        ({"vocab_size": 9, "special_tokens": (*SPECIAL_TOKENS, "a b")}, "got 'a b'"),
        ({"vocab_size": 9, "special_tokens": (*SPECIAL_TOKENS, "")}, "got ''"),
        ({"vocab_size": 9, "special_tokens": (*SPECIAL_TOKENS, "[PAD]")}, r"\[PAD\] twice"),
    ],
)
def test_wrong_specs_say_what_to_do(spec: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        LearnSpec(**spec)  # type: ignore[arg-type]


def test_learning_loads_no_tensorflow() -> None:
    """Which takes 3 s and 350 MB."""
    program = (
        "import sys\n"
        "from recordmill.transforms.vocabulary.vocab_spec import LearnSpec\n"
        "from recordmill.transforms.vocabulary.wordpiece_learning import learn_vocabulary\n"
        "assert 'the' in learn_vocabulary([('the', 9), ('then', 5)], LearnSpec())\n"
        "assert 'tensorflow' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
