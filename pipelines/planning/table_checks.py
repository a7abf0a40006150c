"""Checks of tables whose rows become records, and the types of columns that CSV does not say."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from recordmill.records.errors import UsageError, listed
from recordmill.records.schema import DType, Feature
from recordmill.transforms.examples.examples_spec import TableSpec
from recordmill.transforms.examples.table_columns import UnfitColumnError, column_dtype
from recordmill.transforms.examples.typed_rows import infer_types
from recordmill.transforms.sources.blocks import BrokenFileError
from recordmill.transforms.sources.delimited_rows import read_first_row, read_header
from recordmill.transforms.sources.formats import DELIMITED, ROW_FORMATS
from recordmill.transforms.sources.open_rows import open_rows
from recordmill.transforms.sources.rows import RowOptions, column_type
from recordmill.transforms.sources.source_list import SourceList
from recordmill.transforms.sources.work_items import SourceRange

_SEEN_BYTES = 1 << 20


def check_tables(sources: SourceList, spec: TableSpec, schema: Sequence[Feature]) -> TableSpec:
    """Checks the first table of each format; returns the spec with the types of CSV's columns.

    Args:
      sources: the input.
      spec: of the options.
      schema: that is given, () for none; it says types, and which columns are wanted.

    Raises:
      UsageError: one line: a flag has no effect, a column is missing, or cannot be a feature.
    """
    for name in ("header", "delimiter", "quoting"):
        if name in spec.given() and not sources.formats & set(DELIMITED):
            raise UsageError(
                f"--{name} is for CSV and TSV, and the input has none; leave it out, or give "
                "--input_format=csv"
            )
    if spec.columns and not sources.formats & set(ROW_FORMATS):
        raise UsageError(
            "--columns is for tables, and the input has none; leave it out, or name the format "
            "with --input_format"
        )
    types: dict[str, DType] = {}
    for kind in sorted(sources.first.keys() & set(ROW_FORMATS)):
        first = sources.first[kind]
        if kind in DELIMITED:
            spec = _check_delimited(first, spec, schema)
            types = dict(_types(first, spec, schema)) | types
        else:
            spec = _check_columns(first, spec, schema)
    return replace(spec, types=tuple(sorted(types.items())))


def _wanted(spec: TableSpec, names: Sequence[str], schema: Sequence[Feature]) -> TableSpec:
    """Returns the spec with the columns of a schema, where no others are asked for."""
    if spec.columns or not schema:
        return spec
    return replace(spec, columns=tuple(f.name for f in schema if f.name in names))


def _check_names(names: Sequence[str], path: str) -> None:
    for name in names:
        if not name or not name.isprintable():
            raise UsageError(
                f"--input {path}: the column {name!r:.80} cannot be a feature, whose name is "
                "printable text; name others with --columns"
            )


def _check_columns(first: SourceRange, spec: TableSpec, schema: Sequence[Feature]) -> TableSpec:
    try:
        with open_rows(first, RowOptions(lists=True)) as opened:
            found = opened.schema
    except BrokenFileError as error:
        if error.reason == "unreadable_file":
            raise UsageError(f"--input {first.path}: {error}") from error
        return spec  # a reject of the job
    spec = _wanted(spec, found.names, schema)
    fitting, problem = [], ""
    for name in spec.columns or found.names:
        kind = column_type(found, name)
        if kind is None:
            raise UsageError(
                f"--columns must name columns of {first.path}: {listed(found.names)}; got {name!r}"
            )
        try:
            column_dtype(name, kind)
            fitting.append(name)
        except UnfitColumnError as error:
            problem = problem or str(error)
    if problem:
        others = f"name the others: --columns={','.join(fitting)}" if fitting else "it has no other"
        raise UsageError(f"--input {first.path}: {problem}, and no tf.Example holds it; {others}")
    _check_names(spec.columns or found.names, first.path)
    return spec


def _check_delimited(first: SourceRange, spec: TableSpec, schema: Sequence[Feature]) -> TableSpec:
    row = read_first_row(first, spec.delimited)
    if spec.header == "none":
        if row and len(row) != len(spec.columns):
            raise UsageError(
                f"--columns names {len(spec.columns)} columns, and the first row of {first.path} "
                f"has {len(row)} fields; name them all, or see --delimiter"
            )
        return spec
    if not row:
        raise UsageError(
            f"--input {first.path} does not begin with a row of names; see --header and --delimiter"
        )
    twice = [name for name in row if row.count(name) > 1]
    if twice:
        raise UsageError(
            f"--input {first.path}: two columns are called {twice[0]!r}; rename one of them"
        )
    for name in spec.columns:
        if name not in row:
            raise UsageError(
                f"--columns must name columns of {first.path}: {listed(row)}; got {name!r}; if "
                "that is no row of names, give --header=none"
            )
    spec = _wanted(spec, row, schema)
    _check_names(spec.columns or row, first.path)
    return spec


def _types(
    first: SourceRange, spec: TableSpec, schema: Sequence[Feature]
) -> Sequence[tuple[str, DType]]:
    """Returns the types of a schema, or those that the first rows show."""
    names = spec.columns or read_header(first, spec.delimited)
    if schema:
        return [(feature.name, feature.dtype) for feature in schema if feature.name in names]
    with open_rows(first, RowOptions(spec.delimited, strict=True)) as opened:
        found = (rows.columns for rows in opened.rows(names, _SEEN_BYTES) if rows.count)
        return infer_types(next(found, {}))
