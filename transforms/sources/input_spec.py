"""The options of input: where text is, and how it lies in files."""

from __future__ import annotations

import codecs
from collections.abc import Mapping
from typing import Annotated, ClassVar, Final, Literal

from recordmill.records.errors import UsageError
from recordmill.records.spec import Spec, option
from recordmill.transforms.dataset.output_spec import KeptFields
from recordmill.transforms.sources.formats import CHOICES

# No choices of people. Objectives that are not of sentences ask for the first one, and functions of
# users' own for the second, which has the blank lines within documents too.
WHOLE_TEXT: Final = "whole"
RAW_TEXT: Final = "raw"
SentenceSplitting = Literal["auto", "none", "punctuation", "whole", "raw"]
Documents = Literal["blank_line", "line", "file"]
HeaderRow = Literal["first_row", "none"]
Quotes = Literal["csv", "none"]
DecodingErrors = Literal["strict", "replace"]
# Text shrinks to a third or a tenth, logs and tables to a fiftieth.
USUAL_COMPRESSION_RATIO = 250

# What messages of `ReadDocuments` and its siblings call flags.
SOURCE_ARGUMENTS = {
    "input": "patterns", "overwrite": "another run of the pipeline",
    "skip_files": "narrower patterns",
}  # fmt: skip

# Options that jobs of text and of existing records have.
AllowOutside = Annotated[tuple[str, ...], option(
    "A folder outside of the input that links and annotations may name too; may be given several "
    "times. Unset: what leads outside is rejected.", group="input", value="PATH", split="repeat",
    path="folder", example="/data/blobs"
)]  # fmt: skip
SkipFiles = Annotated[tuple[str, ...], option(
    "A path, folder or glob of input that is not read, such as a file that ends a worker; may be "
    "given several times.", group="input", value="GLOB", split="repeat", path="file",
    example="corpus/broken.parquet"
)]  # fmt: skip
Limit = Annotated[int | None, option(
    "Read the first N inputs alone (documents, images, records), in order of the names of files: a "
    "dataset to try things with.", ge=1, group="input", short="the first N inputs alone, to try",
    value="N", example="1000"
)]  # fmt: skip
MaxRejected = Annotated[float, option(
    "The share of inputs that may be rejected; the run fails above it.", ge=0, le=1, group="input",
    value="SHARE", fingerprint=False, example="0.001"
)]  # fmt: skip
Header = Annotated[HeaderRow, option(
    "The first row of CSV and TSV has the names of the columns, or there are none.", group="input",
    example="none"
)]  # fmt: skip
Delimiter = Annotated[str, option(
    "Between the fields of CSV and TSV, such as ';' or 'tab'. Unset: the usual one.", group="input",
    value="CHARACTER", parse=lambda text: "\t" if text in ("tab", "\\t") else text, example="';'"
)]  # fmt: skip
Quoting = Annotated[Quotes, option(
    "csv: quotes enclose fields of CSV and TSV. none: they are characters, as in the TSV files of "
    "GLUE.", group="input", example="none"
)]  # fmt: skip
_Format = Annotated[str, option(
    "auto goes by the extension, as .parquet; in .json, objects may be one a line, in an "
    "array, or one alone; .gz, .bz2, .xz and .zst are decompressed in any case.",
    short="or jsonl, csv, parquet, arrow, sql…", value="FORMAT", choices=CHOICES,
    example="parquet"
)]  # fmt: skip
_Compression = Annotated[Literal["auto", "none", "gz", "bz2", "xz", "zst"], option(
    "How the files are compressed, where their names do not say it; auto goes by the extension.",
    example="gz"
)]  # fmt: skip
_Query = Annotated[str, option(
    "What is read where --input is a database, sqlite:///FILE or postgresql://…, or "
    "bigquery://PROJECT: an answer whose rows are documents.", value="SELECT",
    example="'SELECT id, text FROM docs'"
)]  # fmt: skip
_PartitionColumn = Annotated[str, option(
    "The column of integers of the answer to --query by which workers share its rows, such as "
    "the primary key. Not of BigQuery.", value="NAME", example="id"
)]  # fmt: skip
LowerCase = Annotated[bool | None, option(
    "Lower-case and strip accents; it must match the vocabulary. Of vocab.txt alone, where it is "
    "true by default: other tokenizers say it themselves.", group="input",
    short="and strip accents; must fit the vocabulary", python="do_lower_case=True",
    example="--no-do_lower_case"
)]  # fmt: skip


