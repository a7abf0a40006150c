"""`recordmill images --statistics`: figures, graph, sample, restart."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image

import recordmill.reader as reader
from recordmill.pipelines.command_line import main
from recordmill.transforms.images import channel_statistics as statistics

from ..pictures import jpeg
from .jobs import shard_bytes, twice, unpublished

COUNT = 40
FLAGS = (
    "--image_size=24x32", "--encoding=PNG", "--splits=train:0.8,validation:0.2",
    "--num_shards=1", "--max_rejected=0.1",
)  # fmt: skip

Run = Callable[..., Path]


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Photos of three kinds, most of them cats, and one that is broken."""
    folder = tmp_path_factory.mktemp("photos")
    for i in range(COUNT):
        path = folder / ("cat", "cat", "dog", "eel", "dog", "cat")[i % 6] / f"{i:02d}.jpg"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(jpeg(36 + i % 25, 30 + i % 9, seed=i))
    (folder / "cat/broken.jpg").write_bytes(jpeg(300, 200)[:2000])
    return folder


@pytest.fixture(scope="module")
def full(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("full") / "ds"
    assert run(photos, output, "--statistics=full") == 0
    return output


def run(photos: Path, output: Path, *flags: str, workers: int = 1) -> int:
    place = (f"--input={photos}", f"--output={output}", f"--direct_num_workers={workers}")
    return main(["images", *place, *FLAGS, *flags])


def figures(output: Path) -> dict[str, Any]:
    found = json.loads((output / "_meta/statistics.json").read_bytes())
    assert "channel_mean" not in found["validation"]
    return {name: value for name, value in found["train"].items() if name.startswith("channel")}


def pixels(output: Path, most: int | None = None) -> npt.NDArray[np.uint8]:
    """The pixels of the first images of the training split, `[n, 3]`."""
    data = reader.load(output, "train", batch_size=1, shuffle=False)
    images = [Image.open(io.BytesIO(row["image"][0])) for row in data.as_numpy_iterator()]
    return np.concatenate([np.asarray(image).reshape(-1, 3) for image in images[:most]])


def check(found: dict[str, Any], expected: npt.NDArray[np.uint8]) -> None:
    np.testing.assert_allclose(found["channel_mean"], expected.mean(axis=0), rtol=1e-6)
    np.testing.assert_allclose(found["channel_std"], expected.std(axis=0), rtol=1e-6)
    assert found["channel_images"] == len(expected) // (24 * 32)


@pytest.mark.slow
def test_figures_are_numpys_of_the_training_split(full: Path) -> None:
    check(figures(full), pixels(full))
    assert main(["verify", str(full)]) == 0


@pytest.mark.slow
def test_neither_workers_nor_augmentation_show(full: Path, photos: Path, tmp_path: Path) -> None:
    flags = ("--statistics=full", "--augmentations=color,crop", "--copies=2")
    assert run(photos, tmp_path / "ds", *flags, workers=2) == 0
    assert figures(tmp_path / "ds") == figures(full)


@pytest.mark.slow
def test_a_sample_is_the_first_images_by_hash(full: Path, photos: Path, tmp_path: Path) -> None:
    flags = ("--statistics=sample", "--statistics_sample=10")
    assert run(photos, tmp_path / "ds", *flags) == 0
    assert shard_bytes(tmp_path / "ds") == shard_bytes(full)
    check(figures(tmp_path / "ds"), pixels(full, figures(tmp_path / "ds")["channel_images"]))
    assert figures(tmp_path / "ds")["channel_images"] in (9, 10)


def test_the_graph_normalises_as_the_reader_does(full: Path) -> None:
    import tensorflow_transform as tft

    graph = tft.TFTransformOutput(str(full / "_meta/transform"))
    values = pixels(full).astype(np.float32)
    normal = graph.transform_raw_features({"pixel": values})["pixel"].numpy()
    expected = (values - values.mean(axis=0, dtype=np.float64)) / values.std(axis=0)
    np.testing.assert_allclose(normal, expected, atol=1e-4)
    transform = [
        reader.decode_images(size=(24, 32)), reader.normalise_images(dataset=str(full)),
    ]  # fmt: skip
    batches = reader.load(full, "train", batch_size=1, shuffle=False, transform=transform)
    read = np.concatenate([batch["image"].reshape(-1, 3) for batch in batches.as_numpy_iterator()])
    np.testing.assert_allclose(read, normal, atol=1e-5)


def test_the_vocabulary_is_of_the_training_split(full: Path) -> None:
    import tensorflow_transform as tft

    graph = tft.TFTransformOutput(str(full / "_meta/transform"))
    classes = json.loads((full / "_meta/statistics.json").read_bytes())["train"]["classes"]
    names = [name.decode() for name in graph.vocabulary_by_name("labels")]
    assert sorted(names) == sorted(classes)
    assert [classes[name] for name in names] == sorted(classes.values(), reverse=True)


@pytest.mark.slow
def test_finished_statistics_are_not_found_again(
    full: Path, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with unpublished():
        assert run(photos, tmp_path / "ds", "--statistics=full") == 1
    monkeypatch.setattr(statistics, "_analyze", lambda *_: pytest.fail("run again"))
    assert run(photos, tmp_path / "ds", "--statistics=full") == 0
    assert figures(tmp_path / "ds") == figures(full)
    assert run(photos, tmp_path / "ds", "--overwrite") == 0
    assert not (tmp_path / "ds/_meta/transform").exists()


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--statistics=some"], "--statistics must be one of full, none, sample, got 'some'"),
        (["--statistics_sample=5"], "--statistics_sample=5 must go with --statistics=sample"),
        (["--statistics=sample", "--statistics_sample=0"], "must be at least 1, got 0"),
    ],
)
def test_mistakes_are_one_line(
    flags: list[str],
    message: str,
    photos: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(photos, tmp_path / "ds", *flags) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_a_job_of_a_run_that_another_has_committed(
    photos: Path, full: Path, tmp_path: Path
) -> None:
    with twice():
        assert run(photos, tmp_path / "ds", "--statistics=full") == 0
    assert shard_bytes(tmp_path / "ds") == shard_bytes(full)
    assert figures(tmp_path / "ds") == figures(full)
    assert not (tmp_path / "ds/_tmp").exists()
