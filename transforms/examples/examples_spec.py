"""The options of jobs of existing records: the input and its tables, which records, their order.

Nothing heavy is imported here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from recordmill.records.errors import UsageError
from recordmill.records.schema import DType
from recordmill.records.spec import Spec, option
from recordmill.transforms.dataset.output_spec import (
    MapOptions,
    OutputSpec,
    TempDir,
    WarningsOption,
    WriteSpec,
)
from recordmill.transforms.sources.formats import ROW_FORMATS
from recordmill.transforms.sources.input_spec import (
    SOURCE_ARGUMENTS,
    AllowOutside,
    Delimiter,
    Header,
    Limit,
    MaxRejected,
    Quoting,
    SkipFiles,
    check_delimited,
)

if TYPE_CHECKING:
    from recordmill.transforms.sources.document_spec import DocumentSpec

# What a job of metadata takes of the options: others have no effect on files that stay.
_IN_PLACE = ("input", "in_place_metadata", "output", "overwrite", "schema", "temp_dir", "warnings")


_Deduplicate = Annotated[bool, option(
    "Leave out records whose bytes are those of another one of the same split.",
    short="leave out records that are there twice"
)]  # fmt: skip
_KeyOf = Annotated[
    Callable[[Any], str | bytes | int],
    "a function of an element, such as lambda row: row['id']",
]


def _parse_weights(text: str) -> tuple[float, ...]:
    """Reads `2,0.5`.

    Raises:
      UsageError: a part is no number.
    """
    try:
        return tuple(float(part) for part in text.split(",")) if text else ()
    except ValueError as error:
        raise UsageError(f"--weights must be numbers such as 2,0.5, got {text!r}") from error


class TableSpec(Spec, frozen=True, kw_only=True):
    """How rows of tables become records.

    Attributes:
      columns: that become features, () for all; with header "none" the names of all.
      header, delimiter, quoting: of CSV and TSV, as in `SourceOptions`.
      types: of CSV and TSV, column -> type; one that is not there is text.
    """

    group: ClassVar[str] = "input"

    header: Header = "first_row"
    columns: Annotated[tuple[str, ...], option(
        "The columns of tables that become features; with --header=none the names of all. Unset: "
        "all.", value="NAME,…", split="comma", example="id,text,label"
    )] = ()  # fmt: skip
    delimiter: Delimiter = ""
    quoting: Quoting = "csv"
    types: tuple[tuple[str, DType], ...] = ()

    def check(self) -> None:
        """Checks what CSV and TSV need."""
        check_delimited(self.header, self._names, self.delimiter)

    @property
    def _names(self) -> tuple[str, ...]:
        return self.columns if self.header == "none" else ()

    @property
    def delimited(self) -> DocumentSpec:
        """The same for the readers of CSV and TSV."""
        from recordmill.transforms.sources.document_spec import DocumentSpec

        return DocumentSpec(
            header=self.header,
            columns=self._names,
            delimiter=self.delimiter,
            quoting=self.quoting,
        )


class RecordOptions(Spec, frozen=True, kw_only=True):
    """Which records are written, and in which order.

    Attributes:
      where: a condition on the records as they are read; "" for all of them.
      order: "shuffle", "key" for the order of the values of a feature, or "input" for the order
        in which they are read.
      key: the feature whose values decide, "" where none does.
      deduplicate: a record whose bytes are those of another is left out.
    """

    group: ClassVar[str] = "records"

    where: Annotated[str, option(
        "The records that are written, by a condition on those that are read, such as 'label==3', "
        "'len(ids)>5 and lang==de'; ~ is a regular expression. Unset: all.", value="CONDITION",
        example="'label==3 and len(ids)>5'"
    )] = ""  # fmt: skip
    order: Annotated[Literal["shuffle", "key", "input"], option(
        "shuffle: all records in random order, whatever file they are from. key: by the value of "
        "--key. input: as they are read, in order of the files' names.", short="", value="ORDER",
        example="input"
    )] = "shuffle"  # fmt: skip
    key: Annotated[str, option(
        "With --order=key: records are in order of the first value of this feature, numbers by "
        "size, text and bytes by their bytes, and where that is equal by their content.",
        value="FEATURE", example="timestamp"
    )] = ""  # fmt: skip
    deduplicate: _Deduplicate = False

    def check(self) -> None:
        """Checks the condition, and that the order is one that the other options need."""
        if self.where:
            from recordmill.records.conditions import parse_comparisons

            parse_comparisons(self.where, None)
        if (self.order == "key") != bool(self.key):
            raise UsageError("--order=key and --key=FEATURE belong together; give both, or neither")
        if self.deduplicate and self.order != "shuffle":
            raise UsageError(
                "--deduplicate needs --order=shuffle, in which equal records meet; leave out one"
            )


class RecordMapOptions(MapOptions, frozen=True, kw_only=True):
    """Functions of users' own for each record."""

    group: ClassVar[str] = "records"


