"""Kernels of tokenizers are compiled once, for all of their kinds."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from recordmill.pipelines.planning.text_warm_up import compile_tokenizers, saying_if_long
from recordmill.transforms.sources.lines import Lines
from recordmill.transforms.subwords import best_path, merging, preparation, remembered
from recordmill.transforms.text.tokenizer_files import load_tokenizer

from ...transforms.subwords import trained


def signatures() -> dict[str, int]:
    return {
        f"{module.__name__}.{name}": len(function.signatures)
        for module in (best_path, merging, preparation, remembered)
        for name, function in vars(module).items()
        if hasattr(function, "signatures") and function.__module__ == module.__name__
    }


@pytest.mark.parametrize(
    "make",
    [
        trained.byte_pairs,
        trained.marked_byte_pairs,
        trained.unigram_json,
        lambda: trained.unigram_json(whitespace=True),
        lambda: trained.pieces("unigram", size=500, byte_fallback=True),
        lambda: trained.pieces("bpe"),
    ],
    ids=range(6),
)
def test_no_tokenizer_compiles_more(make: Callable[[], bytes]) -> None:
    compile_tokenizers()
    of_merges = {name: 1 for name in signatures() if ".merging." in name}
    before = signatures()
    assert before["recordmill.transforms.subwords.remembered._copy_short"] == 1
    tokenizer = load_tokenizer(make(), "x").start(lower_case=False)
    words = " ".join(
        f"{a}{b}{c}" for a in "abcdefghijklmnopqr" for b in "stuv" for c in "qwertyuiop"
    )
    tokenizer.tokenize(Lines.from_list([words.encode(), "Ünï the".encode(), b"  a  b "]))
    after = signatures()
    more = {name for name in after if after[name] > max(before[name], of_merges.get(name, 0))}
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
