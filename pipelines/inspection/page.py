"""The report as one HTML file: what a page is made of, and the template around it."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass, field

from PIL import Image

Line = list[tuple[str, str]]  # (kind of mark or "", words)


@dataclass(frozen=True, slots=True)
class Table:
    """A table; `numbers` sets all columns but the first to the right."""

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    numbers: bool = True


@dataclass(frozen=True, slots=True)
class Plot:
    """A plot as SVG, with a title and a note below."""

    title: str
    svg: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture as base64 of a JPEG; `features` are (name, text) that stand below the caption, and
    `folded` those that a click shows."""

    data: str
    caption: str
    features: Sequence[tuple[str, str]] = ()
    folded: Sequence[tuple[str, str]] = ()


@dataclass(frozen=True, slots=True)
class MarkedText:
    """A record as text, line by line; `features` are (name, text) of what is no row of tokens."""

    title: str
    lines: Sequence[Line]
    features: Sequence[tuple[str, str]] = ()


@dataclass(slots=True)
class Section:
    """A part of the page; what it lacks is left out.

    Attributes:
      key: its anchor.
      title: its heading.
      note: a sentence below.
      tables, plots, pictures, texts: what it shows, in this order.
      pictures_note: a sentence above the pictures.
      details: (name, text) that is folded.
    """

    key: str
    title: str
    note: str = ""
    tables: list[Table] = field(default_factory=list)
    plots: list[Plot] = field(default_factory=list)
    pictures: list[Picture] = field(default_factory=list)
    texts: list[MarkedText] = field(default_factory=list)
    pictures_note: str = ""
    details: list[tuple[str, str]] = field(default_factory=list)

    @property
    def filled(self) -> bool:
        """Whether there is anything to show."""
        return bool(self.tables or self.plots or self.pictures or self.texts or self.details)


def jpeg_base64(image: Image.Image) -> str:
    """Returns what `Picture.data` holds."""
    out = io.BytesIO()
    image.convert("RGB").save(out, "JPEG", quality=80)
    return base64.b64encode(out.getvalue()).decode()


def render(
    *,
    title: str,
    subtitle: str,
    warnings: Sequence[tuple[str, str]],
    checks: str,
    sections: Sequence[Section],
    footer: str,
) -> str:
    """Returns the page; all that comes from the dataset is escaped.

    Args:
      title, subtitle: at the top.
      warnings: what looks wrong, and the key of the section that shows it.
      checks: what was looked at, for a page without warnings.
      sections: in order; empty ones are left out.
      footer: at the end.
    """
    from jinja2 import Environment, PackageLoader

    loader = PackageLoader("recordmill.pipelines.inspection", "")
    environment = Environment(loader=loader, autoescape=True, trim_blocks=True)
    template = environment.get_template("report.html.j2")
    shown = [section for section in sections if section.filled]
    return template.render(
        title=title,
        subtitle=subtitle,
        warnings=warnings,
        checks=checks,
        titles={section.key: section.title for section in shown},
        sections=shown,
        footer=footer,
    )
