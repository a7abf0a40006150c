"""`ReadExamples`: what comes out is what the files hold, and damage is never passed over in
silence."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import apache_beam as beam
import pytest
from apache_beam.metrics import MetricsFilter
from apache_beam.testing.util import assert_that, equal_to

from recordmill.transforms import ReadExamples, WriteExamples

from .record_files import example, unframed, write_records


def numbered(start: int, count: int) -> list[bytes]:
    return [example(id=i, text="x" * (i % 40)) for i in range(start, start + count)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_records(tmp_path / "in/a", numbered(0, 100))
    write_records(tmp_path / "in/b.gz", numbered(100, 50), "GZIP")
    write_records(tmp_path / "in/c", numbered(150, 50), "ZLIB")
    return tmp_path / "in"


def test_the_records_of_all_files_whatever_the_ranges(folder: Path) -> None:
    with beam.Pipeline(runner="FnApiRunner") as pipeline:
        found = pipeline | ReadExamples(f"{folder}/a", f"{folder}/[bc]*", range_bytes=700)
        assert_that(found, equal_to(numbered(0, 200)))


def test_a_filter_between_reading_and_writing(folder: Path, tmp_path: Path) -> None:
    with beam.Pipeline(runner="FnApiRunner") as pipeline:
        _ = (
            pipeline
            | "Read" >> ReadExamples(f"{folder}/*")
            | "Short" >> beam.Filter(lambda record: len(record) < 60)
            | "Write" >> WriteExamples(str(tmp_path / "ds"), num_shards=2)
        )
    shards = sorted((tmp_path / "ds/train").iterdir())
    found = [record for shard in shards for record in unframed(shard.read_bytes())]
    assert Counter(found) == Counter(r for r in numbered(0, 200) if len(r) < 60)
    assert 0 < len(found) < 200


def test_damage_ends_the_pipeline_or_is_counted(folder: Path) -> None:
    data = bytearray((folder / "a").read_bytes())
    data[20] ^= 1
    (folder / "a").write_bytes(data)
    pipeline = beam.Pipeline(runner="FnApiRunner")
    _ = pipeline | ReadExamples(f"{folder}/a")
    with pytest.raises(Exception, match="at byte 0: the checksum of the record's data"):
        pipeline.run()
    pipeline = beam.Pipeline(runner="FnApiRunner")
    found = pipeline | ReadExamples(f"{folder}/a", skip_damaged=True)
    assert_that(found, equal_to(numbered(1, 99)))
    result = pipeline.run()
    result.wait_until_finish()
    counters = result.metrics().query(MetricsFilter().with_namespace("recordmill"))["counters"]
    counts = {counter.key.metric.name: counter.committed for counter in counters}
    assert counts == {"records_read": 99, "rejected_broken_record": 1}
