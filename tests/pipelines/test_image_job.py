"""The image job as a user runs it: what is written, what is refused, what becomes of bad images."""

from __future__ import annotations

import json
import re
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from recordmill.pipelines.command_line import main
from recordmill.pipelines.planning.image_shards import count_work_items
from recordmill.records.codec.framing import scan_records
from recordmill.transforms.dataset.rejects import REASONS
from recordmill.transforms.images import build_image_shards as image_build
from recordmill.transforms.images.image_shard_plan import ImageSplit

from ..pictures import drawn, encoded, jpeg, png, turned_jpeg
from .jobs import manifest, records, records_by_split, shard_bytes


def run(source: Path | str, output: Path, *flags: str, workers: int = 1) -> int:
    place = (f"--input={source}", f"--output={output}", f"--direct_num_workers={workers}")
    return main(["images", *place, *flags])


@pytest.fixture(scope="session")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """30 photos of two kinds, 36 to 60 pixels wide."""
    folder = tmp_path_factory.mktemp("photos")
    for i in range(30):
        path = folder / ("cat", "dog")[i % 2] / f"{i:02d}.jpg"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(jpeg(36 + i % 25, 30 + i % 9, seed=i))
    return folder


def read(output: Path, split: str = "train") -> list[dict[str, Any]]:
    import recordmill.reader as reader

    data = reader.load(output, split, batch_size=1, shuffle=False)
    return list(data.as_numpy_iterator())


