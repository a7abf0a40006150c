"""How well, and how fast, the punctuation rule finds sentences in text that has one a line.

    python benchmarks/sentences.py FILE     (BERT's form: a sentence a line, blank lines between)

Lines of a document are joined, split again, and the places of the cuts compared.
"""

from __future__ import annotations

import itertools
import sys
import time
from pathlib import Path

from recordmill.transforms.sources.lines import Lines
from recordmill.transforms.sources.sentences import split_sentences


def cuts(sentences: list[str]) -> set[int]:
    """Returns where sentences end, in characters that are not white space, but for the last."""
    lengths = [len("".join(sentence.split())) for sentence in sentences]
    return set(itertools.accumulate(lengths[:-1]))


def main(path: str) -> None:
    """Prints precision, recall and speed."""
    text = Path(path).read_text(encoding="utf-8")
    documents = [block.split("\n") for block in text.split("\n\n") if block.strip()]
    split_sentences(Lines.from_list([b"compiles it"]))
    found = wanted = right = 0
    seconds = 0.0
    for lines in documents:
        joined = Lines.from_list([" ".join(lines).encode()])
        began = time.perf_counter()
        split, _ = split_sentences(joined)
        seconds += time.perf_counter() - began
        sentences = [split[i].decode() for i in range(len(split))]
        mine, theirs = cuts(sentences), cuts(lines)
        found, wanted, right = found + len(mine), wanted + len(theirs), right + len(mine & theirs)
    print(
        f"{len(documents)} documents, {wanted} cuts: precision {right / found:.3f}, "
        f"recall {right / wanted:.3f}, {len(text) / 1e6 / seconds:.1f} MB/s a core"
    )


if __name__ == "__main__":
    main(sys.argv[1])
