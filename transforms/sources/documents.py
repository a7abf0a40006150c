"""Read the documents of an input range: batches of lines in one buffer, with each line's document.

The reader reads blocks and never holds a whole document: a document that is longer than a batch
continues in the next one. The documents depend on the file alone, and not on the bounds of blocks
and ranges: the range in which a document begins reads all of it, wherever it ends. How a format is
read says its entry in `formats.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from recordmill.records.regular_files import NotRegularError
from recordmill.transforms.sources.document_batch import BatchMaker, DocumentBatch
from recordmill.transforms.sources.document_spec import READ_LIMITS, DocumentLimits, DocumentSpec
from recordmill.transforms.sources.formats import FORMATS, load
from recordmill.transforms.sources.long_documents import without_long_documents
from recordmill.transforms.sources.work_items import SourceRange


def read_documents(
    source: SourceRange,
    spec: DocumentSpec,
    *,
    groups: bool = True,
    limits: DocumentLimits = READ_LIMITS,
) -> Iterator[DocumentBatch]:
    """Yields the documents that begin in a range; a file that cannot be read is a reject.

    Memory: some blocks, the longest record, and the longest document up to
    `limits.open_document_bytes` and `spec.max_document_bytes`, whatever the size of the range.

    Args:
      source: the range.
      spec: how documents lie in it.
      groups: whether groups are wanted; else they are all equal, which saves a pass over the text.
      limits: sizes.
    """
    batches = _documents_of(source, spec, groups=groups, limits=limits)
    if spec.max_document_bytes:
        batches = without_long_documents(batches, spec.max_document_bytes, source.name)
    return _first_documents(batches, source) if source.most else batches


def count_documents(source: SourceRange, most: int, spec: DocumentSpec) -> SourceRange:
    """Returns a file with how many documents it has, up to so many, and the bytes of their text."""
    count = size = 0
    for batch in read_documents(replace(source, most=most), spec, groups=False):
        count += len(batch.keys) - batch.continues
        size += int((batch.lines.ends - batch.lines.starts).sum())
    return replace(source, most=count, most_bytes=size)


def _first_documents(
    batches: Iterator[DocumentBatch], source: SourceRange
) -> Iterator[DocumentBatch]:
    """Yields so many documents as are read of a file, and what is rejected up to the last one."""
    most = source.most
    for batch in batches:
        count, kept = len(batch.keys), most + batch.continues
        if not kept:
            return
        if kept <= count:
            # A row is rejected whole, of plain text a line of a document, which may be the last.
            ends = batch.positions[kept - 1 : kept].tolist()
            if source.format == "text":
                ends = _starts_behind(batch, kept)
            if ends:
                first = batch.select(np.arange(count) < kept)
                rejects = [each for each in batch.rejects if each.position < min(ends)]
                yield replace(first, rejects=rejects)
                return
        yield batch
        most = kept - count


def _starts_behind(batch: DocumentBatch, kept: int) -> list[int]:
    """Returns where documents behind the first ones begin, also those that are too long."""
    last = batch.positions[kept - 1]
    too_long = [each.position for each in batch.rejects if each.reason == "document_too_long"]
    return [*batch.positions[kept : kept + 1].tolist(), *(at for at in too_long if at > last)]


def _documents_of(
    source: SourceRange, spec: DocumentSpec, *, groups: bool, limits: DocumentLimits
) -> Iterator[DocumentBatch]:
    maker = BatchMaker(source, hashed_bytes=limits.hashed_bytes if groups else 0)
    if source.outside:
        maker.reject(0, "read", "outside_input", source.outside)
        yield from maker.remaining()
        return
    try:
        yield from load(FORMATS[source.format].read)(source, spec, limits, maker)
    except (FileNotFoundError, PermissionError, IsADirectoryError, NotRegularError) as error:
        maker.reject(0, "read", "unreadable_file", str(error))
        yield from maker.remaining()
