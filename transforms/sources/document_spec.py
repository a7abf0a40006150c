"""How documents lie in input files, and the sizes in which they are read."""

from __future__ import annotations

import codecs
from dataclasses import dataclass, field

from recordmill.records.errors import UsageError, at_least, one_of
from recordmill.transforms.sources.row_fields import RowSpec

DOCUMENTS = ("blank_line", "line", "file")
SPLITTERS = ("auto", "none", "punctuation")
# No choices of people. Objectives that are not of sentences ask for the first one, and functions of
# users' own for the second, which has the blank lines within documents too.
WHOLE_TEXT, RAW_TEXT = "whole", "raw"
HEADERS = ("first_row", "none")
QUOTINGS = ("csv", "none")
# Text shrinks to a third or a tenth, logs and tables to a fiftieth.
USUAL_COMPRESSION_RATIO = 250


@dataclass(frozen=True, slots=True)
class DocumentSpec:
    """How documents lie in files.

    Attributes:
      documents: in plain text, a document is a block between blank lines, a line, or a file.
      sentence_splitter: "none": a line is a sentence; "punctuation": `sentences.py`; "auto": the
        first for text in blocks between blank lines, BERT's form, the second for all other.
        WHOLE_TEXT: the text of a record is one line, with the line ends that it has, and a line of
        plain text is one.
      encoding: of the files; a BOM is dropped.
      encoding_errors: "strict" rejects a line with invalid bytes, "replace" puts U+FFFD there.
      text_field: of all formats but plain text.
      split_by: the field whose value decides the split; "" is the text itself.
      header: "first_row" of CSV and TSV has the names of the columns, or there are "none".
      columns: the names of the columns where the files have none.
      delimiter: the character between the fields of CSV and TSV; "" is the usual one of the format.
      split_from: the field whose value is the name of the split; "" for none.
      split_names: the values that there may be, in order.
      row: what is read of a record beside its text.
      quoting: "csv": quotes enclose fields of CSV and TSV, with "none" they are characters.
      max_compression_ratio: a compressed file, a row group of Parquet or a batch of Arrow that
        unpacks to more than so many times its size, and to more than 64 MiB, is read up to there,
        and rejected.
      max_document_bytes: a document with more bytes of text is rejected; 0 for no limit.

    Raises:
      UsageError: a value is none of the valid ones, or Python does not know the encoding.
    """

    documents: str = "blank_line"
    sentence_splitter: str = "auto"
    encoding: str = "utf-8"
    encoding_errors: str = "strict"
    text_field: str = "text"
    split_by: str = ""
    header: str = "first_row"
    columns: tuple[str, ...] = ()
    delimiter: str = ""
    split_from: str = ""
    split_names: tuple[str, ...] = ()
    row: RowSpec = field(default_factory=RowSpec)
    quoting: str = "csv"
    max_compression_ratio: int = USUAL_COMPRESSION_RATIO
    max_document_bytes: int = 0

    def __post_init__(self) -> None:
        one_of("--documents", self.documents, DOCUMENTS)
        if not self.keeps_text:
            one_of("--sentence_splitter", self.sentence_splitter, SPLITTERS)
        one_of("--header", self.header, HEADERS)
        one_of("--quoting", self.quoting, QUOTINGS)
        if (self.header == "none") != bool(self.columns):
            raise UsageError(
                "--header=none and --columns belong together: give both, or leave both out; got "
                f"--header={self.header} and {len(self.columns)} columns"
            )
        if len(set(self.columns)) != len(self.columns) or not all(self.columns or ("x",)):
            raise UsageError(f"--columns must name each column once, got {','.join(self.columns)}")
        if self.delimiter and (
            len(self.delimiter) > 1 or not self.delimiter.isascii() or self.delimiter in '"\r\n'
        ):
            raise UsageError(
                "--delimiter must be one ASCII character other than a quote and a line end, got "
                f"{self.delimiter!r}"
            )
        at_least("--max_compression_ratio", self.max_compression_ratio, 1)
        at_least("--max_document_bytes", self.max_document_bytes, 0)
        one_of("--encoding_errors", self.encoding_errors, ("strict", "replace"))
        try:
            "".encode(self.encoding)
        except (LookupError, ValueError) as error:
            raise UsageError(
                f"--encoding must be one that Python knows (utf-8, latin-1, utf-16, …), got "
                f"{self.encoding!r}"
            ) from error

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
