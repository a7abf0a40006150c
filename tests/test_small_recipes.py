"""The small recipes of tutorials, unchanged, on datasets in each naming of shards."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from recordmill.pipelines.command_line import main
from recordmill.reader import load
from recordmill.records.errors import UsageError
from recordmill.records.manifest import Manifest

from .pictures import drawn, encoded

# tensorflow_datasets asks protobuf for the label of a field, which protobuf 6 deprecates.
pytestmark = pytest.mark.filterwarnings(r"ignore:label\(\) is deprecated:DeprecationWarning")

SHAPE = (16, 20, 3)
COUNT = 12
FLAGS = ("--splits=train:0.7,validation:0.3", "--num_shards=3", "--direct_num_workers=1")
SPLITS = {"train": 3, "validation": 1}
PATHS = {
    "default": "{split}/{split}-{number}.tfrecords",
    "default tfrecord": "{split}/{split}-{number}.tfrecord",
    "flat": "{split}-{number}.tfrecord",
    "flat tfrecords": "{split}-{number}.tfrecords",
    "tfds": "pets-{split}.tfrecord-{number}",
    "seqio": "{split}.tfrecord-{number}",
}


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pictures")
    for i in range(COUNT):
        path = folder / ("cat", "dog")[i % 2] / f"{i:02d}.png"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(encoded(drawn(SHAPE[1], SHAPE[0], seed=i), "PNG"))
    return folder


def write(pictures: Path, output: Path, naming: str, *flags: str) -> Path:
    name, _, extension = naming.partition(" ")
    given = [f"--naming={name}", *([f"--extension={extension}"] if extension else [])]
    source = (f"--input={pictures}", f"--output={output}")
    assert main(["images", *source, *FLAGS, *given, *flags]) == 0
    return output


@pytest.fixture(scope="module")
def datasets(pictures: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One dataset in each naming, in `…/pets/1.2.3`."""
    folder = tmp_path_factory.mktemp("datasets")
    return {
        naming: write(pictures, folder / str(i) / "pets/1.2.3", naming)
        for i, naming in enumerate(PATHS)
    }


def shard_paths(naming: str) -> list[str]:
    return sorted(
        PATHS[naming].format(split=split, number=f"{i:05d}-of-{count:05d}")
        for split, count in SPLITS.items()
        for i in range(count)
    )


def counts(dataset: Path) -> dict[str, int]:
    manifest = Manifest.from_bytes((dataset / "_meta/manifest.json").read_bytes())
    return {
        name: sum(s.records for s in shards) for name, shards in manifest.split_shards().items()
    }


