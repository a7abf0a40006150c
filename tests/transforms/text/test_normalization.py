from __future__ import annotations

import sys

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from recordmill.transforms.text.normalization import Normalizer, normalize

from .bert_reference import basic_tokenize

any_text = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
tricky = st.text(
    st.sampled_from(
        "ΣσςΑ. aİıẞÅ\u0301\u0327\u0338\u1d165\u302e\u0345"
        "中龥\ufb03ﷺ가각\u200d\x00\ufffd\x85\u2028'-"
    ),
    max_size=12,
)


@pytest.mark.parametrize(
    ("text", "lower", "cased"),
    [
        ("Hello, World!", "hello , world !", "Hello , World !"),
        ("naïve Café", "naive cafe", "naïve Café"),
        ("a\u4e2d\u6587b", "a 中 文 b", "a 中 文 b"),
        ("tab\tnbsp\u00a0ideographic\u3000", "tab nbsp ideographic", "tab nbsp ideographic"),
        ("a\u200db\x00c\ufffdd\x85e", "abcde", "abcde"),
        ("\u2028line\u2029", "line", "line"),
        ("$1+1=2^~", "$ 1 + 1 = 2 ^ ~", "$ 1 + 1 = 2 ^ ~"),
        ("«quoted»—dash", "« quoted » — dash", "« quoted » — dash"),
        ("ΟΔΟΣ ΟΔΟΣ.", "οδος οδος .", "ΟΔΟΣ ΟΔΟΣ ."),
        ("가", "\u1100\u1161", "가"),
        ("ﬁ…", "ﬁ …", "ﬁ …"),
        ("K\u212a\u2126", "kkω", "K\u212a\u2126"),
    ],
)
def test_known_forms(text, lower, cased):
    assert Normalizer(lower_case=True)(text).split() == lower.split()
    assert Normalizer(lower_case=False)(text).split() == cased.split()


@pytest.mark.parametrize("lower_case", [True, False])
@settings(max_examples=300, deadline=None)
@given(text=st.one_of(any_text, tricky, st.lists(tricky).map("".join)))
@example(text="ΑΣ.Α ΑΣ. Σ ΑΣ\u0301Α")
@example(text="a\u0338\u0327\u1d165\u0345")
def test_words_are_those_of_bert(text, lower_case):
    expected = basic_tokenize(text, lower_case=lower_case)
    assert normalize(text, lower_case=lower_case).split() == expected
    assert Normalizer(lower_case=lower_case)(text).split() == expected


@pytest.mark.parametrize("lower_case", [True, False])
def test_table_gives_what_the_rules_give_for_every_character(lower_case):
    normalizer = Normalizer(lower_case=lower_case)
    for code in range(sys.maxunicode + 1):
        # Of the long blocks of ideographs, private and unassigned characters a sample will do.
        sampled = 0x3400 <= code < 0xA000 or code >= 0x20000
        if not 0xD800 <= code <= 0xDFFF and (not sampled or code % 97 == 0):
            text = f"a{chr(code)}B"
            assert normalizer(text) == normalize(text, lower_case=lower_case), hex(code)
