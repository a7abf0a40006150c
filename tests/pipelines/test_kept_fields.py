"""Columns of a table that are carried into the records."""

from __future__ import annotations

from pathlib import Path

import pytest

from recordmill.pipelines.command_line import main
from recordmill.records.errors import UsageError
from recordmill.transforms.sources.kept_fields import KeptField, parse_fields

from ..pictures import jpeg
from .test_image_job import read, run


@pytest.fixture
def table(tmp_path: Path) -> Path:
    rows = ["path,label,caption,year,score"]
    for i in range(4):
        (tmp_path / f"{i}.jpg").write_bytes(jpeg(20, 16, seed=i))
        rows.append(f"{i}.jpg,{'ab'[i % 2]},caption {i},{2000 + i},{i / 4}")
    path = tmp_path / "t.csv"
    path.write_text("\n".join([*rows, "0.jpg,a,x,old,1"]) + "\n")
    return path


@pytest.mark.parametrize("name", ["tfds", "model_garden"])
def test_text_and_numbers(table: Path, tmp_path: Path, name: str) -> None:
    flags = ("--keep_fields=caption,year:int,score:float", f"--format={name}", "--max_rejected=0.5")
    assert run(table, tmp_path / "ds", *flags) == 0
    rows = read(tmp_path / "ds")
    found = sorted((r["caption"][0], int(r["year"][0]), float(r["score"][0])) for r in rows)
    # The last row says that a year is no number, so its image is rejected.
    assert found == [(f"caption {i}".encode(), 2000 + i, i / 4) for i in range(1, 4)]
    assert main(["verify", str(tmp_path / "ds")]) == 0


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--keep_fields=nothing"], "--keep_fields must be a column of"),
        (
            ["--keep_fields=label"],
            "columns that --format=tfds has no feature of, got label",
        ),
        (["--keep_fields=year:long"], "--keep_fields must be one of bytes, float, int, got 'long'"),
        (["--keep_fields=year,year"], "must name each column once"),
        (["--keep_fields=year", "--layout=flat"], "--keep_fields has no effect with --layout=flat"),
    ],
)
def test_what_is_refused(
    table: Path, tmp_path: Path, flags: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(table, tmp_path / "ds", *flags) == 2
    assert message in capsys.readouterr().err


def test_parse_fields() -> None:
    assert parse_fields("a, b:int") == (KeptField("a"), KeptField("b", "int"))
    assert parse_fields("") == ()
    with pytest.raises(UsageError):
        parse_fields(":int")
