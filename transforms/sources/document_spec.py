"""How documents lie in input files, and the sizes in which they are read."""

from __future__ import annotations

import codecs
from dataclasses import dataclass

from recordmill.transforms.sources.input_spec import (
    RAW_TEXT,
    WHOLE_TEXT,
    Documents,
    SentenceSplitting,
    SourceOptions,
)
from recordmill.transforms.sources.row_fields import RowSpec


class DocumentSpec(SourceOptions, frozen=True, kw_only=True):
    """How documents lie in files, and what is read of them.

    Attributes:
      documents: in plain text, a document is a block between blank lines, a line, or a file.
      sentence_splitter: "none": a line is a sentence; "punctuation": `sentences.py`; "auto": the
        first for text in blocks between blank lines, BERT's form, the second for all other.
        WHOLE_TEXT: the text of a record is one line, with the line ends that it has, and a line of
        plain text is one.
      split_by: the field whose value decides the split; "" is the text itself.
      split_from: the field whose value is the name of the split; "" for none.
      split_names: the values that there may be, in order.
      row: what is read of a record beside its text.
    """

    documents: Documents = "blank_line"
    sentence_splitter: SentenceSplitting = "auto"
    split_by: str = ""
    split_from: str = ""
    split_names: tuple[str, ...] = ()
    row: RowSpec = RowSpec()

    @property
    def keeps_text(self) -> bool:
        """Whether the text of a record is one line, as it is."""
        return self.sentence_splitter in (WHOLE_TEXT, RAW_TEXT)

    @property
    def quotes(self) -> bool:
        """Whether quotes have a meaning in CSV and TSV."""
        return self.quoting == "csv"

    @property
    def is_utf8(self) -> bool:
        """True where bytes need no other decoding."""
        return codecs.lookup(self.encoding).name in ("utf-8", "utf-8-sig", "ascii")

    def by_punctuation(self, input_format: str) -> bool:
        """Returns whether text of this format must be split into sentences."""
        if self.sentence_splitter == "auto":
            return input_format != "text" or self.documents != "blank_line"
        return self.sentence_splitter == "punctuation"

    @property
    def splittable(self) -> bool:
        """True where a range of a file can be read without what comes before it."""
        return self.is_utf8 and self.documents != "file"


@dataclass(frozen=True, slots=True)
class DocumentLimits:
    """The sizes in which documents are read; tests inject small ones.

    `block_bytes` and `open_document_bytes` change memory and speed alone. The others decide what is
    read: a change of them changes the bytes of datasets.

    Attributes:
      block_bytes: the bytes of one read.
      open_document_bytes: a longer document of plain text is handed on in parts.
      record_bytes: a longer record of JSONL, CSV or TSV is rejected.
      line_bytes: a longer line of plain text is cut at white space.
      paragraph_lines: a paragraph of more lines of plain text is cut.
      hashed_bytes: of a document's beginning, for the choice of its split, without white space.
      hashed_within_bytes: of plain text, where those lie: what follows does not count, so that a
        document that begins with gigabytes of white space or NUL bytes is not held whole.
      unpacked_bytes: a compressed file may always unpack to so much, see `max_compression_ratio`.
    """

    block_bytes: int = 1 << 21
    open_document_bytes: int = 1 << 20
    record_bytes: int = 1 << 26
    line_bytes: int = 1 << 16
    paragraph_lines: int = 64
    hashed_bytes: int = 1 << 16
    hashed_within_bytes: int = 1 << 22
    unpacked_bytes: int = 1 << 26


READ_LIMITS = DocumentLimits()