class TestWhatIsWritten:
    def test_bytes_pass_through_unchanged(self, photos: Path, tmp_path: Path) -> None:
        assert run(photos, tmp_path / "ds", "--num_shards=3") == 0
        wanted = {
            (path.read_bytes(), ("cat", "dog").index(path.parent.name))
            for path in photos.rglob("*.jpg")
        }
        found = {(row["image"][0], int(row["label"][0])) for row in read(tmp_path / "ds")}
        assert found == wanted
        assert (tmp_path / "ds/labels.txt").read_text() == "cat\ndog\n"
        assert main(["verify", str(tmp_path / "ds")]) == 0

    @pytest.mark.slow
    def test_six_hundred_pairs_make_six_shards_of_a_hundred(self, tmp_path: Path) -> None:
        source = tmp_path / "in"
        for kind in ("images", "masks"):
            (source / kind).mkdir(parents=True)
        for i in range(600):
            (source / f"images/{i:03d}.png").write_bytes(png(16, 12, seed=i))
            mask = Image.fromarray(np.full((12, 16), i % 2, np.uint8))
            (source / f"masks/{i:03d}.png").write_bytes(encoded(mask, "PNG"))
        flags = ("--task=segmentation", "--num_shards=6", f"--masks={source}/masks")
        assert run(source / "images", tmp_path / "ds", *flags, workers=2) == 0
        assert [shard["records"] for shard in manifest(tmp_path / "ds")["shards"]] == [100] * 6

    def test_shards_of_unequal_images_are_of_one_size(self, tmp_path: Path) -> None:
        source = tmp_path / "in/a"
        source.mkdir(parents=True)
        rng = np.random.default_rng(0)
        for i in range(400):
            noise = rng.integers(0, 255, (8 + int(rng.integers(60)), 40, 3), np.uint8)
            (source / f"{i:03d}.png").write_bytes(encoded(Image.fromarray(noise), "PNG"))
        assert run(tmp_path / "in", tmp_path / "ds", "--num_shards=4") == 0
        sizes = [len(data) for data in shard_bytes(tmp_path / "ds").values()]
        assert max(sizes) / min(sizes) < 1.05

    def test_parts_of_shards_make_the_same_bytes(self, photos: Path, tmp_path: Path) -> None:
        flags = ("--num_shards=1", "--image_size=16x16", "--augmentations=flip", "--copies=3")
        assert run(photos, tmp_path / "one", *flags) == 0
        assert run(photos, tmp_path / "two", *flags, workers=2) == 0
        assert shard_bytes(tmp_path / "one") == shard_bytes(tmp_path / "two")
        assert len(records(tmp_path / "one")) == 90

    @pytest.mark.parametrize(
        ("bounds", "workers", "expected"),
        [
            ((0, 10, 20), 1, (2, 1)),
            ((0, 10, 20), 2, (8, 4)),  # of one round: a straggler would be waited for
            ((0, 10, 20, 30, 40), 2, (4, 1)),
            ((0, 10, 20, 30, 40, 50), 2, (10, 2)),  # one worker would wait a third of the time
            ((0, 100_000, 200_000, 300_000, 400_000), 2, (8, 2)),  # a killed one would lose much
            (tuple(range(1001)), 16, (1000, 1)),
        ],
    )
    def test_shards_are_tasks_where_workers_share_them_evenly(
        self, bounds: tuple[int, ...], workers: int, expected: tuple[int, int]
    ) -> None:
        splits = [ImageSplit("train", bounds[-1], 1, bounds)]
        assert count_work_items(splits, workers) == expected

    def test_small_splits_do_not_even_out_large_ones(self) -> None:
        large = ImageSplit("train", 15_000, 1, (0, 5_000, 10_000, 15_000))
        assert count_work_items([large, ImageSplit("test", 100, 1, (0, 100))], 2) == (8, 2)

    def test_a_smaller_gap_gives_other_pixels(self, photos: Path, tmp_path: Path) -> None:
        for name, flags in (
            ("usual", ()),
            ("two", ("--reducing_gap=2",)),
            ("one", ("--reducing_gap=1",)),
        ):
            assert run(photos, tmp_path / name, "--image_size=16x16", *flags) == 0
        assert shard_bytes(tmp_path / "usual") == shard_bytes(tmp_path / "two")
        assert shard_bytes(tmp_path / "usual") != shard_bytes(tmp_path / "one")

    @pytest.mark.slow
    def test_a_photo_lies_alike_in_training_whatever_its_size(self, tmp_path: Path) -> None:
        """TensorFlow's decoders know no EXIF."""
        import tensorflow as tf

        (tmp_path / "in/a").mkdir(parents=True)
        (tmp_path / "in/a/b.jpg").write_bytes(turned_jpeg(6, 64, 48))
        for how, shape in (("upright", (64, 48, 3)), ("keep", (48, 64, 3))):
            size = f"--image_size={shape[0]}x{shape[1]}"
            pixels = []
            for name, flags in (("kept", ()), ("sized", (size,))):
                output = tmp_path / f"{how}-{name}"
                assert run(tmp_path / "in", output, f"--orientation={how}", *flags) == 0
                pixels.append(tf.io.decode_image(read(output)[0]["image"][0]).numpy().astype(int))
            assert pixels[0].shape == pixels[1].shape == shape
            assert np.abs(pixels[0] - pixels[1]).mean() < 4

    def test_statistics(self, photos: Path, tmp_path: Path) -> None:
        assert run(photos, tmp_path / "ds") == 0
        found = json.loads((tmp_path / "ds/_meta/statistics.json").read_text())["train"]
        sizes = [path.stat().st_size for path in photos.rglob("*.jpg")]
        assert found["examples"] == 30
        assert found["classes"] == {"cat": 15, "dog": 15}
        assert found["bytes_per_image"] == round(sum(sizes) / 30, 1)
        assert found["width"]["min"] == 36
        assert sum(found["log2_pixels"].values()) == 30

    def test_splits_by_share_folder_and_group(self, photos: Path, tmp_path: Path) -> None:
        shares = "--splits=train:0.5,validation:0.5"
        assert run(photos, tmp_path / "share", shares) == 0
        counts = records_by_split(tmp_path / "share")
        assert sum(counts.values()) == 30
        assert min(counts.values()) >= 5
        assert run(photos, tmp_path / "group", shares, "--split_by=folder") == 0
        assert set(records_by_split(tmp_path / "group").values()) <= {15, 30}

    def test_splits_that_folders_name(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        for i in range(12):
            split = ("train", "test", "train")[i % 3]
            path = tmp_path / "in" / split / ("x", "y")[i % 2] / f"{i}.jpg"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(jpeg(seed=i))
        flags = ("--split_from=folder", "--num_shards=train:2,test:1")
        assert run(tmp_path / "in", tmp_path / "ds", *flags) == 0
        assert records_by_split(tmp_path / "ds") == {"train": 8, "test": 4}
        assert len(shard_bytes(tmp_path / "ds")) == 3
        assert (tmp_path / "ds/labels.txt").read_text() == "x\ny\n"
        for splits in ("train:0.5,test:0.5", "train:1"):  # also what it is by default
            flags = ("--split_from=folder", f"--splits={splits}")
            assert run(tmp_path / "in", tmp_path / "other", *flags) == 2
            assert "--splits has no meaning where the input names" in capsys.readouterr().err

    def test_members_of_a_tar(self, photos: Path, tmp_path: Path) -> None:
        with tarfile.open(tmp_path / "photos.tar", "w") as archive:
            archive.add(photos, "all")
        flags = ("--labels=from_folder", "--label_folder=-1", "--num_shards=2")
        assert run(tmp_path / "photos.tar", tmp_path / "ds", *flags) == 0
        found = {row["image"][0] for row in read(tmp_path / "ds")}
        assert found == {path.read_bytes() for path in photos.rglob("*.jpg")}

    def test_drawn_parameters_can_be_written(self, photos: Path, tmp_path: Path) -> None:
        flags = (
            "--augmentations=flip,rotate", "--copies=2", "--keep_original", "--write_augmentations",
        )  # fmt: skip
        assert run(photos, tmp_path / "ds", *flags) == 0
        drawn_for = [json.loads(row["image/augmentation"][0]) for row in read(tmp_path / "ds")]
        assert sum(parameters == {} for parameters in drawn_for) == 30
        assert sorted(p["copy"] for p in drawn_for if p) == [1] * 30 + [2] * 30


class TestRejects:
    @pytest.fixture
    def damaged(self, photos: Path, tmp_path: Path) -> Path:
        import shutil

        source = Path(shutil.copytree(photos, tmp_path / "damaged"))
        whole = jpeg(800, 600)
        (source / "cat/00.jpg").write_bytes(whole[: len(whole) // 2])
        (source / "dog/01.jpg").write_bytes(b"<html>no image</html>")
        (source / "dog/03.jpg").write_bytes(b"")
        (source / "cat/notes.txt").write_text("nothing to see")
        return source

    def test_are_listed_with_their_reasons(self, damaged: Path, tmp_path: Path) -> None:
        assert run(damaged, tmp_path / "ds", "--max_rejected=0.1", "--num_shards=2") == 0
        counts = manifest(tmp_path / "ds")["counts"]
        assert counts["images_listed"] == 30
        assert counts["images_written"] == counts["examples"] == 27
        assert counts["files_passed_over"] == {"no_image_extension": 1}
        lines = [
            json.loads(line)
            for path in (tmp_path / "ds/_meta/rejected").glob("*.jsonl")
            for line in path.read_text().splitlines()
        ]
        assert {line["source"]: line["reason"] for line in lines} == {
            "cat/00.jpg": "truncated_image",
            "dog/01.jpg": "not_an_image",
            "dog/03.jpg": "empty_image",
        }
        assert counts["rejected"] == {"truncated_image": 1, "not_an_image": 1, "empty_image": 1}
        assert main(["verify", str(tmp_path / "ds")]) == 0

    def test_over_the_budget_nothing_is_published(
        self, damaged: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert run(damaged, tmp_path / "ds", "--max_rejected=0.05") == 1
        error = capsys.readouterr().err.splitlines()[-1]
        assert "3 of 30 inputs rejected" in error
        first = re.search(r"the first is (.*) at position 0: (.*); all are listed in", error)
        assert first
        assert first.groups() in (
            ("cat/00.jpg", REASONS["truncated_image"]),
            ("dog/01.jpg", REASONS["not_an_image"]),
            ("dog/03.jpg", REASONS["empty_image"]),
        )
        assert not (tmp_path / "ds/_SUCCESS").exists()
        assert not (tmp_path / "ds/train").exists()
        assert run(damaged, tmp_path / "ds", "--max_rejected=0.1") == 0

    def test_too_many_while_listing_end_the_run_before_it_works(
        self, photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        rows = [f"{path},cat" for path in sorted(photos.rglob("*.jpg"))[:9]]
        (tmp_path / "table.csv").write_text("\n".join(["path,label", *rows, "/none.jpg,cat"]))
        assert run(tmp_path / "table.csv", tmp_path / "ds") == 2
        error = capsys.readouterr().err
        assert "outside_input 10 (" in error
        assert "is outside of the input; --allow_outside=" in error
        beyond = "--allow_outside=/"
        assert run(tmp_path / "table.csv", tmp_path / "ds", beyond) == 1
        error = capsys.readouterr().err
        assert "1 of 10 inputs rejected (no_image 1)" in error
        assert "while running" not in error
        assert not (tmp_path / "ds/_tmp/plan.json").exists()
        assert run(tmp_path / "table.csv", tmp_path / "ds", beyond, "--max_rejected=0.2") == 0

    def test_an_image_that_changes_meanwhile_ends_the_run(
        self,
        photos: Path,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        read, seen = image_build.ImageReader.read, set()

        def failing(self: Any, stored: Any) -> bytes:
            data = read(self, stored)
            again = stored.path in seen
            seen.add(stored.path)
            return data[:50] if again and stored.path.endswith("07.jpg") else data

        monkeypatch.setattr(image_build.ImageReader, "read", failing)
        assert run(photos, tmp_path / "ds", "--augmentations=flip", "--copies=3") == 1
        assert "for some of its copies only" in capsys.readouterr().err

    def test_copies_of_a_bad_image_are_one_reject(self, damaged: Path, tmp_path: Path) -> None:
        flags = ("--augmentations=flip", "--copies=3", "--max_rejected=0.1", "--num_shards=4")
        assert run(damaged, tmp_path / "ds", *flags) == 0
        counts = manifest(tmp_path / "ds")["counts"]
        assert sum(counts["rejected"].values()) == 3
        assert counts["examples"] == 27 * 3


@pytest.mark.parametrize(
    ("flag", "other"),
    [
        ("--image_size=32x32", "--image_size=32x24"),
        ("--image_size=32x32", "--resize=fit"),
        ("--image_size=32x32", "--resample=bicubic"),
        ("--image_size=32x32", "--quality=50"),
        ("--image_size=32x32", "--encoding=PNG"),
        ("--image_size=32x32", "--channels=1"),
        ("--image_size=32x32", "--format=model_garden"),
        ("--image_size=32x32", "--first_label=1"),
        ("--image_size=32x32", "--augmentations=flip"),
        ("--image_size=32x32", "--augmentations=color"),
        ("--augmentations=rotate", "--fill=200"),
        ("--augmentations=rotate", "--copies=2"),
        ("--augmentations=rotate", "--keep_original"),
        ("--augmentations=rotate", "--write_augmentations"),
        ("--augmentations=rotate", "--random_seed=3"),
    ],
)
def test_each_option_has_an_effect(
    photos: Path, written_photos: Callable[..., Path], flag: str, other: str
) -> None:
    plain, changed = written_photos(flag), written_photos(flag, other)
    assert shard_bytes(plain) != shard_bytes(changed)


@pytest.fixture(scope="session")
def written_photos(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    done: dict[tuple[str, ...], Path] = {}

    def write(*flags: str) -> Path:
        given = {flag.partition("=")[0]: flag for flag in flags}
        key = tuple(sorted(given.values()))
        if key not in done:
            done[key] = tmp_path_factory.mktemp("option") / "ds"
            assert run(f"{photos}/*/0*.jpg", done[key], *key) == 0
        return done[key]

    return write


def test_labels_in_the_names_of_files_lead_to_the_flag(
    photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    photo = next(photos.rglob("*.jpg")).read_bytes()
    for number, name in enumerate(("n01440764_tench", "n01443537_goldfish", "n01440764_tench2")):
        (tmp_path / "in").mkdir(exist_ok=True)
        (tmp_path / f"in/{name}.JPEG").write_bytes(photo + bytes(number))
    assert run(tmp_path / "in", tmp_path / "ds") == 2
    error = capsys.readouterr().err
    assert "which takes n01440764 of n01440764_tench" in error
    (pattern,) = re.findall(r"--label_pattern='(.+)'", error)
    assert run(tmp_path / "in", tmp_path / "ds", f"--label_pattern={pattern}") == 0
    assert (tmp_path / "ds/labels.txt").read_text() == "n01440764\nn01443537\n"
    for number, path in enumerate(sorted((tmp_path / "in").iterdir())):  # as cameras name them
        path.rename(path.with_name(f"IMG_{number:04d}.jpg"))
    assert run(tmp_path / "in", tmp_path / "other") == 2
    assert "--label_pattern where names of files have them" in capsys.readouterr().err
    pictures = [{"id": n, "file_name": f"IMG_000{n}.jpg"} for n in range(3)]
    coco = {"images": pictures, "annotations": [], "categories": []}
    (tmp_path / "coco.json").write_text(json.dumps(coco))
    assert run(tmp_path / "in", tmp_path / "other", f"--annotations={tmp_path}/coco.json") == 2
    error = capsys.readouterr().err
    assert "--task=classification needs labels" in error
    assert "--label_pattern" not in error


def test_images_that_a_table_does_not_name_lead_to_a_narrower_input(
    photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    named = sorted(photos.rglob("*.jpg"))[:5]
    (tmp_path / "t.csv").write_text("\n".join(["path,label", *(f"{path},a" for path in named)]))
    assert run(photos, tmp_path / "ds", f"--annotations={tmp_path}/t.csv") == 1
    error = capsys.readouterr().err
    assert "no row of the table names it; a narrower --input leaves out images without" in error


MISTAKES: list[tuple[list[str], str]] = [
    (["--input={photos}/*.nothing"], "matches no file"),
    (["--output="], "--output is required"),
    (["--image_size=big"], "--image_size must be"),
    (["--image_size=0"], "--image_size must be"),
    (["--resize=longest", "--image_size=20x30"], "--resize=longest must have one side"),
    (["--augmentations=flipp"], "did you mean 'flip'?"),
    (["--augmentations=rotate(a)"], "--augmentations=rotate must have numbers"),
    (["--copies=3"], "--copies=3 must go with --augmentations"),
    (["--copies=0", "--augmentations=flip"], "--copies must be at least 1, got 0"),
    (["--keep_original"], "--keep_original must go with --augmentations"),
    (["--format=unet"], "--format must be one of"),
    (["--format=raw", "--encoding=PNG"], "--encoding must be one of raw for --format=raw"),
    (["--quality=0"], "--quality must be from 1 to 100, got 0"),
    (["--channels=2"], "--channels must be one of 1, 3, got '2'"),
    (["--labels={tmp}/none.txt"], "--labels must be from_folder"),
    (["--labels=none", "--format=imagenet"], "--labels=none must go with a format of images"),
    (["--label_pattern=(a)", "--task=segmentation"], "--label_pattern must go with --task=class"),
    (["--wrong_extension=x"], "--wrong_extension must be one of accept, reject, got 'x'"),
    (["--box_format=xy"], "--box_format must be one of"),
    (["--category_ids=original"], "--category_ids=original must go with COCO's JSON"),
    (["--task=detection"], "--task=detection needs boxes; see --annotations"),
    (["--task=segmentation"], "--task=segmentation needs masks; see --masks"),
    (["--task=segmentation", "--format=unet"], "--format=unet must have images of one size"),
    (["--layout=coco"], "--layout=coco needs --annotations"),
    (["--fill=a"], "--fill must be like 0 or 255,128,0"),
    (["--num_shards=1000"], "--num_shards must be at most 30"),
    (["--splits=train:0.999999,validation:0.000001"], "gives validation none of 30 images"),
    (["--multilabel", "--format=raw"], "--multilabel must go with"),
    (["--include_masks"], "--include_masks must go with --task=detection"),
    (["--max_rejected=2"], "--max_rejected must be in [0, 1]"),
    (["--imagesize=3"], "did you mean --image_size?"),
]


@pytest.mark.parametrize(("flags", "message"), MISTAKES)
def test_mistakes_are_one_line(
    flags: list[str],
    message: str,
    photos: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    given = [flag.format(photos=photos, tmp=tmp_path) for flag in flags]
    plain = {"--input": str(photos), "--output": f"{tmp_path}/ds"}
    for flag in given:
        plain.pop(flag.partition("=")[0], None)
    status = main(["images", *(f"{k}={v}" for k, v in plain.items()), *given])
    captured = capsys.readouterr().err
    assert status == 2, captured
    assert message in captured
    assert captured.count("\n") == 1
    assert not (tmp_path / "ds").exists()


def test_images_alone(photos: Path, tmp_path: Path) -> None:
    assert run(photos, tmp_path / "ds", "--task=detection", "--labels=none") == 0
    assert manifest(tmp_path / "ds")["counts"]["images_written"] == 30


def test_masks_among_photos_are_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "in/a").mkdir(parents=True)
    for name in ("0.jpg", "0.png", "1.jpg", "1.png", "2.jpg"):
        drawn(30, 20).save(tmp_path / "in/a" / name)
    assert run(tmp_path / "in", tmp_path / "ds") == 0
    said = "2 images have the name of another except for the extension"
    assert said in capsys.readouterr().err
    (note,) = json.loads((tmp_path / "ds/_meta/run.json").read_bytes())["notes"]
    assert note.startswith(said)  # the report shows it


def test_turned_images_are_upright_once_they_are_resized(tmp_path: Path) -> None:
    (tmp_path / "in/a").mkdir(parents=True)
    (tmp_path / "in/a/turned.jpg").write_bytes(turned_jpeg(6, 60, 40))
    flags = ("--image_size=64", "--resize=longest", "--encoding=PNG")
    assert run(tmp_path / "in", tmp_path / "ds", *flags) == 0
    import io

    image = Image.open(io.BytesIO(read(tmp_path / "ds")[0]["image"][0]))
    assert image.height > image.width
    wanted = drawn(60, 40).transpose(Image.Transpose.ROTATE_270)
    small = np.asarray(wanted.resize(image.size, Image.Resampling.BILINEAR), np.int64)
    assert np.abs(np.asarray(image, np.int64) - small).mean() < 4


def test_golden_bytes(tmp_path: Path) -> None:
    """A change of any byte is a decision: see CONTRIBUTING.md."""
    from hashlib import blake2b

    source = tmp_path / "in"
    for i in range(8):
        path = source / ("a", "b")[i % 2] / f"{i}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(encoded(Image.new("RGB", (5 + i, 4), (i * 30, 10, 200)), "PNG"))
    flags = ("--format=raw", "--image_size=4x4", "--augmentations=flip,crop,color", "--copies=2")
    assert run(source, tmp_path / "ds", *flags) == 0
    (data,) = shard_bytes(tmp_path / "ds").values()
    offsets, used, problem = scan_records(np.frombuffer(data, np.uint8))
    assert (len(offsets) - 1, used, problem) == (16, len(data), "")
    assert blake2b(data, digest_size=8).hexdigest() == "8a0e48d5647fadcc"
