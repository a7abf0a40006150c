"""All flags of `recordmill images`: each changes some job, and is refused where it changes none."""

from __future__ import annotations

import gzip
import json
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from recordmill.pipelines.command_line import main
from recordmill.records.spec import options_of
from recordmill.transforms.images.image_spec import ImagesSpec

from ..pictures import animated, drawn, encoded, jpeg, png, turned_jpeg

# Flags whose effect other tests show, and where.
ELSEWHERE = {
    "output": "every test",
    "overwrite": "test_jobs.py",
    "temp_dir": "test_jobs.py",
    "num_readers": "tests/transforms/dataset/test_shard_counts.py",
    "box_format": "tests/transforms/images/listing/test_boxes.py",
    "box_units": "tests/transforms/images/listing/test_boxes.py",
    "category_ids": "test_coco_ids.py",
    "extension": "test_text_flags.py",
    "keep_fields": "test_kept_fields.py",
    "label_pattern": "tests/transforms/images/listing/test_label_patterns.py",
    "map": "test_image_map.py",
    "map_errors": "test_image_map.py",
    "naming": "test_text_flags.py",
    "warnings": "test_judged_runs.py",
    "wrong_extension": "tests/transforms/images/test_preparing.py",
    "statistics": "test_image_statistics.py",
    "statistics_sample": "test_image_statistics.py",
}
# Flags that have an effect on every job.
ALWAYS = {
    "input", "layout", "output", "max_rejected", "overwrite", "temp_dir", "shard_size",
    "num_readers", "compression", "random_seed", "task", "format", "channels", "image_size",
    "encoding", "statistics", "augmentations", "naming", "extension", "warnings",
    "wrong_extension", "allow_outside", "skip_files", "limit", "map",
}  # fmt: skip

JOBS = {
    "photos": ("--input={tmp}/photos",),
    "sized": ("--input={tmp}/photos", "--image_size=16x16"),
    "rotated": ("--input={tmp}/photos", "--augmentations=rotate(40)"),
    "table": ("--input={tmp}/table.csv",),
    "pairs": ("--input={tmp}/pairs", "--task=segmentation"),
    "dagm": ("--input={tmp}/dagm", "--task=segmentation"),
    "steel": ("--input={tmp}/steel", "--task=segmentation"),
    "coco": ("--input={tmp}/coco", "--annotations={tmp}/coco.json", "--task=detection"),
    "odd": ("--input={tmp}/odd",),
    "idx": ("--input={tmp}/idx",),
    "fixed": ("--input={tmp}/fixed", "--layout=fixed", "--record_shape=3x4x5"),
    "linked": ("--input={tmp}/linked", "--max_rejected=0.9"),
}
CLASSES = "--mask_values=0:0,128:1,255:2"
UNET = ("--format=unet", "--image_size=16x16", CLASSES)
HALVES = "--splits=train:0.5,test:0.5"