@pytest.mark.parametrize("naming", PATHS)
class TestNamings:
    def test_files(self, datasets: dict[str, Path], naming: str) -> None:
        dataset = datasets[naming]
        shards = [path.relative_to(dataset).as_posix() for path in dataset.rglob("*.tfrecord*")]
        assert sorted(shards) == shard_paths(naming)
        indexes = [path.relative_to(dataset).as_posix() for path in dataset.rglob("*.idx")]
        assert sorted(indexes) == [
            f"_meta/index/{path.replace('.tfrecords', '').replace('.tfrecord', '')}.idx"
            for path in shard_paths(naming)
        ]

    def test_the_bytes_are_the_same(self, datasets: dict[str, Path], naming: str) -> None:
        contents = [
            [(datasets[name] / path).read_bytes() for path in shard_paths(name)]
            for name in ("default", naming)
        ]
        assert contents[0] == contents[1]

    def test_verify(self, datasets: dict[str, Path], naming: str) -> None:
        assert main(["verify", str(datasets[naming])]) == 0

    def test_our_reader(self, datasets: dict[str, Path], naming: str) -> None:
        for split, count in counts(datasets[naming]).items():
            batches = load(datasets[naming], split, batch_size=4, remainder="keep")
            assert sum(len(batch["label"]) for batch in batches) == count

    def test_tfds_load(self, datasets: dict[str, Path], naming: str) -> None:
        import tensorflow_datasets as tfds

        dataset = datasets[naming]
        train, info = tfds.load(
            "pets", data_dir=dataset.parents[1], as_supervised=True, split="train", with_info=True
        )
        assert (info.name, str(info.version)) == ("pets", "1.2.3")
        pairs = list(train.as_numpy_iterator())
        assert len(pairs) == counts(dataset)["train"]
        assert {image.shape for image, _ in pairs} == {SHAPE}
        assert {int(label) for _, label in pairs} == {0, 1}

    def test_a_second_run_is_complete_and_another_naming_is_refused(
        self, pictures: Path, datasets: dict[str, Path], naming: str,
        capsys: pytest.CaptureFixture[str],
    ) -> None:  # fmt: skip
        write(pictures, datasets[naming], naming)
        assert "complete" in capsys.readouterr().out
        other = "flat" if naming == "default" else "default"
        line = ["images", f"--input={pictures}", f"--output={datasets[naming]}", *FLAGS]
        assert main([*line, f"--naming={other}"]) == 2

    def test_overwrite_with_another_naming_leaves_no_old_shard(
        self, pictures: Path, tmp_path: Path, naming: str
    ) -> None:
        output = tmp_path / "pets"
        write(pictures, output, naming)
        other = "flat" if naming != "flat" else "default"
        write(pictures, output, other, "--overwrite")
        shards = [path.relative_to(output).as_posix() for path in output.rglob("*.tfrecord*")]
        assert sorted(shards) == shard_paths(other)

    def test_a_foreign_shard_beside_ours_is_found(
        self, pictures: Path, tmp_path: Path, naming: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        output = write(pictures, tmp_path / "pets", naming)
        foreign = PATHS[naming].format(split="train", number="00007-of-00009")
        (output / foreign).write_bytes(b"")
        assert main(["verify", str(output)]) == 1
        assert f"{foreign}: is not in the manifest" in capsys.readouterr().out
        with pytest.raises(UsageError, match=r"must hold nothing but the shards .*00007-of-00009"):
            load(output, "train", batch_size=1)


def test_a_foreign_shard_is_no_part_of_a_flat_dataset(
    pictures: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "train-00000-of-00007.tfrecord").write_bytes(b"theirs")
    line = ["images", f"--input={pictures}", f"--output={tmp_path}", *FLAGS, "--naming=flat"]
    assert main(line) == 2
    assert "train-00000-of-00007.tfrecord, which readers would take" in capsys.readouterr().err
    assert (tmp_path / "train-00000-of-00007.tfrecord").read_bytes() == b"theirs"


@pytest.mark.parametrize("naming", ["tfds", "seqio", "tfx"])
def test_some_names_have_their_own_extension(
    pictures: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], naming: str
) -> None:
    line = ["images", f"--input={pictures}", f"--output={tmp_path}/ds", f"--naming={naming}"]
    assert main([*line, "--extension=tfrecord"]) == 2
    assert f"--extension=tfrecord has no effect with --naming={naming}" in capsys.readouterr().err


FEATURES = {
    "image": tf.io.FixedLenFeature([], tf.string),
    "label": tf.io.FixedLenFeature([], tf.int64),
}


