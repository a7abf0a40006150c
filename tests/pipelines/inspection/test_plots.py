"""Plots: what stands at their axes is text."""

from __future__ import annotations

import re
from itertools import pairwise

import numpy as np

from recordmill.pipelines.inspection import plots


def test_labels_are_no_formulas() -> None:
    """Tokens of code have dollars, between which matplotlib would read a formula."""
    svg = plots.bars("tokens", {"train": {"$x_$": 2.0, "$\\frac$": 1.0}})
    assert "$x_$" in svg
    assert "$\\frac$" in svg


def test_characters_of_any_language() -> None:
    """Without a warning, which is an error here."""
    assert "吾輩" in plots.bars("tokens", {"train": {"吾輩": 2.0, "a": 1.0}})


def test_numbers_of_a_logarithmic_axis_are_no_formulas() -> None:
    """One bar that is a thousand times the others makes the axis logarithmic."""
    svg = plots.histogram("lengths", {"train": (np.arange(5.0), np.array([1, 1, 2, 5000.0]))})
    assert ">100<" in svg
    assert "math" not in svg


def at_axis(svg: str) -> list[tuple[float, float]]:
    """Returns where the labels w0, w1, … are."""
    return [
        (float(x), float(y))
        for x, y in re.findall(r"<text[^>]*?translate\(([\d.]+) ([\d.]+)\)[^>]*>w", svg)
    ] or [
        (float(x), float(y))
        for x, y in re.findall(r'<text[^>]*? x="([\d.]+)" y="([\d.]+)"[^>]*>w', svg)
    ]


def test_many_labels_have_a_line_each() -> None:
    svg = plots.bars("tokens", {"train": {f"w{i}": 30.0 - i for i in range(30)}})
    lines = sorted(y for _, y in at_axis(svg))
    assert len(lines) == 30
    assert min(b - a for a, b in pairwise(lines)) >= 12  # points; letters: 10
    assert lines == [y for _, y in at_axis(svg)]  # the most frequent one is at the top


def test_few_labels_stand_below() -> None:
    assert len({y for _, y in at_axis(plots.bars("few", {"train": {"w1": 1.0, "w2": 2.0}}))}) == 1


def test_of_many_numbers_some_are_named() -> None:
    numbers = {str(1000 + i): 1.0 for i in range(30)}
    svg = plots.bars("shards", {"train": numbers}, in_order=True)
    assert 3 <= len(re.findall(r">10\d\d<", svg)) <= 8