# Flag -> a job, its other flags, and the flag with a value that changes it.
EFFECTS: dict[str, tuple[str, tuple[str, ...], str]] = {
    "input": ("photos", (), "--input={tmp}/photos/cat/*/*"),
    "layout": ("pairs", ("--task=classification",), "--layout=folders"),
    "annotations": ("photos", (), "--annotations={tmp}/kinds.csv"),
    "masks": ("pairs", ("--input={tmp}/pairs/images", CLASSES), "--masks={tmp}/pairs/masks"),
    "mask_suffix": (
        "pairs", ("--input={tmp}/pairs/images", "--masks={tmp}/suffix", CLASSES),
        "--mask_suffix=_m",
    ),
    "labels": ("photos", (), "--labels={tmp}/labels.txt"),
    "label_folder": ("photos", (), "--label_folder=-1"),
    "path_field": ("table", (), "--path_field=other"),
    "label_field": ("table", (), "--label_field=kind"),
    "label_delimiter": ("table", ("--multilabel", "--label_field=kinds"), "--label_delimiter=;"),
    "split_from": ("photos", (), "--split_from=folder"),
    "split_by": ("photos", (HALVES,), "--split_by=folder"),
    "only_defective": ("dagm", (), "--only_defective"),
    "max_rejected": ("odd", ("--gif=reject",), "--max_rejected=0.9"),
    "splits": ("photos", (), HALVES),
    "num_shards": ("photos", (), "--num_shards=2"),
    "shard_size": ("photos", (), "--shard_size=2KB"),
    "compression": ("photos", (), "--compression=GZIP"),
    "random_seed": ("photos", (), "--random_seed=9"),
    "task": ("photos", ("--labels=none",), "--task=detection"),
    "format": ("photos", (), "--format=raw"),
    "first_label": ("photos", (), "--first_label=1"),
    "multilabel": ("photos", (), "--multilabel"),
    "include_masks": ("coco", (), "--include_masks"),
    "channels": ("photos", (), "--channels=1"),
    "binary_masks": ("steel", (), "--binary_masks"),
    "mask_threshold": ("pairs", (), "--mask_threshold=100"),
    "mask_values": ("pairs", (), CLASSES),
    "mask_class": ("steel", (), "--mask_class=3"),
    "image_size": ("photos", (), "--image_size=16x16"),
    "resize": ("sized", (), "--resize=fit"),
    "resample": ("sized", (), "--resample=bicubic"),
    "reducing_gap": ("sized", (), "--reducing_gap=1"),
    "fill": ("rotated", (), "--fill=200"),
    "encoding": ("photos", (), "--encoding=PNG"),
    "quality": ("sized", (), "--quality=50"),
    "float_range": ("pairs", UNET, "--float_range=zero_centered"),
    "orientation": ("coco", (), "--orientation=keep"),
    "drawn_on": ("coco", (), "--drawn_on=shown"),
    "gif": ("odd", ("--no_check",), "--gif=reject"),
    "no_check": ("odd", (), "--no_check"),
    "max_pixels": ("photos", (), "--max_pixels=10"),
    "max_scans": ("odd", ("--max_rejected=0.9",), "--max_scans=5"),
    "max_metadata_bytes": ("odd", ("--max_rejected=0.9",), "--max_metadata_bytes=5"),
    "max_objects": ("coco", ("--max_rejected=0.9",), "--max_objects=1"),
    "max_drawn_pixels": (
        "coco", ("--include_masks", "--max_rejected=0.9"),
        "--max_drawn_pixels=1000",
    ),
    "allow_outside": ("linked", ("--max_rejected=0.9",), "--allow_outside={tmp}/photos"),
    "skip_files": ("photos", (), "--skip_files={tmp}/photos/cat/*"),
    "limit": ("photos", (), "--limit=1"),
    "record_shape": ("fixed", (), "--record_shape=4x5x3"),
    "record_bytes": ("fixed", (), "--record_bytes=122"),
    "label_offset": ("fixed", ("--record_bytes=122",), "--label_offset=1"),
    "augmentations": ("photos", (), "--augmentations=flip"),
    "copies": ("rotated", (), "--copies=2"),
    "augment_splits": ("rotated", (HALVES,), "--augment_splits=all"),
    "keep_original": ("rotated", (), "--keep_original"),
    "write_augmentations": ("rotated", (), "--write_augmentations"),
    "min_visible": ("coco", ("--augmentations=crop(0.05)",), "--min_visible=0.9"),
}  # fmt: skip

