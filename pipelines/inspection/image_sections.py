"""What a report shows of images: classes, sizes, boxes."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from recordmill.pipelines.inspection import plots
from recordmill.pipelines.inspection.facts import Facts
from recordmill.pipelines.inspection.page import Plot, Section, Table


def classes_section(facts: Facts) -> Section:
    """Returns the classes of each split."""
    section = Section("classes", "Classes")
    counts: dict[str, Mapping[str, float]] = {
        name: sums["classes"] for name, sums in facts.splits.items() if sums.get("classes")
    }
    note = ""
    if not counts:
        names = next((f.classes for f in facts.schema.features if f.classes), ())
        counts = {
            name: {
                names[number] if 0 <= number < len(names) else str(number): float(count)
                for number, count in sample.classes.items()
            }
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
    return section


def images_section(facts: Facts) -> Section:
    """Returns sizes and colours of images."""
    section = Section("images", "Images")
    sizes = {name: s.sizes for name, s in facts.samples.items() if s.sizes}
    if sizes:
        title = "Width and height"
        svg = plots.scatter(title, sizes, x="width (pixels)", y="height (pixels)")
        section.plots.append(Plot(title, svg, "of the sampled images"))
        ratios = {
            name: np.histogram(np.log2([width / height for width, height in some]), 40, (-2, 2))[
                ::-1
            ]
            for name, some in sizes.items()
        }
        title = "Aspect"
        svg = plots.histogram(title, ratios, x="log2(width / height)", y="images")
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
        if sample.channels:
            mean, deviation = np.mean(sample.channels, axis=0)
            for channel, m, d in zip(("red", "green", "blue"), mean, deviation, strict=True):
                rows.append((f"{name}, {channel}", f"{m:.3f}", f"{d:.3f}"))
    if rows:
        section.tables.append(Table("Channels", ("Channel", "Mean", "Deviation"), rows))
    return section


def boxes_section(facts: Facts) -> Section:
    """Returns numbers, sizes and positions of boxes."""
    section = Section("boxes", "Boxes")
    samples = {name: s for name, s in facts.samples.items() if len(s.all_boxes)}
    if not samples:
        return section
    title = "Boxes of an image"
    numbers = {
        name: {str(n): float(count) for n, count in sorted(sample.objects.items())}
        for name, sample in samples.items()
    }
    section.plots.append(
        Plot(title, plots.bars(title, numbers, x="boxes", y="images", in_order=True))
    )
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
        for name, sums in facts.splits.items()
        for key in sums
        if key.startswith("boxes_") and sums[key]
    ]
    if lost:
        section.tables.append(Table("Changed boxes", ("Split", "What", "Boxes"), lost))
    return section
