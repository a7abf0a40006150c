"""What a report shows of images: classes, sizes, boxes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from recordmill.pipelines.inspection import plots
from recordmill.pipelines.inspection.facts import Facts
from recordmill.pipelines.inspection.page import Picture, Plot, Section, Table, jpeg_base64

_DOUBTFUL = 12


def classes_section(facts: Facts) -> Section:
    """Returns the classes of each split."""
    section = Section("classes", "Classes")
    counts: dict[str, Mapping[str, float]] = {
        name: sums["classes"] for name, sums in facts.splits.items() if sums.get("classes")
    }
    note = ""
    if not counts:
        counts = {
            name: {facts.class_name(number): float(n) for number, n in sample.classes.items()}
            for name, sample in facts.samples.items()
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
    _add_doubtful(section, facts)
    return section


def _add_doubtful(section: Section, facts: Facts) -> None:
    """Adds the images that look least like their class, and what that is worth."""
    check, looks = facts.label_check
    if not check:
        return
    worth = (
        f"{check.contradicted:,} of {len(looks):,} are contradicted with confidence"
        if check.tells
        else "too rarely to tell wrong labels from right ones: the order below helps to look, and "
        "proves nothing"
    )
    section.pictures_note = (
        f"Images that look least like their label. A simple classifier of small pictures, asked "
        f"about images that it was not fitted to, agrees with {check.agreement:.1%} of the labels "
        f"(the most frequent label alone would with {check.chance:.1%}): {worth}."
    )
    for number, likely in check.doubtful[:_DOUBTFUL]:
        look = looks[number]
        section.pictures.append(
            Picture(
                jpeg_base64(look.picture),
                f"{look.name} · label {facts.class_name(look.label)}, looks like "
                f"{facts.class_name(likely)}",
            )
        )


def images_section(facts: Facts) -> Section:
    """Returns sizes and colours of images."""
    section = Section("images", "Images")
    sizes = {name: s.sizes for name, s in facts.samples.items() if s.sizes}
    if sizes:
        title = "Width and height"
        svg = plots.scatter(title, sizes, x="width (pixels)", y="height (pixels)")
        section.plots.append(Plot(title, svg, "of the sampled images"))
        ratios = {
            name: _shares(np.log2([width / height for width, height in some]), (-2, 2))
            for name, some in sizes.items()
        }
        title = "Aspect"
        svg = plots.histogram(
            title, ratios, x="log2(width / height): 0 square, 1 twice as wide", y="share of images"
        )
        section.plots.append(Plot(title, svg))
    stored = {
        name: {f"2^{key}": float(n) for key, n in sorted(sums["log2_pixels"].items())}
        for name, sums in facts.splits.items()
        if sums.get("log2_pixels")
    }
    if stored:
        title = "Pixels of an image"
        svg = plots.bars(title, stored, x="pixels, at least", y="images", in_order=True)
        section.plots.append(Plot(title, svg, "of all images"))
    rows = []
    for name, sample in facts.samples.items():
        sums = facts.splits.get(name, {})
        if "channel_mean" in sums and "channel_std" in sums:
            mean, deviation, of = sums["channel_mean"], sums["channel_std"], "all"
        elif sample.channels:
            mean, deviation = np.mean(sample.channels, axis=0)
            of = f"{len(sample.channels):,} sampled"
        else:
            continue
        for channel, m, d in zip(("red", "green", "blue"), mean, deviation, strict=False):
            rows.append((f"{name}, {channel}", f"{m:.3f}", f"{d:.3f}", of))
    if rows:
        section.tables.append(Table("Channels", ("Channel", "Mean", "Deviation", "Images"), rows))
    dimensions = [
        (f"{name}, {side}", *(f"{sums[side][key]:,.0f}" for key in ("min", "mean", "max")))
        for name, sums in facts.splits.items()
        for side in ("width", "height")
        if isinstance(sums.get(side), dict)
    ]
    if dimensions:
        header = ("Pixels, of all images", "Least", "Mean", "Most")
        section.tables.append(Table("Sizes", header, dimensions))
    return section


def _shares(values: Any, bounds: tuple[float, float]) -> tuple[Any, Any]:
    """Returns edges and shares of a histogram; values beyond the bounds are in the outer bars."""
    numbers, edges = np.histogram(np.clip(values, *bounds), 40, bounds)
    return edges, numbers / max(1, numbers.sum())


def boxes_section(facts: Facts) -> Section:
    """Returns numbers, sizes and positions of boxes."""
    section = Section("boxes", "Boxes")
    samples = {name: s for name, s in facts.samples.items() if len(s.all_boxes)}
    if not samples:
        return section
    title = "Boxes of an image"
    numbers = {
        name: {
            str(n): count / sample.objects.total() for n, count in sorted(sample.objects.items())
        }
        for name, sample in samples.items()
    }
    svg = plots.bars(title, numbers, x="boxes", y="share of images", in_order=True)
    section.plots.append(Plot(title, svg))
    title = "Side of a box"
    sides = {}
    for name, sample in samples.items():
        boxes = sample.all_boxes
        side = np.sqrt(np.maximum(np.prod(boxes[:, 2:] - boxes[:, :2], axis=1), 0))
        sides[name] = _shares(side, (0, 1))
    svg = plots.histogram(
        title, sides, x="square root of the share of the image", y="share of boxes"
    )
    section.plots.append(Plot(title, svg))
    for name, sample in samples.items():
        title = f"Where boxes of {name} are"
        section.plots.append(Plot(title, plots.heat_map(title, sample.heat_map())))
    lost = [
        (name, key.replace("_", " "), f"{sums[key]:,}")
        for name, sums in facts.splits.items()
        for key in sums
        if key.startswith("boxes_") and sums[key]
    ]
    if lost:
        section.tables.append(Table("Changed boxes", ("Split", "What", "Boxes"), lost))
    return section
