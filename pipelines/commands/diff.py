"""`recordmill diff A B`: what two datasets differ in: configuration, counts, features, records.

Exit status 0: in nothing; 1: in something, or a record is broken; 2: wrong usage.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from recordmill.pipelines.arguments import Parser
from recordmill.pipelines.flags import Flags
from recordmill.pipelines.inspection.example_lines import example_lines
from recordmill.pipelines.inspection.found_files import open_records
from recordmill.pipelines.inspection.overview import inferred_schema
from recordmill.pipelines.inspection.record_differences import OneSided, different_records
from recordmill.pipelines.inspection.record_files import RecordFiles, read_description
from recordmill.pipelines.inspection.record_values import record_values
from recordmill.pipelines.inspection.styles import Style
from recordmill.pipelines.inspection.value_differences import value_differences
from recordmill.records.errors import UsageError
from recordmill.records.manifest import STATISTICS_PATH
from recordmill.transforms.storage import files

_LINE = 160


@dataclass(frozen=True)
class DiffFlags(Flags):
    """Of `recordmill diff`."""

    first: str
    second: str
    key: str
    examples: int
    records: bool
    json: bool


def make_parser() -> Parser:
    """Returns the parser of `recordmill diff`."""
    parser = Parser(
        prog="recordmill diff",
        description="Shows what two datasets differ in. Exit status 1 where they differ.",
    )
    add = parser.add_argument
    add("first", metavar="A", help="A dataset's folder, local or gs://…, or TFRecords.")
    add("second", metavar="B", help="The other one.")
    add("--key", default="", metavar="FEATURE", help="The feature by which records are the same, "
        "such as image/filename; without it, their bytes.")  # fmt: skip
    add("--examples", type=int, default=3, metavar="N", help="The number of records to name of "
        "those that only one has.")  # fmt: skip
    add("--records", action="store_true", default=True, help="Reads all records; --no-records "
        "compares manifests and statistics alone.")  # fmt: skip
    add("--json", action="store_true", help="Prints JSON.")
    return parser


def _described(records: RecordFiles) -> dict[str, Any]:
    """Returns what is compared of a dataset beside its records."""
    schema = records.schema or inferred_schema(records)
    manifest = records.manifest
    content: dict[str, Any] = {
        "features": {f.name: f"{f.dtype} {list(f.shape)}" for f in schema.features},
        "shards": {name: len(split) for name, split in records.splits.items()},
    }
    if manifest:
        path = files.join(records.path, STATISTICS_PATH)
        content |= {
            "config": manifest.config,
            "sources": manifest.sources,
            "counts": manifest.counts,
            "versions": manifest.versions,
            "statistics": read_description(path),
        }
    return content


def _lines(
    values: list[tuple[str, str, str]],
    records: Mapping[str, Any] | None,
    datasets: Sequence[RecordFiles],
) -> Iterator[str]:
    width = max((len(path) for path, _, _ in values), default=0)
    for path, one, other in values:
        yield f"{path:<{width}}  {one}  ->  {other}"
    if records:
        for side, dataset in zip(("only_in_a", "only_in_b"), datasets, strict=True):
            found = records[side]
            if found["count"]:
                some = ", ".join(found["examples"])
                yield f"{found['count']:,} records {side.replace('_', ' ')}, such as {some}"
                for name in found["examples"]:
                    yield from _sample(dataset, name)
        yield f"{records['in_both']:,} records in both"


def _sample(dataset: RecordFiles, name: str) -> Iterator[str]:
    """Yields the lines of a record, each cut to what fits a wide terminal."""
    split, _, number = name.rpartition(":")
    record = dataset.record(split, int(number))
    values, plain = record_values(record, any_form=dataset.any_form), Style(colors=False)
    for line in example_lines(record, values, dataset.schema, None, plain):
        yield "  " + (line if len(line) <= _LINE else f"{line[:_LINE]}…")


def _side(found: OneSided) -> dict[str, Any]:
    return {
        "count": found.count,
        "examples": [f"{split}:{number}" for split, number in found.examples],
    }


def main(arguments: list[str]) -> int:
    """Runs `recordmill diff`; returns the exit status."""
    options = DiffFlags.read(make_parser().parse_args(arguments))
    if options.examples < 0:
        raise UsageError(f"--examples must be 0 or more, got {options.examples}")
    first, second = open_records(options.first), open_records(options.second)
    values = list(value_differences(_described(first), _described(second)))
    records: dict[str, Any] | None = None
    if options.records:
        one, other, same = different_records(first, second, options.key, options.examples)
        records = {"only_in_a": _side(one), "only_in_b": _side(other), "in_both": same}
    differ = bool(values) or bool(
        records and (records["only_in_a"]["count"] or records["only_in_b"]["count"])
    )
    if options.json:
        named = [{"path": path, "a": a, "b": b} for path, a, b in values]
        print(json.dumps({"values": named, "records": records}, indent=1, ensure_ascii=False))
    else:
        print("\n".join(_lines(values, records, (first, second))) or "no difference")
    return int(differ)
