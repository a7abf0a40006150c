"""Plots as SVG, in the colours of the page around them."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

# Matplotlib knows no CSS: these are replaced by what follows the page, in light and in dark.
_INK, _GRID = "#123456", "#123457"
_CSS = {_INK: "currentColor", _GRID: "var(--grid)"}
SERIES = ("#2f7fe0", "#e0762f", "#2fa76a", "#a95fd0", "#c9a200", "#d0507a")
_MOST_BARS = 40
_SPIKE = 30  # times the median bar: others are too low to be seen beside it
_WIDTH, _HEIGHT = 4.6, 2.5  # inches; the page scales them, on a telephone to two thirds
_BESIDE = 42  # letters of labels, with spaces, that stand beside each other below an axis
_BAR_HEIGHT = 0.2  # inches of a bar that lies, with its label


def _figure(title: str, x: str, y: str, height: float = _HEIGHT) -> tuple[Any, Any]:
    import matplotlib as mpl
    from matplotlib.figure import Figure  # pyplot would take half a second more

    mpl.rcParams.update(
        {
            "svg.fonttype": "none",  # text stays text: it can be read aloud, copied and found
            "svg.hashsalt": title,  # the same data give the same page
            "font.family": "sans-serif",
            "font.size": 10,
            "text.parse_math": False,  # a token may be "$$"
            "text.color": _INK,
            "axes.labelcolor": _INK,
            "axes.edgecolor": _GRID,
            "xtick.color": _INK,
            "ytick.color": _INK,
            "grid.color": _GRID,
        }
    )
    figure = Figure(figsize=(_WIDTH, height), layout="constrained")
    axes = figure.subplots()
    figure.patch.set_alpha(0)
    axes.patch.set_alpha(0)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    return figure, axes


def _svg(figure: Any, title: str) -> str:
    out = io.StringIO()
    with warnings.catch_warnings():
        # Text stays text: the browser has the characters that matplotlib's font lacks.
        warnings.filterwarnings(
            "ignore", message="Glyph .* missing from font", category=UserWarning
        )
        figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
    svg = out.getvalue()
    svg = svg[svg.index("<svg") :]
    for color, css in _CSS.items():
        svg = svg.replace(color, css)
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'(<svg[^>]*?) (?:width|height)="[^"]*"', r"\1", svg)
    svg = re.sub(r'(<svg[^>]*?) (?:width|height)="[^"]*"', r"\1", svg)
    return svg.replace("<svg ", f'<svg role="img" aria-label="{_attribute(title)}" ', 1)


def _attribute(text: str) -> str:
    return text.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;")


def bars(
    title: str,
    series: Mapping[str, Mapping[str, float]],
    *,
    x: str = "",
    y: str = "",
    in_order: bool = False,
) -> str:
    """Returns a bar chart of names and their numbers, one colour a series.

    Args:
      title: for those who cannot see it.
      series: name -> label -> number.
      x, y: what the axes show. Of the labels, the 40 most frequent are there.
      in_order: the labels stay as they are, instead of the most frequent one first.
    """
    totals: dict[str, float] = {}
    for numbers in series.values():
        for label, number in numbers.items():
            totals[label] = totals.get(label, 0) + number
    labels = sorted(totals, key=lambda label: -totals[label])[:_MOST_BARS]
    if in_order:
        labels.sort(key=list(totals).index)
    numbered = in_order and all(label.isdecimal() for label in labels)
    if not numbered and sum(len(_short(label)) + 2 for label in labels) > _BESIDE:
        return _lying_bars(title, series, labels, x=x, y=y)
    figure, axes = _figure(title, x, y)
    width = 0.8 / max(1, len(series))
    for i, (name, numbers) in enumerate(series.items()):
        at = np.arange(len(labels)) + (i - (len(series) - 1) / 2) * width
        heights = [numbers.get(label, 0) for label in labels]
        axes.bar(at, heights, width, color=SERIES[i % len(SERIES)], label=name)
    # Of many numbers some are enough.
    step = -(-sum(len(_short(label)) + 2 for label in labels) // _BESIDE) if numbered else 1
    ticks = range(0, len(labels), step)
    axes.set_xticks(list(ticks), [_short(labels[i]) for i in ticks])
    _legend(axes, series)
    return _svg(figure, title)


def _lying_bars(
    title: str,
    series: Mapping[str, Mapping[str, float]],
    labels: Sequence[str],
    *,
    x: str,
    y: str,
) -> str:
    """Returns bars that lie, one label a line: labels below an axis would overlap."""
    height = 0.6 + _BAR_HEIGHT * len(labels) + (0.3 if len(series) > 1 else 0)
    figure, axes = _figure(title, y, x, height)
    axes.grid(visible=False)
    axes.grid(axis="x", linewidth=0.6)
    width = 0.8 / max(1, len(series))
    for i, (name, numbers) in enumerate(series.items()):
        at = np.arange(len(labels)) + (i - (len(series) - 1) / 2) * width
        lengths = [numbers.get(label, 0) for label in labels]
        axes.barh(at, lengths, width, color=SERIES[i % len(SERIES)], label=name)
    axes.set_yticks(np.arange(len(labels)), [_short(label) for label in labels])
    axes.set_ylim(len(labels) - 0.4, -0.6)
    axes.locator_params(axis="x", nbins=5)
    _legend(axes, series)
    return _svg(figure, title)


def histogram(
    title: str,
    series: Mapping[str, tuple[npt.NDArray[Any], npt.NDArray[Any]]],
    *,
    x: str = "",
    y: str = "",
    ticks: Mapping[float, str] | None = None,
) -> str:
    """Returns a histogram, one line a series.

    Args:
      title: for those who cannot see it.
      series: name -> edges `[n + 1]` and numbers `[n]`.
      x, y: what the axes show.
      ticks: position -> text, where numbers on the axis would say little.
    """
    figure, axes = _figure(title, x, y)
    if ticks:
        axes.set_xticks(list(ticks), list(ticks.values()))
    for i, (name, (edges, numbers)) in enumerate(series.items()):
        color = SERIES[i % len(SERIES)]
        axes.stairs(numbers, edges, color=color, label=name, fill=len(series) == 1, linewidth=1.6)
    filled = np.concatenate([numbers[numbers > 0] for _, numbers in series.values()])
    if len(filled) and filled.max() > _SPIKE * np.median(filled):
        _set_log_scale(axes.yaxis, "{x:g}")  # full rows would leave a line at 0 of all others
        axes.set_ylim(bottom=filled.min() / 2)
    else:
        axes.set_ylim(bottom=0)
    _legend(axes, series)
    return _svg(figure, title)


def heat_map(title: str, cells: npt.NDArray[Any]) -> str:
    """Returns a picture of a grid of numbers, with the top of an image at the top."""
    figure, axes = _figure(title, "left to right", "bottom to top")
    axes.grid(visible=False)
    rows, columns = cells.shape
    # Rectangles instead of a picture: a reader of the page can enlarge them, and they are small.
    mesh = axes.pcolormesh(
        np.linspace(0, 1, columns + 1), np.linspace(1, 0, rows + 1), cells, cmap="viridis",
        edgecolors="face", linewidth=0.4,
    )  # fmt: skip
    axes.set_aspect("equal")
    figure.colorbar(mesh, ax=axes, label="boxes")
    return _svg(figure, title)


def scatter(
    title: str, points: Mapping[str, Sequence[tuple[float, float]]], *, x: str, y: str
) -> str:
    """Returns points, one colour a series, on logarithmic axes."""
    figure, axes = _figure(title, x, y)
    for i, (name, some) in enumerate(points.items()):
        across, up = zip(*some, strict=True) if some else ((), ())
        color = SERIES[i % len(SERIES)]
        axes.scatter(across, up, s=9, alpha=0.5, color=color, label=name, linewidths=0)
    for axis in (axes.xaxis, axes.yaxis):
        _set_log_scale(axis, "{x:,.0f}", steps=(1, 2, 5))
    _legend(axes, points)
    return _svg(figure, title)


def _set_log_scale(axis: Any, ticks: str, steps: tuple[int, ...] = (1,)) -> None:
    """Makes an axis logarithmic; its numbers are written as text, not as formulas."""
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    set_scale = axis.axes.set_xscale if axis.axis_name == "x" else axis.axes.set_yscale
    set_scale("log")
    axis.set_major_locator(LogLocator(subs=steps))
    axis.set_major_formatter(StrMethodFormatter(ticks))
    axis.set_minor_formatter(NullFormatter())


def _legend(axes: Any, series: Mapping[str, object]) -> None:
    if len(series) > 1:
        axes.legend(
            frameon=False, fontsize=9, loc="lower left", bbox_to_anchor=(0, 1), ncols=4,
            borderaxespad=0,
        )  # fmt: skip


def _short(label: str, most: int = 18) -> str:
    return label if len(label) <= most else f"{label[: most - 1]}…"
