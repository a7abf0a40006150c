"""Labels that are numbers to be predicted, which are no classes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from recordmill.pipelines.command_line import main

from ..pictures import jpeg
from .test_image_job import read, run


@pytest.fixture(scope="module")
def ages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table of 30 images with a number each, and its images."""
    folder = tmp_path_factory.mktemp("ages")
    rows = ["path,label"]
    for i in range(30):
        (folder / f"{i}.jpg").write_bytes(jpeg(20, 16, seed=i))
        rows.append(f"{i}.jpg,{i / 7 - 1:.3f}")
    (folder / "t.csv").write_text("\n".join(rows) + "\n")
    return folder


@pytest.mark.parametrize("name", ["tfds", "raw"])
def test_a_float_feature(ages: Path, tmp_path: Path, name: str) -> None:
    flags = ("--labels=number", f"--format={name}", "--image_size=16x16")
    assert run(ages / "t.csv", tmp_path / "ds", *flags) == 0
    found = sorted(float(row["label"][0]) for row in read(tmp_path / "ds"))
    assert found == pytest.approx([round(i / 7 - 1, 3) for i in range(30)])
    assert main(["verify", str(tmp_path / "ds")]) == 0
    statistics = json.loads((tmp_path / "ds/_meta/statistics.json").read_text())
    assert statistics["train"]["classes"] == {}
    assert not (tmp_path / "ds/labels.txt").exists()


def test_tfds_reads_a_tensor(ages: Path, tmp_path: Path) -> None:
    assert run(ages / "t.csv", tmp_path / "ds", "--labels=number") == 0
    label = json.loads((tmp_path / "ds/features.json").read_text())["featuresDict"]["features"][
        "label"
    ]
    assert "classLabel" not in label
    assert "float32" in json.dumps(label)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ((), "--labels=number is needed where labels are numbers to be predicted; 30 different"),
        (("--labels=number", "--format=imagenet"), "--labels=number must go with --task=class"),
        (("--labels=number", "--multilabel"), "--labels=number must go with --task=class"),
        (("--labels=number", "--layout=folders"), "--labels=number has no effect with --layout"),
    ],
)
def test_what_is_refused(
    ages: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    flags: tuple[str, ...],
    message: str,
) -> None:
    assert run(ages / "t.csv", tmp_path / "ds", *flags) == 2
    assert message in capsys.readouterr().err


def test_a_label_that_is_no_number_is_rejected(ages: Path, tmp_path: Path) -> None:
    table = ages / "bad.csv"
    table.write_text("path,label\n1.jpg,2.5\n2.jpg,old\n3.jpg,nan\n")
    assert run(table, tmp_path / "ds", "--labels=number", "--max_rejected=1") == 0
    assert [float(row["label"][0]) for row in read(tmp_path / "ds")] == [2.5]


class TestImagesAlone:
    @pytest.mark.parametrize("name", ["tfds", "raw", "model_garden"])
    def test_records_have_no_label(self, ages: Path, tmp_path: Path, name: str) -> None:
        flags = ("--labels=none", f"--format={name}", "--image_size=16x16")
        assert run(f"{ages}/*.jpg", tmp_path / "ds", *flags) == 0
        rows = read(tmp_path / "ds")
        assert len(rows) == 30
        assert not [key for row in rows for key in row if "label" in key or "class" in key]
        assert main(["verify", str(tmp_path / "ds")]) == 0
        assert not (tmp_path / "ds/labels.txt").exists()

    def test_formats_that_need_one(
        self, ages: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        flags = ("--labels=none", "--format=imagenet")
        assert run(f"{ages}/*.jpg", tmp_path / "ds", *flags) == 2
        assert "--labels=none must go with a format of images alone" in capsys.readouterr().err


@pytest.mark.parametrize(("labels", "numbers"), [("10.0 2.0 0.0", [2, 1, 0]), ("1.0 0.0 1", None)])
def test_whole_numbers_of_tables_are_classes_in_their_order(
    ages: Path, tmp_path: Path, labels: str, numbers: list[int] | None,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    rows = [f"{i}.jpg,{label}" for i, label in enumerate(labels.split())]
    table = tmp_path / "t.csv"
    table.write_text("\n".join(["path,label", *(f"{ages}/{row}" for row in rows)]) + "\n")
    status = run(table, tmp_path / "ds", "--format=tfds", f"--allow_outside={ages}")
    if numbers is None:
        assert status == 2
        assert "a number in one form, and 1 and 1.0 occur" in capsys.readouterr().err
        return
    assert status == 0
    assert sorted(row["label"][0] for row in read(tmp_path / "ds")) == sorted(numbers)
    assert (tmp_path / "ds/labels.txt").read_text() == "0.0\n2.0\n10.0\n"
