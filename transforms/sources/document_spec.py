"""How documents lie in input files, and the sizes in which they are read."""

from __future__ import annotations

import codecs
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from msgspec.structs import replace

from recordmill.records.arrays import Int64s
from recordmill.records.hashing import U64, fingerprint64
from recordmill.transforms.sources.formats import CutOptions
from recordmill.transforms.sources.input_spec import (
    RAW_TEXT,
    WHOLE_TEXT,
    Documents,
    SentenceSplitting,
    SourceOptions,
)
from recordmill.transforms.sources.row_fields import (
    RecordRejectedError,
    RowSpec,
    required_field,
    without_surrogates,
)


class DocumentSpec(SourceOptions, frozen=True, kw_only=True):
    """How documents lie in files, and what is read of them.

    Attributes:
      documents: in plain text, a document is a block between blank lines, a line, or a file.
      sentence_splitter: "none": a line is a sentence; "punctuation": `sentences.py`; "auto": the
        first for text in blocks between blank lines, BERT's form, the second for all other.
        WHOLE_TEXT: a text is one line, with the line ends that it has; a long one of plain text
        several that follow each other, see `text_pieces.py`.
      strips: white space at both ends of texts is no part of them.
      split_by: the field whose value decides the split; "" is the text itself.
      split_from: the field whose value is the name of the split; "" for none.
      split_names: the values that there may be, in order.
      row: what is read of a record beside its text.
    """

    documents: Documents = "blank_line"
    sentence_splitter: SentenceSplitting = "auto"
    strips: bool = False
    split_by: str = ""
    split_from: str = ""
    split_names: tuple[str, ...] = ()
    row: RowSpec = RowSpec()

    @property
    def keeps_text(self) -> bool:
        """Whether a text stays as it is, with its line ends."""
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

    @property
    def cutting(self) -> CutOptions:
        """What decides where files can be cut."""
        return CutOptions(self.splittable, self.delimiter, self.quotes)

    def raw(self, limits: DocumentLimits) -> DocumentSpec:
        """Returns how documents are read whole, with the text that they have in their files."""
        most_bytes = self.max_document_bytes or limits.record_bytes
        splitter = WHOLE_TEXT if self.sentence_splitter == WHOLE_TEXT else RAW_TEXT
        return replace(self, sentence_splitter=splitter, max_document_bytes=most_bytes)

    @property
    def line_end(self) -> bytes:
        """What is between the lines of a document that was read."""
        return b"" if self.sentence_splitter == WHOLE_TEXT else b"\n"

    def most_unpacked_bytes(self, compressed_bytes: int) -> int:
        """Returns to how many bytes a compressed file may unpack."""
        return max(self.max_compression_ratio * compressed_bytes, READ_LIMITS.unpacked_bytes)

    def decode(self, data: bytes, encoding: str = "utf-8") -> str:
        """Returns text, with U+FFFD for invalid bytes if --encoding_errors says so.

        Raises:
          UnicodeDecodeError: else, where there are such bytes.
        """
        return data.decode(encoding, self.encoding_errors)

    # Fields of a record

    @property
    def text_names(self) -> list[str]:
        """The fields of texts, in the order in which a record has them."""
        row = self.row
        return [name for name in (row.prompt_field, self.text_field, row.pair_field) if name]

    @property
    def other_names(self) -> list[str]:
        """The other fields that are read, each once."""
        label = self.row.label
        names = [self.split_by, self.split_from, label.name if label else ""]
        names += [kept.name for kept in self.row.keep_fields]
        return list(dict.fromkeys(filter(None, names)))

    def must_be_filled(self, name: str) -> bool:
        """Whether a field of a text needs more than white space."""
        return self.row.is_example and name != self.row.prompt_field

    def group_of(self, fields: Mapping[str, object]) -> int:
        """Returns what documents of one split have in common, as a field says; 0 where none does.

        Raises:
          RecordRejectedError: there is no such field.
        """
        if not self.split_by:
            return 0
        value = str(required_field(fields, self.split_by))
        return fingerprint64(without_surrogates(value).encode())

    def split_of(self, fields: Mapping[str, object]) -> int:
        """Returns the number of the split that a field names; 0 where none does.

        Raises:
          RecordRejectedError: there is no such field, or no such split.
        """
        if not self.split_from:
            return 0
        split = str(required_field(fields, self.split_from))
        if split not in self.split_names:
            raise RecordRejectedError("no_split", f"{self.split_from!r} is {split!r}")
        return self.split_names.index(split)

    def groups(self, found: Sequence[int]) -> U64 | None:
        """Returns the groups of records, `[num_records] uint64`; None where no field has them."""
        return np.array(found, np.uint64) if self.split_by else None

    def splits(self, found: Sequence[int]) -> Int64s | None:
        """Returns the splits of records, `[num_records] int64`; None where no field has them."""
        return np.array(found, np.int64) if self.split_from else None


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
      piece_bytes: of a document of plain text that stays as it is, in pieces.
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
    piece_bytes: int = 1 << 20
    hashed_bytes: int = 1 << 16
    hashed_within_bytes: int = 1 << 22
    unpacked_bytes: int = 1 << 26


READ_LIMITS = DocumentLimits()
