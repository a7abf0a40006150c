"""The table that the tests of foreign readers print at their end."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

PROPERTY = "foreign reading"
_COLUMNS = ("reader", "dataset", "split", "in manifest", "read", "")


@dataclass(frozen=True, slots=True, order=True)
class Reading:
    """One reader on one split: the records that the manifest promises, and those that it gave."""

    reader: str
    dataset: str
    split: str
    promised: int
    read: int

    def to_json(self) -> dict[str, Any]:
        """Returns plain values, which pytest-xdist can send to its first process."""
        return asdict(self)

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> Reading:
        return cls(**content)


def to_text(readings: list[Reading]) -> str:
    """Returns the table, one line for each reader and dataset."""
    rows = [
        (r.reader, r.dataset, r.split, str(r.promised), str(r.read),
         "ok" if r.read == r.promised else "DIFFERENT")
        for r in sorted(set(readings))
    ]  # fmt: skip
    widths = [max(map(len, column)) for column in zip(_COLUMNS, *rows, strict=True)]
    lines = []
    for row in (_COLUMNS, *rows):
        cells = [
            cell.rjust(width) if i in (3, 4) else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)
