"""What a report shows of images: classes, sizes, boxes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from recordmill.pipelines.inspection import plots
from recordmill.pipelines.inspection.facts import Facts
from recordmill.pipelines.inspection.page import Picture, Plot, Section, Table, jpeg_base64
from recordmill.records.statistics_file import SplitStatistics

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
    pixels: dict[str, Mapping[str, float]] = {
        name: sums["class_pixels"]
        for name, sums in facts.splits.items()
        if sums.get("class_pixels")
    }
    if pixels:
        _add_masks(section, facts, counts, pixels)
        return section
    things = "objects" if any(s.objects for s in facts.samples.values()) else "examples"
    title = f"Share of {things} of each class, by split"
    section.plots.append(
        Plot(title, plots.bars(title, _of_all(counts), y=f"share of {things}"), note)
    )
    _add_numbers(section, f"Number of {things} of each class", counts)
    _add_doubtful(section, facts)
    return section


def _of_all(counts: Mapping[str, Mapping[str, float]]) -> dict[str, dict[str, float]]:
    """Returns the share of each label of the sum of all."""
    return {
        name: {label: count / max(1, sum(some.values())) for label, count in some.items()}
        for name, some in counts.items()
    }


def _add_numbers(
    section: Section, title: str, counts: Mapping[str, Mapping[str, float]], *, shares: bool = False
) -> None:
    """Adds a table of classes and their numbers, or shares, in each split."""
    labels = sorted({label for some in counts.values() for label in some})
    show = "{:.2%}" if shares else "{:,.0f}"
    rows = [
        (label, *(show.format(some.get(label, 0)) for some in counts.values())) for label in labels
    ]
    section.tables.append(Table(title, ("Class", *counts), rows[:200]))


def _add_masks(
    section: Section,
    facts: Facts,
    counts: Mapping[str, Mapping[str, float]],
    pixels: Mapping[str, Mapping[str, float]],
) -> None:
    """Adds what masks hold: shares of pixels, the images that hold a class, masks without any."""
    shares = _of_all(pixels)
    title = "Share of pixels of each class, by split"
    section.plots.append(Plot(title, plots.bars(title, shares, y="share of pixels")))
    title = "Share of images that hold each class, by split"
    images = {
        name: {
            label: count / max(1, facts.splits.get(name, {}).get("masks", 0))
            for label, count in some.items()
        }
        for name, some in counts.items()
    }
    note = "an image holds several classes, so the bars of a split do not add up to 1"
    section.plots.append(Plot(title, plots.bars(title, images, y="share of images"), note))
    _add_numbers(section, "Share of pixels", shares, shares=True)
    _add_numbers(section, "Images that hold the class", counts)
    rows = [
        (name, f"{sums['masks']:,}", f"{empty:,}", f"{empty / max(1, sums['masks']):.1%}")
        for name, sums in facts.splits.items()
        if "masks" in sums
        for empty in [sums.get("masks_without_object", 0)]
    ]
    if rows:
        header = ("Split", "Masks", "Without an object", "Share")
        section.tables.append(Table("Masks without an object", header, rows))


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
            title, ratios, x="width to height", y="share of images",
            ticks={-2: "1 : 4", -1: "1 : 2", 0: "square", 1: "2 : 1", 2: "4 : 1"},
        )  # fmt: skip
        section.plots.append(Plot(title, svg))
    stored = {
        name: {
            _pixel_range(int(key)): float(n)
            for key, n in sorted(sums["log2_pixels"].items(), key=lambda item: int(item[0]))
        }
        for name, sums in facts.splits.items()
        if sums.get("log2_pixels")
    }
    if stored:
        title = "Pixels of an image"
        svg = plots.bars(title, stored, x="pixels", y="images", in_order=True)
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
        if sums.get(side)
    ]
    if dimensions:
        header = ("Pixels, of all images", "Least", "Mean", "Most")
        section.tables.append(Table("Sizes", header, dimensions))
    return section


def _pixel_range(log2: int) -> str:
    """Returns the pixels of images from 2 ** log2 on to twice as many, in few letters."""
    return f"{_few_digits(1 << log2)}–{_few_digits(2 << log2)}"


def _few_digits(number: int) -> str:
    for unit, size in (("G", 10**9), ("M", 10**6), ("k", 10**3)):
        if number >= size:
            return (
                f"{number / size:.2g}{unit}"
                if number < 100 * size
                else f"{number / size:.0f}{unit}"
            )
    return str(number)


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
        for key in SplitStatistics.__struct_fields__
        if key.startswith("boxes_") and sums.get(key)
    ]
    if lost:
        section.tables.append(Table("Changed boxes", ("Split", "What", "Boxes"), lost))
    return section
