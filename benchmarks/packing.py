"""Packing documents in rows: how full rows are, how many documents are cut, and how fast.

    python benchmarks/packing.py [--text=GLOB …] [--vocab_file=FILE] [--lengths=512,2048]

Documents are blocks between blank lines, or with --documents=file files. The tokens are those of
`--vocab_file`; without it a word is a token. Only the packing itself is measured, of what a build
block holds at a time.
"""

from __future__ import annotations

import argparse
import glob
import sys
import time
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import numpy as np
from corpus import pydoc_text

from recordmill.records.arrays import Int64s
from recordmill.records.hashing import mix64
from recordmill.transforms.sources.lines import Lines
from recordmill.transforms.text.build_text_shards import block_tokens
from recordmill.transforms.text.packing import PACKINGS, Parts, pack
from recordmill.transforms.text.tokenizer_files import read_tokenizer

_REPEATS = 5


def documents(patterns: list[str], *, whole_files: bool) -> Iterator[str]:
    """Yields the documents of some files; without files those of Python's own documentation."""
    paths = [path for pattern in patterns for path in sorted(glob.glob(pattern))]
    texts = (Path(path).read_text(errors="replace") for path in paths)
    for text in texts if patterns else [pydoc_text()]:
        yield from [text] if whole_files else filter(str.strip, text.split("\n\n"))


def count_tokens(texts: list[str], vocab_file: str) -> Int64s:
    """Returns `[num_documents] int64`: the tokens of each, with its end."""
    if not vocab_file:
        return np.array([len(text.split()) + 1 for text in texts], np.int64)
    _, tokenizer = read_tokenizer(vocab_file, lambda path: Path(path).read_bytes())
    lines = Lines.from_list([text.encode() for text in texts])
    tokens = tokenizer.start(lower_case=True).tokenize(lines)
    return np.diff(tokens.row_splits) + 1


def blocks(sizes: Int64s, packing: str) -> Iterator[Parts]:
    """Yields the documents in random order, as many at a time as a build block holds."""
    order = np.argsort(mix64(np.arange(len(sizes), dtype=np.uint64)))
    number = np.cumsum(sizes[order]) // block_tokens(packing)
    for block in np.unique(number).tolist():
        chosen = sizes[order[number == block]]
        index = np.arange(len(chosen))
        keys = mix64(index.astype(np.uint64))
        yield Parts(np.cumsum(chosen) - chosen, chosen, keys, index, index)


def measure(parts: list[Parts], packing: str, length: int) -> tuple[int, int, float]:
    """Returns the rows, the documents that are cut, and the seconds of the best of some runs."""
    seconds = float("inf")
    for _ in range(_REPEATS):
        began = time.perf_counter()
        packed = [pack(part, packing=packing, capacity=length) for part in parts]
        seconds = min(seconds, time.perf_counter() - began)
    cut = sum(int((np.bincount(rows.parts.wholes) > 1).sum()) for rows in packed)
    return sum(map(len, packed)), cut, seconds


def main() -> None:
    """Prints a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--text", action="append", default=[], help="globs of text files")
    parser.add_argument("--documents", default="blank_line", choices=("blank_line", "file"))
    parser.add_argument("--vocab_file", default="")
    parser.add_argument("--lengths", default="512,2048")
    options = parser.parse_args()
    texts = list(documents(options.text, whole_files=options.documents == "file"))
    sizes = count_tokens(texts, options.vocab_file)
    tokens = int(sizes.sum())
    print(f"{len(sizes):,} documents, {tokens:,} tokens, {tokens / len(sizes):.0f} in a document")
    names = f"{'length':>6} {'packing':>9} {'rows':>8} {'fill':>8}"
    print(f"{names} {'documents cut':>20} {'tokens/s':>12}")
    for length in map(int, options.lengths.split(",")):
        for packing in PACKINGS:
            parts = list(blocks(sizes, packing))
            pack(parts[0], packing=packing, capacity=length)  # compiles
            rows, cut, seconds = measure(parts, packing, length)
            print(
                f"{length:>6} {packing:>9} {rows:>8,} {tokens / (rows * length):>8.2%} "
                f"{cut:>10,} ({cut / len(sizes):>6.1%}) {tokens / seconds / 1e6:>9,.0f} M"
            )


if __name__ == "__main__":
    main()
