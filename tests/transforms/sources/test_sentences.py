from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recordmill.transforms.sources.sentences import split_paragraphs, split_sentences


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
def test_sentences(text):
    sentences = text.split("|") if text else []
    # 。！？ end a sentence without white space behind them.
    joined = ("" if "。" in text else " ").join(sentences)
    assert split_sentences(joined) == sentences


def test_white_space_is_folded():
    assert split_sentences(" One\n line.\t  Two \u00a0 lines. ") == ["One line.", "Two lines."]


@settings(max_examples=200, deadline=None)
@given(
    text=st.text(
        st.one_of(st.sampled_from("Aa. !?。\n\"'1"), st.characters(exclude_categories=["Cs"]))
    )
)
def test_no_character_is_lost(text):
    sentences = split_sentences(text)
    assert "".join("".join(sentences).split()) == "".join(text.split())
    assert all(sentence == " ".join(sentence.split()) != "" for sentence in sentences)


def test_paragraphs():
    text = "a\nb\n\nc\r\n\r\nd\n \t\n\n\ne\n\n"
    assert [part.split() for part in split_paragraphs(text)] == [["a", "b"], ["c"], ["d"], ["e"]]
    assert split_paragraphs(" \n\n") == []
