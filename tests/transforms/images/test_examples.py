"""What examples hold: combinations that go together, and records as their readers parse them."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from recordmill.records.codec.encoding import encode_batch
from recordmill.records.errors import UsageError
from recordmill.records.manifest import Manifest, ShardInfo
from recordmill.records.tfds_metadata import tfds_files
from recordmill.transforms.images.columns import Prepared, record_columns
from recordmill.transforms.images.decoding import decode
from recordmill.transforms.images.encoding import encode_mask
from recordmill.transforms.images.image_spec import (
    FORMATS,
    AugmentationSpec,
    DecodeSpec,
    EncodeSpec,
    ImageSpec,
    TransformSpec,
)
from recordmill.transforms.images.preparing import prepare
from recordmill.transforms.images.references import ImageObject, ImageReference, Region, StoredBytes

from ...pictures import WHOLE, jpeg, png

LABELS = {"cat": 1, "dog": 2}
SQUARE = Region("polygons", polygons=((4.0, 4.0, 20.0, 4.0, 20.0, 12.0, 4.0, 12.0),))
OBJECTS = (
    ImageObject("dog", (4, 4, 20, 12), SQUARE, is_crowd=True, area=100.0),
    ImageObject("cat", (0, 0, 48, 32)),
)
REGIONS = (("dog", Region("runs", runs=(1, 64))),)
FIXED = TransformSpec(size=(32, 48))


def work(task: str, form: str, **options: Any) -> ImageSpec:
    options.setdefault("encode", EncodeSpec(FORMATS[form].encodings[0]))
    if form == "unet":
        options.setdefault("transform", FIXED)
    return ImageSpec(task, form, LABELS, **options)  # type: ignore[arg-type]


def prepared(using: ImageSpec) -> list[Prepared]:
    """A JPEG with everything and a PNG with little."""
    said = {
        "classification": [{"labels": ("dog",)}, {"labels": ("cat",)}],
        "detection": [{"objects": OBJECTS}, {}],
        "segmentation": [{"regions": REGIONS, "has_mask": True}, {"has_mask": True}],
    }[using.task]
    if using.multilabel:
        said = [{"labels": ("dog", "cat")}, {}]
    images = [("a/b.jpg", jpeg()), ("c.png", png())]
    return [
        prepare(ImageReference(name, StoredBytes("/x"), **s), data, None, using, key=k, copy=None)
        for k, ((name, data), s) in enumerate(zip(images, said, strict=True))
    ]


def records(using: ImageSpec) -> list[bytes]:
    batch = encode_batch(using.schema, record_columns(using, prepared(using)))
    return [
        batch.buffer[begin + 12 : end - 4].tobytes()
        for begin, end in zip(batch.offsets[:-1], batch.offsets[1:], strict=True)
    ]


def parsed(using: ImageSpec) -> list[dict[str, Any]]:
    found = []
    for record in records(using):
        features = tf.train.Example.FromString(record).features.feature
        found.append(
            {
                name: list(getattr(value, value.WhichOneof("kind")).value)
                for name, value in features.items()
                if value.WhichOneof("kind")
            }
        )
    return found


def shown(array: Any) -> bytes:
    return encode_mask(np.asarray(array, np.uint8))


class TestRecords:
    def test_tfds_classification(self):
        assert parsed(work("classification", "tfds")) == [
            {"image": [jpeg()], "image/filename": [b"a/b.jpg"], "label": [2]},
            {"image": [png()], "image/filename": [b"c.png"], "label": [1]},
        ]

    def test_tfds_several_labels(self):
        first, second = parsed(work("classification", "tfds", multilabel=True))
        assert first["labels"] == [2, 1]
        assert second["labels"] == []

    def test_imagenet(self):
        first, second = parsed(work("classification", "imagenet"))
        assert first == {
            "image/encoded": [jpeg()], "image/format": [b"JPEG"], "image/height": [32],
            "image/width": [48], "image/channels": [3], "image/colorspace": [b"RGB"],
            "image/filename": [b"a/b.jpg"], "image/class/label": [2],
            "image/class/synset": [b"dog"],
        }  # fmt: skip
        assert second["image/format"] == [b"PNG"]

    @pytest.mark.parametrize(
        ("form", "name"), [("object_detection", b"jpeg"), ("model_garden", b"jpg")]
    )
    def test_detection(self, form, name):
        using = work("detection", form, masks=True)
        first, second = parsed(using)
        mask = np.zeros((32, 48))
        mask[4:12, 4:20] = 1
        assert first == {
            "image/encoded": [jpeg()], "image/format": [name], "image/height": [32],
            "image/width": [48], "image/filename": [b"a/b.jpg"],
            "image/source_id": [str(prepared(using)[0].number).encode()],
            "image/key/sha256": [hashlib.sha256(jpeg()).hexdigest().encode()],
            "image/object/bbox/xmin": pytest.approx([4 / 48, 0]),
            "image/object/bbox/xmax": pytest.approx([20 / 48, 1]),
            "image/object/bbox/ymin": pytest.approx([4 / 32, 0]),
            "image/object/bbox/ymax": pytest.approx([12 / 32, 1]),
            "image/object/class/text": [b"dog", b"cat"],
            "image/object/class/label": [2, 1],
            "image/object/is_crowd": [1, 0],
            "image/object/difficult": [0, 0],
            "image/object/area": [100, 48 * 32],
            "image/object/mask": [shown(mask), shown(np.zeros((32, 48)))],
        }  # fmt: skip
        assert second["image/object/bbox/xmin"] == second["image/object/mask"] == []
        assert second["image/height"] == [32]

    def test_model_garden_classification_and_segmentation(self):
        first, _ = parsed(work("classification", "model_garden"))
        assert first["image/class/label"] == [2]
        assert first["image/class/text"] == [b"dog"]
        first, second = parsed(work("segmentation", "model_garden"))
        mask = np.zeros((32, 48))
        mask[:, :2] = 2
        assert first["image/segmentation/class/encoded"] == [shown(mask)]
        assert second["image/segmentation/class/encoded"] == [shown(np.zeros((32, 48)))]

    def test_raw_needs_no_decoding(self):
        first, _ = parsed(work("classification", "raw"))
        pixels = np.frombuffer(first.pop("image")[0], np.uint8).reshape(32, 48, 3)
        np.testing.assert_array_equal(pixels, decode(jpeg(), DecodeSpec(), channels=3).pixels)
        assert first == {"height": [32], "width": [48], "channel": [3], "label": [2]}
        first, _ = parsed(work("segmentation", "raw"))
        assert np.frombuffer(first["mask"][0], np.uint8).sum() == 64 * 2

    def test_unet(self):
        for float_range, low in (("zero_one", 0), ("zero_centered", -1)):
            using = work(
                "segmentation", "unet", encode=EncodeSpec("float", float_range=float_range)
            )
            first, _ = parsed(using)
            pixels = np.array(first["image"]).reshape(32, 48, 3)
            expected = decode(jpeg(), DecodeSpec(), channels=3).pixels / 255 * (1 - low) + low
            np.testing.assert_allclose(pixels, expected, atol=1e-6)
            mask = np.array(first["mask"]).reshape(32, 48, 3)
            np.testing.assert_array_equal(mask[..., :1].repeat(3, axis=-1), mask)
            assert mask[:, :2].min() == mask.max() == 2

    def test_what_was_drawn(self):
        using = work(
            "classification", "tfds", augmentation=AugmentationSpec.parse("flip(1),rotate"),
            write_augmentations=True,
        )  # fmt: skip
        images = [
            prepare(
                ImageReference("a.jpg", StoredBytes("/x"), labels=("dog",)), jpeg(), None, using,
                key=1, copy=copy,
            )
            for copy in (None, 2)
        ]  # fmt: skip
        column = record_columns(using, images)["image/augmentation"]
        pool = column.pool.tobytes()
        texts = [pool[s : s + n] for s, n in zip(column.starts, column.lengths, strict=True)]
        assert json.loads(texts[0]) == {}
        assert json.loads(texts[1]) == images[1].augmentation
        assert json.loads(texts[1])["copy"] == 2

    @pytest.mark.parametrize(("task", "form"), [(t, f) for f in FORMATS for t in FORMATS[f].tasks])
    def test_columns_fit_the_schema(self, task, form):
        masks = task == "detection"
        assert len(records(work(task, form, masks=masks))) == 2


class TestCombinations:
    @pytest.mark.parametrize(
        ("task", "form", "options", "message"),
        [
            ("sorting", "tfds", {}, "task must be one of classification, detection, segm.*"),
            ("detection", "coco", {}, "format must be one of .*, got 'coco'"),
            ("detection", "imagenet", {}, "format must be one of tfds, object_detection, "
             "model_garden for task='detection', got 'imagenet'"),
            ("classification", "unet", {}, "for task='classification', got 'unet'"),
            ("classification", "raw", {"encode": EncodeSpec("JPEG")},
             "EncodeSpec.format must be one of raw for format='raw', got 'JPEG'"),
            ("classification", "tfds", {"encode": EncodeSpec("float")}, "for format='tfds'"),
            ("segmentation", "unet", {"transform": TransformSpec()},
             "format='unet' must have images of one size: .*, got .* without Tr"),
            ("segmentation", "unet", {"transform": TransformSpec(size=(9, 9), mode="longest")},
             "format='unet' must have images of one size: .*, got TransformSpec.mode='longest'$"),
            ("classification", "imagenet", {"multilabel": True}, "multilabel=True must go with"),
            ("detection", "tfds", {"multilabel": True}, "multilabel=True must go with"),
            ("classification", "tfds", {"masks": True}, "masks=True must go with"),
            ("classification", "tfds", {"write_augmentations": True}, "write_augmentations"),
            ("classification", "tfds", {"channels": 4}, "channels must be one of 1, 3, got '4'"),
            ("detection", "tfds", {"min_visible": 2.0}, r"min_visible must be in \[0, 1\]"),
        ],
    )  # fmt: skip
    def test_usage_errors(self, task, form, options, message):
        options = {"encode": EncodeSpec("float" if form == "unet" else "keep"), **options}
        with pytest.raises(UsageError, match=message) as caught:
            ImageSpec(task, form, LABELS, **options)
        assert "\n" not in str(caught.value)

    def test_too_many_classes_for_a_mask(self):
        many = {str(n): n for n in range(1, 257)}
        with pytest.raises(UsageError, match="must have at most 255 classes, got 256"):
            ImageSpec("segmentation", "tfds", many)

    def test_all_that_go_together(self):
        for form, found in FORMATS.items():
            for task in found.tasks:
                for encoding in found.encodings:
                    ImageSpec(task, form, encode=EncodeSpec(encoding), transform=FIXED)

    def test_classes_by_number(self):
        assert work("classification", "tfds").classes == ("background", "cat", "dog")
        zero_based = ImageSpec("classification", "tfds", {"b": 0, "a": 1})
        assert zero_based.classes == ("b", "a")


def read_by_tfds(folder: Path, using: ImageSpec) -> tuple[Any, list[dict[str, Any]]]:
    """Writes the records as a dataset, and returns what TFDS makes of it."""
    import tensorflow_datasets as tfds

    batch = encode_batch(using.schema, record_columns(using, prepared(using)))
    size = batch.buffer.nbytes
    shard = ShardInfo("train", 0, 1, 2, size, size, 0)
    manifest = Manifest(
        name="pictures", config={}, fingerprint="", features=using.schema.to_json(),
        compression="", versions={}, sources={}, counts={}, files={}, shards=[shard],
    )  # fmt: skip
    manifest = Manifest.from_bytes(manifest.to_bytes())
    (folder / "train").mkdir(parents=True)
    (folder / shard.name.path).write_bytes(batch.buffer.tobytes())
    for name, content in tfds_files(manifest, description="").items():
        (folder / name).write_bytes(content)
    builder = tfds.builder_from_directory(str(folder))
    read = tfds.ReadConfig(interleave_cycle_length=1)
    return builder.info, list(builder.as_dataset(split="train", read_config=read))


@pytest.mark.filterwarnings(
    # tensorflow_datasets asks protobuf for the label of a field, which protobuf 6 deprecates.
    r"ignore:label\(\) is deprecated:DeprecationWarning"
)
class TestTfds:
    """TFDS reads every format, and those of its name as its own datasets."""

    def test_classification(self, tmp_path):
        info, (first, second) = read_by_tfds(tmp_path / "1.0.0", work("classification", "tfds"))
        assert info.features["label"].names == ["background", "cat", "dog"]
        assert info.features["label"].int2str(int(first["label"])) == "dog"
        assert info.features["image"].shape == (None, None, 3)
        np.testing.assert_array_equal(
            second["image"], decode(png(), DecodeSpec(), channels=3).pixels
        )

    def test_detection(self, tmp_path):
        using = work("detection", "tfds", masks=True)
        info, (first, second) = read_by_tfds(tmp_path / "1.0.0", using)
        objects = first["objects"]
        np.testing.assert_allclose(
            objects["bbox"], [[4 / 32, 4 / 48, 12 / 32, 20 / 48], [0, 0, 1, 1]], rtol=1e-6
        )
        assert info.features["objects"]["label"].names == ["background", "cat", "dog"]
        assert objects["label"].numpy().tolist() == [2, 1]
        assert objects["is_crowd"].numpy().tolist() == [1, 0]
        assert objects["mask"].shape == (2, 32, 48, 1)
        assert objects["mask"].numpy()[0].sum() == 8 * 16
        assert second["objects"]["bbox"].shape == (0, 4)

    def test_segmentation_of_one_size(self, tmp_path):
        using = work("segmentation", "tfds", transform=FIXED)
        info, (first, _) = read_by_tfds(tmp_path / "1.0.0", using)
        assert info.features["image"].shape == (32, 48, 3)
        assert first["segmentation_mask"].numpy()[:, :2].tolist() == [[[2], [2]]] * 32

    @pytest.mark.parametrize(
        ("task", "form"),
        [
            ("classification", "imagenet"), ("detection", "object_detection"),
            ("segmentation", "model_garden"), ("segmentation", "unet"),
        ],
    )  # fmt: skip
    def test_the_formats_of_others(self, tmp_path, task, form):
        info, found = read_by_tfds(tmp_path / "1.0.0", work(task, form))
        name = "image" if form == "unet" else "image/encoded"
        assert found[0][name].shape == (32, 48, 3)
        assert set(found[0]) == {f.name for f in work(task, form).schema.features}
        if task != "segmentation":
            label = next(name for name in info.features if name.endswith("class/label"))
            assert np.max(found[0][label]) == 2

    def test_raw_pixels_of_one_size_are_an_array(self, tmp_path):
        using = work("classification", "raw", transform=FIXED)
        _, (first, _) = read_by_tfds(tmp_path / "1.0.0", using)
        np.testing.assert_array_equal(
            first["image"], decode(jpeg(), DecodeSpec(), channels=3).pixels
        )


@pytest.mark.parametrize(
    "name",
    ["rgba.png", "transparent_palette.png", "grey_alpha.png", "grey_16.png", "rgb_16.png",
     "one_bit.png", "grey.jpg", "rgb.bmp"],
)  # fmt: skip
def test_tensorflow_decodes_by_the_same_rules(name):
    found = tf.io.decode_image(WHOLE[name], channels=3, expand_animations=False).numpy()
    ours = decode(WHOLE[name], DecodeSpec(), channels=3).pixels
    assert np.abs(found.astype(int) - ours).max() <= (2 if name.endswith(".jpg") else 0)
