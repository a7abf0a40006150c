from __future__ import annotations

import builtins
import unicodedata
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recordmill.records.errors import UsageError
from recordmill.transforms.sources.lines import Lines
from recordmill.transforms.text.cleaning.unicode_forms import LineNormalizer

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)


def normalized(form: str, texts: list[str]) -> list[str]:
    lines = LineNormalizer(form)(Lines.from_list([text.encode() for text in texts]))
    assert [not lines[i].isascii() for i in range(len(lines))] == lines.non_ascii.tolist()
    return [lines[i].decode() for i in range(len(lines))]


@pytest.mark.parametrize("form", ["nfc", "nfkc"])
@given(texts=st.lists(TEXT, max_size=8))
def test_lines_get_the_form_of_the_standard(form: str, texts: list[str]) -> None:
    wanted = [unicodedata.normalize(form.upper(), text) for text in texts]
    assert normalized(form, texts) == wanted


def test_the_forms_differ() -> None:
    assert normalized("nfc", ["e\u0301 \ufb01"]) == ["\u00e9 \ufb01"]
    assert normalized("nfkc", ["e\u0301 \ufb01"]) == ["\u00e9 fi"]


@given(texts=st.lists(TEXT, max_size=8))
def test_ftfy_sees_every_line_that_it_would_change(texts: list[str]) -> None:
    ftfy = pytest.importorskip("ftfy")
    wanted = [ftfy.fix_text(text).replace("\n", " ") for text in texts]
    assert normalized("ftfy", texts) == wanted


@pytest.mark.parametrize("form", ["nfc", "nfkc", "ftfy"])
def test_whole_texts_keep_their_line_ends(form: str) -> None:
    if form == "ftfy":
        pytest.importorskip("ftfy")
    texts = ["plain\n\n  lines\n", "caf\u0065\u0301\nline\n", "a\nb"]
    lines = Lines.from_list([text.encode() for text in texts])
    found = LineNormalizer(form, whole_texts=True)(lines)
    assert [found[i].decode() for i in range(3)] == ["plain\n\n  lines\n", "café\nline\n", "a\nb"]


def test_ftfy_gives_line_ends_to_whole_texts_alone() -> None:
    pytest.importorskip("ftfy")
    for whole, wanted in ((True, b"a &\nb\nc"), (False, b"a & b c")):
        lines = Lines.from_list(["a &amp;\r\nb\u2028c".encode()])
        assert LineNormalizer("ftfy", whole_texts=whole)(lines)[0] == wanted


def test_ftfy_repairs_what_was_decoded_wrongly() -> None:
    pytest.importorskip("ftfy")
    lines = ["plain &amp; simple", "schÃ¶n", "caf&eacute;", "a\x1b[31mb\x00", "unchanged"]
    assert normalized("ftfy", lines) == ["plain & simple", "schön", "café", "ab", "unchanged"]


def test_without_ftfy_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    load = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name == "ftfy":
            raise ImportError(name)
        return load(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(UsageError, match=r"--normalize=ftfy needs the package ftfy .* pip install"):
        LineNormalizer("ftfy")