# A job, its other flags, and a flag that has no effect on it.
REFUSED: list[tuple[str, tuple[str, ...], str]] = [
    ("photos", ("--layout=folders",), "--annotations={tmp}/coco.json"),
    ("dagm", ("--layout=dagm",), "--masks={tmp}/pairs/masks"),
    ("steel", ("--layout=severstal", "--annotations={tmp}/steel/train.csv"), "--masks={tmp}/pairs"),
    ("photos", (), "--mask_suffix=_m"),
    ("photos", (), "--box_format=xywh"),
    ("pairs", (CLASSES,), "--box_units=fraction"),
    ("photos", (), "--keep_fields=caption"),
    ("photos", (), "--category_ids=original"),
    ("coco", (), "--label_pattern=(a)"),
    ("pairs", (CLASSES,), "--labels=from_folder"),
    ("dagm", (), "--labels=from_field"),
    ("pairs", (CLASSES,), "--label_folder=-1"),
    ("table", (), "--label_folder=-1"),
    ("dagm", ("--task=classification",), "--label_folder=-1"),
    ("photos", (), "--path_field=path"),
    ("photos", (), "--label_field=kind"),
    ("table", ("--labels=from_folder", "--annotations={tmp}/table.csv"),
     "--label_field=kind"),
    ("photos", (), "--label_delimiter=;"),
    ("pairs", (CLASSES,), "--split_from=none"),
    ("steel", (), "--split_from=none"),
    ("table", (), "--split_from=none"),
    ("photos", (), "--split_by=folder"),
    ("dagm", (), "--split_by=folder"),
    ("photos", ("--split_from=folder",), "--split_by=folder"),
    ("photos", (), "--only_defective"),
    ("pairs", (CLASSES,), "--only_defective"),
    ("dagm", (), "--splits=train:1"),
    ("photos", (), "--num_shards=nosuch:2"),
    ("pairs", (CLASSES,), "--first_label=0"),
    ("steel", ("--mask_class=3",), "--first_label=0"),
    ("steel", ("--binary_masks",), "--first_label=0"),
    ("pairs", (CLASSES,), "--multilabel"),
    ("coco", (), "--multilabel"),
    ("photos", (), "--include_masks"),
    ("pairs", (CLASSES,), "--include_masks"),
    ("photos", (), "--binary_masks"),
    ("coco", (), "--binary_masks"),
    ("photos", (), "--mask_threshold=3"),
    ("steel", (), "--mask_threshold=3"),
    ("photos", (), CLASSES),
    ("steel", (), CLASSES),
    ("photos", (), "--mask_class=3"),
    ("pairs", (), "--mask_class=3"),
    ("dagm", (), "--mask_class=3"),
    ("photos", (), "--resize=fit"),
    ("photos", (), "--resample=bicubic"),
    ("photos", ("--augmentations=flip",), "--resample=bicubic"),
    ("photos", (), "--reducing_gap=1"),
    ("sized", ("--resample=nearest",), "--reducing_gap=1"),
    ("sized", (), "--fill=9"),
    ("photos", ("--augmentations=flip,color",), "--fill=9"),
    ("photos", ("--orientation=keep",), "--quality=50"),
    ("sized", ("--encoding=PNG",), "--quality=50"),
    ("sized", ("--format=raw",), "--quality=50"),
    ("pairs", UNET, "--quality=50"),
    ("photos", (), "--float_range=zero_centered"),
    ("sized", ("--format=raw",), "--float_range=zero_centered"),
    ("photos", (), "--record_shape=3x4x5"),
    ("photos", (), "--record_bytes=99"),
    ("photos", (), "--label_offset=1"),
    ("idx", (), "--gif=reject"),
    ("idx", (), "--orientation=keep"),
    ("idx", ("--image_size=16x16",), "--quality=50"),
    ("fixed", (), "--quality=50"),
    ("photos", (), "--drawn_on=shown"),
    ("sized", (), "--no_check"),
    ("photos", ("--encoding=JPEG",), "--no_check"),
    ("idx", (), "--no_check"),
    ("idx", (), "--max_pixels=10"),
    ("idx", (), "--max_scans=10"),
    ("idx", (), "--max_metadata_bytes=10"),
    ("photos", (), "--max_drawn_pixels=10"),
    ("photos", (), "--max_objects=10"),
    ("photos", (), "--statistics_sample=9"),
    ("photos", (), "--map_errors=fail"),
    ("photos", (), "--copies=2"),
    ("photos", (), "--augment_splits=all"),
    ("photos", (), "--keep_original"),
    ("photos", (), "--write_augmentations"),
    ("photos", ("--augmentations=crop",), "--min_visible=0.5"),
    ("pairs", (CLASSES, "--augmentations=crop"), "--min_visible=0.5"),
    ("coco", (), "--min_visible=0.5"),
    ("coco", ("--augmentations=color",), "--min_visible=0.5"),
]  # fmt: skip


