"""The memory of words: numbers, bounds, and what happens when it is full."""

from __future__ import annotations

import pytest

from recordmill.transforms.sources.lines import Lines
from recordmill.transforms.text.word_memory import MAX_WORDS, TOO_LONG, WordMemory


def words_of(memory: WordMemory) -> list[bytes]:
    pool, starts, lengths = memory.words_from(TOO_LONG + 1)
    data = pool.tobytes()
    return [data[start : start + size] for start, size in zip(starts, lengths, strict=True)]


def test_words_are_numbered_in_the_order_in_which_they_are_met() -> None:
    memory = WordMemory(lower_case=True)
    lines, first_part = memory.prepare(Lines.from_list([b"The cat, the", b"", "Été cat".encode()]))
    assert first_part is None
    [part] = memory.split(lines)
    assert (part.first, part.end, part.fills_memory) == (0, 3, False)
    assert part.words.tolist() == [1, 2, 3, 1, 4, 2]
    assert part.splits.tolist() == [0, 4, 4, 6]
    assert words_of(memory) == [b"the", b"cat", b",", b"ete"]


def test_a_word_over_the_limit_is_not_kept() -> None:
    memory = WordMemory(lower_case=False)
    [part] = memory.split(Lines.from_list([b"a " + b"x" * 801 + b" b"]))
    assert part.words.tolist() == [1, TOO_LONG, 2]
    assert words_of(memory) == [b"a", b"b"]


def test_no_lines_have_no_words() -> None:
    memory = WordMemory(lower_case=True)
    assert list(memory.split(Lines.from_list([]))) == []


def full_lines() -> Lines:
    numbers = range(MAX_WORDS + 1000)
    return Lines.from_list(
        [
            " ".join(map(str, numbers[at : at + 1000])).encode()
            for at in range(0, len(numbers), 1000)
        ]
    )


def test_a_full_memory_goes_on_where_it_was_cleared() -> None:
    memory = WordMemory(lower_case=True)
    lines = full_lines()
    read: list[bytes] = []
    for part in memory.split(lines):
        words = [b"", *words_of(memory)]
        read += [words[number] for number in part.words.tolist()]
        if part.fills_memory:
            memory.clear()
    assert read == [str(number).encode() for number in range(MAX_WORDS + 1000)]


def test_a_full_memory_must_be_cleared() -> None:
    memory = WordMemory(lower_case=True)
    with pytest.raises(RuntimeError, match="memory of words is full and was not cleared"):
        list(memory.split(full_lines()))
