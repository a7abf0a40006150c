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
    lasts = np.concatenate([firsts[1:], [len(lines)]]) - 1
    gaps = lines.starts[1:] - lines.ends[:-1]
    is_within = paragraphs[1:] == paragraphs[:-1]
    if ((gaps[is_within] == 1) | (gaps[is_within] == 2)).all():  # line ends, as they were read
        texts = Lines(
            lines.buffer, lines.starts[firsts], lines.ends[lasts], np.ones(len(firsts), np.bool_)
        )
    else:
        bounds = zip(firsts.tolist(), lasts.tolist(), strict=True)
        texts = Lines.from_list([
            b" ".join(lines[i] for i in range(first, last + 1)) for first, last in bounds
        ])  # fmt: skip
    sentences, of_text = split_sentences(texts)
    return sentences, firsts[of_text]
