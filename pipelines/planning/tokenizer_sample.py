"""Texts of a corpus on which two tokenizers are compared, before one of them gives all ids.

They are read without our readers, whose kernels the process that plans has no other use for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import islice

import orjson

from recordmill.transforms.sources.document_spec import DocumentSpec
from recordmill.transforms.sources.documents import read_documents
from recordmill.transforms.sources.work_items import SourceRange
from recordmill.transforms.storage import files
from recordmill.transforms.storage.unpacking import open_decompressed

_FILES = 8  # of the first thousand
_MOST_FILES = 1000
_SAMPLE_BYTES = 1 << 14  # of each place
_MOST_BATCHES = 4  # where texts are short, or missing
_PLAIN = ("text", "jsonl", "json", "csv", "tsv")


def sample_texts(sources: Iterable[SourceRange], spec: DocumentSpec) -> Iterator[str]:
    """Yields about 16 kB of text from the beginning and the middle of each of 8 files.

    What cannot be read is left to the job. Databases are not asked.

    Args:
      sources: whole files.
      spec: how documents lie in them.
    """
    listed = [each for each in islice(sources, _MOST_FILES) if not (each.query or each.stream)]
    for source in listed[:: max(1, len(listed) // _FILES)][:_FILES]:
        with suppress(Exception):
            if source.format not in _PLAIN:
                yield from _documents(source, spec)
                continue
            yield from _texts(source, spec, 0)
            if not source.compression:
                yield from _texts(source, spec, source.size // 2)


def _texts(source: SourceRange, spec: DocumentSpec, start: int) -> Iterator[str]:
    with files.open_read(source.path, start) as raw:
        stream = open_decompressed(raw, source.compression, spec.most_unpacked_bytes(source.size))
        text = stream.read(_SAMPLE_BYTES).decode(spec.encoding, "ignore")
    for line in text.splitlines(keepends=True) if source.format == "jsonl" else [text]:
        try:
            yield str(orjson.loads(line)[spec.text_field])
        except (ValueError, LookupError, TypeError):  # cut, or no object: any text will do
            yield line


def _documents(source: SourceRange, spec: DocumentSpec) -> Iterator[str]:
    wanted = _SAMPLE_BYTES
    for batch in islice(read_documents(source, spec, groups=False), _MOST_BATCHES):
        for i in range(len(batch.lines)):
            text = batch.lines[i][:wanted]
            yield text.decode("utf-8", "ignore")
            wanted -= len(text)
            if wanted <= 0:
                return
