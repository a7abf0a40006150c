"""Documents after the functions of users' own: each is held whole while its functions look at it.

A function sees the text of a document as it was read, before it is cut into sentences. Where all
functions return what they get, the documents are those that `read_documents` yields without them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np

from recordmill.records.arrays import Int64s
from recordmill.records.hashing import GOLDEN, U64, fingerprint64, mix64
from recordmill.transforms.dataset.rejects import Reject
from recordmill.transforms.dataset.user_functions import ElementError, FunctionChain, MapSpec
from recordmill.transforms.elements import Document
from recordmill.transforms.sources.document_batch import BatchMaker, DocumentBatch
from recordmill.transforms.sources.document_spec import DocumentLimits, DocumentSpec
from recordmill.transforms.sources.documents import read_documents
from recordmill.transforms.sources.formats import COLUMN_FORMATS
from recordmill.transforms.sources.input_spec import WHOLE_TEXT
from recordmill.transforms.sources.lines import Lines
from recordmill.transforms.sources.paragraphs import number_paragraphs, split_paragraph_lines
from recordmill.transforms.sources.sentences import split_sentences
from recordmill.transforms.sources.text_arrays import cut_all_lines, cut_lines
from recordmill.transforms.sources.whole_documents import WholeDocument, whole_documents
from recordmill.transforms.sources.work_items import SourceRange

_BATCH_BYTES = 1 << 22  # of text that functions return, before it is handed on
_DETAIL_CHARACTERS = 400
# Takes the batch and the number in it of a document that functions drop, and its source.
DropDocument = Callable[[DocumentBatch, int, SourceRange], None]


@dataclass(slots=True)
class _Collected:
    """What functions returned and no batch has yet; `texts` are `per_document` lines of each."""

    texts: list[bytes] = field(default_factory=list)
    read: list[WholeDocument] = field(default_factory=list)
    keys: list[int] = field(default_factory=list)
    groups: list[int | None] = field(default_factory=list)
    rejects: list[Reject] = field(default_factory=list)
    size: int = 0


@dataclass(slots=True)
class MapSums:
    """What functions did with the documents of a work item, beside what they returned.

    Attributes:
      drop: takes the documents for which they returned nothing.
      dropped: the number of these.
      added: how many more they returned than they took, of documents that became several.
    """

    drop: DropDocument = lambda *_: None
    dropped: int = 0
    added: int = 0


class DocumentMapper:
    """Reads ranges of files, and hands their documents to functions.

    Memory: the longest document, up to `--max_document_bytes` or 64 MiB; a longer one is a reject.

    Args:
      spec: the functions.
      documents: how documents lie in files.
      limits: sizes.
      groups: whether groups are wanted.

    Raises:
      RunError: a function cannot be loaded on this worker.
    """

    def __init__(
        self,
        spec: MapSpec,
        documents: DocumentSpec,
        limits: DocumentLimits,
        *,
        groups: bool,
    ) -> None:
        self._spec = spec
        self._chain = FunctionChain(spec, Document)
        self._documents = documents
        self._raw = documents.raw(limits)
        self._limits = limits
        self._groups = groups
        self._is_example = documents.row.is_example
        self._text_at = 1 if documents.row.prompt_field else 0

    def read(self, source: SourceRange, sums: MapSums) -> Iterator[DocumentBatch]:
        """Yields the documents that begin in a range, as the functions return them.

        Args:
          source: the range.
          sums: what is added to.

        Raises:
          RunError: a function raised an error, and that ends the run.
        """
        collected = _Collected()
        batches = read_documents(source, self._raw, groups=self._groups, limits=self._limits)
        for rejects, documents in whole_documents(batches):
            collected.rejects += rejects
            for document in documents:
                self._add(document, source, collected, sums)
                if collected.size >= _BATCH_BYTES:
                    yield self._batch(collected, source)
                    collected = _Collected()
            if collected.keys:
                yield self._batch(collected, source)
                collected = _Collected()
        if collected.rejects:
            yield self._batch(collected, source)

    def _add(
        self, read: WholeDocument, source: SourceRange, collected: _Collected, sums: MapSums
    ) -> None:
        """Calls the functions for a document."""
        position = read.position
        key = f"{source.name}#{position}"
        if self._is_example:
            text = read.lines[self._text_at].decode("utf-8", "replace")
        else:
            text = self._raw.line_end.join(read.lines).decode("utf-8", "replace")
        try:
            results = self._chain(Document(text, key))
            _check_results(results)
        except ElementError as error:
            self._spec.check_goes_on(error, f"the document of {source.name} at {position}")
            detail = str(error)[:_DETAIL_CHARACTERS]
            collected.rejects.append(Reject(source.name, position, "map", "map_error", detail))
            return
        written = 0
        for result in results:
            content = result.text.encode("utf-8", "replace")
            if self._is_example and not content.strip():
                detail = "the function of --map returned no text"
                collected.rejects.append(Reject(source.name, position, "map", "no_text", detail))
                continue
            lines = [content]
            if self._is_example:
                at = self._text_at
                lines = [*read.lines[:at], content, *read.lines[at + 1 :]]
            collected.texts += lines
            collected.read.append(read)
            collected.keys.append(_key(result, key, read.key, written))
            group = result.group
            collected.groups.append(None if group is None else fingerprint64(group.encode()))
            collected.size += len(content)
            written += 1
        if not results:
            sums.dropped += 1
            sums.drop(read.batch, read.number, source)
        sums.added += max(written - 1, 0)

    def _batch(self, collected: _Collected, source: SourceRange) -> DocumentBatch:
        """Makes a batch of what was collected."""
        count = len(collected.keys)
        rows = Lines.from_list(collected.texts)
        lines, line_documents = self._cut(rows, count, source.format)
        maker = BatchMaker(source, hashed_bytes=self._limits.hashed_bytes if self._groups else 0)
        contents = maker.groups(lines, line_documents, count)
        groups = self._default_groups(collected, rows, contents, source, maker)
        if any(group is not None for group in collected.groups):
            for i, group in enumerate(collected.groups):
                groups[i] = groups[i] if group is None else group
        read = collected.read
        splits = carried = None
        if count and read[0].batch.splits is not None:
            splits = np.array([_of(each.batch.splits, each.number) for each in read], np.int64)
        if count and read[0].batch.carried is not None:
            carried = [(each.batch.carried or [])[each.number] for each in read]
        return DocumentBatch(
            lines, line_documents, np.array(collected.keys, np.uint64), groups, False,
            collected.rejects, splits, carried, lambda: contents,
            np.array([each.position for each in read], np.int64),
        )  # fmt: skip

    def _default_groups(
        self,
        collected: _Collected,
        rows: Lines,
        contents: U64,
        source: SourceRange,
        maker: BatchMaker,
    ) -> U64:
        """Returns the groups of documents to which functions gave none: as the readers do."""
        if self._documents.split_by:
            read = collected.read
            return np.array([each.batch.groups[each.number] for each in read], np.uint64)
        if source.format != "text":
            return contents.copy()
        lines, of_row = cut_lines(rows)
        ends = rows.starts + self._limits.hashed_within_bytes
        return maker.groups(lines, of_row, len(rows), ends)

    def _cut(self, rows: Lines, count: int, source_format: str) -> tuple[Lines, Int64s]:
        """Cuts texts into sentences or lines, or leaves them whole, as the readers do.

        Returns:
          The lines, and of which document each is.
        """
        spec = self._documents
        if self._is_example or spec.sentence_splitter == WHOLE_TEXT:
            return rows, np.repeat(np.arange(count), len(rows) // max(count, 1))
        by_punctuation = spec.by_punctuation(source_format)
        if not by_punctuation and source_format in ("text", *COLUMN_FORMATS):
            return cut_lines(rows)
        if source_format == "text":
            lines, of_row = cut_all_lines(rows)
            blank = lines.blank()
            paragraphs = number_paragraphs(of_row, blank, self._limits.paragraph_lines)
            sentences, of_line = split_paragraph_lines(lines.select(~blank), paragraphs[~blank])
            return sentences, of_row[~blank][of_line]
        return split_sentences(rows) if by_punctuation else cut_lines(rows)


def _check_results(results: list[Document]) -> None:
    """Checks that functions return nothing that would get lost.

    Raises:
      ElementError: they do.
    """
    for result in results:
        for name in ("label", "pair", "prompt", "fields"):
            if getattr(result, name) is not None:
                raise ElementError(
                    f"a function returned a Document with {name}, which comes from the input and "
                    "stays as it is"
                )


def _of(values: Int64s | None, number: int) -> int:
    return 0 if values is None else int(values[number])


def _key(result: Document, key: str, own_key: int, number: int) -> int:
    """Returns the key of a document that functions returned, as one of several."""
    if result.key is not None and result.key != key:
        return int(mix64(np.array([fingerprint64(result.key.encode())], np.uint64))[0])
    if not number:
        return own_key
    return int(mix64(np.array([own_key], np.uint64) + np.uint64(number) * GOLDEN)[0])
