"""Paragraphs of plain text: number their lines, and split them into sentences."""

from __future__ import annotations

import numpy as np

from recordmill.records.arrays import Bools, Int64s
from recordmill.transforms.sources.lines import Lines
from recordmill.transforms.sources.sentences import split_sentences


def number_paragraphs(line_documents: Int64s, blank: Bools, most_lines: int) -> Int64s:
    """Numbers paragraphs: one begins after a blank line, and every so many lines of a document.

    Args:
      line_documents: `[num_lines] int64`, ascending: the document of each line.
      blank: `[num_lines] bool`.
      most_lines: a longer paragraph is cut.

    Returns:
      `[num_lines] int64`, ascending: the paragraph of each line.
    """
    new = np.ones(len(line_documents), np.bool_)
    new[1:] = line_documents[1:] != line_documents[:-1]
    first_line = np.maximum.accumulate(np.where(new, np.arange(len(line_documents)), 0))
    in_document = np.arange(len(line_documents)) - first_line
    begins = new | (in_document % most_lines == 0)
    begins[1:] |= blank[:-1]
    return np.cumsum(begins, dtype=np.int64)


def split_paragraph_lines(lines: Lines, paragraphs: Int64s) -> tuple[Lines, Int64s]:
    """Joins the lines of each paragraph and splits them into sentences.

    Args:
      lines: valid UTF-8.
      paragraphs: `[num_lines] int64`, ascending.

    Returns:
      The sentences, and `[num_sentences] int64`: the first line of each one's paragraph.
    """
    if not len(lines):
        return lines, np.zeros(0, np.int64)
    firsts = np.flatnonzero(np.concatenate([[True], paragraphs[1:] != paragraphs[:-1]]))
    sentences: list[bytes] = []
    of_line: list[int] = []
    for first, end in zip(firsts.tolist(), [*firsts[1:].tolist(), len(lines)], strict=True):
        text = b" ".join(lines[i] for i in range(first, end)).decode("utf-8")
        of_paragraph = split_sentences(text)
        sentences += [sentence.encode() for sentence in of_paragraph]
        of_line += [first] * len(of_paragraph)
    return Lines.from_list(sentences), np.array(of_line, np.int64)
