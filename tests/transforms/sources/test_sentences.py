from __future__ import annotations

import sys
import unicodedata

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recordmill.transforms.sources.lines import Lines
from recordmill.transforms.sources.sentences import split_sentences

from .sentences_reference import split_text

MARKS = "..!?…。！？｡।॥؟۔"
AROUND = "'\"”’»)]）」』】“‘«([¿¡—-"
SPACES = " \n\r\t\x0b\x0c\x1c\x1d\x1e\x1f\x85\xa0\u1680\u2000\u200a\u2028\u2029\u202f\u205f\u3000"
# Beside the letters that the rule knows: what looks like a letter, a digit, a mark or white space.
LETTERS = "ABZaz09ÀÖרÞßèΑΩαАЯа_²٣½ªʰ\u0301\u212a\u017f\u0130\u200b\ufeff\u180e한中𝔄𝟘\U00020000"
WORDS = [
    "Mr",
    "e.g",
    "U.S",
    "Ph.D",
    "a.m",
    "no",
    "fig",
    "x",
    "MR",
    "\u212a",
    "u.\u212a",
    "Dr.",
    "J. S",
]
PIECES = st.one_of(
    st.sampled_from(WORDS), st.sampled_from(MARKS), st.sampled_from(AROUND),
    st.sampled_from(SPACES), st.sampled_from(LETTERS), st.just(" "), st.just(". "),
    st.just("\n\n"), st.just("eight or more letters "),
)  # fmt: skip


def split(texts: list[str]) -> list[list[str]]:
    """The sentences of each text."""
    lines, of_text = split_sentences(Lines.from_list([text.encode() for text in texts]))
    found: list[list[str]] = [[] for _ in texts]
    for i, row in enumerate(of_text.tolist()):
        found[row].append(lines[i].decode())
    assert of_text.tolist() == sorted(of_text.tolist())
    assert lines.non_ascii.tolist() == [not s.isascii() for each in found for s in each]
    return found


@pytest.mark.parametrize(
    "text",
    [
        "One sentence.|Two sentences.",
        "Why?|Because!|He stopped…|Then went on.",
        "Mr. Brown met Dr. Green.|They talked.",
        "It was J. S. Bach.|He said so.",
        "At 5 p.m. he left.",
        "See fig. 3 and pp. 4, e.g. Smith et al. in no. 7.|Next.",
        'He said "Stop."|She did.',
        "(An aside.)|“Quoted.”|‘Also.’",
        "It cost 3.50 dollars.|9 people paid.",
        "visit example.com today.|Then rest.",
        "no capital. after the stop",
        "Wait... what?|Yes...|No.",
        "Really?!|Yes.",
        "第一句。|第二句！|「引用。」|最後？",
        "È vero.|Él sí.|¿Por qué?|¡Porque sí!",
        "Это предложение.|И это.",
        "यह वाक्य है।|यह भी।",
        "No end",
        "",
    ],
)
def test_sentences(text: str) -> None:
    sentences = text.split("|") if text else []
    # 。！？ end a sentence without white space behind them.
    joined = ("" if "。" in text else " ").join(sentences)
    assert split([joined]) == [sentences] == [split_text(joined)]


def test_white_space_is_folded() -> None:
    assert split([" One\n line.\t  Two \u00a0 lines. "]) == [["One line.", "Two lines."]]


@settings(max_examples=2000)
@given(st.lists(st.lists(PIECES, max_size=40).map("".join), max_size=3))
def test_equals_the_rule(texts: list[str]) -> None:
    assert split(texts) == [split_text(text) for text in texts]


@settings(max_examples=300)
@given(st.text(st.characters(exclude_categories=["Cs"])), st.integers(0, 40))
def test_equals_the_rule_on_any_text(text: str, length: int) -> None:
    joined = f"{text}. {text}{'a' * length}. Abc e.g. {text}"
    assert split([joined]) == [split_text(joined)]


def test_equals_the_rule_with_any_character_in_each_place() -> None:
    """Before a stop, behind it, as white space, as closing mark, and as beginning."""
    codes = [code for code in range(sys.maxunicode + 1) if not 0xD800 <= code < 0xE000]
    texts, at = [], 0
    while at < len(codes):
        # Most characters beyond the first planes are unassigned, and behave alike.
        step = 1 if codes[at] < 0x3400 or unicodedata.category(chr(codes[at])) != "Cn" else 37
        step = 11 if 0x3400 <= codes[at] < 0xA000 or 0xAC00 <= codes[at] < 0xD7A4 else step
        step = 101 if codes[at] >= 0x20000 else step
        each = chr(codes[at])
        texts.append(f"A {each}. B c{each} d.{each} E f.{each}G h. {each}I {each}U.S. J")
        at += step
    assert split(texts) == [split_text(text) for text in texts]


def test_a_word_of_any_length_before_a_stop() -> None:
    texts = [f"{'x ' * (n % 3)}{'ab.' * (n // 2)}{'c' * n}. End" for n in range(60)]
    texts += [f"{'é' * n}.{'u.s' * (n % 2)}. End" for n in range(40)]
    assert split(texts) == [split_text(text) for text in texts]


def test_many_sentences() -> None:
    (found,) = split(["The end. " * 5000])
    assert found == ["The end."] * 5000


def test_spans_of_a_larger_buffer() -> None:
    buffer = np.frombuffer(b"no. One at. Two be.\xc2\xa0 Three", np.uint8)
    starts, ends = np.array([4, 4]), np.array([11, 21])
    lines, of_text = split_sentences(Lines(buffer, starts, ends, np.ones(2, np.bool_)))
    assert [lines[i] for i in range(len(lines))] == [b"One at.", b"One at.", b"Two be."]
    assert of_text.tolist() == [0, 1, 1]
