"""What a report of a dataset shows: from its manifest and statistics, and from a sample of it."""

from __future__ import annotations

import base64
import io
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from recordmill.pipelines.inspection import plots
from recordmill.pipelines.inspection.example_lines import describe
from recordmill.pipelines.inspection.image_sheet import draw, drawing_of
from recordmill.pipelines.inspection.overview import overview, overview_lines, readable_bytes
from recordmill.pipelines.inspection.page import (
    Line,
    MarkedText,
    Picture,
    Plot,
    Section,
    Table,
    render,
)
from recordmill.pipelines.inspection.record_files import Record, RecordFiles
from recordmill.pipelines.inspection.sample import SplitSample, shared_contents
from recordmill.pipelines.inspection.styles import Style
from recordmill.pipelines.inspection.token_lines import LEGEND, token_features, token_lines
from recordmill.records.manifest import REJECTED_PATH, STATISTICS_OF_ALL, STATISTICS_PATH
from recordmill.records.schema import Schema
from recordmill.transforms.storage import files

MAX_HTML_BYTES = 5_000_000
_SIDE = 240
_MARK = re.compile("\x1b\\[([0-9;]+)m(.*?)\x1b\\[0m", re.DOTALL)
_KINDS = {"1;33": "hidden", "1;31": "replaced", "1;32": "kept"}
_SHARDS_PLOTTED = 400
_MOST_FREQUENT = 30
_REJECTS_SHOWN = 3
Shown = Sequence[tuple[Record, Mapping[str, Any]]]


