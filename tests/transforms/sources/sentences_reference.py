"""The rule of sentences in plain Python, which the kernel is compared with."""

from __future__ import annotations

import re

_END = re.compile(
    r"""
    (?: [.!?…]+ ['"”’»)\]]* (?= \s+ ['"“‘«(\[¿¡—-]* [A-Z0-9À-ÖØ-ÞΑ-ΩА-Я] )
      | [。！？｡]+ ['"”’»）」』】]*
      | [।॥؟۔]+ (?= \s )
    )
    """,
    re.VERBOSE,
)
_LAST_WORD = re.compile(r"[^\W\d_]+(?:\.[^\W\d_]+)*$")
_ABBREVIATIONS = frozenset(
    """
    mr mrs ms dr prof rev hon st sr jr messrs mme mlle capt col gen lt maj sgt gov sen rep pres
    vs etc e.g i.e cf al ca approx no nos vol vols ed eds pp p fig figs ch chap sec art
    inc ltd co corp bros dept univ assn
    jan feb mar apr jun jul aug sept sep oct nov dec mon tue wed thu fri sat sun
    a.m p.m b.c a.d u.s u.k u.n ph.d m.d d.c
    """.split()
)


def split_paragraph(text: str) -> list[str]:
    """Returns the sentences of a paragraph, white space folded, without empty ones."""
    text = " ".join(text.split())
    sentences = []
    start = 0
    for match in _END.finditer(text):
        if match.group().startswith(".") and not match.group().startswith(".."):
            word = _LAST_WORD.search(text, max(start, match.start() - 24), match.start())
            if word and (len(word.group()) == 1 or word.group().lower() in _ABBREVIATIONS):
                continue
        sentences.append(text[start : match.end()].strip())
        start = match.end()
    sentences.append(text[start:].strip())
    return [sentence for sentence in sentences if sentence]


def split_text(text: str) -> list[str]:
    """Returns the sentences of a text: of each block between blank lines."""
    blocks = re.split(r"\n[ \t\r]*\n", text)
    return [sentence for block in blocks for sentence in split_paragraph(block)]
