"""Flags of CSV and TSV, of jobs of text and of existing records."""

from __future__ import annotations

from recordmill.pipelines.beam_internals import FlagGroup
from recordmill.transforms.sources.document_spec import HEADERS, QUOTINGS


def add_table_arguments(group: FlagGroup, *, columns: str) -> None:
    """Adds the flags.

    Args:
      group: of the input.
      columns: the help of --columns.
    """
    group.add_argument(
        "--header", default="first_row", choices=HEADERS,
        help="The first row of CSV and TSV has the names of the columns, or there are none.",
    )  # fmt: skip
    group.add_argument("--columns", default="", metavar="NAME,…", help=columns)
    group.add_argument(
        "--delimiter", default="", metavar="CHARACTER",
        help="Between the fields of CSV and TSV, such as ';' or 'tab'. Unset: the usual one.",
    )  # fmt: skip
    group.add_argument(
        "--quoting", default="csv", choices=QUOTINGS,
        help="csv: quotes enclose fields of CSV and TSV. none: they are characters, as in the TSV "
        "files of GLUE.",
    )  # fmt: skip


def parse_columns(text: str) -> tuple[str, ...]:
    """Returns the names of --columns."""
    return tuple(name.strip() for name in text.split(",")) if text else ()


def parse_delimiter(text: str) -> str:
    """Returns the character that --delimiter stands for, "" for the usual one."""
    return "\t" if text in ("tab", "\\t") else text
