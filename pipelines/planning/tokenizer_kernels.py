"""The kernels of tokenizers, compiled by the launching process instead of by each worker."""

from __future__ import annotations

import itertools
import json
import string
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from recordmill.transforms.sources.lines import Lines
from recordmill.transforms.text.tokenizer_files import load_tokenizer

_PATIENCE = 3.0  # seconds; machine code of the cache is loaded in less
# All tokenizers share their kernels, each of one signature: the smallest one compiles them, and
# needs no second in which a large file is read. This one's lines are normalized and marked as well.
_SMALLEST = {
    "version": "1.0",
    "added_tokens": [],
    "normalizer": {"type": "NFKC"},
    "pre_tokenizer": {
        "type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True,
    },
    "model": {"type": "Unigram", "unk_id": 0, "vocab": [["<unk>", 0.0], ["a", -1.0]]},
}  # fmt: skip


def compile_kernels() -> None:
    """Compiles the kernels of tokenizers, or loads them from the cache; says if that is long."""

    def say() -> None:
        print(
            "compiling the kernels of tokenizers, once on this machine: about 20 seconds of a core",
            file=sys.stderr,
        )

    with saying_if_long(say):
        tokenizer = load_tokenizer(json.dumps(_SMALLEST).encode(), "").start(lower_case=False)
        # As many words as make the memory of words grow, and a line after them.
        words = map("".join, itertools.product(string.ascii_lowercase, repeat=3))
        tokenizer.tokenize(Lines.from_list([" ".join(words).encode(), "é".encode()]))


@contextmanager
def saying_if_long(say: Callable[[], None], after: float = _PATIENCE) -> Iterator[None]:
    """Calls `say` if the block takes longer than `after` seconds; no thread outlives the block."""
    timer = threading.Timer(after, say)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