def name_of(flag: str) -> str:
    return flag.partition("=")[0].removeprefix("--")


def all_flags() -> set[str]:
    return set(options_of(ImagesSpec))


def write_photos(folder: Path) -> None:
    rows = ["path,other,label,kind,kinds"]
    names = [f"{('cat', 'dog')[i % 2]}/{('x', 'y')[i // 2 % 2]}/{i}.jpg" for i in range(8)]
    for i, name in enumerate(names):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(jpeg(50 + i, 40, seed=i))
        kind = "ab"[i % 3 > 0]
        rows.append(f"photos/{name},photos/{names[i - 1]},{name[:3]},{kind},{kind};c")
    (folder.parent / "table.csv").write_text("\n".join(rows) + "\n")
    kinds = [",".join(row.split(",")[::3]) for row in rows[1:]]
    (folder.parent / "kinds.csv").write_text("\n".join(["path,label", *kinds]) + "\n")


def write_masks(root: Path) -> None:
    for folder in ("pairs/images", "pairs/masks", "suffix"):
        (root / folder).mkdir(parents=True)
    stripes = np.repeat(np.array([[0, 128, 255]], np.uint8), 8, axis=1).repeat(20, axis=0)
    mask = encoded(Image.fromarray(stripes), "PNG")
    for i in range(4):
        (root / f"pairs/images/{i}.png").write_bytes(png(24, 20, seed=i))
        (root / f"pairs/masks/{i}.png").write_bytes(mask)
        (root / f"suffix/{i}_m.png").write_bytes(mask)


def write_dagm(root: Path) -> None:
    place = root / "dagm/Class1/Train"
    (place / "Label").mkdir(parents=True)
    rows = ["1\t0\t0\t0\t0", "1\t1\t1.PNG\t0\t1_label.PNG", "2\t0\t2.PNG\t0\t0"]
    (place / "Label/Labels.txt").write_text("\n".join(rows))
    for i in (1, 2):
        (place / f"{i}.PNG").write_bytes(png(24, 20, seed=i))
    mask = Image.fromarray(np.full((20, 24), 255, np.uint8))
    (place / "Label/1_label.PNG").write_bytes(encoded(mask, "PNG"))


def write_annotated(root: Path) -> None:
    (root / "steel/train_images").mkdir(parents=True)
    (root / "coco").mkdir()
    images, notes = [], []
    for i in range(4):
        (root / f"steel/train_images/{i}.jpg").write_bytes(jpeg(24, 20, seed=i))
        (root / f"coco/{i}.jpg").write_bytes(turned_jpeg(6, 24, 20) if i else jpeg(24, 20))
        images.append({"id": i, "file_name": f"{i}.jpg"})
        notes.append({
            "image_id": i, "category_id": 1, "bbox": [4, 3, 12, 9],
            "segmentation": [[4, 3, 16, 3, 16, 12, 4, 12]],
        })  # fmt: skip
    notes.append({**notes[0], "bbox": [1, 1, 9, 9]})
    rows = ["ImageId,ClassId,EncodedPixels", "0.jpg,1,1 10", "0.jpg,3,25 20", "1.jpg,3,49 5"]
    (root / "steel/train.csv").write_text("\n".join(rows) + "\n")
    content = {"images": images, "annotations": notes, "categories": [{"id": 1, "name": "cat"}]}
    (root / "coco.json").write_text(json.dumps(content))


