"""How rows of tables become records: which columns, and the types of those of CSV."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from recordmill.records.schema import DType
from recordmill.transforms.sources.document_spec import DocumentSpec

DELIMITED = ("csv", "tsv")
ROW_FORMATS = ("arrow", "avro", "parquet", *DELIMITED)
RECORD_FORMATS = ("auto", "tfrecord", *ROW_FORMATS)
_TYPES: dict[DType, pa.DataType] = {
    "int64": pa.int64(), "float32": pa.float64(), "bytes": pa.string(),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class TableSpec:
    """The rows of tables.

    Attributes:
      columns: that become features, () for all; with header "none" the names of all.
      header, delimiter, quoting: of CSV and TSV, as in `DocumentSpec`.
      types: of CSV and TSV, column -> type; one that is not there is text.
    """

    columns: tuple[str, ...] = ()
    header: str = "first_row"
    delimiter: str = ""
    quoting: str = "csv"
    types: tuple[tuple[str, DType], ...] = ()

    @property
    def delimited(self) -> DocumentSpec:
        """The same for the readers of CSV and TSV.

        Raises:
          UsageError: a value is not valid.
        """
        names = self.columns if self.header == "none" else ()
        return DocumentSpec(
            header=self.header, columns=names, delimiter=self.delimiter, quoting=self.quoting
        )


def infer_types(columns: Mapping[str, Sequence[str]]) -> tuple[tuple[str, DType], ...]:
    """Returns the types of columns that some rows of CSV show: numbers where all values are.

    A value without characters is none; a column that has only such is text.

    Args:
      columns: name -> values.
    """
    return tuple((name, _infer(values)) for name, values in columns.items())


def _infer(values: Sequence[str]) -> DType:
    array = pa.array([value for value in values if value], pa.string())
    if len(array):
        for dtype in ("int64", "float32"):
            try:
                array.cast(_TYPES[dtype])
            except pa.ArrowInvalid:
                continue
            return dtype
    return "bytes"


def typed_column(values: Sequence[str], dtype: DType) -> tuple[pa.Array, list[int]]:
    """Returns a column of CSV as an array, and the rows whose value is not of its type.

    A number without characters is null.
    """
    array = pa.array(values, pa.string())
    if dtype == "bytes":
        return array, []
    given = pc.if_else(pc.equal(array, ""), pa.scalar(None, pa.string()), array)
    try:
        return given.cast(_TYPES[dtype]), []
    except pa.ArrowInvalid:
        found: list[pa.Scalar | None] = []
        unfit = []
        for row, value in enumerate(given):
            try:
                found.append(value.cast(_TYPES[dtype]).as_py())
            except pa.ArrowInvalid:
                unfit.append(row)
                found.append(None)
        return pa.array(found, _TYPES[dtype]), unfit
