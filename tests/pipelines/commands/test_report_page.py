"""The page of `recordmill report` in a real Chromium: nothing is loaded, all shows, at any width,
in light and in dark, and axe-core finds no serious violation."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from recordmill.pipelines.command_line import main

from ...browser import Browser, Page, open_page
from ..conftest import Written
from . import report_faults

pytestmark = pytest.mark.slow

# Of each plot: its marks, those of text included, and whether any of them is seen.
PLOTS = """Array.from(document.querySelectorAll('figure svg'), svg => [
    svg.querySelectorAll('path, rect, use').length,
    svg.querySelectorAll('text').length,
    svg.getBoundingClientRect().width,
    Math.min(...Array.from(svg.querySelectorAll('text'), t => t.getBoundingClientRect().height)),
])"""
# Names of features and splits that take two lines, though no space is in them.
BROKEN = """Array.from(document.querySelectorAll('tbody td:first-child')).filter(cell =>
    !/[ ,]/.test(cell.textContent) && cell.firstChild && (range => {
        range.selectNodeContents(cell); return range.getClientRects().length > 1;
    })(document.createRange())).map(cell => cell.textContent)"""
# Of each table wider than the page: the picture behind it, which shades the edge.
WIDER = """Array.from(document.querySelectorAll('.scroll'))
    .filter(s => s.scrollWidth > s.clientWidth).map(s => getComputedStyle(s).backgroundImage)"""
PICTURES = "Array.from(document.images, i => i.complete ? i.naturalWidth : 0)"


@pytest.fixture(scope="module")
def pages(
    bert_dataset: Path,
    vocab_file: str,
    written: Callable[[str, str], Written],
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[str, Path]:
    """Reports by kind of dataset."""
    folder = tmp_path_factory.mktemp("pages")
    images = written("images", "small").dataset
    foreign = folder / "foreign"
    shutil.copytree(bert_dataset / "train", foreign)
    datasets: dict[str, tuple[Path, str]] = {
        "text": (bert_dataset, vocab_file),
        "images": (images, ""),
        "foreign": (foreign, ""),
        "faults": (report_faults.two_labels(folder / "faults"), ""),
    }
    for name, (dataset, vocabulary) in datasets.items():
        line = ["report", str(dataset), f"--html={folder}/{name}.html"]
        assert main([*line, f"--vocab_file={vocabulary}"]) == 0
    return {name: folder / f"{name}.html" for name in datasets}


@pytest.mark.parametrize("name", ["text", "images", "foreign", "faults"])
def test_a_page(
    pages: dict[str, Path],
    browser: Browser,
    axe: Callable[[Page], Sequence[dict[str, Any]]],
    name: str,
) -> None:
    for width, dark in ((360, False), (360, True), (1600, False), (1600, True)):
        page = open_page(browser, pages[name], width=width, dark=dark)
        assert page.errors == []
        assert page.requested == []
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        plots = page.evaluate(PLOTS)
        assert len(plots) >= 2
        for marks, texts, wide, least in plots:
            assert marks > 5
            assert texts > 3
            assert 200 < wide < width
            assert least >= 7  # pixels: letters that can still be read
        assert page.evaluate(BROKEN) == []
        wider = page.evaluate(WIDER)
        assert bool(wider) == (width == 360)
        assert all("gradient" in shade for shade in wider)
        pictures = page.evaluate(PICTURES)
        assert all(size > 0 for size in pictures)
        assert bool(pictures) == (name in ("images", "faults"))
        background = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (int(background.split("(")[1].split(",")[0]) < 128) == dark
        assert [(v["id"], v["nodes"][0]["html"]) for v in axe(page)] == []


def test_the_browser_sees_what_is_wrong(
    browser: Browser, axe: Callable[[Page], Sequence[dict[str, Any]]], tmp_path: Path
) -> None:
    """The test above can fail: a page with a script error, a request and a grey text is noticed."""
    path = tmp_path / "bad.html"
    path.write_text(
        "<html><title>x</title><body><p style='color:#ccc;background:#fff'>grey</p>"
        "<img src='http://example.com/a.png'><script>nothing()</script></body></html>"
    )
    page = open_page(browser, path, width=400)
    assert any("nothing is not defined" in error for error in page.errors)
    assert page.requested == ["http://example.com/a.png"]
    assert {v["id"] for v in axe(page)} >= {"color-contrast", "image-alt"}
