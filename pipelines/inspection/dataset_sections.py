"""What a report shows of a dataset of any kind: splits, shards, rejects, its origin."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from itertools import combinations
from typing import Any

import msgspec
import numpy as np

from recordmill.pipelines.inspection import plots
from recordmill.pipelines.inspection.facts import Facts
from recordmill.pipelines.inspection.overview import overview, readable_bytes
from recordmill.pipelines.inspection.page import Plot, Section, Table
from recordmill.pipelines.inspection.record_files import RecordFiles
from recordmill.records.errors import UsageError
from recordmill.records.manifest import REJECTED_PATH
from recordmill.records.state import FormatError, decode
from recordmill.transforms.storage import files

_SHARDS_NAMED = 24
_SHARDS_PLOTTED = 400
_REJECTS_SHOWN = 3
_REJECTS_FILES = 100
_REJECTS_BYTES = 1 << 20
_REJECT_LENGTH = 500


def overview_section(facts: Facts, lines: Mapping[str, str]) -> Section:
    """Returns what the dataset is."""
    section = Section("overview", "Overview")
    rows = [
        (
            name,
            _records(facts, name, split["records"]),
            f"{split['shards']:,}",
            readable_bytes(split["bytes"]),
            split["compression"] or "none",
        )
        for name, split in overview(facts.records, facts.schema)["splits"].items()
    ]
    header = ("Split", "Records", "Shards", "Size", "Compression")
    section.tables.append(Table("Splits", header, rows))
    skipped = ("dataset", "task", *facts.records.splits)
    origin = [(name, value) for name, value in lines.items() if name not in skipped]
    if origin:
        section.tables.append(Table("Origin", ("Fact", "Value"), origin, numbers=False))
    about = [(f.name, f.dtype, str(list(f.shape)), f.meaning) for f in facts.schema.features]
    columns = ("Feature", "Type", "Shape", "Meaning")
    section.tables.append(Table("Features", columns, about, numbers=False))
    return section


def _records(facts: Facts, name: str, known: int | None) -> str:
    """Returns the number of records of a split, "" where nobody has counted all of them."""
    contents = facts.contents.get(name)
    if known is None and contents and contents.whole:
        known = contents.records
    return "" if known is None else f"{known:,}"


def contents_section(facts: Facts) -> Section:
    """Returns which contents are there twice, in a split or in two."""
    section = Section("contents", "Copies and leaks")
    rows = [
        (
            name,
            f"{contents.records:,}",
            "all" if contents.whole else "a part",
            f"{contents.copies:,}",
            f"{contents.copies / max(1, contents.compared()):.1%}",
            f"{contents.num_two_labels:,}",
        )
        for name, contents in facts.contents.items()
        if contents.records
    ]
    if rows:
        header = ("Split", "Records read", "Of the split", "Copies", "Share", "With two labels")
        section.tables.append(Table("Copies in a split", header, rows))
    shared = {(leak.split, leak.other): leak for leak in facts.leaks}
    pairs = []
    names = [name for name, contents in facts.contents.items() if contents.records]
    for one, other in combinations(names, 2):
        leak = shared.get((one, other)) or shared.get((other, one))
        pairs.append(
            (
                f"{leak.split} in {leak.other}",
                f"{leak.records:,}",
                f"{leak.records / leak.compared:.1%}",
            )
            if leak
            else (f"{one} and {other}", "0", "0.0%")
        )
    if pairs:
        section.tables.append(
            Table("Contents of one split in another", ("Splits", "Records", "Share"), pairs)
        )
    copies = [
        (f"{name}:{copy}", f"{name}:{original}")
        for name, contents in facts.contents.items()
        for original, copy in contents.pairs
    ]
    if copies:
        section.tables.append(
            Table("Some copies", ("Record", "Has the content of"), copies, numbers=False)
        )
    if rows:
        section.note = (
            "Contents are compared by hash: of images their bytes, of other records all of them."
        )
    return section


def shards_section(facts: Facts) -> Section:
    """Returns the sizes of shards."""
    section = Section("shards", "Shards")
    sizes = {
        name: np.array([file.file_bytes / 1e6 for file in some])
        for name, some in facts.records.splits.items()
    }
    rows = [
        (name, f"{len(s):,}", *(f"{value:,.1f}" for value in (s.min(), np.median(s), s.max())))
        for name, s in sizes.items()
    ]
    header = ("Split", "Shards", "Least MB", "Median MB", "Most MB")
    section.tables.append(Table("Sizes", header, rows))
    title = "Sizes of shards"
    if max(map(len, sizes.values())) <= _SHARDS_NAMED:
        bars = {
            name: {str(number): float(size) for number, size in enumerate(some)}
            for name, some in sizes.items()
        }
        svg = plots.bars(title, bars, x="number of the shard", y="MB", in_order=True)
    elif max(map(len, sizes.values())) <= _SHARDS_PLOTTED:
        series = {name: (np.arange(len(s) + 1) - 0.5, s) for name, s in sizes.items()}
        svg = plots.histogram(title, series, x="number of the shard", y="MB")
    else:
        most = max(float(s.max()) for s in sizes.values())
        series = {name: np.histogram(s, 60, (0, most))[::-1] for name, s in sizes.items()}
        svg = plots.histogram(title, series, x="MB", y="shards")
    section.plots.append(Plot(title, svg))
    if facts.twin_files:
        twins = [(", ".join(paths[:5]), f"{len(paths):,}") for paths in facts.twin_files[:20]]
        section.tables.append(Table("The same bytes", ("Files", "Number"), twins))
    return section


def rejects_section(facts: Facts) -> Section:
    """Returns what was rejected, by reason, with some of it."""
    section = Section("rejects", "Rejected inputs")
    manifest = facts.records.manifest
    if not manifest:
        return section
    rejected: Mapping[str, int] = manifest.counts.get("rejected") or {}
    rows = [(reason, f"{count:,}") for reason, count in rejected.items()]
    if rows:
        section.tables.append(Table("Rejects", ("Reason", "Inputs"), rows))
        bars = {"inputs": {reason: float(count) for reason, count in rejected.items()}}
        title = "Rejected inputs by reason"
        section.plots.append(Plot(title, plots.bars(title, bars, y="inputs")))
        lines = list(_rejects(facts.records, set(rejected)))
        if lines:
            section.details.append(("Some of them", "\n".join(lines)))
    return section


def _rejects(records: RecordFiles, reasons: Collection[str]) -> Iterator[str]:
    """Yields some rejects of each reason, from the beginnings of the files until all are there."""
    manifest = records.manifest
    examples: Counter[str] = Counter()
    paths = [path for path in sorted(manifest.files if manifest else ()) if _is_rejects(path)]
    for path in paths[:_REJECTS_FILES]:
        if all(examples[reason] >= _REJECTS_SHOWN for reason in reasons):
            return
        content = files.read_bytes(files.join(records.path, path), 0, _REJECTS_BYTES)
        for line in content[: content.rfind(b"\n") + 1].splitlines():
            try:
                reason = decode(line, _Reject).reason
            except FormatError as error:
                raise UsageError(
                    f"{files.join(records.path, path)} has a line that cannot be read: {error}; "
                    "see what is broken with `recordmill verify`"
                ) from error
            examples[reason] += 1
            if examples[reason] <= _REJECTS_SHOWN:
                yield line.decode("utf-8", "replace")[:_REJECT_LENGTH]


class _Reject(msgspec.Struct, frozen=True):
    reason: str = ""


def _is_rejects(path: str) -> bool:
    return path.startswith(f"{REJECTED_PATH}/")


def run_section(facts: Facts) -> Section:
    """Returns how the run went."""
    section = Section("run", "Run")
    run = facts.run
    if run.keys() <= {"run"}:  # a user's own pipeline leaves no more than whose run it was
        return section
    rows = [(name, value) for name, key, show in _RUN_ROWS if (value := shown(run.get(key), show))]
    if run.get("resumed"):
        section.note = "The run finished an earlier one, whose work is not in these numbers."
    section.tables.append(Table("Run", ("What", "Value"), rows, numbers=False))
    phases = run.get("phases")
    phases = phases if isinstance(phases, list) else []
    durations = [
        (
            str(phase.get("name", "")),
            shown(phase.get("seconds"), _seconds),
            shown(phase.get("bytes_per_second"), _speed),
        )
        for phase in phases
        if isinstance(phase, dict)
    ]
    section.tables.append(Table("Durations of phases", ("Phase", "Time", "Speed"), durations))
    return section


def _seconds(value: Any) -> str:
    return f"{float(value):,.1f} s"


def _speed(value: Any) -> str:
    return f"{float(value) / 1e6:,.1f} MB/s"


_RUN_ROWS: tuple[tuple[str, str, Callable[[Any], str]], ...] = (
    ("Command", "command", str),
    ("Engine", "engine", str),
    ("Workers", "workers", str),
    ("Began", "began", str),
    ("Time", "seconds", _seconds),
    ("Speed, by input", "input_bytes_per_second", _speed),
    ("Examples a second", "examples_per_second", lambda value: f"{float(value):,.0f}"),
    ("Input", "input_bytes", readable_bytes),
    ("Peak memory", "peak_memory_bytes", readable_bytes),
    ("Work items repeated", "retried_work_items", str),
)


def shown(value: Any, show: Callable[[Any], str]) -> str:
    """Returns a value as text, "" where there is none, or one that no run of ours writes."""
    try:
        return "" if value is None else show(value)
    except (TypeError, ValueError, OverflowError):
        return ""


def configuration_section(facts: Facts) -> Section:
    """Returns how the dataset was made."""
    section = Section("configuration", "Configuration and origin")
    manifest = facts.records.manifest
    if manifest:
        for name, content in (
            ("Configuration", manifest.config),
            ("Counts", manifest.counts),
            ("Versions", manifest.versions),
            ("Sources", manifest.sources),
        ):
            text = json.dumps(content, indent=1, ensure_ascii=False, sort_keys=True)
            section.details.append((name, text[:100_000]))
    return section