class Report:
    """The sections of the report of one dataset."""

    def __init__(
        self,
        records: RecordFiles,
        schema: Schema,
        samples: Mapping[str, SplitSample],
        shown: Shown,
        vocabulary: Sequence[str] | None,
    ) -> None:
        """Takes what was read of the dataset.

        Args:
          records: where its records are.
          schema: of the records.
          samples: split -> sums over some of its records.
          shown: the records that the page shows.
          vocabulary: the token of each id; None shows ids.
        """
        self._records = records
        self._schema = schema
        self._samples = samples
        self._shown = shown
        self._vocabulary = vocabulary
        self._statistics = _statistics(records)
        self._splits = {
            name: sums
            for name, sums in self._statistics.items()
            if name not in STATISTICS_OF_ALL and isinstance(sums, dict)
        }

    def html(self) -> str:
        """Returns the page."""
        lines = dict(overview_lines(self._records, self._schema))
        task = lines.get("task", "")
        return render(
            title=f"{lines['dataset']}{f', {task}' if task else ''}",
            subtitle=f"{self._records.path}",
            warnings=[*self._stated_warnings(), *self._sample_warnings()],
            sections=[
                self._overview(lines),
                self._lengths(),
                self._masks(),
                self._tokens(),
                self._classes(),
                self._images(),
                self._boxes(),
                self._shards(),
                self._rejects(),
                self._run(),
                self._examples(),
                self._configuration(),
            ],
            footer="Made by recordmill report. The page loads nothing.",
        )

    def _stated_warnings(self) -> list[str]:
        return [str(warning.get("text", "")) for warning in self._statistics.get("warnings", ())]

    def _sample_warnings(self) -> list[str]:
        found = []
        for name, sample in self._samples.items():
            hidden = sum(sample.hidden.values())
            share = sample.hidden["masked"] / hidden if hidden else 1.0
            if hidden >= 100 and share < 0.5 and self._asked_masked() > 0.5:
                found.append(
                    f"{share:.1%} of the predicted positions of {name} hold [MASK], where about "
                    "80 % are meant: positions and tokens do not fit each other"
                )
            if sample.repeated:
                found.append(
                    f"{sample.repeated:,} of {sample.records:,} sampled records of {name} have "
                    "contents that other records have too: copies, or files that are there twice"
                )
        for one, other, both in shared_contents(self._samples):
            found.append(f"{both:,} sampled contents are both in {one} and in {other}")
        return found + self._twin_shards()

    def _asked_masked(self) -> float:
        return 0.8

    def _twin_shards(self) -> list[str]:
        manifest = self._records.manifest
        shards: dict[tuple[int, int], list[str]] = {}
        for shard in manifest.shards if manifest else ():
            if shard.records:
                shards.setdefault((shard.crc32c, shard.file_bytes), []).append(shard.name.path)
        return [
            f"{' and '.join(paths[:3])} have the same bytes"
            for paths in shards.values()
            if len(paths) > 1
        ]

    def _overview(self, lines: Mapping[str, str]) -> Section:
        section = Section("overview", "Overview")
        rows = [
            (
                name,
                "" if split["records"] is None else f"{split['records']:,}",
                f"{split['shards']:,}",
                readable_bytes(split["bytes"]),
                split["compression"] or "none",
            )
            for name, split in overview(self._records, self._schema)["splits"].items()
        ]
        header = ("Split", "Records", "Shards", "Size", "Compression")
        section.tables.append(Table("Splits", header, rows))
        skipped = ("dataset", "task", *self._records.splits)
        facts = [(name, value) for name, value in lines.items() if name not in skipped]
        if facts:
            section.tables.append(Table("Origin", ("Fact", "Value"), facts, numbers=False))
        features = [(f.name, f.dtype, str(list(f.shape)), f.meaning) for f in self._schema.features]
        header = ("Feature", "Type", "Shape", "Meaning")
        section.tables.append(Table("Features", header, features, numbers=False))
        return section

    def _lengths(self) -> Section:
        section = Section("lengths", "Lengths of examples")
        stored = {
            name: np.array(sums["tokens_per_example"])
            for name, sums in self._splits.items()
            if sums.get("tokens_per_example")
        }
        series = {name: (np.arange(len(n) + 1) - 0.5, n) for name, n in stored.items()}
        if not series:
            for name, sample in self._samples.items():
                if sample.lengths:
                    counts = np.zeros(max(sample.lengths) + 1, np.int64)
                    counts[list(sample.lengths)] = list(sample.lengths.values())
                    series[name] = (np.arange(len(counts) + 1) - 0.5, counts)
        if series:
            binned = {name: _binned(edges, numbers) for name, (edges, numbers) in series.items()}
            svg = plots.histogram("Tokens of an example", binned, x="tokens", y="examples")
            section.plots.append(Plot("Tokens of an example", svg))
        fill = {
            name: 1 - sums["padding_rate"]
            for name, sums in self._splits.items()
            if "padding_rate" in sums
        } or {
            name: sum(n * count for n, count in sample.lengths.items()) / sample.row_lengths
            for name, sample in self._samples.items()
            if sample.row_lengths
        }
        if fill:
            rows = [(name, f"{share:.1%}", f"{1 - share:.1%}") for name, share in fill.items()]
            section.tables.append(Table("Fill", ("Split", "Filled", "Padding"), rows))
        return section

    def _masks(self) -> Section:
        section = Section("masks", "Masks")
        objective = self._config("objective")
        asked = objective.get("mask", {}).get("masked_lm_prob") if objective else None
        rows = []
        for name, sums in self._splits.items():
            if "prediction_rate" not in sums:
                continue
            rows += [
                (f"{name}: predicted tokens", _percent(sums["prediction_rate"]), _percent(asked)),
                (f"{name}: [MASK]", _percent(sums.get("masked_rate")), "80.0%"),
                (f"{name}: another token", _percent(sums.get("replaced_rate")), "10.0%"),
                (f"{name}: kept", _percent(sums.get("kept_rate")), "10.0%"),
            ]
            if "random_next_rate" in sums:
                found = _percent(sums["random_next_rate"])
                rows.append((f"{name}: random second segments", found, "50.0%"))
        for name, sample in self._samples.items():
            total = sum(sample.hidden.values())
            if total:
                rows += [
                    (
                        f"{name}, sampled records: {kind}",
                        _percent(sample.hidden[kind] / total),
                        meant,
                    )
                    for kind, meant in (
                        ("masked", "80.0%"),
                        ("replaced", "10.0%"),
                        ("kept", "10.0%"),
                    )
                ]
        if rows:
            section.tables.append(Table("Rates of masks", ("Rate", "Found", "Asked for"), rows))
        return section

    def _tokens(self) -> Section:
        section = Section("tokens", "Tokens")
        rates = [
            (name, f"{sums['unknown_tokens']:,}", _percent(sums.get("unknown_rate")))
            for name, sums in self._splits.items()
            if "unknown_tokens" in sums
        ]
        if rates:
            header = ("Split", "Unknown tokens", "Share")
            section.tables.append(Table("Unknown tokens", header, rates))
        for name, sample in self._samples.items():
            total = sum(sample.tokens.values())
            if total:
                frequent = {
                    self._word(token): count / total
                    for token, count in sample.tokens.most_common(_MOST_FREQUENT)
                }
                title = f"Most frequent tokens of {name}"
                svg = plots.bars(title, {name: frequent}, y="share of tokens")
                note = f"of {sample.records:,} sampled records, {len(sample.tokens):,} different tokens"
                section.plots.append(Plot(title, svg, note))
        return section

    def _word(self, token: Any) -> str:
        if isinstance(token, bytes):
            return token.decode("utf-8", "replace")
        if self._vocabulary and 0 <= token < len(self._vocabulary):
            return self._vocabulary[token]
        return str(token)

    def _classes(self) -> Section:
        section = Section("classes", "Classes")
        counts: dict[str, Mapping[str, float]] = {
            name: sums["classes"] for name, sums in self._splits.items() if sums.get("classes")
        }
        note = ""
        if not counts:
            names = next((f.classes for f in self._schema.features if f.classes), ())
            counts = {
                name: {
                    names[number] if 0 <= number < len(names) else str(number): float(count)
                    for number, count in sample.classes.items()
                }
                for name, sample in self._samples.items()
                if sample.classes
            }
            note = "of the sampled records"
        if not counts:
            return section
        shares = {
            name: {label: count / sum(some.values()) for label, count in some.items()}
            for name, some in counts.items()
        }
        title = "Share of each class by split"
        section.plots.append(Plot(title, plots.bars(title, shares, y="share"), note))
        labels = sorted({label for some in counts.values() for label in some})
        rows = [(label, *(f"{counts[n].get(label, 0):,.0f}" for n in counts)) for label in labels]
        section.tables.append(Table("Classes", ("Class", *counts), rows[:200]))
        return section

    def _images(self) -> Section:
        section = Section("images", "Images")
        sizes = {name: s.sizes for name, s in self._samples.items() if s.sizes}
        if sizes:
            title = "Width and height"
            svg = plots.scatter(title, sizes, x="width (pixels)", y="height (pixels)")
            section.plots.append(Plot(title, svg, "of the sampled images"))
            ratios = {
                name: np.histogram(
                    np.log2([width / height for width, height in some]), 40, (-2, 2)
                )[::-1]
                for name, some in sizes.items()
            }
            title = "Aspect"
            svg = plots.histogram(title, ratios, x="log2(width / height)", y="images")
            section.plots.append(Plot(title, svg))
        stored = {
            name: {f"2^{key}": float(n) for key, n in sums["log2_pixels"].items()}
            for name, sums in self._splits.items()
            if sums.get("log2_pixels")
        }
        if stored:
            title = "Pixels of an image"
            svg = plots.bars(title, stored, x="pixels, at least", y="images")
            section.plots.append(Plot(title, svg, "of all images"))
        rows = []
        for name, sample in self._samples.items():
            if sample.channels:
                mean, deviation = np.mean(sample.channels, axis=0)
                for channel, m, d in zip(("red", "green", "blue"), mean, deviation, strict=True):
                    rows.append((f"{name}, {channel}", f"{m:.3f}", f"{d:.3f}"))
        if rows:
            section.tables.append(Table("Channels", ("Channel", "Mean", "Deviation"), rows))
        return section

    def _boxes(self) -> Section:
        section = Section("boxes", "Boxes")
        samples = {name: s for name, s in self._samples.items() if len(s.all_boxes)}
        if not samples:
            return section
        title = "Boxes of an image"
        numbers = {
            name: {str(n): float(count) for n, count in sample.objects.items()}
            for name, sample in samples.items()
        }
        section.plots.append(Plot(title, plots.bars(title, numbers, x="boxes", y="images")))
        title = "Side of a box"
        sides = {}
        for name, sample in samples.items():
            boxes = sample.all_boxes
            side = np.sqrt(np.maximum(np.prod(boxes[:, 2:] - boxes[:, :2], axis=1), 0))
            sides[name] = np.histogram(side, 40, (0, 1))[::-1]
        svg = plots.histogram(title, sides, x="square root of the share of the image", y="boxes")
        section.plots.append(Plot(title, svg))
        for name, sample in samples.items():
            title = f"Where boxes of {name} are"
            section.plots.append(Plot(title, plots.heat_map(title, sample.heat_map())))
        lost = [
            (name, key.replace("_", " "), f"{sums[key]:,}")
            for name, sums in self._splits.items()
            for key in sums
            if key.startswith("boxes_")
        ]
        if lost:
            section.tables.append(Table("Changed boxes", ("Split", "What", "Boxes"), lost))
        return section

    def _shards(self) -> Section:
        section = Section("shards", "Shards")
        sizes = {
            name: np.array([file.file_bytes / 1e6 for file in some])
            for name, some in self._records.splits.items()
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

    def _rejects(self) -> Section:
        section = Section("rejects", "Rejected inputs")
        manifest = self._records.manifest
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
                for line in files.read_bytes(files.join(self._records.path, path)).splitlines():
                    reason = str(json.loads(line).get("reason"))
                    examples[reason] += 1
                    if examples[reason] <= _REJECTS_SHOWN:
                        lines.append(line.decode("utf-8", "replace"))
        if lines:
            section.details.append(("Some of them", "\n".join(lines)))
        return section

    def _run(self) -> Section:
        section = Section("run", "Run")
        path = files.join(self._records.path, "_meta/run.json")
        if self._records.manifest and files.exists(path):
            run = json.loads(files.read_bytes(path))
            rows = [(key.replace("_", " "), json.dumps(value)) for key, value in run.items()]
            section.tables.append(Table("Run", ("What", "Value"), rows, numbers=False))
        return section

    def _examples(self) -> Section:
        section = Section("examples", "Examples")
        features = {feature.name: feature for feature in self._schema.features}
        for record, values in self._shown:
            where = f"{record.split}:{record.number}"
            drawing = drawing_of(values, self._schema_of_images(), where)
            if drawing:
                out = io.BytesIO()
                draw(drawing, _SIDE).convert("RGB").save(out, "JPEG", quality=80)
                labels = [
                    describe(values[name], feature)
                    for name, feature in features.items()
                    if feature.kind == "classes" and name in values
                ]
                caption = " · ".join([where, *labels])
                picture = Picture(base64.b64encode(out.getvalue()).decode(), caption)
                section.pictures.append(picture)
            elif token_features(values):
                section.texts.append(MarkedText(where, self._marked(values)))
        if any("masked_lm_positions" in values for _, values in self._shown):
            section.note = LEGEND
        return section

    def _schema_of_images(self) -> Schema | None:
        return self._schema if self._records.manifest else None

    def _marked(self, values: Mapping[str, Any]) -> list[Line]:
        lines = []
        for name in token_features(values):
            for heading, text in token_lines(values, name, self._vocabulary, Style(colors=True)):
                lines.append([("", f"{heading} " if heading else ""), *_pieces(text)])
        return lines

    def _config(self, name: str) -> Mapping[str, Any]:
        manifest = self._records.manifest
        found = manifest.config.get(name) if manifest else None
        return found if isinstance(found, dict) else {}

    def _configuration(self) -> Section:
        section = Section("configuration", "Configuration and origin")
        manifest = self._records.manifest
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


def _pieces(text: str) -> Line:
    pieces: Line = []
    at = 0
    for mark in _MARK.finditer(text):
        pieces += [("", text[at : mark.start()]), (_KINDS.get(mark[1], ""), mark[2])]
        at = mark.end()
    return [piece for piece in [*pieces, ("", text[at:])] if piece[1]]


def _percent(share: float | None) -> str:
    return "" if share is None else f"{share:.1%}"


def _binned(edges: Any, numbers: Any, most: int = 80) -> tuple[Any, Any]:
    """Returns a histogram of at most `most` bars."""
    each = -(-len(numbers) // most)
    padded = np.concatenate([numbers, np.zeros(-len(numbers) % each, numbers.dtype)])
    sums = padded.reshape(-1, each).sum(axis=1)
    return edges[0] + each * np.arange(len(sums) + 1), sums


def _statistics(records: RecordFiles) -> dict[str, Any]:
    path = files.join(records.path, STATISTICS_PATH)
    if not records.manifest or not files.exists(path):
        return {}
    content = json.loads(files.read_bytes(path))
    return content if isinstance(content, dict) else {}
