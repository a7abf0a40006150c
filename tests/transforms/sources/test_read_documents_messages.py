"""Messages and rejects of `ReadDocuments` name arguments, and each is one that it has."""

from __future__ import annotations

import ast
import gzip
import inspect
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from apache_beam.pvalue import TaggedOutput

from recordmill.records.errors import RunError
from recordmill.records.spec import name_arguments
from recordmill.transforms import ReadDocuments
from recordmill.transforms.dataset.rejects import TEXT_REASONS
from recordmill.transforms.sources.input_spec import SOURCE_ARGUMENTS

from .test_read_documents import read

SOURCES = Path(__file__).parents[3] / "transforms/sources"
NOT_USED = ("mapped_documents.py", "tables.py", "work_item_files.py")  # by ReadDocuments
# As it has no such option; --no-do_lower_case is an example of a command line.
NOT_GIVEN = ("unknown_label", "no_split", "--sentence_splitter", "--no")
LINES = 70  # of a MiB


def used_strings() -> set[str]:
    """The parts of messages in the modules of sources, and the reasons that these give."""
    return {
        node.value
        for path in SOURCES.glob("*.py")
        if path.name not in NOT_USED
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }


def test_every_argument_that_a_message_names_is_one() -> None:
    strings = used_strings()
    reasons = {reason for reason in TEXT_REASONS if reason in strings and reason not in NOT_GIVEN}
    assert {"decompression_bomb", "field_missing", "undecodable", "outside_input"} <= reasons
    messages = strings | {TEXT_REASONS[reason] for reason in reasons}
    flags = {flag for text in messages for flag in re.findall(r"(?<![\w/-])--[a-z]\w*", text)}
    assert {"--max_compression_ratio", "--encoding_errors", "--overwrite"} <= flags
    named = {name_arguments(flag, SOURCE_ARGUMENTS) for flag in flags - {*NOT_GIVEN}}
    arguments = {name for name in named if " " not in name}  # all else are phrases
    assert arguments <= inspect.signature(ReadDocuments).parameters.keys()


def gzip_bomb(folder: Path) -> tuple[str, dict[str, Any]]:
    path = folder / "in.txt.gz"
    path.write_bytes(gzip.compress((b"x" * ((1 << 20) - 1) + b"\n") * LINES))
    return str(path), {"documents": "line"}


def parquet_bomb(folder: Path) -> tuple[str, dict[str, Any]]:
    path = folder / "in.parquet"
    rows = pa.array(["x" * ((1 << 20) - 1)] * LINES).dictionary_encode()
    pq.write_table(pa.table({"text": rows}), path, compression="zstd")
    return str(path), {}


@pytest.mark.parametrize("bomb", [gzip_bomb, parquet_bomb])
def test_a_bomb_names_the_argument_that_raises_its_limit(bomb: Any, tmp_path: Path) -> None:
    path, options = bomb(tmp_path)
    with pytest.raises(RunError, match=r"unpacks to far too much \(.*; see max_comp") as raised:
        read(path, **options)
    assert not re.search(r"--[a-z]|image|pixels", str(raised.value))
    found = read(path, rejects="output", **options)
    (reject,) = [each for each in found if isinstance(each, TaggedOutput)]
    assert 1 < len(found) < LINES
    assert reject.value["reason"] == "decompression_bomb"
    assert reject.value["detail"].endswith("; see max_compression_ratio")
    assert len(read(path, max_compression_ratio=1_000_000, **options)) == LINES


def test_a_field_that_is_missing(tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text('{"body": "one"}')
    with pytest.raises(RunError, match="lacks a field that is read of it, such as text_field or"):
        read(f"{tmp_path}/in.jsonl")
