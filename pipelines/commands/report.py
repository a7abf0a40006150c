"""`recordmill report DIR`: a dataset as a page that opens offline.

Exit status 0: written; 1: a file or record is broken or missing; 2: wrong usage.
"""

from __future__ import annotations

import sys

from recordmill.pipelines.command_specs import ReportSpec
from recordmill.pipelines.inspection.contents import read_contents
from recordmill.pipelines.inspection.found_files import open_records
from recordmill.pipelines.inspection.overview import inferred_schema
from recordmill.pipelines.inspection.sample import read_sample
from recordmill.pipelines.inspection.vocabularies import read_vocabulary
from recordmill.records.errors import UsageError, visible
from recordmill.records.manifest import REPORT_PATH
from recordmill.transforms.storage import files

# Whose contents are compared, for each record that is decoded.
_COMPARED_BYTES, _COMPARED_RECORDS = 1 << 16, 100


def make_report(dataset: str, *, sample: int = 1000, vocab_file: str = "") -> bytes:
    """Returns the report of a dataset, as HTML.

    Args:
      dataset: its folder, or TFRecords of another tool.
      sample: the number of records that are read.
      vocab_file: of the dataset; "" takes the one that it holds, or shows token ids.

    Raises:
      UsageError: there are no records.
      RunError: a record is broken.
    """
    from recordmill.pipelines.inspection.facts import Facts
    from recordmill.pipelines.inspection.report import report_page

    records = open_records(dataset)
    schema = records.schema or inferred_schema(records)
    vocabulary = read_vocabulary(vocab_file, records)
    samples, shown = read_sample(records, sample)
    compared = (sample * _COMPARED_BYTES, sample * _COMPARED_RECORDS)
    contents = read_contents(records, *compared) if sample else {}
    return report_page(Facts(records, schema, samples, shown, vocabulary, contents)).encode()


def run(options: ReportSpec) -> int:
    """Runs `recordmill report`; returns the exit status."""
    records = open_records(options.dataset)
    usual = files.join(options.dataset, REPORT_PATH) if records.manifest else "report.html"
    html = options.html or usual
    content = make_report(options.dataset, sample=options.sample, vocab_file=options.vocab_file)
    try:
        files.write_bytes(html, content)
    except OSError as error:
        shown = f"--html={html}" if options.html else html
        advice = "" if options.html else "; give --html=FILE"
        why = error.strerror or error
        raise UsageError(f"{shown} cannot be written: {why}{advice}") from error
    print(visible(f"{html}: {len(content) / 1e6:.1f} MB"))
    for line in records.problems:
        print(visible(line), file=sys.stderr)
    if not records.finished:
        print(f"{options.dataset} is not finished: run its command again", file=sys.stderr)
    return int(bool(records.problems))