def check_delimited(header: str, columns: tuple[str, ...], delimiter: str) -> None:
    """Checks options of CSV and TSV against each other.

    Raises:
      UsageError: there must be names of columns, or must not; or the delimiter cannot be one.
    """
    if (header == "none") != bool(columns):
        raise UsageError(
            "--header=none and --columns belong together: give both, or leave both out; got "
            f"--header={header} and {len(columns)} columns"
        )
    check_delimiter(delimiter)


def check_delimiter(delimiter: str) -> None:
    """Checks a delimiter.

    Raises:
      UsageError: fields cannot be told apart by it.
    """
    if delimiter and (len(delimiter) > 1 or not delimiter.isascii() or delimiter in '"\r\n'):
        raise UsageError(
            "--delimiter must be one ASCII character other than a quote and a line end, got "
            f"{delimiter!r}"
        )


class InputSpec(Spec, frozen=True, kw_only=True):
    """Where text is."""

    group: ClassVar[str] = "input"

    input: Annotated[tuple[str, ...], option(
        "Files to read, local or gs://…: globs, or comma lists of them; the flag may be repeated. "
        "train=GLOB and validation=GLOB name the splits that files are for.",
        aliases=("input_file",), short="files, local or gs://…; train=GLOB names a split",
        value="GLOB", split="words", path="file", picker="GCS_READ_FILE", python="the input",
        default="required", example="'corpus/*.txt'"
    )] = ()  # fmt: skip
    input_format: _Format = "auto"
    input_compression: _Compression = "auto"
    query: _Query = ""
    partition_column: _PartitionColumn = ""
    allow_outside: AllowOutside = ()
    skip_files: SkipFiles = ()
    limit: Limit = None
    max_rejected: MaxRejected = 0.0

    @property
    def by_name(self) -> bool:
        """Whether the names of files say their formats."""
        return self.input_format == "auto"


