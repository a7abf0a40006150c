"""One image from bytes to record content: passed through or changed, with what is said of it."""

from __future__ import annotations

import io
import pickle
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace
from PIL import Image, ImageDraw, ImageOps

from recordmill.transforms.dataset.rejects import REASONS
from recordmill.transforms.images.columns import Prepared
from recordmill.transforms.images.decoding import ImageRejectedError
from recordmill.transforms.images.image_spec import (
    AugmentationSpec,
    DecodeSpec,
    EncodeSpec,
    ImageSpec,
    MaskClassSpec,
    TransformSpec,
)
from recordmill.transforms.images.preparing import prepare
from recordmill.transforms.images.references import ImageObject, ImageReference, Region, StoredBytes

from ...pictures import BROKEN, WHOLE, animated, drawn, encoded, jpeg, png, turned, turned_jpeg

LABELS = {"cat": 1, "dog": 2}
FLIP = AugmentationSpec.parse("flip(1)")
EVERYTHING = AugmentationSpec.parse("flip,rot90,crop,rotate,color,noise,cutout,randaugment")
SMALL = TransformSpec(size=(20, 30))


def work(task: str = "classification", form: str = "tfds", **options: Any) -> ImageSpec:
    return ImageSpec(task, form, LABELS, **options)  # type: ignore[arg-type]


def make(
    data: bytes, using: ImageSpec | None = None, mask: bytes | None = None, **said
) -> Prepared:
    options = {name: said.pop(name) for name in ("key", "copy") if name in said}
    reference = ImageReference(
        **{"name": "a/b", "image": StoredBytes("/x"), "labels": ("dog",), **said}
    )
    return prepare(reference, data, mask, using or work(), **{"key": 5, "copy": None, **options})


def reason(*args: Any, **said: Any) -> str:
    with pytest.raises(ImageRejectedError) as caught:
        make(*args, **said)
    assert caught.value.reason in REASONS
    return caught.value.reason


def opened(prepared: Prepared) -> Image.Image:
    return Image.open(io.BytesIO(prepared.data))


class TestPassingThrough:
    @pytest.mark.parametrize("name", ["rgb.jpg", "cmyk.jpg", "rgba.png", "rgb.webp", "rgb.bmp"])
    def test_bytes_are_the_same(self, name):
        found = make(WHOLE[name], name=name)
        assert found.data is WHOLE[name]
        assert (found.width, found.height) == (48, 32)
        assert found.counts == {"images_passed": 1}
        assert found.augmentation == {}

    def test_keeping_what_augmentation_was_not_asked_of(self):
        using = work(augmentation=FLIP)
        for copy in (None, 0):
            assert make(jpeg(), using, copy=copy).data == jpeg()
        assert make(jpeg(), using, copy=1).data != jpeg()

    @pytest.mark.parametrize("name", ["still.gif", "animated.gif", "rgb.tiff", "pages.tif"])
    def test_what_readers_do_not_take_becomes_png(self, name):
        found = make(WHOLE[name], name=name)
        assert found.format == opened(found).format == "PNG"
        first = Image.open(io.BytesIO(WHOLE[name])).convert("RGB")
        np.testing.assert_array_equal(np.asarray(opened(found)), np.asarray(first))
        assert found.counts == {"images_encoded": 1}

    def test_is_decoded_all_the_same(self):
        for name in ("cut.jpg", "cut.png", "flipped.png"):
            data, expected = BROKEN[name]
            assert reason(data) == expected
            assert make(data, work(decode=DecodeSpec(verifies=False))).data == data

    @pytest.mark.parametrize("name", ["empty.jpg", "text.jpg", "zero.png", "bomb.png"])
    def test_without_a_check_the_header_still_counts(self, name):
        data, expected = BROKEN[name]
        assert reason(data, work(decode=DecodeSpec(verifies=False))) == expected


