"""Words and their counts: equal to a plain reference, whole or pruned."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recordmill.transforms.sources.lines import Lines
from recordmill.transforms.text.normalization import normalize
from recordmill.transforms.text.word_memory import MAX_LINE_BYTES
from recordmill.transforms.vocabulary.word_counts import (
    SketchSpec,
    WordCounter,
    WordTable,
    add_to_sketch,
    choose_threshold,
    may_reach,
    passing,
)

AWKWARD = [
    "The cat sat, the CAT slept; don't!",
    "",
    "   \t  ",
    "Écoutez le résumé naïve ÉCOUTEZ e\u0301coutez",
    "日本語のテキスト 東京 2024年",
    "ΣΊΣΥΦΟΣ σίσυφος ΟΔΥΣΣΕΥΣ",
    "zero\u200bwidth soft\u00adhyphen nbsp\u00a0space line\u2028separator",
    "a\x00b c\x07d \x7f e\ufffdf vertical\x0btab form\x0cfeed",
    "한국어 텍스트 가나다",
    "x" * 199 + " " + "y" * 200 + " " + "z" * 201 + " " + "w" * 900,
    "é" * 200 + " " + "日" * 3 + " " + "ö" * 201,
    "İstanbul ẞtraße ﬁne ½ … „quotes“ — dash",
    "snake_case foo.bar@example.org $5.00 100%",
]


def count(texts: list[str], *, lower_case: bool = True) -> Counter[str]:
    counter = WordCounter(lower_case=lower_case)
    lines = Lines.from_list([text.encode() for text in texts])
    tables = [*counter.add(lines), counter.take()]
    counts: Counter[str] = Counter()
    for table in tables:
        counts.update({word.decode(): number for word, number in table.items()})
    return counts


def reference(texts: list[str], *, lower_case: bool = True) -> Counter[str]:
    words = (word for t in texts for word in normalize(t, lower_case=lower_case).split())
    return Counter(word for word in words if len(word) <= 200)


@pytest.mark.parametrize("lower_case", [True, False])
def test_words_of_awkward_text_are_those_of_the_reference(lower_case: bool) -> None:
    assert count(AWKWARD, lower_case=lower_case) == reference(AWKWARD, lower_case=lower_case)


def test_case_is_kept_where_asked() -> None:
    assert count(["The the"], lower_case=False) == {"The": 1, "the": 1}


@given(st.lists(st.text(st.characters(codec="utf-8"), max_size=40), max_size=8))
@settings(max_examples=60, deadline=None)
def test_words_of_any_text_are_those_of_the_reference(texts: list[str]) -> None:
    assert count(texts) == reference(texts)


def test_a_full_memory_loses_nothing() -> None:
    texts = [" ".join(f"word{i}x{j} the" for j in range(1000)) for i in range(300)]
    assert count(texts) == Counter(word for text in texts for word in text.split())


def test_a_line_longer_than_the_memory_is_counted_whole() -> None:
    text = " ".join(f"w{i}" for i in range(300_000))
    assert count([text]) == Counter(text.split())


@pytest.mark.parametrize(
    "text", ["\u65e5\u672c" * 30_000, "\u0436" * 70_000, "\u0436\u0436 " * 30_000]
)
def test_long_lines_beyond_ascii_are_those_of_the_reference(text: str) -> None:
    assert len(text.encode()) > MAX_LINE_BYTES
    assert count([text]) == reference([text])


def test_take_removes_the_counts() -> None:
    counter = WordCounter(lower_case=True)
    assert list(counter.add(Lines.from_list([b"one two one"]))) == []
    assert dict(counter.take().items()) == {b"one": 2, b"two": 1}
    assert len(counter.take()) == 0


def table_of(counts: dict[str, int]) -> WordTable:
    words = [word.encode() for word in counts]
    lines = Lines.from_list(words)
    numbers = np.array(list(counts.values()), np.int64)
    return WordTable(lines.buffer, lines.starts, lines.ends - lines.starts, numbers)


def test_characters_are_counted_as_often_as_their_words() -> None:
    found = table_of({"aé": 3, "日本": 2, "a😀": 5}).characters()
    seen = {chr(code): int(found[code]) for code in np.flatnonzero(found).tolist()}
    assert seen == {"a": 8, "é": 3, "日": 2, "本": 2, "😀": 5}


def zipf_counts(distinct: int) -> dict[str, int]:
    rng = random.Random(3)
    words = {f"{rng.randrange(10**9):x}" for _ in range(distinct)}
    return {word: 1 + 200_000 // (rank + 1) for rank, word in enumerate(sorted(words))}


def test_pruned_counting_keeps_every_word_at_or_above_the_threshold() -> None:
    counts = zipf_counts(40_000)
    spec = SketchSpec.for_words(1000)
    assert spec.kept_words == 1024
    sketch = np.zeros(spec.size, np.int64)
    table = table_of(counts)
    half = np.arange(len(table)) % 2 == 0
    for part in (half, ~half):
        add_to_sketch(sketch, table.select(part), spec)
    threshold = choose_threshold(sketch, spec)
    rows = sketch.reshape(4, spec.width)
    assert ((rows >= threshold).sum(axis=1) <= spec.kept_words).all()
    kept = dict(table.select(may_reach(table, passing(sketch, threshold), spec)).items())
    frequent = {word.encode(): n for word, n in counts.items() if n >= threshold}
    assert frequent
    assert {word: n for word, n in kept.items() if n >= threshold} == frequent
    assert len(kept) <= spec.kept_words


def test_a_sketch_of_few_words_keeps_them_all() -> None:
    counts = {"the": 1, "cat": 7}
    spec = SketchSpec.for_words(16)
    sketch = np.zeros(spec.size, np.int64)
    add_to_sketch(sketch, table_of(counts), spec)
    assert choose_threshold(sketch, spec) == 1
    assert may_reach(table_of(counts), passing(sketch, 1), spec).all()


def test_a_sketch_does_not_depend_on_order() -> None:
    counts = zipf_counts(500)
    spec = SketchSpec.for_words(64)
    backwards = dict(reversed(counts.items()))
    first, second = np.zeros(spec.size, np.int64), np.zeros(spec.size, np.int64)
    add_to_sketch(first, table_of(counts), spec)
    add_to_sketch(second, table_of(backwards), spec)
    np.testing.assert_array_equal(first, second)
    assert first.sum() == 4 * sum(counts.values())
