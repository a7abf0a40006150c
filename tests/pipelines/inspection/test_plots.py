"""Plots: what stands at their axes is text."""

from __future__ import annotations

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
