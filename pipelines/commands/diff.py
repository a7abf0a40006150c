"""`recordmill diff A B`: what two datasets differ in: configuration, counts, features, records.

Exit status 0: in nothing; 1: in something, or a record is broken; 2: wrong usage.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np

from recordmill.pipelines.command_specs import DiffSpec
from recordmill.pipelines.inspection.example_lines import describe, example_lines
from recordmill.pipelines.inspection.found_files import check_whole, open_records
from recordmill.pipelines.inspection.json_text import json_text
from recordmill.pipelines.inspection.overview import inferred_schema
from recordmill.pipelines.inspection.record_differences import (
    Place,
    RecordDifferences,
    different_records,
)
from recordmill.pipelines.inspection.record_files import RecordFiles, read_description
from recordmill.pipelines.inspection.record_values import record_values
from recordmill.pipelines.inspection.styles import Style
from recordmill.pipelines.inspection.token_lines import token_features, token_lines
from recordmill.pipelines.inspection.value_differences import (
    MISSING,
    value_differences,
    value_text,
)
from recordmill.pipelines.inspection.vocabularies import read_vocabulary
from recordmill.records.errors import UsageError, visible
from recordmill.records.manifest import STATISTICS_PATH
from recordmill.records.statistics_file import check_statistics
from recordmill.transforms.storage import files
from recordmill.transforms.text.written_objective import readable_config

_LINE = 160
_MOST_LINES = 20  # of a section of values
_PLAIN = Style(colors=False)
_IN_WORDS = {"config": "configuration", "sources": "inputs"}
_LENGTHS = "tokens_per_example"

Values = list[tuple[str, Any, Any]]


def _described(records: RecordFiles) -> dict[str, Any]:
    """Returns what is compared of a dataset beside its records."""
    schema = records.schema or inferred_schema(records)
    manifest = records.manifest
    classes = {
        f.name: {name: number for number, name in enumerate(f.classes)}
        for f in schema.features
        if f.classes
    }
    content: dict[str, Any] = {
        "features": {f.name: f"{f.dtype} {list(f.shape)}" for f in schema.features},
        "classes": classes,
        "shards": {name: len(split) for name, split in records.splits.items()},
    }
    if manifest:
        path = files.join(records.path, STATISTICS_PATH)
        content |= {
            "config": readable_config(manifest.config),
            "sources": manifest.sources,
            "counts": manifest.counts,
            "versions": manifest.versions,
            "statistics": _statistics(read_description(path, check_statistics)),
        }
    return content


def _statistics(content: dict[str, Any]) -> dict[str, Any]:
    """Returns the statistics with a few numbers for each list of lengths."""
    return {
        split: sums | {_LENGTHS: _lengths(sums[_LENGTHS])}
        if isinstance(sums, dict) and _LENGTHS in sums
        else sums
        for split, sums in content.items()
    }


def _lengths(examples: list[int]) -> dict[str, float]:
    """Returns shortest, mean, median and longest of lengths that are counted, `[longest + 1]`."""
    counts = np.array(examples)
    (lengths,) = np.nonzero(counts)
    if not len(lengths):
        return {}
    half = np.searchsorted(np.cumsum(counts), counts.sum() / 2, side="right")
    return {
        "shortest": int(lengths[0]),
        "mean": round(float(np.average(lengths, weights=counts[lengths])), 3),
        "median": int(half),
        "longest": int(lengths[-1]),
    }


@dataclass(frozen=True)
class _Side:
    """A dataset, and the tokens of its ids."""

    records: RecordFiles
    vocabulary: Sequence[str] | None

    def values(self, place: Place) -> dict[str, Any]:
        """Returns the values of a record."""
        return record_values(self.records.record(*place), any_form=self.records.any_form)

    def sample(self, place: Place) -> Iterator[str]:
        """Yields the lines of a record, each cut to what fits a wide terminal."""
        record, schema = self.records.record(*place), self.records.schema
        values = record_values(record, any_form=self.records.any_form)
        for line in example_lines(record, values, schema, self.vocabulary, _PLAIN):
            yield _cut(f"  {line}")

    def text(self, values: Mapping[str, Any], name: str) -> str:
        """Returns a feature of a record in one line."""
        if name not in values:
            return "-"
        if name in token_features(values):
            lines = token_lines(values, name, self.vocabulary, _PLAIN)
            return " | ".join(text for _, text in lines)
        schema = self.records.schema
        features = {feature.name: feature for feature in schema.features} if schema else {}
        return describe(values[name], features.get(name))


def _sides(options: DiffSpec, datasets: Sequence[RecordFiles]) -> tuple[_Side, ...]:
    """Returns the datasets with their vocabularies: --vocab_file may be that of one of them.

    Raises:
      UsageError: it is of neither.
    """
    sides, errors = [], []
    for dataset in datasets:
        try:
            sides.append(_Side(dataset, read_vocabulary(options.vocab_file, dataset)))
        except UsageError as error:
            errors.append(error)
            sides.append(_Side(dataset, read_vocabulary("", dataset)))
    if len(errors) == len(sides):
        raise errors[0]
    return tuple(sides)


def _cut(line: str) -> str:
    return line if len(line) <= _LINE else f"{line[:_LINE]}…"


def _name(place: Place) -> str:
    return f"{place[0]}:{place[1]}"


def _value_lines(values: Values) -> Iterator[str]:
    """Yields a line for each of the first differences of a section."""
    for section, group in groupby(values, lambda value: value[0].partition(".")[0]):
        some = list(group)
        shown = some[:_MOST_LINES]
        width = max(len(path) for path, _, _ in shown)
        for path, one, other in shown:
            yield f"{path:<{width}}  {value_text(one)}  ->  {value_text(other)}"
        if len(some) > len(shown):
            yield f"… and {len(some) - len(shown):,} more of {section}; --json names all"


def _record_lines(found: RecordDifferences, sides: Sequence[_Side]) -> Iterator[str]:
    for name, only, side in zip("ab", found.only_in, sides, strict=True):
        if only.count:
            some = ", ".join(map(_name, only.examples))
            yield f"{only.count:,} records only in {name}" + (f", such as {some}" if some else "")
            for place in only.examples:
                yield from side.sample(place)
    if found.changed:
        yield f"{found.changed:,} records changed: the same key, another content"
    for places in found.examples:
        values = [side.values(place) for side, place in zip(sides, places, strict=True)]
        changed = _changed_features(*values)
        listed = ", ".join(changed) or "no value, but the bytes that hold them"
        yield f"  {_name(places[0])} -> {_name(places[1])}: {listed}"
        for feature in changed:
            for name, side, each in zip("ab", sides, values, strict=True):
                yield _cut(f"    {feature} in {name}  {side.text(each, feature)}")
    yield f"{found.same:,} records in both"
    if found.shards_not_read:
        yield (
            f"of them, the records of {found.shards_not_read:,} shards were not read, which have "
            "equal checksums in both manifests; --read_all reads them, and `recordmill verify` "
            "checks every byte"
        )


def _changed_features(first: Mapping[str, Any], second: Mapping[str, Any]) -> list[str]:
    return [
        name
        for name in sorted(first.keys() | second.keys())
        if name not in first or name not in second or not _equal(first[name], second[name])
    ]


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, list) or isinstance(other, list):
        return isinstance(one, list) and isinstance(other, list) and one == other
    return bool(one.dtype == other.dtype and one.tobytes() == other.tobytes())  # NaNs are equal too


def _last_line(values: Values, records: RecordDifferences | None, *, finished: bool) -> str:
    """Returns what the differences come to."""
    sections = dict.fromkeys(path.partition(".")[0] for path, _, _ in values)
    parts = [_IN_WORDS.get(name, name) for name in sections]
    named = ", ".join(parts[:-1]) + (" and " if len(parts) > 1 else "") + "".join(parts[-1:])
    differs = f"{named} {'differ' if len(parts) > 1 or named.endswith('s') else 'differs'}"
    if records is None:
        return f"{differs if parts else 'no difference'}; records were not compared"
    if not records.equal:
        return f"the records differ; {differs}" if parts else "the records differ"
    known = " by the checksums in the manifests" if records.shards_not_read else ""
    if parts:
        return f"the records are equal{known}; {differs}"
    return f"{'no difference' if finished else 'the records are equal'}{known}"


def _record_json(found: RecordDifferences, sides: Sequence[_Side]) -> dict[str, Any]:
    content: dict[str, Any] = {
        f"only_in_{name}": {"count": side.count, "examples": list(map(_name, side.examples))}
        for name, side in zip("ab", found.only_in, strict=True)
    }
    examples = [
        {
            "a": _name(one),
            "b": _name(other),
            "features": _changed_features(sides[0].values(one), sides[1].values(other)),
        }
        for one, other in found.examples
    ]
    return content | {
        "changed": {"count": found.changed, "examples": examples},
        "in_both": found.same,
        "shards_not_read": found.shards_not_read,
    }


def _print_json(
    values: Values,
    records: RecordDifferences | None,
    sides: Sequence[_Side],
    unfinished: list[str],
) -> None:
    named = [
        {"path": path} | {k: v for k, v in (("a", one), ("b", other)) if v is not MISSING}
        for path, one, other in values
    ]
    found = _record_json(records, sides) if records else None
    print(json_text({"values": named, "records": found, "unfinished": unfinished}))


def run(options: DiffSpec) -> int:
    """Runs `recordmill diff`; returns the exit status."""
    datasets = open_records(options.first), open_records(options.second)
    for dataset in datasets:
        check_whole(dataset)
    sides = _sides(options, datasets)
    values = list(value_differences(_described(datasets[0]), _described(datasets[1])))
    records = None
    if options.records:
        records = different_records(
            *datasets, options.key, options.examples, read_all=options.read_all
        )
    unfinished = [dataset.path for dataset in datasets if not dataset.finished]
    if options.json:
        _print_json(values, records, sides, unfinished)
    else:
        for path in unfinished:
            print(f"{path} is not finished: run its command again")
        for line in (*_value_lines(values), *(_record_lines(records, sides) if records else ())):
            print(visible(line))
        print(_last_line(values, records, finished=not unfinished))
    return int(bool(values or unfinished or (records and not records.equal)))
