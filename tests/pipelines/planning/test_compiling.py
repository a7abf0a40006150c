"""Kernels of tokenizers are compiled once, for all of their kinds."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from recordmill.pipelines.planning.text_warm_up import compile_tokenizers, saying_if_long
from recordmill.transforms.sources.lines import Lines
from recordmill.transforms.subwords import best_path, preparation, remembered
from recordmill.transforms.text.tokenizer_files import load_tokenizer

from ...transforms.subwords import trained


def signatures() -> dict[str, int]:
    return {
        f"{module.__name__}.{name}": len(function.signatures)
        for module in (best_path, preparation, remembered)
        for name, function in vars(module).items()
        if hasattr(function, "signatures") and function.__module__ == module.__name__
    }


@pytest.mark.parametrize(
    "make",
    [
        trained.unigram_json,
        lambda: trained.unigram_json(whitespace=True),
        lambda: trained.pieces("unigram", size=500, byte_fallback=True),
    ],
    ids=range(3),
)
def test_no_tokenizer_compiles_more(make: Callable[[], bytes]) -> None:
    compile_tokenizers()
    before = signatures()
    assert before["recordmill.transforms.subwords.remembered._copy_short"] == 1
    tokenizer = load_tokenizer(make(), "x").start(lower_case=False)
    words = " ".join(
        f"{a}{b}{c}" for a in "abcdefghijklmnopqr" for b in "stuv" for c in "qwertyuiop"
    )
    tokenizer.tokenize(Lines.from_list([words.encode(), "Ünï the".encode(), b"  a  b "]))
    after = signatures()
    more = {name for name in after if after[name] > before[name]}
    assert not more


def test_what_takes_long_is_said() -> None:
    said = threading.Event()
    with saying_if_long(said.set, after=0.0):
        assert said.wait(60)
    said.clear()
    with saying_if_long(said.set, after=3600.0):
        pass
    assert not said.is_set()
    assert not any(isinstance(thread, threading.Timer) for thread in threading.enumerate())
