"""`ReadExamples`: existing TFRecords as a PCollection, read as `recordmill examples` reads them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

import apache_beam as beam

from recordmill.records.codec.framing import FOOTER_BYTES, HEADER_BYTES
from recordmill.records.errors import RunError, UsageError
from recordmill.records.spec import (
    check_paths,
    from_arguments,
    naming_arguments,
    python_names,
    takes,
)
from recordmill.records.state import convert
from recordmill.transforms.dataset import counters
from recordmill.transforms.dataset.rejects import REASONS, Reject
from recordmill.transforms.dataset.run_errors import one_line_first
from recordmill.transforms.examples.examples_spec import ReadExamplesSpec
from recordmill.transforms.examples.record_items import cut_record_items, record_files
from recordmill.transforms.examples.record_source import RecordFileRange, read_records
from recordmill.transforms.sources.input_spec import SOURCE_ARGUMENTS
from recordmill.transforms.sources.work_items import list_sources


def list_ranges(patterns: Sequence[str], range_bytes: int) -> Iterator[dict[str, Any]]:
    """Yields the parts of files to read, as JSON."""
    sources = list(list_sources(list(patterns), input_format="tfrecord"))
    total = sum(source.size for source in sources)
    for item in cut_record_items(record_files(sources, total), range_bytes):
        yield from map(asdict, item)


class _ListFilesDoFn(beam.DoFn):
    def __init__(self, patterns: tuple[str, ...], range_bytes: int) -> None:
        self._patterns = patterns
        self._range_bytes = range_bytes

    def process(self, impulse: bytes) -> Iterator[dict[str, Any]]:
        del impulse
        with one_line_first(), naming_arguments(SOURCE_ARGUMENTS):
            yield from list_ranges(self._patterns, self._range_bytes)


class _ReadRecordsDoFn(beam.DoFn):
    def __init__(self, *, skip_damaged: bool) -> None:
        self._skip_damaged = skip_damaged

    def process(self, content: dict[str, Any]) -> Iterator[bytes]:
        with one_line_first(), naming_arguments(SOURCE_ARGUMENTS):
            yield from self._read(content)

    def _read(self, content: dict[str, Any]) -> Iterator[bytes]:
        source = convert(content, RecordFileRange)
        for batch in read_records(source):
            data = batch.data.data
            begins, ends = batch.begins + HEADER_BYTES, batch.ends - FOOTER_BYTES
            for begin, end in zip(begins.tolist(), ends.tolist(), strict=True):
                yield bytes(data[begin:end])
            counters.count("records_read", len(begins))
            for reject in batch.rejects:
                self._reject(source, reject)

    def _reject(self, source: RecordFileRange, reject: Reject) -> None:
        if not self._skip_damaged:
            raise RunError(
                f"{source.path} at byte {reject.position}: {REASONS[reject.reason]} "
                f"({reject.detail}); copy the file again, leave it out, or skip_damaged=True"
            )
        counters.count_rejects({reject.reason: 1})


class ReadExamples(beam.PTransform[beam.pvalue.PBegin, beam.PCollection[bytes]]):
    """TFRecord files of any tool, plain, GZIP or ZLIB -> their records, as serialized bytes.

    Large plain files are cut, and read by several workers. Both checksums of each record are
    checked. Memory: a block of 8 MB, or a record that is larger.
    """

    @takes(ReadExamplesSpec)
    @naming_arguments(python_names(ReadExamplesSpec))
    def __init__(self, *patterns: str | os.PathLike[str], **options: Any) -> None:
        """Files are listed when the pipeline runs.

        Args:
          patterns: globs, local or gs://….
          options: the keyword arguments listed below.

        Raises:
          UsageError: a value is not valid.
          TypeError: an argument that there is not.
        """
        super().__init__()
        if not patterns:
            raise UsageError("patterns must be a glob of TFRecord files, got none")
        self._patterns = check_paths(patterns)
        self._spec = from_arguments(ReadExamplesSpec, options)

    def expand(self, begin: beam.pvalue.PBegin) -> beam.PCollection[bytes]:
        """Lists files, and reads their parts."""
        return (
            begin
            | "Impulse" >> beam.Impulse()
            | "ListFiles" >> beam.ParDo(_ListFilesDoFn(self._patterns, self._spec.range_bytes))
            | "SpreadRanges" >> beam.Reshuffle()
            | "ReadRecords"
            >> beam.ParDo(_ReadRecordsDoFn(skip_damaged=self._spec.skip_damaged)).with_output_types(
                bytes
            )
        )