class SourceOptions(Spec, frozen=True, kw_only=True):
    """How text lies in files.

    Attributes:
      encoding: of the files; a BOM is dropped.
      encoding_errors: "strict" rejects a line with invalid bytes, "replace" puts U+FFFD there.
      text_field: of all formats but plain text.
      header: "first_row" of CSV and TSV has the names of the columns, or there are "none".
      columns: the names of the columns where the files have none.
      delimiter: the character between the fields of CSV and TSV; "" is the usual one of the format.
      quoting: "csv": quotes enclose fields of CSV and TSV, with "none" they are characters.
      wiki_markup: of MediaWiki dumps.
      wiki_namespaces: of these, by number.
      max_compression_ratio: a compressed file, a row group of Parquet or a batch of Arrow that
        unpacks to more than so many times its size, and to more than 64 MiB, is read up to there,
        and rejected.
      max_document_bytes: a document with more bytes of text is rejected; 0 for no limit.
    """

    group: ClassVar[str] = "input"

    text_field: Annotated[str, option(
        "The field or column of the text, in all formats but plain text.",
        short="the field or column of the text", value="NAME", python="Document.text",
        example="content"
    )] = "text"  # fmt: skip
    header: Header = "first_row"
    columns: Annotated[tuple[str, ...], option(
        "The names of the columns, with --header=none.", value="NAME,…", split="comma",
        example="label,text"
    )] = ()  # fmt: skip
    delimiter: Delimiter = ""
    quoting: Quoting = "csv"
    encoding: Annotated[str, option(
        "The encoding of the input files.", python="how the texts were decoded", example="latin-1"
    )] = "utf-8"  # fmt: skip
    encoding_errors: Annotated[DecodingErrors, option(
        "strict rejects lines with invalid bytes, replace puts U+FFFD instead of the bytes.",
        example="replace"
    )] = "strict"  # fmt: skip
    wiki_markup: Annotated[Literal["remove", "keep"], option(
        "Of MediaWiki dumps, leave the words of a page (templates, references, tables and formulas "
        "go), or keep its markup.", example="keep"
    )] = "remove"  # fmt: skip
    wiki_namespaces: Annotated[tuple[int, ...], option(
        "The namespaces of MediaWiki whose pages are read, by number: 0 has articles.",
        value="N,…", split="comma", example="0,4"
    )] = (0,)  # fmt: skip
    max_compression_ratio: Annotated[int, option(
        "A compressed file, a row group of Parquet or a batch of Arrow that unpacks to more than "
        "64 MiB and more than N times its size is read up to there, and rejected.", ge=1, value="N",
        example="1000"
    )] = USUAL_COMPRESSION_RATIO  # fmt: skip
    max_document_bytes: Annotated[int, option(
        "A document with more than N bytes of text is rejected; 0 for no limit.", ge=0, value="N",
        example="10000000"
    )] = 0  # fmt: skip

    def check(self) -> None:
        """Checks options of tables, and that there is such an encoding, with errors to handle."""
        check_delimited(self.header, self.columns, self.delimiter)
        if len(set(self.columns)) != len(self.columns) or not all(self.columns):
            raise UsageError(f"--columns must name each column once, got {','.join(self.columns)}")
        try:
            "".encode(self.encoding)
        except (LookupError, ValueError) as error:
            raise UsageError(
                f"--encoding must be one that Python knows (utf-8, latin-1, utf-16, …), got "
                f"{self.encoding!r}"
            ) from error
        every_byte = codecs.lookup(self.encoding).name == "iso8859-1"
        if every_byte and self.encoding_errors != "strict":
            raise UsageError(
                "--encoding_errors has no effect with an encoding in which every byte is a "
                "character; leave it out"
            )


class ReadDocumentsSpec(Spec, frozen=True, kw_only=True):
    """The arguments of `ReadDocuments`."""

    words: ClassVar[Mapping[str, str]] = {  # other than where documents come in a PCollection
        **SOURCE_ARGUMENTS, "text_field": "text_field", "encoding": "encoding"
    }  # fmt: skip

    input_format: _Format = "auto"
    input_compression: _Compression = "auto"
    documents: Annotated[Documents, option(
        "What a document is in plain text: a block between blank lines, a line, or a file."
    )] = "blank_line"  # fmt: skip
    label_field: Annotated[str, option(
        "Becomes `Document.label`. A row without label or text is a reject."
    )] = ""  # fmt: skip
    text_pair_field: Annotated[str, option("Becomes `Document.pair`, beside a label.")] = ""
    prompt_field: Annotated[str, option("Becomes `Document.prompt`.")] = ""
    keep_fields: Annotated[
        KeptFields, option("`NAME[:int|:float],…`, which become `Document.fields`.")
    ] = ""
    source: SourceOptions = SourceOptions()
    query: _Query = ""
    partition_column: _PartitionColumn = ""
    allow_outside: AllowOutside = ()
    rejects: Annotated[Literal["fail", "count", "output"], option(
        '"fail" ends the pipeline, "count" counts what cannot be read in `rejected_…`, and '
        '"output" gives it too: the result is then a dict of `documents` and `rejects`, which are '
        "dicts with the source, the position and the reason."
    )] = "fail"  # fmt: skip
    item_bytes: Annotated[int, option("Of text that one worker reads at once.", ge=1)] = 1 << 25
