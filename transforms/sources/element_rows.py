"""Elements of a PCollection as rows in files, and these as batches of documents.

A file is an Arrow stream. A row has the texts of a document, its key and its group if it has them,
what is carried of it, and why it is a reject if it is one. So a row has everything that decides
what becomes of a document, and hashing, cutting and all further work is that of the job's stages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from recordmill.records.arrays import Bools
from recordmill.records.codec.content_hash import hash_contents
from recordmill.records.errors import RunError, WrongElementError, listed
from recordmill.records.hashing import U64, combine, fingerprint64
from recordmill.transforms.dataset.element_sink import ElementSpool
from recordmill.transforms.dataset.rejects import Reject
from recordmill.transforms.elements import Document
from recordmill.transforms.sources.document_batch import BatchMaker, DocumentBatch
from recordmill.transforms.sources.document_spec import DocumentLimits, DocumentSpec
from recordmill.transforms.sources.lines import Lines
from recordmill.transforms.sources.row_fields import RecordRejectedError, RowSpec, text_field
from recordmill.transforms.sources.row_lines import cut_rows
from recordmill.transforms.sources.text_arrays import is_text, plain_strings, row_lines
from recordmill.transforms.sources.work_items import SourceRange
from recordmill.transforms.storage import files

# A batch is a list of documents, or a table with a column `text`, and `key` and `group` if wanted.
TextElement: TypeAlias = Document | str | Sequence[Document | str] | pa.Table | pa.RecordBatch
_TABLES = (pa.Table, pa.RecordBatch)
_Hashes: TypeAlias = tuple[U64, Bools]  # `[n, 2]`, and which documents have one
_SLICE_BYTES = 1 << 22
_NAMED_CHARACTERS = 60
_SECOND = b"second"  # before what a second, independent hash is made of
# Of row fields, so that texts, labels and fields are checked as those of files are.
TEXT, PAIR, PROMPT, LABEL = "text", "pair", "prompt", "label"
_KEY, _GROUP, _CARRIED, _REASON, _DETAIL = "key", "group", "carried", "reason", "detail"
_WRITTEN_WITH = {
    "label": "labels are written with objective=Classify()",
    PAIR: "pairs are written with objective=Classify(pairs=True)",
    PROMPT: "prompts are written with objective=Gpt(prompts=True)",
    "fields": "fields are written that keep_fields names",
}


def text_bytes(element: object) -> int:
    """Returns about how many bytes an element takes, 0 where it is none."""
    if isinstance(element, Document):
        return len(element.text)
    if isinstance(element, str):
        return len(element)
    if isinstance(element, _TABLES):
        return int(element.nbytes)
    return sum(map(text_bytes, element)) if isinstance(element, list | tuple) else 0


def _text_names(row: RowSpec) -> list[str]:
    """Returns the texts of a document, in the order in which lines are cut of them."""
    return [name for name in (row.prompt_field, TEXT, row.pair_field) if name]


class DocumentSpool(ElementSpool):
    """Writes documents.

    Args:
      spec: what else than a text documents have.
    """

    def __init__(self, spec: DocumentSpec) -> None:
        row = self._row_spec = spec.row
        self._is_plain = not (row.is_example or row.keep_fields)
        written = {
            "label": row.label is not None,
            PAIR: bool(row.pair_field),
            PROMPT: bool(row.prompt_field),
            "fields": bool(row.keep_fields),
        }
        self._not_written = [name for name, is_written in written.items() if not is_written]
        self._names = _text_names(row)
        columns = [pa.field(name, pa.large_string()) for name in self._names]
        columns += [pa.field(name, pa.string()) for name in (_KEY, _GROUP)]
        if row.is_carried:
            columns.append(pa.field(_CARRIED, pa.list_(pa.string())))
        if not self._is_plain:
            columns += [pa.field(name, pa.string()) for name in (_REASON, _DETAIL)]
        self._schema = pa.schema(columns)

    def begin(self, path: str, opened: ExitStack) -> None:
        """Begins a file."""
        handle = opened.enter_context(files.writing(path, sync=False))
        self._writer = opened.enter_context(pa.ipc.new_stream(handle, self._schema))

    def add(self, elements: Sequence[Any]) -> int:
        """Writes documents, batches of them and tables; those that lack what is read are rejects.

        Raises:
          WrongElementError: an element is none.
        """
        size = 0
        for batch in self.batches(elements):
            self._writer.write_batch(batch)
            size += batch.nbytes
        return size

    def batches(self, elements: Sequence[Any]) -> Iterator[pa.RecordBatch]:
        """Yields rows of elements, in order.

        Raises:
          WrongElementError: an element is none.
        """
        documents: list[Document | str] = []
        for element in elements:
            if isinstance(element, Document | str):
                documents.append(element)
            elif isinstance(element, list | tuple):
                documents += element
            elif isinstance(element, _TABLES):
                yield from self._slices(element)
            else:
                raise _no_document(element)
        if documents:
            yield self._rows(documents)

    def _rows(self, documents: list[Document | str]) -> pa.RecordBatch:
        columns: dict[str, list[Any]] = {name: [] for name in self._schema.names}
        texts, keys, groups = columns[TEXT], columns[_KEY], columns[_GROUP]
        for each in documents:
            if isinstance(each, str) and self._is_plain:
                texts.append(each)
                keys.append(None)
                groups.append(None)
                continue
            if not isinstance(each, Document | str):
                raise _no_document(each)
            document = each if isinstance(each, Document) else Document(each)
            if document.has_more:
                self._check(document)
            keys.append(document.key)
            groups.append(document.group)
            if self._is_plain:
                texts.append(document.text)
            else:
                for name, value in self._row(document).items():
                    columns[name].append(value)
        arrays = [_array(columns[field.name], field.type) for field in self._schema]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _check(self, document: Document) -> None:
        """Checks that a document has nothing that would get lost."""
        for name in self._not_written:
            if getattr(document, name) is not None:
                raise WrongElementError(
                    f"a Document has {name}, and {_WRITTEN_WITH[name]}; give that, or leave it out"
                )

    def _row(self, document: Document) -> dict[str, Any]:
        """Returns the columns of a document with labels or kept fields but for key and group."""
        row = self._row_spec
        given = {TEXT: document.text, PAIR: document.pair, PROMPT: document.prompt}
        found: dict[str, Any] = dict.fromkeys(self._names)
        if row.is_carried:
            found[_CARRIED] = None
        try:
            texts = {
                name: text_field(given, name, filled=row.is_example and name != PROMPT)
                for name in self._names
            }
            carried = {}
            if row.is_carried:
                label = {} if document.label is None else {LABEL: document.label}
                carried[_CARRIED] = list(row.carried(dict(document.fields or {}) | label))
        except RecordRejectedError as error:
            # Its name may be the beginning of its text.
            return found | {TEXT: document.text, _REASON: error.reason, _DETAIL: error.detail}
        return found | texts | carried | {_REASON: None, _DETAIL: None}

    def _slices(self, table: Any) -> Iterator[pa.RecordBatch]:
        if not self._is_plain:
            raise WrongElementError(
                "tables have neither labels nor fields; make Documents of their rows"
            )
        if TEXT not in table.column_names:
            names = listed(table.column_names)
            raise WrongElementError(
                f"a table of documents needs a column {TEXT!r}, and has {names}"
            )
        rows = max(1, table.num_rows * _SLICE_BYTES // max(table.nbytes, 1))
        if isinstance(table, pa.RecordBatch):
            table = pa.Table.from_batches([table])
        for batch in table.to_batches(max_chunksize=rows):
            arrays = [
                _column(batch, TEXT),
                _names_column(batch, _KEY),
                _names_column(batch, _GROUP),
            ]
            cast = [a.cast(field.type) for a, field in zip(arrays, self._schema, strict=True)]
            yield pa.RecordBatch.from_arrays(cast, schema=self._schema)


def _array(values: list[Any], kind: pa.DataType) -> pa.Array:
    try:
        return pa.array(values, kind)
    except UnicodeEncodeError:  # half of a surrogate pair, as JSON's escapes can spell
        return pa.array(map(_replaced, values), kind)


def _replaced(value: Any) -> Any:
    if isinstance(value, list):
        return [_replaced(each) for each in value]
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else value


def _no_document(element: object) -> WrongElementError:
    return WrongElementError(
        "WriteText takes Documents, str, lists of these and Arrow tables with a column text, got "
        f"{type(element).__name__}; make Documents of elements with beam.Map"
    )


def _column(batch: pa.RecordBatch, name: str) -> pa.Array:
    column = batch.column(name)
    if not is_text(column.type):
        raise WrongElementError(
            f"the column {name!r} of a table must be text, and is {column.type}"
        )
    if column.null_count:
        raise WrongElementError(
            f"the column {name!r} of a table is null in {column.null_count} rows; drop these first"
        )
    column = plain_strings(column)
    try:
        column.validate(full=True)
    except pa.ArrowInvalid as error:
        raise WrongElementError(
            f"the column {name!r} of a table is no valid UTF-8: {error}"
        ) from error
    return column


def _names_column(batch: pa.RecordBatch, name: str) -> pa.Array:
    if name not in batch.schema.names:
        return pa.nulls(batch.num_rows, pa.string())
    column = batch.column(name)
    if pa.types.is_integer(column.type):
        return column.cast(pa.string())
    if not is_text(column.type):
        raise WrongElementError(
            f"the column {name!r} of a table must be text, and is {column.type}"
        )
    return plain_strings(column)


def read_elements(
    source: SourceRange, spec: DocumentSpec, limits: DocumentLimits, maker: BatchMaker
) -> Iterator[DocumentBatch]:
    """Yields the documents of a file that `DocumentSpool` has written; positions are rows.

    Args:
      source, spec, limits, maker: see `formats.SourceFormat.read`.

    Raises:
      RunError: the file is missing or damaged.
    """
    del limits  # elements are in memory as a whole anyway
    lost = f"{source.path} is missing or damaged; run the pipeline again, from its beginning"
    rows = RowDocuments(spec, maker)
    if files.size(source.path) != source.size:
        raise RunError(lost)
    with files.open_read(source.path) as handle:
        try:
            for batch in pa.ipc.open_stream(handle):
                yield rows.documents(batch)
        except pa.ArrowInvalid as error:
            raise RunError(lost) from error


class RowDocuments:
    """Makes batches of documents of the rows of one file, in order.

    Args:
      spec: how texts are cut, and what else than a text documents have.
      maker: of the groups of documents by their contents.
    """

    def __init__(self, spec: DocumentSpec, maker: BatchMaker) -> None:
        self._spec = spec
        self._maker = maker
        self._names = _text_names(spec.row)
        self._first = 0

    def documents(self, rows: pa.RecordBatch) -> DocumentBatch:
        """Returns the documents of the next rows, and the rejects among them."""
        first, self._first = self._first, self._first + rows.num_rows
        positions = np.arange(first, self._first, dtype=np.int64)
        rejects: list[Reject] = []
        if _REASON in rows.schema.names:
            is_reject = np.asarray(rows.column(_REASON).is_valid())
            for i in np.flatnonzero(is_reject).tolist():
                reason, detail = rows.column(_REASON)[i].as_py(), rows.column(_DETAIL)[i].as_py()
                name = name_of(_describe(rows, 0, i))
                rejects.append(Reject(name, 0, "parse", reason, detail))
            positions = positions[~is_reject]
        kept = rows.filter(pa.array(~is_reject)) if rejects else rows
        return self._batch(kept, positions, rejects, partial(_describe, rows, first))

    def _batch(
        self,
        rows: pa.RecordBatch,
        positions: Any,
        rejects: list[Reject],
        describe: Callable[[int], dict[str, str]],
    ) -> DocumentBatch:
        """Makes documents of rows.

        The first of two hashes decides positions and draws, both together are the identity.
        """
        texts, count = len(self._names), rows.num_rows
        cut = row_lines([rows.column(name) for name in self._names])
        hashes = hash_contents(cut.buffer, cut.starts, cut.ends).reshape(count, texts, 2)
        own = hashes[:, 0]
        for text in range(1, texts):
            own = _combine(own, hashes[:, text])
        lines, of_row = cut_rows(cut, texts, self._spec)
        contents = self._maker.groups(lines, of_row, count)
        carried = None
        if self._spec.row.is_carried:
            carried = [tuple(values) for values in rows.column(_CARRIED).to_pylist()]
        keys = _chosen(_hash_names(rows.column(_KEY)), own)
        groups = _chosen(_hash_names(rows.column(_GROUP)), np.column_stack([contents, own[:, 1]]))
        return DocumentBatch(
            lines, of_row, keys[:, 0].copy(), groups[:, 0].copy(), rejects=rejects,
            carried=carried, contents=lambda: contents, positions=positions, describe=describe,
            ranks=partial(_identities, keys, own, groups, carried),
        )  # fmt: skip


def _identities(keys: U64, own: U64, groups: U64, carried: list[tuple[str, ...]] | None) -> U64:
    """Returns `[num_documents, 2] uint64`: equal for elements that are equal in everything."""
    identities = _combine(_combine(keys, own), groups)
    if carried is None:
        return identities
    fields = ["\0".join(row).encode("utf-8", "replace") for row in carried]
    more = [(fingerprint64(each), fingerprint64(_SECOND + each)) for each in fields]
    return _combine(identities, np.array(more, np.uint64).reshape(-1, 2))


def _describe(rows: pa.RecordBatch, first: int, position: int) -> dict[str, str]:
    """Returns what a person finds a document by: its key, or the beginning of its text."""
    key = rows.column(_KEY)[position - first].as_py()
    if key is not None:
        return {_KEY: key}
    return {TEXT: rows.column(TEXT)[position - first].as_py()[:_NAMED_CHARACTERS]}


def name_of(description: dict[str, str]) -> str:
    """Returns what a person finds a document by, as one text."""
    if _KEY in description:
        return description[_KEY]
    return f"the text {description[TEXT]!r}"


def _hash_names(names: pa.Array) -> _Hashes | None:
    """Returns `[n, 2] uint64` hashes and where there is a name; None where there is none."""
    if names.null_count == len(names):
        return None
    given = np.asarray(names.is_valid().to_numpy(zero_copy_only=False))
    return _hash_lines(row_lines([names])), given


def _hash_lines(lines: Lines) -> U64:
    hashes = hash_contents(lines.buffer, lines.starts, lines.ends)
    return _combine(hashes, np.ones_like(hashes))


def _combine(keys: U64, more: U64) -> U64:
    """Combines `[n, 2] uint64` hashes; the first ones and the second ones never meet."""
    return np.column_stack([combine(keys[:, half], more[:, half]) for half in range(2)])


def _chosen(given: _Hashes | None, default: U64) -> U64:
    return default if given is None else np.where(given[1][:, None], given[0], default)
