"""`ReadDocuments`: the sources of `recordmill text` as a PCollection of documents."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import apache_beam as beam
import msgspec
import orjson

from recordmill.records.errors import RunError, UsageError, listed
from recordmill.records.spec import (
    check_paths,
    from_arguments,
    name_arguments,
    naming_arguments,
    naming_flags,
    python_names,
    takes,
)
from recordmill.records.state import decode
from recordmill.transforms.dataset import counters
from recordmill.transforms.dataset.rejects import TEXT_REASONS, Reject
from recordmill.transforms.dataset.run_errors import one_line_first
from recordmill.transforms.elements import Document
from recordmill.transforms.sources.bigquery_service import is_bigquery, parse_address
from recordmill.transforms.sources.bigquery_tables import list_table
from recordmill.transforms.sources.changes import reading
from recordmill.transforms.sources.dataset_folders import expand_folder
from recordmill.transforms.sources.document_spec import READ_LIMITS, DocumentLimits, DocumentSpec
from recordmill.transforms.sources.documents import read_documents
from recordmill.transforms.sources.input_spec import (
    SOURCE_ARGUMENTS,
    ReadDocumentsSpec,
)
from recordmill.transforms.sources.item_cutting import cut_work_items
from recordmill.transforms.sources.kept_fields import parse_fields
from recordmill.transforms.sources.query_rows import list_query
from recordmill.transforms.sources.row_documents import column_names
from recordmill.transforms.sources.row_fields import LabelSpec, RowSpec
from recordmill.transforms.sources.source_checks import check_contents
from recordmill.transforms.sources.source_list import SourceList
from recordmill.transforms.sources.whole_documents import WholeDocument, whole_documents
from recordmill.transforms.sources.work_items import SourceRange, list_sources

_VALUES = {"bytes": str, "int": int, "float": float}


@dataclass(frozen=True, slots=True)
class DocumentInput:
    """Where documents are, and how they lie there.

    Attributes:
      patterns: globs, or the URL of a database.
      documents: how documents lie in files.
      input_format, input_compression: of all files, or "auto".
      query, partition_column: of a database.
      allow_outside: folders beyond those of the globs that links may lead to.
      item_bytes: of text that is read at once, by one worker.
      rejects: "fail", "count" or "output".
      limits: sizes.
    """

    patterns: tuple[str, ...]
    documents: DocumentSpec
    input_format: str = "auto"
    input_compression: str = "auto"
    query: str = ""
    partition_column: str = ""
    allow_outside: tuple[str, ...] = ()
    item_bytes: int = ReadDocumentsSpec().item_bytes
    rejects: str = "fail"
    limits: DocumentLimits = field(default_factory=lambda: READ_LIMITS)

    def __post_init__(self) -> None:
        if not self.patterns:
            raise UsageError("ReadDocuments needs a glob, or the URL of a database")
        table = next(filter(is_bigquery, self.patterns), "")
        if table:
            self._check_table(table)
        elif self.query and (len(self.patterns) > 1 or not self.partition_column):
            raise UsageError("query needs the URL of one database, and partition_column")

    def _check_table(self, url: str) -> None:
        """Checks that BigQuery is asked for a table or for the answer to a query, and alone."""
        if len(self.patterns) > 1:
            raise UsageError(f"{url} must be the only input; join tables by UNION ALL in a query")
        if bool(parse_address(url).table) == bool(self.query):
            raise UsageError(
                f"{url} must name a table, bigquery://PROJECT.DATASET.TABLE, or the project alone, "
                "bigquery://PROJECT, beside query"
            )
        of_files = {self.input_format, self.input_compression} != {"auto"}
        if self.partition_column or of_files:
            raise UsageError(
                "partition_column, input_format and input_compression have no effect on BigQuery"
            )


def _list_table(spec: DocumentInput) -> SourceRange:
    """Returns a table of BigQuery, or the answer to a query.

    Raises:
      UsageError: it cannot be read, has no row, or lacks a column.
    """
    names = column_names(spec.documents)
    source = list_table(spec.patterns[0], spec.query, names)
    there = source.stream.columns if source.stream else ()
    missing = [name for name in names if name not in there]
    if missing:
        raise UsageError(f"{source.path} has no column {missing[0]!r}; check the names of fields")
    return source


def _files_of(pattern: str) -> list[str]:
    """Returns what a pattern stands for, which may be a folder that `save_to_disk` has written.

    Raises:
      UsageError: it holds several splits, which documents would no longer tell of.
    """
    found = expand_folder(pattern)
    splits = sorted({split for split, _ in found if split})
    if len(splits) > 1:
        raise UsageError(
            f"{pattern} has the splits {listed(splits)}; read one, such as "
            f"{pattern.rstrip('/')}/{splits[0]}"
        )
    return [path for _, path in found]


def list_items(spec: DocumentInput) -> Iterator[bytes]:
    """Yields what one worker reads at a time, as JSON.

    Raises:
      UsageError: there is nothing to read, or it is no text.
    """
    documents = spec.documents
    if is_bigquery(spec.patterns[0]):
        listed = iter([_list_table(spec)])
    elif spec.query:
        listed = iter([
            list_query(
                spec.patterns[0], spec.query, spec.partition_column, documents.text_field
            )
        ])  # fmt: skip
    else:
        patterns = [path for pattern in spec.patterns for path in _files_of(pattern)]
        listed = list_sources(
            patterns, input_format=spec.input_format, input_compression=spec.input_compression,
            allow_outside=spec.allow_outside,
        )  # fmt: skip
    with closing(SourceList(listed)) as sources:
        check_contents(sources, documents, by_name=spec.input_format == "auto")
        items = cut_work_items(sources, spec.item_bytes, documents.cutting)
        yield from map(orjson.dumps, items)


class DocumentReader:
    """Reads the documents of ranges, whole; memory: the longest document, up to 64 MiB.

    Args:
      spec: of the input.
    """

    def __init__(self, spec: DocumentInput) -> None:
        documents = spec.documents
        self._limits = spec.limits
        self._raw = documents.raw(spec.limits)
        self._row = documents.row

    def read(self, source: SourceRange) -> Iterator[Document | Reject]:
        """Yields the documents that begin in a range, and what is rejected.

        Raises:
          RunError: the file changes meanwhile.
        """
        with reading(source.path, source.size, source.modified_ns):
            batches = read_documents(source, self._raw, groups=False, limits=self._limits)
            for rejects, documents in whole_documents(batches):
                yield from rejects
                for each in documents:
                    yield self._document(each, f"{source.name}#{each.position}")

    def _document(self, read: WholeDocument, key: str) -> Document:
        row = self._row
        if row == RowSpec():
            return Document(b"\n".join(read.lines).decode("utf-8", "replace"), key)
        lines = [line.decode("utf-8", "replace") for line in read.lines]
        prompt = lines.pop(0) if row.prompt_field else None
        pair = lines.pop() if row.pair_field else None
        carried = list((read.batch.carried or [])[read.number]) if row.is_carried else []
        label = carried.pop(0) if row.label else None
        values = zip(row.keep_fields, carried, strict=True)
        fields = {kept.name: _VALUES[kept.kind](text) for kept, text in values}
        return Document(
            "\n".join(lines), key, label=label, pair=pair, prompt=prompt, fields=fields or None
        )


class _ListItemsDoFn(beam.DoFn):
    def __init__(self, spec: DocumentInput) -> None:
        self._spec = spec

    def process(self, impulse: bytes) -> Iterator[bytes]:
        del impulse
        with one_line_first(), naming_arguments(SOURCE_ARGUMENTS):
            yield from list_items(self._spec)


class _ReadDocumentsDoFn(beam.DoFn):
    def __init__(self, spec: DocumentInput) -> None:
        self._spec = spec

    def setup(self) -> None:
        self._reader = DocumentReader(self._spec)

    def process(self, item: bytes) -> Iterator[Any]:
        with one_line_first(), naming_arguments(SOURCE_ARGUMENTS):
            yield from self._read(item)

    def _read(self, item: bytes) -> Iterator[Any]:
        for source in decode(item, list[SourceRange]):
            count = 0
            for found in self._reader.read(source):
                if isinstance(found, Document):
                    count += 1
                    yield found
                else:
                    yield from self._reject(source, found)
            counters.count("documents_read", count)

    def _reject(self, source: SourceRange, reject: Reject) -> Iterator[beam.pvalue.TaggedOutput]:
        if self._spec.rejects == "fail":
            detail = f" ({reject.detail})" if reject.detail else ""
            raise RunError(
                f"{source.path} at position {reject.position}: {TEXT_REASONS[reject.reason]}"
                f"{detail}; correct the file, or give rejects='count' or 'output'"
            )
        counters.count_rejects({reject.reason: 1})
        if self._spec.rejects == "output":
            detail = name_arguments(reject.detail, SOURCE_ARGUMENTS)
            yield beam.pvalue.TaggedOutput("rejects", asdict(replace(reject, detail=detail)))


class ReadDocuments(beam.PTransform[beam.pvalue.PBegin, Any]):
    """Text of any format that `recordmill text` knows -> documents, each with a key.

    Plain text, JSON, CSV, TSV, Parquet, Arrow, Avro, folders of Hugging Face datasets, answers of
    databases, and tables and answers of BigQuery. Large files are cut, and read by several workers.
    The key of a document is its file's name below the input and its position there, so the same
    input gives the same keys on any engine; of a row of BigQuery, whose rows have no order, a hash
    of what is read of it stands for the position. Memory: a block, and the longest document, up to
    64 MiB, which is what `max_document_bytes=0` stands for. Options mean what the command's flags
    mean; a tab as the delimiter is "\\t".
    """

    @takes(ReadDocumentsSpec)
    @naming_arguments(python_names(ReadDocumentsSpec))
    def __init__(self, *patterns: str | os.PathLike[str], **options: Any) -> None:
        """Files are listed when the pipeline runs.

        Args:
          patterns: globs or folders, local or gs://…, the URL of a database, or
            bigquery://PROJECT.DATASET.TABLE, as it was when the pipeline began or at the time
            behind @.
          options: the keyword arguments listed below.

        Raises:
          UsageError: a value is not valid.
          TypeError: an argument that there is not.
        """
        super().__init__()
        with naming_flags():  # of which this transform's own arguments have the names
            spec = from_arguments(ReadDocumentsSpec, options)
        if spec.text_pair_field and not spec.label_field:
            raise UsageError("text_pair_field needs label_field; give it, or leave the pair out")
        label = LabelSpec(spec.label_field) if spec.label_field else None
        kept = parse_fields(spec.keep_fields)
        row = RowSpec(label, spec.text_pair_field, kept, spec.prompt_field)
        source = msgspec.structs.asdict(spec.source)
        self._spec = DocumentInput(
            check_paths(patterns), DocumentSpec(documents=spec.documents, row=row, **source),
            spec.input_format, spec.input_compression, spec.query, spec.partition_column,
            spec.allow_outside, spec.item_bytes, spec.rejects,
        )  # fmt: skip

    def expand(self, begin: beam.pvalue.PBegin) -> Any:
        """Lists files, and reads their parts."""
        read = beam.ParDo(_ReadDocumentsDoFn(self._spec))
        items = (
            begin
            | "Impulse" >> beam.Impulse()
            | "ListFiles" >> beam.ParDo(_ListItemsDoFn(self._spec)).with_output_types(bytes)
            | "SpreadItems" >> beam.Reshuffle()
        )
        if self._spec.rejects != "output":
            return items | "ReadDocuments" >> read.with_output_types(Document)
        found = items | "ReadDocuments" >> read.with_outputs("rejects", main="documents")
        return {"documents": found.documents, "rejects": found.rejects}
