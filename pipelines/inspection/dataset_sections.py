"""What a report shows of a dataset of any kind: splits, shards, rejects, its origin."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from recordmill.pipelines.inspection import plots
from recordmill.pipelines.inspection.facts import Facts
from recordmill.pipelines.inspection.overview import overview, readable_bytes
from recordmill.pipelines.inspection.page import Plot, Section, Table
from recordmill.pipelines.inspection.record_files import read_description
from recordmill.records.manifest import REJECTED_PATH, RUN_PATH
from recordmill.transforms.storage import files

_SHARDS_PLOTTED = 400
_REJECTS_SHOWN = 3


def overview_section(facts: Facts, lines: Mapping[str, str]) -> Section:
    """Returns what the dataset is."""
    section = Section("overview", "Overview")
    rows = [
        (
            name,
            "" if split["records"] is None else f"{split['records']:,}",
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


def shards_section(facts: Facts) -> Section:
    """Returns the sizes of shards."""
    section = Section("shards", "Shards")
    sizes = {
        name: np.array([file.file_bytes / 1e6 for file in some])
        for name, some in facts.records.splits.items()
    }
    title = "Sizes of shards"
    if max(map(len, sizes.values())) <= _SHARDS_PLOTTED:
        series = {name: (np.arange(len(s) + 1) - 0.5, s) for name, s in sizes.items()}
        svg = plots.histogram(title, series, x="number of the shard", y="MB")
    else:
        most = max(float(s.max()) for s in sizes.values())
        series = {name: np.histogram(s, 60, (0, most))[::-1] for name, s in sizes.items()}
        svg = plots.histogram(title, series, x="MB", y="shards")
    section.plots.append(Plot(title, svg))
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
    examples: Counter[str] = Counter()
    lines = []
    for path in sorted(manifest.files):
        if path.startswith(f"{REJECTED_PATH}/"):
            for line in files.read_bytes(files.join(facts.records.path, path)).splitlines():
                reason = str(json.loads(line).get("reason"))
                examples[reason] += 1
                if examples[reason] <= _REJECTS_SHOWN:
                    lines.append(line.decode("utf-8", "replace"))
    if lines:
        section.details.append(("Some of them", "\n".join(lines)))
    return section


def run_section(facts: Facts) -> Section:
    """Returns how the run went."""
    section = Section("run", "Run")
    path = files.join(facts.records.path, RUN_PATH)
    run = read_description(path) if facts.records.manifest else {}
    if not run:
        return section
    rows = [(name, value) for name, key, show in _RUN_ROWS if (value := _shown(run.get(key), show))]
    if run.get("resumed"):
        section.note = "The run finished an earlier one, whose work is not in these numbers."
    section.tables.append(Table("Run", ("What", "Value"), rows, numbers=False))
    phases = [
        (
            str(phase.get("name", "")),
            _shown(phase.get("seconds"), _seconds),
            _shown(phase.get("bytes_per_second"), _speed),
        )
        for phase in run.get("phases") or ()
        if isinstance(phase, dict)
    ]
    section.tables.append(Table("Durations of phases", ("Phase", "Time", "Speed"), phases))
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


def _shown(value: Any, show: Callable[[Any], str]) -> str:
    """Returns a value as text, "" where there is none, or one that no run of ours writes."""
    try:
        return "" if value is None else show(value)
    except (TypeError, ValueError):
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