def parse(record: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    example = tf.io.parse_single_example(record, FEATURES)
    return tf.io.decode_png(example["image"]), example["label"]


class TestRecipes:
    def test_feature_description(self, datasets: dict[str, Path]) -> None:
        dataset = datasets["flat"]
        names = tf.io.gfile.glob(f"{dataset}/train*")
        pairs = list(tf.data.TFRecordDataset(names).map(parse).as_numpy_iterator())
        assert len(pairs) == counts(dataset)["train"]

    def test_list_files_and_interleave(self, datasets: dict[str, Path]) -> None:
        dataset = datasets["flat"]
        files = tf.data.Dataset.list_files(f"{dataset}/train-*.tfrecord")
        rows = files.interleave(tf.data.TFRecordDataset, cycle_length=2).map(parse).shuffle(64)
        shapes = {image.shape for image, _ in rows.as_numpy_iterator()}
        assert shapes == {SHAPE}
        assert len(list(rows)) == counts(dataset)["train"]

    def test_keras_fits_on_tfds(self, pictures: Path, tmp_path: Path) -> None:
        import tensorflow_datasets as tfds

        write(pictures, tmp_path / "pets/1.0.0", "default", "--image_size=16x20")
        train = tfds.load("pets", data_dir=tmp_path, as_supervised=True, split="train")
        layers = tf.keras.layers
        model = tf.keras.Sequential([layers.Rescaling(1 / 255), layers.Flatten(), layers.Dense(2)])
        loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile("sgd", loss)
        assert np.isfinite(model.fit(train.batch(4), shuffle=False, verbose=0).history["loss"][0])


@pytest.fixture(scope="module")
def tasks(pictures: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`classification`, `segmentation` and `detection`, each as `…/TASK/1.0.0`."""
    source, folder = tmp_path_factory.mktemp("tasks"), tmp_path_factory.mktemp("data_dir")
    images: list[dict[str, Any]] = []
    objects: list[dict[str, Any]] = []
    for i in range(COUNT):
        for kind in ("images", "masks"):
            (source / kind).mkdir(exist_ok=True)
        picture = drawn(SHAPE[1], SHAPE[0], seed=i)
        (source / f"images/{i}.png").write_bytes(encoded(picture, "PNG"))
        mask = Image.fromarray((np.arange(SHAPE[0] * SHAPE[1]).reshape(SHAPE[:2]) % 2).astype("u1"))
        (source / f"masks/{i}.png").write_bytes(encoded(mask, "PNG"))
        images.append({"id": i, "file_name": f"{i}.png", "width": SHAPE[1], "height": SHAPE[0]})
        objects.append(
            {
                "id": i,
                "image_id": i,
                "category_id": 3,
                "bbox": [2, 2, 9, 9],
                "area": 81,
                "iscrowd": 0,
            }
        )
    categories = [{"id": 3, "name": "disc"}]
    content = {"images": images, "annotations": objects, "categories": categories}
    (source / "instances.json").write_text(json.dumps(content))
    flags = {
        "classification": (f"--input={pictures}",),
        "segmentation": (f"--input={source}/images", f"--masks={source}/masks/*.png"),
        "detection": (
            f"--input={source}/images", f"--annotations={source}/instances.json", "--format=tfds",
        ),
    }  # fmt: skip
    for task, given in flags.items():
        line = ["images", *given, f"--task={task}", f"--output={folder}/{task}/1.0.0"]
        assert main([*line, "--direct_num_workers=1"]) == 0
    return folder


@pytest.mark.parametrize(
    ("task", "keys"),
    [
        ("classification", ("image", "label")),
        ("segmentation", ("image", "segmentation_mask")),
        ("detection", None),
    ],
)
def test_supervised_keys(tasks: Path, task: str, keys: tuple[str, str] | None) -> None:
    import tensorflow_datasets as tfds

    builder = tfds.builder(task, data_dir=tasks)
    assert builder.info.supervised_keys == keys
    if keys:
        rows = builder.as_dataset(split="train").as_numpy_iterator()
        pairs = builder.as_dataset(split="train", as_supervised=True).as_numpy_iterator()
        for row, (image, target) in zip(rows, pairs, strict=True):
            np.testing.assert_array_equal(image, row[keys[0]])
            np.testing.assert_array_equal(target, row[keys[1]])


@pytest.mark.parametrize("task", ["classification", "segmentation", "detection"])
def test_show_examples(tasks: Path, task: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import matplotlib
    import tensorflow_datasets as tfds

    matplotlib.use("Agg")
    dataset, info = tfds.load(task, data_dir=tasks, split="train", with_info=True)
    # TFDS asks which of two image features it is to show, in its own datasets too.
    chosen = {"image_key": "image"} if task == "segmentation" else {}
    figure = tfds.show_examples(dataset, info, rows=2, cols=2, **chosen)
    assert len(figure.axes) == 4