class ExamplesSpec(Spec, frozen=True, kw_only=True):
    """`recordmill examples`: all of its options.

    Attributes:
      input: globs.
      input_format: "auto": tables by the extensions of their files, and TFRecords.
      tables, records, map, output: see there.
      weights: how often the records of each glob are written, () where all are 1.
      in_place_metadata: write no records, but metadata beside those of the input.
      allow_outside: folders that links may lead to beside those of the globs.
      skip_files: files, folders and globs of the input that are not read.
      max_rejected: the share of inputs that may be rejected, in [0, 1].
      schema: the file of the features that each record must have, "" where they are inferred.
    """

    group: ClassVar[str] = "input"

    input: Annotated[tuple[str, ...], option(
        "TFRecord files of any tool, plain, GZIP or ZLIB, or tables (Parquet, Arrow, Avro, CSV, "
        "TSV) whose rows become tf.Examples, local or gs://…: globs, or comma lists of them; the "
        "flag may be repeated. train=GLOB and validation=GLOB name the splits that files are for.",
        short="TFRecords of any tool; train=GLOB names a split", value="GLOB", split="words",
        path="file", picker="GCS_READ_FILE", python="the input", default="required",
        example="'old/*.tfrecord.gz'"
    )] = ()  # fmt: skip
    input_format: Annotated[
        str,
        option(
            "auto: tables by the extensions of their files, and TFRecords.",
            choices=("auto", "tfrecord", *ROW_FORMATS),
            value="FORMAT",
            example="parquet",
        ),
    ] = "auto"
    tables: TableSpec = TableSpec()
    weights: Annotated[tuple[float, ...], option(
        "How often the records of each glob of --input are written, in their order: 2 is twice, "
        "0.5 a half of them. Unset: each once.", gt=0, le=1000,
        short="of each glob: 2 is twice, 0.5 a half of the records", value="W,…",
        parse=_parse_weights, example="2,0.5"
    )] = ()  # fmt: skip
    in_place_metadata: Annotated[bool, option(
        "Write no records: make index, schema, statistics and manifest beside the TFRecords of "
        "--input, which stay as they are: another name of `recordmill index`. --output is then the "
        "folder above all of them, which may be left out.",
        short="only an index and the like, beside them"
    )] = False  # fmt: skip
    allow_outside: AllowOutside = ()
    skip_files: SkipFiles = ()
    limit: Limit = None
    max_rejected: MaxRejected = 0.0
    records: RecordOptions = RecordOptions()
    map: RecordMapOptions = RecordMapOptions()
    schema: Annotated[str, option(
        "The features that each record must have, instead of inferring them: a features.json, of "
        "TFDS too, or the manifest of a dataset. A record that does not fit is a reject.",
        group="records", value="FILE", example="old/features.json"
    )] = ""  # fmt: skip
    output: OutputSpec = OutputSpec()

    def check(self) -> None:
        """Checks options of several parts against each other."""
        if self.in_place_metadata:
            self.check_in_place()
        if self.records.deduplicate and self.weights:
            raise UsageError(
                "--deduplicate would undo what --weights repeats; deduplicate first, into a "
                "dataset of its own"
            )
        order = self.records.order
        if order != "shuffle" and "random_seed" in self.output.given() and not self.weights:
            raise UsageError(f"--random_seed has no effect with --order={order}; leave it out")

    def check_in_place(self, *, maps: bool = False) -> None:
        """Refuses what has no effect on files that stay as they are.

        Args:
          maps: whether functions are given as objects.

        Raises:
          UsageError: names an option.
        """
        parts = (self, self.tables, self.records, self.map, self.output)
        given: dict[str, Any] = {"map": maps} if maps else {}
        for part in parts:
            given |= part.given()
        for name in sorted(given.keys() - {*_IN_PLACE}):
            if name == "input_format" and self.input_format == "tfrecord":
                continue
            raise UsageError(
                f"--{name} has no effect with --in_place_metadata, which leaves records, files and "
                "their splits as they are; leave it out"
            )