def write_odd(root: Path) -> None:
    """An animation, a cut photo, and images of an idx file."""
    (root / "odd/cat").mkdir(parents=True)
    (root / "odd/cat/film.gif").write_bytes(animated())
    (root / "odd/cat/still.jpg").write_bytes(encoded(drawn(), "JPEG"))
    (root / "odd/cat/slow.jpg").write_bytes(jpeg(progressive=True))
    (root / "linked/cat").mkdir(parents=True)
    (root / "linked/cat/own.jpg").write_bytes(jpeg())
    (root / "linked/cat/other.jpg").symlink_to("../../photos/cat/x/0.jpg")
    (root / "odd/cat/cut.jpg").write_bytes(jpeg(300, 200)[:-800])
    (root / "fixed").mkdir()
    (root / "fixed/data_batch_1.bin").write_bytes(bytes([*range(123), 0, *range(124, 244)]))
    (root / "idx").mkdir()
    data = struct.pack(">IIII", 0x803, 4, 5, 6) + bytes(range(120))
    labels = struct.pack(">II", 0x801, 4) + bytes([0, 1, 0, 1])
    for name, content in (("images-idx3", data), ("labels-idx1", labels)):
        (root / f"idx/train-{name}-ubyte.gz").write_bytes(gzip.compress(content))


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("inputs")
    write_photos(root / "photos")
    write_masks(root)
    write_dagm(root)
    write_annotated(root)
    write_odd(root)
    (root / "labels.txt").write_text("dog\ncat\n")
    return root


Behaviour = tuple[int, dict[str, bytes]]


@pytest.fixture(scope="module")
def behaviour(inputs: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Behaviour]:
    """Runs a job, later flags instead of earlier ones; returns its status and its shards."""
    done: dict[tuple[str, ...], Behaviour] = {}

    def run(*flags: str) -> Behaviour:
        last = {name_of(flag): flag.format(tmp=inputs) for flag in flags}
        key = tuple(sorted(last.values()))
        if key not in done:
            output = tmp_path_factory.mktemp("out") / "ds"
            status = main(["images", *key, f"--output={output}", "--direct_num_workers=1"])
            shards = {
                str(path.relative_to(output)): path.read_bytes()
                for path in sorted(output.glob("*/*.tfrecords"))
            }
            shutil.rmtree(output, ignore_errors=True)
            done[key] = status, shards
        return done[key]

    return run


def test_every_flag_is_in_the_walk() -> None:
    flags = all_flags()
    assert EFFECTS.keys() | ELSEWHERE.keys() == flags
    assert not EFFECTS.keys() & ELSEWHERE.keys()
    refused = {name_of(flag) for _, _, flag in REFUSED}
    assert refused | ALWAYS == flags
    assert not refused & ALWAYS
    for name, (_, _, flag) in EFFECTS.items():
        assert name_of(flag) == name


@pytest.mark.slow
@pytest.mark.parametrize("name", EFFECTS)
def test_each_flag_changes_a_job(name: str, behaviour: Callable[..., Behaviour]) -> None:
    job, others, flag = EFFECTS[name]
    without, with_flag = (behaviour(*JOBS[job], *others, *more) for more in ((), (flag,)))
    assert without != with_flag
    assert 0 in (without[0], with_flag[0])


@pytest.mark.parametrize(("job", "others", "flag"), REFUSED)
def test_a_flag_without_effect_is_refused(
    job: str,
    others: tuple[str, ...],
    flag: str,
    behaviour: Callable[..., Behaviour],
    inputs: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    last = {name_of(f): f.format(tmp=inputs) for f in (*JOBS[job], *others, flag)}
    assert main(["images", *last.values(), f"--output={tmp_path}/ds"]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert f"--{name_of(flag)}" in error
    assert not (tmp_path / "ds").exists()


@pytest.mark.parametrize("job", JOBS)
def test_defaults_are_never_refused(job: str, inputs: Path, tmp_path: Path) -> None:
    """A template gives every flag, those that are not asked for with their defaults."""
    defaults = {name: each.default for name, each in options_of(ImagesSpec).items()}
    given = [name_of(flag) for flag in JOBS[job]]
    flags = [
        f"--{name}={value}"
        for name, value in defaults.items()
        if isinstance(value, str | int | float)
        and not isinstance(value, bool)
        and value != ""
        and name not in given
    ]
    more = {"pairs": (CLASSES,), "odd": ("--max_rejected=1",)}.get(job, ())
    flags = [flag for flag in flags if name_of(flag) not in map(name_of, more)]
    place = (f"--output={tmp_path}/ds", "--direct_num_workers=1")
    line = [*(flag.format(tmp=inputs) for flag in JOBS[job]), *more, *flags, *place]
    assert main(["images", *line]) == 0