STORED_BOX = (4, 30, 20, 42)  # of a red square, low on the left of a picture of 64 x 48


def marked(form: str, orientation: int) -> tuple[bytes, Image.Image, tuple[float, ...]]:
    """A picture that EXIF turns, a mask of its square as shown, and the box around that."""
    image = Image.new("RGB", (64, 48))
    ImageDraw.Draw(image).rectangle((4, 30, 19, 41), fill=(255, 0, 0))
    exif = Image.Exif()
    exif[0x0112] = orientation
    options = {"quality": 100, "subsampling": 0} if form == "JPEG" else {}
    mask = image.getchannel(0).point(lambda value: value // 255)
    mask.getexif()[0x0112] = orientation
    shown = ImageOps.exif_transpose(mask)
    return encoded(image, form, exif=exif, **options), shown, shown.getbbox()


class TestOrientation:
    """Pixels, boxes and masks are turned together, whichever picture annotations were drawn on."""

    @pytest.mark.parametrize("orientation", range(1, 9))
    @pytest.mark.parametrize("form", ["JPEG", "PNG", "WEBP", "TIFF"])
    @pytest.mark.parametrize("drawn_on", ["", "stored", "shown"])
    @pytest.mark.parametrize("how", ["upright", "keep"])
    @pytest.mark.parametrize("size", [None, (96, 96)])
    def test_boxes_are_where_the_pixels_are(self, orientation, form, drawn_on, how, size):
        data, _, shown_box = marked(form, orientation)
        box = shown_box if drawn_on == "shown" else STORED_BOX
        using = work(
            "detection", decode=DecodeSpec(orientation=how), drawn_on=drawn_on,
            transform=TransformSpec(size=size),
        )  # fmt: skip
        found = make(data, using, objects=(ImageObject("cat", box),))
        image = opened(found)
        assert (found.width, found.height) == image.size
        assert image.getexif().get(0x0112, 1) == 1 or found.data == data
        red = image.getchannel(0).point(lambda value: 255 * (value > 127)).getbbox()
        assert found.objects[0].box == pytest.approx(red, abs=1)
        if size is None:
            expected = shown_box if how == "upright" else STORED_BOX
            assert found.objects[0].box == pytest.approx(expected, abs=0)

    @pytest.mark.parametrize("orientation", range(2, 9))
    @pytest.mark.parametrize("drawn_on", ["stored", "shown"])
    @pytest.mark.parametrize("how", ["upright", "keep"])
    @pytest.mark.parametrize(
        ("form", "own"), [("PNG", None), ("PNG", 6), ("TIFF", None), ("TIFF", 3), ("TIFF", 6)]
    )
    def test_masks_are_where_the_pixels_are(self, orientation, drawn_on, how, form, own):
        """The orientation of a mask's own says nothing."""
        data, shown, _ = marked("PNG", orientation)
        stored = np.zeros((48, 64), np.uint8)
        stored[30:42, 4:20] = 1
        mask = shown if drawn_on == "shown" else Image.fromarray(stored)
        using = work("segmentation", decode=DecodeSpec(orientation=how), drawn_on=drawn_on)
        reference = ImageReference("a/b", StoredBytes("/x"), mask=StoredBytes("/y"))
        exif = Image.Exif()
        if own:
            exif[0x0112] = own
        mask_data = encoded(mask, form, exif=exif)
        found = prepare(reference, data, mask_data, using, key=5, copy=None)
        red = np.asarray(opened(found))[..., 0] > 127
        np.testing.assert_array_equal(found.mask, red)

    def test_kept_and_resized_images_lie_alike(self):
        for how in ("upright", "keep"):
            decode = DecodeSpec(orientation=how)
            kept = make(turned("PNG", 6), work(decode=decode))
            size = (kept.height, kept.width)
            sized = make(turned("PNG", 6), work(decode=decode, transform=TransformSpec(size=size)))
            np.testing.assert_array_equal(np.asarray(opened(kept)), np.asarray(opened(sized)))

    def test_bytes_are_kept_where_nothing_is_turned(self):
        assert make(turned_jpeg(1)).data == turned_jpeg(1)
        kept = make(turned_jpeg(6), work(decode=DecodeSpec(orientation="keep")))
        assert (kept.data, kept.width, kept.height) == (turned_jpeg(6), 48, 32)
        assert kept.counts == {"images_passed": 1, "images_unturned": 1}
        assert make(turned_jpeg(6)).counts == {"images_encoded": 1, "images_turned": 1}

    @pytest.mark.parametrize("form", ["PNG", "TIFF"])
    def test_lossless_images_are_turned_without_loss(self, form):
        data = turned(form, 6)
        shown = ImageOps.exif_transpose(Image.open(io.BytesIO(data)))
        found = make(data)
        assert found.format == "PNG"
        np.testing.assert_array_equal(np.asarray(opened(found)), np.asarray(shown))

    def test_what_annotations_were_drawn_on_is_unclear_only_where_it_matters(self):
        objects = (ImageObject("cat", (3, 4, 20, 30)),)
        for orientation, drawn_on, some, unclear in (
            (6, "", objects, 1), (6, "stored", objects, 0), (6, "shown", objects, 0),
            (1, "", objects, 0), (6, "", (), 0),
        ):  # fmt: skip
            using = work("detection", drawn_on=drawn_on)
            counts = make(turned_jpeg(orientation), using, objects=some).counts
            assert counts.get("images_turned_unclear", 0) == unclear
        counts = make(turned_jpeg(6), objects=objects).counts  # a classification writes no boxes
        assert counts == {"images_encoded": 1, "images_turned": 1}

    @pytest.mark.parametrize(
        ("orientation", "drawn_on", "size", "hint"),
        [
            (6, "", (32, 48), "shown"), (6, "shown", (48, 32), "stored"), (6, "", (10, 10), ""),
            (1, "", (32, 48), ""), (3, "", (32, 48), ""),
        ],
    )  # fmt: skip
    def test_a_mask_or_region_of_the_other_picture_names_the_flag(
        self, orientation, drawn_on, size, hint
    ):
        mask = encoded(Image.new("L", size), "PNG")
        runs = Region("coco", runs=(size[0] * size[1],), size=(size[1], size[0]))
        using = work("segmentation", drawn_on=drawn_on)
        for said, expected in (
            ({"mask": StoredBytes("/y")}, "mask_size"),
            ({"regions": (("cat", runs),)}, "broken_mask"),
        ):
            reference = ImageReference("a/b", StoredBytes("/x"), **said)
            with pytest.raises(ImageRejectedError) as caught:
                prepare(reference, turned_jpeg(orientation), mask, using, key=5, copy=None)
            assert caught.value.reason == expected
            cure = f"EXIF turns the image: see --drawn_on={hint}"
            assert caught.value.detail.endswith(cure) == bool(hint)
            assert ("--drawn_on" in caught.value.detail) == bool(hint)

    def test_a_cut_mask_does_not_name_the_flag(self):
        mask = encoded(Image.new("L", (32, 48)), "PNG")[:45]
        reference = ImageReference("a/b", StoredBytes("/x"), mask=StoredBytes("/y"))
        with pytest.raises(ImageRejectedError) as caught:
            prepare(reference, turned_jpeg(6), mask, work("segmentation"), key=5, copy=None)
        assert caught.value.reason == "broken_mask"
        assert "--drawn_on" not in caught.value.detail


class TestRejects:
    @pytest.mark.parametrize("name", BROKEN)
    def test_broken(self, name):
        data, expected = BROKEN[name]
        assert reason(data, name=name) == expected
        assert reason(data, work(transform=SMALL), name=name) == expected

    def test_extension(self):
        assert reason(png(), name="a/b.jpg") == "wrong_extension"

    def test_frames(self):
        assert reason(animated(), work(decode=DecodeSpec(gif="reject"))) == "several_frames"

    def test_labels(self):
        assert reason(png(), labels=()) == "label_count"
        assert reason(png(), labels=("cat", "dog")) == "label_count"
        assert reason(png(), labels=("cow",)) == "unknown_label"
        both = make(png(), work(multilabel=True), labels=("dog", "cat"))
        assert both.labels == (("dog", 2), ("cat", 1))
        assert make(png(), work(multilabel=True), labels=()).labels == ()


class TestChanging:
    @pytest.mark.parametrize(
        ("name", "written"),
        [("rgb.jpg", "JPEG"), ("rgb.png", "PNG"), ("rgb.webp", "WEBP"), ("rgb.bmp", "PNG")],
    )
    def test_size_and_format(self, name, written):
        found = make(WHOLE[name], work(transform=SMALL))
        assert (found.width, found.height, found.format) == (30, 20, written)
        assert (opened(found).size, opened(found).format) == ((30, 20), written)
        as_png = make(WHOLE[name], work(transform=SMALL, encode=EncodeSpec("PNG")))
        assert opened(as_png).format == "PNG"

    def test_grey(self):
        found = make(WHOLE["rgb.png"], work(channels=1, encode=EncodeSpec("PNG")))
        assert (found.channels, opened(found).mode) == (1, "L")
        assert opened(make(WHOLE["rgb.jpg"], work(channels=1))).mode == "L"
        assert make(WHOLE["grey.jpg"], work(channels=1)).data == WHOLE["grey.jpg"]
        assert make(WHOLE["grey.jpg"]).data == WHOLE["grey.jpg"]

    def test_turned_then_resized(self):
        # A red square low on the left of the stored image; EXIF 6 turns it to the left at the top.
        image = Image.new("RGB", (64, 48))
        ImageDraw.Draw(image).rectangle((4, 30, 19, 41), fill=(255, 0, 0))
        exif = Image.Exif()
        exif[0x0112] = 6
        data = encoded(image, "JPEG", quality=100, subsampling=0, exif=exif)
        objects = (ImageObject("cat", (4, 30, 20, 42)),)
        spec = TransformSpec(size=(128, 96))
        using = work("detection", transform=spec, encode=EncodeSpec("PNG"))
        found = make(data, using, objects=objects)
        red = np.asarray(opened(found))[..., 0] > 127
        rows, columns = np.nonzero(red)
        around = (columns.min(), rows.min(), columns.max() + 1, rows.max() + 1)
        assert found.objects[0].box == pytest.approx(around, abs=1)
        assert found.objects[0].box == (12, 8, 36, 40)

    def test_a_large_jpeg_is_decoded_small_and_looks_the_same(self):
        data = jpeg(1600, 1200)
        using = work(transform=TransformSpec(size=(96, 128)), encode=EncodeSpec("PNG"))
        shrunk = np.asarray(opened(make(data, using))).astype(int)
        whole = Image.open(io.BytesIO(data)).resize((128, 96), Image.Resampling.BILINEAR)
        assert np.abs(shrunk - np.asarray(whole)).mean() < 1.5

    def test_raw_and_floats(self):
        raw = make(png(), work(form="raw", encode=EncodeSpec("raw"), transform=SMALL))
        assert (raw.data.dtype, raw.data.shape, raw.format) == (np.uint8, (20, 30, 3), "")
        untouched = make(png(), work(form="raw", encode=EncodeSpec("raw")))
        np.testing.assert_array_equal(untouched.data, np.asarray(drawn()))

    def test_idx(self):
        image = StoredBytes("/x", "idx", 16, 6, (2, 3))
        found = make(bytes(range(6)), image=image, name="images#0")
        assert np.asarray(opened(found))[..., 0].tolist() == [[0, 1, 2], [3, 4, 5]]
        assert reason(b"123", image=image) == "truncated_image"


class TestCopies:
    USING = work(augmentation=EVERYTHING, encode=EncodeSpec("PNG"), transform=SMALL)

    def test_are_the_same_for_ever_and_differ(self):
        copies = [make(png(), self.USING, copy=copy) for copy in (1, 2, 3)]
        again = [make(png(), pickle.loads(pickle.dumps(self.USING)), copy=c) for c in (1, 2, 3)]
        assert [c.data for c in copies] == [c.data for c in again]
        assert len({c.data for c in copies}) == 3
        assert [c.augmentation["copy"] for c in copies] == [1, 2, 3]
        other = [make(png(), self.USING, copy=1, key=6), make(png(), self.USING, copy=None)]
        assert len({c.number for c in [*copies, *other]}) == 5

    def test_held_bytes_count_all(self):
        using = work("detection", masks=True)
        region = Region("runs", runs=(1, 5))
        found = make(png(), using, objects=(ImageObject("cat", (0, 0, 9, 9), region),))
        assert found.held_bytes == len(png()) + len(found.objects[0].mask)

    def test_seed(self):
        other = work(augmentation=EVERYTHING, encode=EncodeSpec("PNG"), transform=SMALL, seed=1)
        assert make(png(), other, copy=1).data != make(png(), self.USING, copy=1).data

    def test_a_flip_moves_pixels_boxes_and_masks_alike(self):
        region = Region("polygons", polygons=((4.0, 4.0, 20.0, 4.0, 20.0, 10.0, 4.0, 10.0),))
        objects = (ImageObject("cat", (4, 4, 20, 10), region),)
        using = work("detection", augmentation=FLIP, encode=EncodeSpec("PNG"), masks=True)
        found = make(png(), using, objects=objects, copy=1)
        np.testing.assert_array_equal(np.asarray(opened(found)), np.asarray(drawn())[:, ::-1])
        (item,) = found.objects
        assert item.box == (28, 4, 44, 10)
        mask = np.asarray(Image.open(io.BytesIO(item.mask)))
        assert mask[4:10, 28:44].all()
        assert mask.sum() == 96
        assert found.augmentation == {"copy": 1, "flip": True}


class TestSegmentation:
    CLASSES = (np.indices((32, 48)).sum(axis=0) // 20 % 3).astype(np.uint8)
    MASK = encoded(Image.fromarray(CLASSES), "PNG")
    USING = work("segmentation", augmentation=FLIP)

    def make(self, data: bytes | None, using: ImageSpec | None = None, **said: Any) -> Prepared:
        said = {"mask": StoredBytes("/m"), "has_mask": True, **said}
        reference = ImageReference("a.png", StoredBytes("/x"), **said)
        return prepare(reference, png(), data, using or self.USING, key=1, copy=None)

    def reason(self, *args: Any, **said: Any) -> str:
        with pytest.raises(ImageRejectedError) as caught:
            self.make(*args, **said)
        return caught.value.reason

    def test_passed_and_flipped(self):
        np.testing.assert_array_equal(self.make(self.MASK).mask, self.CLASSES)
        reference = ImageReference("a.png", StoredBytes("/x"), mask=StoredBytes("/m"))
        found = prepare(reference, png(), self.MASK, self.USING, key=1, copy=1)
        np.testing.assert_array_equal(found.mask, self.CLASSES[:, ::-1])

    def test_resized(self):
        found = self.make(self.MASK, work("segmentation", transform=TransformSpec(size=(64, 96))))
        np.testing.assert_array_equal(found.mask[::2, ::2], self.CLASSES)
        assert found.mask.shape == (found.height, found.width) == (64, 96)

    def test_two_classes(self):
        grey = np.zeros((32, 48), np.uint8)
        grey[:, 10:20], grey[:, 20:] = 127, 255
        mask = encoded(Image.fromarray(grey), "PNG")
        assert self.reason(mask) == "mask_classes"
        found = self.make(mask, work("segmentation", mask_classes=MaskClassSpec(binary=True)))
        assert found.mask[0].tolist() == [0] * 20 + [1] * 28

    def test_pixels_without_a_class(self):
        classes = self.CLASSES.copy()
        classes[0] = 255
        mask = encoded(Image.fromarray(classes), "PNG")
        np.testing.assert_array_equal(self.make(mask).mask, classes)
        classes[0] = 3
        assert self.reason(encoded(Image.fromarray(classes), "PNG")) == "mask_classes"

    def test_rejects(self):
        assert self.reason(encoded(Image.fromarray(self.CLASSES[1:]), "PNG")) == "mask_size"
        assert self.reason(self.MASK[:40]) == "broken_mask"
        assert self.reason(b"") == "broken_mask"
        assert self.reason(None, mask=None, has_mask=False) == "no_mask"

    def test_regions(self):
        regions = (("dog", Region("runs", runs=(1, 32))),)
        found = self.make(None, mask=None, regions=regions)
        assert found.mask[:, 0].tolist() == [2] * 32
        assert found.mask[:, 1:].sum() == 0
        assert self.make(None, mask=None).mask.sum() == 0  # an image without defects

    def test_turned_with_the_image(self):
        using = work("segmentation", transform=TransformSpec(size=(48, 32)))
        reference = ImageReference("a.jpg", StoredBytes("/x"), mask=StoredBytes("/m"))
        found = prepare(reference, turned_jpeg(6), self.MASK, using, key=1, copy=None)
        np.testing.assert_array_equal(found.mask, np.rot90(self.CLASSES, -1))


class TestObjectsAsClassMask:
    """COCO's polygons and runs, for segmentation."""

    LEFT = Region("polygons", polygons=((0, 0, 4, 0, 4, 8, 0, 8),))
    SMALL = Region("polygons", polygons=((1, 1, 3, 1, 3, 3, 1, 3),))

    def mask(self, *objects: ImageObject, has_mask: bool = False):
        data = encoded(Image.new("RGB", (8, 8)), "PNG")
        image = ImageReference("a.png", StoredBytes("a.png"), objects=objects, has_mask=has_mask)
        spec = ImageSpec(
            task="segmentation", format="tfds", labels={"cat": 1, "dog": 2},
            encode=EncodeSpec("keep"),
        )  # fmt: skip
        return prepare(image, data, None, spec, key=1, copy=None).mask

    def test_small_objects_are_above_large_ones_and_crowds_below(self):
        cat = ImageObject("cat", None, self.SMALL, area=4)
        dog = ImageObject("dog", None, self.LEFT, area=32)
        for objects in ((cat, dog), (dog, cat)):
            mask = self.mask(*objects)
            assert (mask[:, 4:] == 0).all()
            assert (mask == 1).sum() == 4
            assert (mask == 2).sum() == 28
        crowd = ImageObject("cat", None, self.SMALL, is_crowd=True, area=4)
        assert (self.mask(crowd, dog) == 2).sum() == 32

    def test_images_without_objects(self):
        assert not self.mask(has_mask=True).any()
        with pytest.raises(ImageRejectedError, match="no_mask"):
            self.mask(ImageObject("cat", (0, 0, 4, 4)))


def test_names_of_another_format_are_accepted_by_flag():
    data = encoded(Image.new("RGB", (8, 8)), "PNG")
    image = ImageReference("a.jpg", StoredBytes("a.jpg"), labels=("cat",))
    spec = ImageSpec(task="classification", format="tfds", labels={"cat": 0})
    with pytest.raises(ImageRejectedError, match="wrong_extension"):
        prepare(image, data, None, spec, key=1, copy=None)
    accepting = replace(spec, decode=DecodeSpec(wrong_extension="accept"))
    assert prepare(image, data, None, accepting, key=1, copy=None).format == "PNG"
