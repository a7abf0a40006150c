"""What could not be used, and why: one JSON line each, counted by reason."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

# The reasons, and what they mean to the person who reads them. Counters and files use the keys.
REASONS = {
    "undecodable": "bytes that are not valid in --encoding; see --encoding_errors",
    "not_json": "the line is not a JSON object",
    "field_missing": "the record lacks --text_field or --split_by",
    "field_not_text": "the field is no string",
    "wrong_number_of_fields": "the row has more or fewer fields than the header",
    "broken_row": "the row cannot be read as CSV",
    "line_too_long": "the record is longer than 64 MiB",
    "broken_file": "the file ends too early or is damaged; what came before is used",
    "unreadable_file": "the file cannot be opened",
}


@dataclass(frozen=True, slots=True, order=True)
class Reject:
    """One rejected input.

    Attributes:
      source: the file's name relative to the input root.
      position: bytes from its beginning, after decompression.
      stage: "read" or "parse".
      reason: a key of `REASONS`.
      detail: what was found.
    """

    source: str
    position: int
    stage: str
    reason: str
    detail: str = ""

    def to_line(self) -> str:
        """Returns one JSON line."""
        return json.dumps(asdict(self), ensure_ascii=False) + "\n"