class IndexSpec(Spec, frozen=True, kw_only=True):
    """`recordmill index`: all of its options.

    Attributes:
      dataset: the folder that the files are in.
      input: globs of its TFRecords, () for the usual names.
      overwrite, schema, temp_dir, warnings: as of `recordmill examples`.
    """

    group: ClassVar[str] = "input"

    dataset: Annotated[str, option(
        "The folder above all TFRecords, local or gs://….", positional=True, value="DIR",
        path="folder", of_run=True, fingerprint=False, example="old"
    )]  # fmt: skip
    input: Annotated[tuple[str, ...], option(
        "The TFRecords, where not all files below DIR with tfrecord in their names: globs, or "
        "comma lists of them. train=GLOB and validation=GLOB name the splits that files are for.",
        short="by default all with tfrecord in their names", value="GLOB", split="words",
        path="file", default="all with tfrecord in their names",
        example="'old/train-?????-of-?????'"
    )] = ()  # fmt: skip
    schema: Annotated[str, option(
        "The features that each record must have, instead of inferring them: a features.json, of "
        "TFDS too, or the manifest of a dataset.", group="records", value="FILE",
        example="old/features.json"
    )] = ""  # fmt: skip
    overwrite: Annotated[bool, option(
        "Make metadata anew that is there; files of others stay as they are.", group="output",
        short="make metadata anew that is there", of_run=True, fingerprint=False
    )] = False  # fmt: skip
    temp_dir: TempDir = None
    warnings: WarningsOption = "print"

    def check(self) -> None:
        """Checks that there is a folder: all files of a disk are below the empty name."""
        if not self.dataset:
            raise UsageError("DIR must be the folder above all TFRecords, got ''")

    @property
    def examples(self) -> ExamplesSpec:
        """The same as options of `recordmill examples`."""
        return ExamplesSpec(
            input=self.input or (f"{self.dataset.rstrip('/')}/**tfrecord*",),
            in_place_metadata=True,
            schema=self.schema,
            output=OutputSpec(
                output=self.dataset,
                temp_dir=self.temp_dir,
                overwrite=self.overwrite,
                warnings=self.warnings,
            ),
        )


class WriteExamplesSpec(Spec, frozen=True, kw_only=True):
    """The arguments of `WriteExamples`."""

    key: Annotated[_KeyOf | None, option(
        "(element) -> str, bytes or int; elements of one key are in one split."
    )] = None  # fmt: skip
    dataset: WriteSpec = WriteSpec()
    deduplicate: _Deduplicate = False
    run_bytes: Annotated[int, option("A worker holds so many bytes of records, twice.", ge=1)] = (
        1 << 26
    )


class ReadExamplesSpec(Spec, frozen=True, kw_only=True):
    """The arguments of `ReadExamples`."""

    words: ClassVar[Mapping[str, str]] = SOURCE_ARGUMENTS

    skip_damaged: Annotated[bool, option(
        "Count what is damaged (`rejected_broken_record`, `rejected_broken_file`) instead of "
        "failing."
    )] = False  # fmt: skip
    range_bytes: Annotated[int, option("Of a large file that is read at once.", ge=1)] = 1 << 25
