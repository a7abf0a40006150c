"""CSV and TSV as the input of the text job: without a header, with other delimiters."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from recordmill.pipelines.command_line import main

from .jobs import LENGTHS, shard_bytes

FLAGS = ("--task=mlm", "--dupe_factor=1", *LENGTHS, "--direct_num_workers=1")
HEADERLESS = ("--header=none", "--columns=label,text")


def run(source: Path, output: Path, vocab_file: str, *flags: str) -> int:
    return main(
        [
            "text", f"--input={source}", f"--output={output}", f"--vocab_file={vocab_file}",
            *FLAGS, *flags,
        ]
    )  # fmt: skip


def documents(output: Path) -> int:
    return int(
        json.loads((output / "_meta/manifest.json").read_bytes())["counts"]["documents_read"]
    )


def test_without_a_header_the_first_row_is_a_document(tmp_path: Path, vocab_file: str) -> None:
    (tmp_path / "a.csv").write_text('1,"the people of water"\n2,"to be, or not"\n')
    assert run(tmp_path / "a.csv", tmp_path / "ds", vocab_file, *HEADERLESS) == 0
    assert documents(tmp_path / "ds") == 2
    (tmp_path / "b.csv").write_text('label,text\n1,"the people of water"\n2,"to be, or not"\n')
    assert run(tmp_path / "b.csv", tmp_path / "with", vocab_file) == 0
    assert documents(tmp_path / "with") == 2


@pytest.mark.parametrize(
    ("name", "flag", "between"),
    [("a.csv", "--delimiter=;", ";"), ("a.csv", "--delimiter=tab", "\t"), ("a.tsv", "", "\t")],
)
def test_any_delimiter(tmp_path: Path, vocab_file: str, name: str, flag: str, between: str) -> None:
    rows = [["1", '"the people; of\twater"'], ["2", "to be, or not"]]
    (tmp_path / name).write_text("".join(between.join(row) + "\n" for row in rows))
    flags = [*HEADERLESS, flag] if flag else HEADERLESS
    assert run(tmp_path / name, tmp_path / "ds", vocab_file, *flags) == 0
    assert documents(tmp_path / "ds") == 2


def test_a_large_table_is_cut_by_its_own_delimiter(
    tmp_path: Path, vocab_file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from recordmill.pipelines.planning import text_planner

    # A quote counts only at the beginning of a field, which is not the same for another delimiter.
    rows = "".join(f'{i};"the people,\n""of"" water {i}"\n{i};it was, "a day\n' for i in range(300))
    (tmp_path / "a.csv").write_text(rows)
    found = []
    for size in (1 << 25, 700):
        monkeypatch.setattr(text_planner, "work_item_bytes", lambda total, workers, size=size: size)
        output = tmp_path / f"ds-{size}"
        assert run(tmp_path / "a.csv", output, vocab_file, *HEADERLESS, "--delimiter=;") == 0
        assert documents(output) == 600
        found.append(shard_bytes(output))
    assert found[0] == found[1]


MISTAKES = [
    (["--header=none"], "--header=none and --columns belong together"),
    (["--columns=a,text"], "--header=none and --columns belong together"),
    (["--header=none", "--columns=text,text"], "--columns must name each once"),
    (["--header=none", "--columns=text"], "--columns names 1 columns, and the first row of"),
    (["--delimiter=::"], "--delimiter must be one ASCII character"),
    (["--header=none", "--columns=a,b"], "--text_field must be a column of"),
]


@pytest.mark.parametrize(("flags", "message"), MISTAKES)
def test_mistakes_are_one_line(
    tmp_path: Path,
    vocab_file: str,
    flags: list[str],
    message: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "a.csv").write_text('1,"the people of water"\n')
    assert run(tmp_path / "a.csv", tmp_path / "ds", vocab_file, *flags) == 2
    found = capsys.readouterr().err
    assert message in found
    assert found.count("\n") == 1


def test_a_document_is_not_printed_as_column_names(
    tmp_path: Path, vocab_file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.csv").write_text('1,"' + "the people\nof water " * 500 + '"\n2,b\n')
    assert run(tmp_path / "a.csv", tmp_path / "ds", vocab_file) == 2
    found = capsys.readouterr().err
    assert "if that is no row of names, give --header=none and --columns=NAME,…" in found
    assert len(found) < 300 + len(str(tmp_path))
    assert found.count("\n") == 1
