"""Which splits are augmented: train alone, unless --augment_splits names others."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

import recordmill.reader as reader
from recordmill.pipelines.command_line import main
from recordmill.transforms.dataset.statistics_warnings import split_statistics

from ..pictures import jpeg
from .jobs import manifest, records_by_split

AUGMENTED = ("--augmentations=flip,rotate", "--copies=3", "--write_augmentations")


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """40 photos of two classes in three splits that folders name."""
    folder = tmp_path_factory.mktemp("photos")
    for i in range(40):
        split = ("train", "train", "validation", "test")[i % 4]
        path = folder / split / ("cat", "dog")[i % 2] / f"{i:02d}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(jpeg(36 + i % 5, 30, seed=i))
    return folder


def run(source: Path | str, output: Path, *flags: str, workers: int = 1) -> int:
    place = (f"--input={source}", f"--output={output}", f"--direct_num_workers={workers}")
    return main(["images", *place, *flags])


def augmented(output: Path, split: str) -> Counter[bool]:
    """Returns how many records of a split are augmented, and how many are not."""
    rows = reader.load(output, split, batch_size=1, shuffle=False).as_numpy_iterator()
    return Counter(bool(json.loads(row["image/augmentation"][0])) for row in rows)


@pytest.mark.slow
def test_by_default_train_alone(
    photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ("--split_from=folder", *AUGMENTED, "--keep_original")
    assert run(photos, tmp_path / "ds", *flags) == 0
    assert (
        "copies of each image in train: 3 augmented and the original; validation, test: one "
        "unaugmented copy (--augment_splits)" in capsys.readouterr().err
    )
    assert records_by_split(tmp_path / "ds") == {"train": 80, "validation": 10, "test": 10}
    assert augmented(tmp_path / "ds", "train") == {True: 60, False: 20}
    stored = {path.read_bytes() for path in photos.glob("validation/*/*.jpg")}
    for split, wanted in (("validation", stored), ("test", None)):
        assert augmented(tmp_path / "ds", split) == {False: 10}
        rows = list(reader.load(tmp_path / "ds", split, batch_size=1).as_numpy_iterator())
        assert wanted is None or {row["image"][0] for row in rows} == wanted
    statistics = json.loads((tmp_path / "ds/_meta/statistics.json").read_text())
    examples = {name: s["examples"] for name, s in split_statistics(statistics).items()}
    assert examples == records_by_split(tmp_path / "ds")
    assert main(["verify", str(tmp_path / "ds")]) == 0


@pytest.mark.slow
def test_workers_do_not_change_the_bytes(photos: Path, tmp_path: Path) -> None:
    flags = ("--split_from=folder", *AUGMENTED, "--num_shards=train:2,validation:1,test:1")
    for workers in (1, 2):
        assert run(photos, tmp_path / f"ds{workers}", *flags, workers=workers) == 0
    one, two = (manifest(tmp_path / f"ds{workers}")["shards"] for workers in (1, 2))
    assert one == two


@pytest.mark.parametrize(
    ("flag", "expected"),
    [
        ("all", {"train": 60, "validation": 30, "test": 30}),
        ("train,test", {"train": 60, "validation": 10, "test": 30}),
        ("test", {"train": 20, "validation": 10, "test": 30}),
    ],
)
def test_the_flag_names_splits(
    photos: Path, tmp_path: Path, flag: str, expected: dict[str, int]
) -> None:
    flags = ("--split_from=folder", f"--augment_splits={flag}", *AUGMENTED)
    assert run(photos, tmp_path / "ds", *flags) == 0
    assert records_by_split(tmp_path / "ds") == expected


def test_a_broken_image_outside_of_train_is_one_reject(photos: Path, tmp_path: Path) -> None:
    import shutil

    source = Path(shutil.copytree(photos, tmp_path / "in"))
    next(source.glob("test/*/*.jpg")).write_bytes(b"no image")
    flags = ("--split_from=folder", *AUGMENTED, "--max_rejected=0.1")
    assert run(source, tmp_path / "ds", *flags) == 0
    assert manifest(tmp_path / "ds")["counts"]["rejected"] == {"not_an_image": 1}


def test_the_estimate_counts_copies_by_split(
    photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ("--split_from=folder", *AUGMENTED, f"--output={tmp_path}/ds")
    assert main(["plan", "images", f"--input={photos}", *flags]) == 0
    shown = dict(line.split(None, 1) for line in capsys.readouterr().out.splitlines())
    assert shown["output"].startswith("80 records")


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (
            ("--augment_splits=train,tset", "--augmentations=flip"),
            "--augment_splits=train,tset must name splits of this dataset (train, validation, "
            "test), got 'tset'; give all, or the names of some",
        ),
        (("--augment_splits=all",), "--augment_splits=all must go with --augmentations, got none"),
        (
            ("--augment_splits=train",),
            "--augment_splits=train must go with --augmentations, got none",
        ),
        (
            ("--augment_splits=train,", "--augmentations=flip"),
            "--augment_splits must name each once, got train,",
        ),
    ],
)
def test_mistakes(
    photos: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    flags: tuple[str, ...],
    message: str,
) -> None:
    assert run(photos, tmp_path / "ds", "--split_from=folder", *flags) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not (tmp_path / "ds").exists()


def test_a_dataset_without_train_is_not_silently_unaugmented(
    photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ("--splits=pictures:1", *AUGMENTED, "--label_folder=2", "--layout=folders")
    assert run(photos, tmp_path / "ds", *flags) == 2
    assert (
        "--augmentations must go with --augment_splits where no split is called train (pictures): "
        "give --augment_splits=all, or the names of some" in capsys.readouterr().err
    )
    assert run(photos, tmp_path / "ds", *flags, "--augment_splits=train") == 2
    assert (
        "--augment_splits=train must name splits of this dataset (pictures), got 'train'; give "
        "all, or the names of some" in capsys.readouterr().err
    )
    assert run(photos, tmp_path / "ds", *flags, "--augment_splits=pictures") == 0
    assert records_by_split(tmp_path / "ds") == {"pictures": 120}


def test_without_train_trainval_is_augmented(
    photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    splits = (
        f"{path},{('trainval', 'test', 'train_eval', 'test')[i % 4]}"
        for i, path in enumerate(photos.rglob("*.jpg"))
    )
    (tmp_path / "t.csv").write_text("\n".join(["path,split", *splits]))
    flags = (f"--annotations={tmp_path}/t.csv", "--split_from=split", "--labels=none")
    assert run(photos, tmp_path / "plain", *flags) == 0
    assert records_by_split(tmp_path / "plain") == {
        "trainval": 10, "test": 20, "train_eval": 10,
    }  # fmt: skip
    assert run(photos, tmp_path / "ds", *flags, *AUGMENTED) == 0
    assert records_by_split(tmp_path / "ds") == {"trainval": 30, "test": 20, "train_eval": 10}
    error = capsys.readouterr().err
    assert "in test, train_eval: one unaugmented copy; trainval: 3 augmented" in error
    assert run(photos, tmp_path / "no", *flags, *AUGMENTED, "--augment_splits=train") == 2
    assert "(test, train_eval, trainval), got 'train'" in capsys.readouterr().err


@pytest.mark.slow
def test_the_demo_augments_train_alone(tmp_path: Path) -> None:
    examples = Path(__file__).parents[2] / "examples"
    code = f"import sys; sys.path.insert(0, {str(examples)!r}); import demo; demo.image_job()"
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True, capture_output=True)
    dataset = tmp_path / "demo/surfaces"
    assert records_by_split(dataset) == {"train": 48 * 3, "test": 16}
    statistics = json.loads((dataset / "_meta/statistics.json").read_text())
    assert statistics["test"]["classes"] == {"background": 16, "foreground": 12}
