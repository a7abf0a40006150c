"""Every block of code in README and docs is run, or checked as far as it can be run here."""

from __future__ import annotations

import ast
import re
import runpy
from importlib import import_module
from pathlib import Path

import doc_blocks
import doc_commands
import pytest
from doc_blocks import Block

LANGUAGES = {"sh", "python", "text"}
RUN = [block for block in doc_blocks.BLOCKS if block.marker == "run"]
PARSED = [block for block in doc_blocks.BLOCKS if block.marker == "parse"]


@pytest.mark.parametrize("block", doc_blocks.BLOCKS, ids=str)
def test_every_block_has_a_language_and_a_marker(block: Block) -> None:
    assert block.language in LANGUAGES
    assert block.marker, "write <!-- test: run --> (or parse, or skip REASON) before the block"
    assert block.language != "text" or block.marker.startswith("skip ")


@pytest.mark.parametrize(
    "page", doc_blocks.PAGES, ids=lambda p: p.relative_to(doc_blocks.ROOT).as_posix()
)
def test_no_commands_outside_blocks(page: Path) -> None:
    """An indented block would be a block without a marker."""
    command = r"^ {4,}(recordmill|pip|make|python|from|import|load)\b"
    assert not re.search(command, doc_blocks.prose(page), re.MULTILINE)


@pytest.mark.parametrize("block", RUN, ids=str)
def test_run(
    block: Block,
    workplace: Path,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if "bigquery://" in block.code:
        request.getfixturevalue("bigquery")
    if "postgresql:///" in block.code:
        for name, value in request.getfixturevalue("postgresql").items():
            monkeypatch.setenv(name, value)
    if block.language == "sh":
        doc_commands.run(block.code)
    else:
        path = workplace / "block.py"  # TensorFlow reads the source of functions
        path.write_text(block.code, encoding="utf-8")
        runpy.run_path(str(path), run_name="__main__")


@pytest.mark.parametrize("block", PARSED, ids=str)
def test_parse(block: Block) -> None:
    if block.language == "sh":
        for words in doc_commands.commands(block.code):
            doc_commands.check(words)
        return
    for node in ast.walk(ast.parse(block.code)):
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("recordmill"):
            for alias in node.names:
                assert getattr(import_module(str(node.module)), alias.name)


def test_a_wrong_command_is_found() -> None:
    """The checks themselves can fail."""
    for line in ("recordmill text --inputt=x", "make nothing", "pip install other"):
        with pytest.raises((AssertionError, ValueError)):
            doc_commands.check(line.split())
