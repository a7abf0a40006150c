"""Blocks of code in the documentation, with the marker that says how they are tested."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    [
        *(ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md")),
        ROOT / "CHANGELOG.md",
        ROOT / "templates/README.md",
        *(ROOT / "docs").rglob("*.md"),
    ]
)
_MARKER = re.compile(r"<!-- test: (run|remote|parse|skip .+) -->")


@dataclass(frozen=True)
class Block:
    """A fenced block.

    Attributes:
      page: its file, relative to the repository.
      line: of its fence, from 1.
      language: behind the fence.
      marker: "run", "remote", "parse" or "skip REASON"; "" if there is none.
      code: its lines.
    """

    page: str
    line: int
    language: str
    marker: str
    code: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def blocks(path: Path) -> list[Block]:
    """Returns the fenced blocks of a page."""
    found: list[Block] = []
    lines = path.read_text(encoding="utf-8").splitlines()
    begin = None
    for number, line in enumerate(lines):
        if not line.startswith("```"):
            continue
        if begin is None:
            begin = number
            continue
        marker = _MARKER.fullmatch(lines[begin - 1]) if begin else None
        found.append(
            Block(
                path.relative_to(ROOT).as_posix(),
                begin + 1,
                lines[begin].removeprefix("```").strip(),
                marker[1] if marker else "",
                "\n".join(lines[begin + 1 : number]) + "\n",
            )
        )
        begin = None
    assert begin is None, f"{path}: a block has no end"
    return found


def prose(path: Path) -> str:
    """Returns a page without its fenced blocks."""
    return re.sub(r"^```.*?^```$", "", path.read_text(encoding="utf-8"), flags=re.M | re.S)


BLOCKS = [block for page in PAGES for block in blocks(page)]
