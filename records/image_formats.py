"""The record formats of images, each as a `Schema`.

Names and types are those of the readers: TFDS; the TPU models' ImageNet; Model Garden vision; the
Object Detection API; Cerebras' UNet. Boxes are shares of the image, in [0, 1].
"""

from __future__ import annotations

from dataclasses import dataclass

from recordmill.records.schema import Feature, Schema

Shape = tuple[int | None, ...]


@dataclass(frozen=True, slots=True)
class ImageContent:
    """The properties of a dataset that its features depend on.

    Attributes:
      task: "classification", "detection" or "segmentation".
      classes: the names of class 0, 1, …
      image_shape: `(height, width, channels)`, None where it varies.
      multilabel: an image has any number of labels.
      masks: objects have masks.
      augmentation: what was drawn for an image is written.
      numbers: the label of a classification is a number to be predicted.
      unlabeled: a classification has images without labels.
    """

    task: str
    classes: tuple[str, ...]
    image_shape: Shape
    multilabel: bool = False
    masks: bool = False
    augmentation: bool = False
    numbers: bool = False
    unlabeled: bool = False

    @property
    def mask_shape(self) -> Shape:
        """The `image_shape` of a mask of the whole image."""
        return (*self.image_shape[:2], 1)


def _image(name: str, shape: Shape, meaning: str) -> Feature:
    return Feature(name, "bytes", (), meaning, kind="image", image_shape=shape)


def _text(name: str, meaning: str, shape: Shape = ()) -> Feature:
    return Feature(name, "bytes", shape, meaning, kind="text")


def _number(name: str, meaning: str) -> Feature:
    return Feature(name, "int64", (), meaning)


def _classes(name: str, shape: Shape, meaning: str, content: ImageContent) -> Feature:
    return Feature(name, "int64", shape, meaning, kind="classes", classes=content.classes)


def _label(name: str, shape: Shape, content: ImageContent) -> list[Feature]:
    if content.unlabeled:
        return []
    if content.numbers:
        return [Feature(name, "float32", shape, "the number to be predicted")]
    return [_classes(name, shape, "the class", content)]


def _schema(features: list[Feature], content: ImageContent) -> Schema:
    if content.augmentation:
        features.append(_text("image/augmentation", "what was drawn for the image, as JSON"))
    return Schema(tuple(features))


def tfds(content: ImageContent) -> Schema:
    """Returns the schema that TFDS's own image datasets have."""
    features = [
        _image("image", content.image_shape, "the encoded image"),
        _text("image/filename", "its name below the input root"),
    ]
    if content.task == "classification":
        name, shape = ("labels", (None,)) if content.multilabel else ("label", ())
        features += _label(name, shape, content)
    elif content.task == "segmentation":
        meaning = "a PNG of the class of each pixel"
        features.append(_image("segmentation_mask", content.mask_shape, meaning))
    else:
        meaning = "ymin, xmin, ymax, xmax in [0, 1]"
        features += [
            Feature("objects/bbox", "float32", (None, 4), meaning, kind="boxes"),
            _classes("objects/label", (None,), "the class", content),
            Feature("objects/is_crowd", "int64", (None,), "1 where it is a group"),
            Feature("objects/area", "float32", (None,), "in pixels"),
        ]
        if content.masks:
            features.append(_masks("objects/mask", content))
    return _schema(features, content)


def _masks(name: str, content: ImageContent) -> Feature:
    return Feature(
        name, "bytes", (None,), "a PNG of each object, 1 on its pixels",
        kind="image", image_shape=content.mask_shape,
    )  # fmt: skip


def _encoded(content: ImageContent) -> list[Feature]:
    """Returns the features that all formats of TensorFlow's model repositories have."""
    return [
        _image("image/encoded", content.image_shape, "the encoded image"),
        _text("image/format", "what it is encoded as"),
        _number("image/height", "in pixels"),
        _number("image/width", "in pixels"),
        _text("image/filename", "its name below the input root"),
    ]


def imagenet(content: ImageContent) -> Schema:
    """Returns the schema of tensorflow/tpu's ImageNet."""
    features = [
        *_encoded(content),
        _number("image/channels", "1 or 3"),
        _text("image/colorspace", "RGB or Grayscale"),
        _classes("image/class/label", (), "the class", content),
        _text("image/class/synset", "its name"),
    ]
    return _schema(features, content)


def object_detection(content: ImageContent) -> Schema:
    """Returns the schema of the Object Detection API, which Model Garden vision reads too."""
    each: Shape = (None,)
    features = [
        *_encoded(content),
        _text("image/source_id", "the image's number"),
        _text("image/key/sha256", "of the encoded image, in hexadecimal"),
        *(
            Feature(f"image/object/bbox/{side}", "float32", each, "in [0, 1]")
            for side in ("xmin", "xmax", "ymin", "ymax")
        ),
        _text("image/object/class/text", "the class by name", each),
        _classes("image/object/class/label", each, "the class", content),
        Feature("image/object/is_crowd", "int64", each, "1 where it is a group"),
        Feature("image/object/difficult", "int64", each, "1 where Pascal VOC says so"),
        Feature("image/object/area", "float32", each, "in pixels"),
    ]
    if content.masks:
        features.append(_masks("image/object/mask", content))
    return _schema(features, content)


def model_garden(content: ImageContent) -> Schema:
    """Returns the schema of Model Garden vision, whose detection is the Object Detection API's."""
    if content.task == "detection":
        return object_detection(content)
    features = [*_encoded(content), _text("image/source_id", "the image's number")]
    if content.task == "segmentation":
        name, meaning = "image/segmentation/class/encoded", "a PNG of the class of each pixel"
        features.append(_image(name, content.mask_shape, meaning))
    elif not content.unlabeled:
        shape: Shape = (None,) if content.multilabel else ()
        features += [
            _classes("image/class/label", shape, "the class", content),
            _text("image/class/text", "its name", shape),
        ]
    return _schema(features, content)


def raw(content: ImageContent) -> Schema:
    """Returns the schema of images that need no decoding: uint8 pixels, row by row."""
    features = [
        Feature(
            "image", "bytes", (), "uint8 pixels", kind="pixels", image_shape=content.image_shape
        ),
        _number("height", "in pixels"),
        _number("width", "in pixels"),
        _number("channel", "1 or 3"),
    ]
    if content.task == "segmentation":
        features.append(
            Feature(
                "mask", "bytes", (), "uint8 classes", kind="pixels", image_shape=content.mask_shape
            )
        )
    else:
        features += _label("label", (), content)
    return _schema(features, content)


def unet(content: ImageContent) -> Schema:
    """Returns the schema of Cerebras' UNet: image and mask as floats, of one size for all.

    Its readers parse both with one `image_shape`, so the mask has as many channels as the image.
    """
    features = [
        Feature("image", "float32", content.image_shape, "pixels"),
        Feature("mask", "float32", content.image_shape, "the class of each pixel and channel"),
    ]
    return _schema(features, content)
