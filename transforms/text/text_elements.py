"""Elements of a PCollection as batches of documents, as those that files are read to."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from recordmill.records.arrays import Bools
from recordmill.records.codec.content_hash import hash_contents
from recordmill.records.hashing import U64, combine, fingerprint64
from recordmill.transforms.dataset.rejects import Reject
from recordmill.transforms.elements import Document
from recordmill.transforms.sources.document_batch import BatchMaker, DocumentBatch
from recordmill.transforms.sources.document_spec import READ_LIMITS, DocumentSpec
from recordmill.transforms.sources.lines import Lines
from recordmill.transforms.sources.row_fields import RecordRejectedError, text_field
from recordmill.transforms.sources.row_lines import cut_rows
from recordmill.transforms.sources.text_arrays import is_text, plain_strings, row_lines
from recordmill.transforms.sources.work_items import SourceRange

# A batch is a list of documents, or a table with a column `text`, and `key` and `group` if wanted.
TextElement: TypeAlias = Document | str | Sequence[Document | str] | pa.Table | pa.RecordBatch
_TABLES = (pa.Table, pa.RecordBatch)
_Hashes: TypeAlias = tuple[U64, Bools]  # `[n, 2]`, and which documents have one
_SLICE_BYTES = 1 << 22
_NAMED_CHARACTERS = 60
_SECOND = b"second"  # before what a second, independent hash is made of
_NO_FILE = SourceRange("", "", "parquet", "", 0)
# Of row fields, so that texts, labels and fields are checked as those of files are.
TEXT, PAIR, PROMPT, LABEL = "text", "pair", "prompt", "label"
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


class ElementBatch(NamedTuple):
    """Elements as documents.

    Attributes:
      documents: with the rejects among the elements.
      identities: `[num_documents, 2] uint64`, stable: two hashes of 64 bits, equal for elements
        that are equal in everything.
      describe: (number of a document) -> what a person finds it by, "key" or "text".
    """

    documents: DocumentBatch
    identities: U64
    describe: Callable[[int], dict[str, str]]

    def name(self, number: int) -> str:
        """Returns what a person finds a document by, as one text."""
        return _spell(self.describe(number))


class DocumentMaker:
    """Makes batches of documents of elements.

    Args:
      spec: how texts are cut, and what else than a text documents have.
      groups: whether groups are wanted.
    """

    def __init__(self, spec: DocumentSpec, *, groups: bool) -> None:
        self._spec = spec
        self._maker = BatchMaker(_NO_FILE, hashed_bytes=READ_LIMITS.hashed_bytes if groups else 0)
        row = spec.row
        self._is_plain = not (row.is_example or row.keep_fields)
        written = {
            "label": row.label is not None,
            PAIR: bool(row.pair_field),
            PROMPT: bool(row.prompt_field),
            "fields": bool(row.keep_fields),
        }
        self._not_written = [name for name, is_written in written.items() if not is_written]
        self._names = [name for name in (row.prompt_field, TEXT, row.pair_field) if name]

    def batches(self, elements: Sequence[Any]) -> Iterator[ElementBatch]:
        """Yields the documents of elements, in order; those that lack what is read are rejects.

        Raises:
          TypeError: an element is none.
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
            yield self._of_documents(documents)

    def _of_documents(self, documents: list[Document | str]) -> ElementBatch:
        texts: list[str] = []
        keys: list[str | None] = []
        groups: list[str | None] = []
        carried: list[tuple[str, ...]] = []
        rejects: list[Reject] = []
        for each in documents:
            if isinstance(each, str) and self._is_plain:
                texts.append(each)
                keys.append(None)
                groups.append(None)
            elif isinstance(each, Document | str):
                document = each if isinstance(each, Document) else Document(each)
                if document.has_more:
                    self._check(document)
                if self._is_plain:
                    texts.append(document.text)
                else:
                    try:
                        texts += self._row(document, carried)
                    except RecordRejectedError as error:
                        name = _spell(_describe(document.key, document.text))
                        rejects.append(Reject(name, 0, "parse", error.reason, error.detail))
                        continue
                keys.append(document.key)
                groups.append(document.group)
            else:
                raise _no_document(each)
        width, at = len(self._names), self._names.index(TEXT)
        return self._batch(
            row_lines([_strings(texts)]), _hash_names(keys), _hash_names(groups), carried, rejects,
            lambda i: _describe(keys[i], texts[i * width + at]),
        )  # fmt: skip

    def _check(self, document: Document) -> None:
        """Checks that a document has nothing that would get lost."""
        for name in self._not_written:
            if getattr(document, name) is not None:
                raise TypeError(
                    f"a Document has {name}, and {_WRITTEN_WITH[name]}; give that, or leave it out"
                )

    def _row(self, document: Document, carried: list[tuple[str, ...]]) -> list[str]:
        """Returns the texts of a document with labels or kept fields, and adds these.

        Raises:
          RecordRejectedError: it lacks what the job reads of it.
        """
        row = self._spec.row
        fields: dict[str, object] = dict(document.fields or {})
        given = {TEXT: document.text, PAIR: document.pair, PROMPT: document.prompt}
        found = [
            text_field(given, name, filled=row.is_example and name != PROMPT)
            for name in self._names
        ]
        if row.is_carried:
            label = {} if document.label is None else {LABEL: document.label}
            carried.append(row.carried(fields | label))
        return found

    def _slices(self, table: Any) -> Iterator[ElementBatch]:
        if not self._is_plain:
            raise TypeError("tables have neither labels nor fields; make Documents of their rows")
        if TEXT not in table.column_names:
            names = ", ".join(table.column_names)
            raise TypeError(f"a table of documents needs a column {TEXT!r}, and has {names}")
        rows = max(1, table.num_rows * _SLICE_BYTES // max(table.nbytes, 1))
        if isinstance(table, pa.RecordBatch):
            table = pa.Table.from_batches([table])
        for batch in table.to_batches(max_chunksize=rows):
            yield self._batch(
                row_lines([_column(batch, TEXT)]),
                _hash_column(batch, "key"), _hash_column(batch, "group"), [], [],
                partial(_describe_row, batch),
            )  # fmt: skip

    def _batch(
        self,
        rows: Lines,
        keys: _Hashes | None,
        groups: _Hashes | None,
        carried: list[tuple[str, ...]],
        rejects: list[Reject],
        describe: Callable[[int], dict[str, str]],
    ) -> ElementBatch:
        """Makes a batch of texts; keys and groups are hashes, and which documents have one.

        The first of the two hashes decides positions and draws, both together are the identity.
        """
        texts = len(self._names)
        count = len(rows) // texts
        hashes = hash_contents(rows.buffer, rows.starts, rows.ends).reshape(count, texts, 2)
        own = hashes[:, 0]
        for text in range(1, texts):
            own = _combine(own, hashes[:, text])
        lines, of_row = cut_rows(rows, texts, self._spec)
        contents = self._maker.groups(lines, of_row, count)
        has_more = self._spec.row.is_carried
        both_keys = _chosen(keys, own)
        both_groups = _chosen(groups, np.column_stack([contents, own[:, 1]]))
        documents = DocumentBatch(
            lines, of_row, both_keys[:, 0].copy(), both_groups[:, 0].copy(), rejects=rejects,
            carried=carried if has_more else None, contents=contents,
        )  # fmt: skip
        identities = _combine(_combine(both_keys, own), both_groups)
        if has_more:
            fields = ["\0".join(row).encode("utf-8", "replace") for row in carried]
            more = [(fingerprint64(each), fingerprint64(_SECOND + each)) for each in fields]
            identities = _combine(identities, np.array(more, np.uint64).reshape(-1, 2))
        return ElementBatch(documents, identities, describe)


def _describe(key: str | None, text: str) -> dict[str, str]:
    """Returns what a person finds a document by: its key, or the beginning of its text."""
    name, value = ("text", text[:_NAMED_CHARACTERS]) if key is None else ("key", key)
    return {name: value.encode("utf-8", "replace").decode()}


def _spell(description: dict[str, str]) -> str:
    if "key" in description:
        return description["key"]
    return f"the text {description['text']!r}"


def _describe_row(batch: pa.RecordBatch, number: int) -> dict[str, str]:
    key = batch.column("key")[number].as_py() if "key" in batch.schema.names else None
    return _describe(None if key is None else str(key), str(batch.column(TEXT)[number].as_py()))


def _no_document(element: object) -> TypeError:
    return TypeError(
        "WriteText takes Documents, str, lists of these and Arrow tables with a column text, got "
        f"{type(element).__name__}; make Documents of elements with beam.Map"
    )


def _strings(texts: list[str]) -> pa.Array:
    try:
        return pa.array(texts, pa.large_string())
    except UnicodeEncodeError:  # half of a surrogate pair, as JSON's escapes can spell
        clean = [text.encode("utf-8", "replace").decode() for text in texts]
        return pa.array(clean, pa.large_string())


def _hash_names(names: list[str | None]) -> _Hashes | None:
    """Returns `[n, 2] uint64` hashes and where there is a name; None where there is none."""
    given = np.array([name is not None for name in names], np.bool_)
    if not given.any():
        return None
    return _hash_lines(row_lines([_strings([name or "" for name in names])])), given


def _hash_column(batch: pa.RecordBatch, name: str) -> _Hashes | None:
    if name not in batch.schema.names:
        return None
    column = batch.column(name)
    if pa.types.is_integer(column.type):
        column = column.cast(pa.string())
    if not is_text(column.type):
        raise TypeError(f"the column {name!r} of a table must be text, and is {column.type}")
    given = np.asarray(column.is_valid().to_numpy(zero_copy_only=False))
    return _hash_lines(row_lines([plain_strings(column)])), given


def _column(batch: pa.RecordBatch, name: str) -> pa.Array:
    column = batch.column(name)
    if not is_text(column.type):
        raise TypeError(f"the column {name!r} of a table must be text, and is {column.type}")
    if column.null_count:
        raise TypeError(
            f"the column {name!r} of a table is null in {column.null_count} rows; drop these first"
        )
    column = plain_strings(column)
    try:
        column.validate(full=True)
    except pa.ArrowInvalid as error:
        raise TypeError(f"the column {name!r} of a table is no valid UTF-8: {error}") from error
    return column


def _hash_lines(lines: Lines) -> U64:
    hashes = hash_contents(lines.buffer, lines.starts, lines.ends)
    return _combine(hashes, np.ones_like(hashes))


def _combine(keys: U64, more: U64) -> U64:
    """Combines `[n, 2] uint64` hashes; the first ones and the second ones never meet."""
    return np.column_stack([combine(keys[:, half], more[:, half]) for half in range(2)])


def _chosen(given: _Hashes | None, default: U64) -> U64:
    return default if given is None else np.where(given[1][:, None], given[0], default)
