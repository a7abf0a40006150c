"""Texts of a corpus on which two tokenizers are compared, before one of them gives all ids."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import islice

from recordmill.transforms.sources.document_spec import DocumentSpec
from recordmill.transforms.sources.documents import read_documents
from recordmill.transforms.sources.work_items import SourceRange

_FILES = 8  # of the first thousand
_MOST_FILES = 1000
_SAMPLE_BYTES = 1 << 14  # of each place


def sample_texts(sources: Iterable[SourceRange], spec: DocumentSpec) -> Iterator[str]:
    """Yields about 16 kB of text from the beginning and the middle of each of 8 files.

    What cannot be read is left to the job. Databases are not asked.

    Args:
      sources: whole files.
      spec: how documents lie in them.
    """
    listed = [each for each in islice(sources, _MOST_FILES) if not (each.query or each.stream)]
    for source in listed[:: max(1, len(listed) // _FILES)][:_FILES]:
        yield from _texts(source, spec)
        if source.format in ("text", "jsonl") and not source.compression and spec.splittable:
            yield from _texts(replace(source, start=source.size // 2), spec)


def _texts(source: SourceRange, spec: DocumentSpec) -> Iterator[str]:
    wanted = _SAMPLE_BYTES
    with suppress(Exception):
        for batch in read_documents(source, spec, groups=False):
            for i in range(len(batch.lines)):
                text = batch.lines[i][:wanted]
                yield text.decode("utf-8", "ignore")
                wanted -= len(text)
                if wanted <= 0:
                    return
