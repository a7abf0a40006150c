"""Flags of the image job, and the frozen, checked configuration that they become at once."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import Any

from recordmill.pipelines.options import (
    add_budget_argument,
    add_output_arguments,
    input_patterns,
    job_options,
    required,
)
from recordmill.records.errors import UsageError, one_of
from recordmill.transforms.image_augmentation import OPERATIONS, AugmentationSpec
from recordmill.transforms.image_decoding import DecodeSpec
from recordmill.transforms.image_encoding import ENCODINGS, EncodeSpec
from recordmill.transforms.image_examples import FORMATS, TASKS, ImageWork
from recordmill.transforms.image_geometry import MODES, RESAMPLING, TransformSpec, parse_size
from recordmill.transforms.image_job import ImageJob
from recordmill.transforms.image_sources import SourceSpec, read_labels
from recordmill.transforms.image_spec import LAYOUTS

_LABELS_FROM = {"auto": "auto", "from_folder": "folder", "from_field": "field", "none": "none"}
_SAMPLE_IMAGES = 1000
_ONE_SPLIT = "train:1"  # what --splits is where nobody says anything
_USUAL_FORMATS = {"classification": "tfds", "detection": "object_detection", "segmentation": "tfds"}


def add_source_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the flags that say where images are and what is known of them."""
    group = parser.add_argument_group("input")
    group.add_argument(
        "--input", action="append", nargs="+", metavar="GLOB",
        help="Images, archives (.tar, .zip) or idx files, as globs or folders, local or gs://…; or "
        "tables that name images.",
    )  # fmt: skip
    group.add_argument(
        "--layout", default="auto", choices=LAYOUTS,
        help="What the input looks like; auto goes by names that a layout has by definition.",
    )  # fmt: skip
    group.add_argument(
        "--annotations", default="", metavar="PATH",
        help="A table (.csv, .tsv, .jsonl), COCO's .json, or the folder of Pascal VOC's XML.",
    )  # fmt: skip
    group.add_argument(
        "--masks", default="", metavar="GLOB",
        help="Mask images, paired with images by name below the roots of the two globs.",
    )  # fmt: skip
    group.add_argument(
        "--mask_suffix", default="", help="What masks have behind the image's name, as _mask."
    )
    group.add_argument(
        "--labels", default="auto", metavar="from_folder | from_field | none | FILE",
        help="Where labels come from; or a file of all labels, one a line in order of their ids: "
        "images with others are rejected.",
    )  # fmt: skip
    group.add_argument(
        "--label_folder", type=int, default=1,
        help="The folder that is the label: 1 the first below the input root, -1 the image's own.",
    )  # fmt: skip
    group.add_argument("--path_field", default="", help="The table's column of image paths.")
    group.add_argument("--label_field", default="", help="The table's column of labels.")
    group.add_argument(
        "--label_delimiter", default="", help="Between several labels of an image in one field."
    )
    group.add_argument(
        "--split_from", default="", metavar="folder | none | COLUMN",
        help="Take splits as they are given: the first folder below the input root, or a column; "
        "none ignores those of DAGM, MNIST and Pascal VOC.",
    )  # fmt: skip
    group.add_argument(
        "--split_by", default="", metavar="folder | COLUMN",
        help="Images of one folder, or with the same value in a column, share a split.",
    )  # fmt: skip
    add_budget_argument(group)


def add_image_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of `recordmill images`."""
    add_source_arguments(parser)
    add_output_arguments(parser)
    task = parser.add_argument_group("task")
    task.add_argument("--task", default="classification", choices=TASKS)
    task.add_argument(
        "--format", choices=tuple(FORMATS),
        help="Whose features are written: by default tfds, for detection object_detection.",
    )  # fmt: skip
    task.add_argument(
        "--first_label", type=int, choices=(0, 1),
        help="The number of the first label: by default 1 for segmentation, imagenet and detection "
        "but tfds', else 0.",
    )  # fmt: skip
    task.add_argument(
        "--multilabel", action="store_true", help="Classification: any number of labels an image."
    )
    task.add_argument(
        "--include_masks", action="store_true", help="Detection: the pixels of each object too."
    )
    task.add_argument(
        "--binary_masks", action="store_true",
        help="Segmentation: in mask images all above 127 is class 1, the rest class 0.",
    )  # fmt: skip
    task.add_argument("--channels", type=int, default=3, choices=(1, 3), help="1 is grey.")
    pixels = parser.add_argument_group("pixels")
    pixels.add_argument(
        "--image_size", metavar="HEIGHTxWIDTH", help="Such as 224x224, or 224; else as they are."
    )
    pixels.add_argument(
        "--resize", default="stretch", choices=MODES,
        help="fit pads, crop cuts off what is too much, longest and shortest set that side.",
    )  # fmt: skip
    pixels.add_argument("--resample", default="bilinear", choices=tuple(RESAMPLING))
    pixels.add_argument(
        "--reducing_gap", type=float, default=2.0,
        help="Large images are first reduced by a whole number, JPEG while it is decoded, if that "
        "leaves so many times --image_size; 1 is fastest, 3 like the filter alone.",
    )  # fmt: skip
    pixels.add_argument(
        "--fill", default="0", metavar="GREY | R,G,B", help="Of pixels beyond the image's edge."
    )
    pixels.add_argument(
        "--encoding", choices=ENCODINGS,
        help="keep leaves untouched images byte for byte as they were.",
    )  # fmt: skip
    pixels.add_argument("--quality", type=int, default=95, help="Of JPEG and WebP.")
    pixels.add_argument(
        "--float_range", default="zero_one", choices=("zero_one", "zero_centered"),
        help="x / 255 or x / 127.5 - 1.",
    )  # fmt: skip
    pixels.add_argument("--gif", default="first", choices=("first", "reject"), help="If animated.")
    pixels.add_argument(
        "--no_check", action="store_true",
        help="Trust images that are kept byte for byte, instead of decoding each once.",
    )  # fmt: skip
    pixels.add_argument("--max_pixels", type=int, help="Images of more are rejected.")
    statistics = parser.add_argument_group("statistics")
    statistics.add_argument(
        "--statistics", default="none", choices=("none", "sample", "full"),
        help="Mean and standard deviation of each channel, of images of the first split, by "
        "tensorflow_transform.",
    )  # fmt: skip
    statistics.add_argument(
        "--statistics_sample", type=int, metavar="N",
        help=f"Images of a sample, {_SAMPLE_IMAGES} by default.",
    )  # fmt: skip
    copies = parser.add_argument_group("augmentation")
    copies.add_argument(
        "--augmentations", default="", metavar="NAME[(STRENGTH,…)],…",
        help=f"Of {', '.join(OPERATIONS)}; such as flip,rotate(15),randaugment(2,9).",
    )  # fmt: skip
    copies.add_argument("--copies", type=int, default=1, help="Augmented copies of each image.")
    copies.add_argument(
        "--keep_original", action="store_true", help="Write the untouched image too."
    )
    copies.add_argument(
        "--write_augmentations", action="store_true", help="What was drawn becomes a feature."
    )
    copies.add_argument(
        "--min_visible", type=float, default=0.1,
        help="Objects of which a smaller share is still seen are left out.",
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class ImageRequest:
    """What the user asked for: the job, and what only planning needs.

    Attributes:
      job: without its labels yet, and without splits that the input names.
      source: where the images are.
      first_label: the number of the first label.
      splits_given: --splits was given.
      num_shards: as given.
    """

    job: ImageJob
    source: SourceSpec
    first_label: int
    splits_given: bool
    num_shards: str | None


def _source_spec(options: Any) -> SourceSpec:
    """Checks these flags and freezes them."""
    labels = () if options.labels in _LABELS_FROM else read_labels(options.labels)
    return SourceSpec(
        patterns=tuple(input_patterns(options)),
        layout=options.layout,
        annotations=options.annotations,
        masks=options.masks,
        mask_suffix=options.mask_suffix,
        labels_from=_LABELS_FROM.get(options.labels, "auto"),
        label_folder=options.label_folder,
        labels=labels,
        path_field=options.path_field,
        label_field=options.label_field,
        label_delimiter=options.label_delimiter,
        split_from=options.split_from,
        split_by=options.split_by,
    )


def _fill(text: str) -> tuple[int, int, int]:
    try:
        values = [int(part) for part in text.split(",")]
    except ValueError as error:
        raise UsageError(f"--fill must be like 0 or 255,128,0, got {text!r}") from error
    red, green, blue = values * 3 if len(values) == 1 else [*values, -1, -1, -1][:3]
    return red, green, blue


def _statistics_images(options: Any) -> int | None:
    sample = options.statistics_sample
    if sample is not None and options.statistics != "sample":
        raise UsageError(f"--statistics_sample={sample} must go with --statistics=sample")
    if sample is not None and sample < 1:
        raise UsageError(f"--statistics_sample must be at least 1, got {sample}")
    return {"none": 0, "full": None, "sample": sample or _SAMPLE_IMAGES}[options.statistics]


def _work(options: Any) -> ImageWork:
    task = options.task
    name = options.format or _USUAL_FORMATS[task]
    encodings = FORMATS[one_of("--format", name, FORMATS)].encodings
    encoding: Any = options.encoding or encodings[0]
    limits = {"max_pixels": options.max_pixels} if options.max_pixels is not None else {}
    return ImageWork(
        task=task,
        format=name,
        labels={},
        seed=options.random_seed,
        decode=DecodeSpec(gif=options.gif, check=not options.no_check, **limits),
        transform=TransformSpec(
            parse_size(options.image_size) if options.image_size else None,
            options.resize,
            _fill(options.fill),
            options.resample,
            options.reducing_gap,
        ),
        augmentation=AugmentationSpec.parse(options.augmentations),
        encode=EncodeSpec(encoding, options.quality, options.float_range),
        channels=options.channels,
        multilabel=options.multilabel,
        masks=options.include_masks,
        binary_masks=options.binary_masks,
        write_augmentations=options.write_augmentations,
        min_visible=options.min_visible,
    )


def image_request(options: Any) -> ImageRequest:
    """Checks the flags of `recordmill images` and freezes them.

    Raises:
      UsageError: one line: the rule, what was found, what to do.
    """
    required(options, "input", "output")
    source, work = _source_spec(options), _work(options)
    splits_given = options.splits != _ONE_SPLIT
    shared = dict(vars(options))
    if not splits_given and ":" in str(options.num_shards or ""):
        shared["num_shards"] = None  # the input may name those splits
    job = ImageJob(
        **job_options(argparse.Namespace(**shared)),
        images=work,
        copies=options.copies,
        keep_original=options.keep_original,
        statistics_images=_statistics_images(options),
    )
    first = options.first_label
    if first is None:
        zero_based = {("classification", "tfds"), ("classification", "model_garden")}
        zero_based |= {("classification", "raw"), ("detection", "tfds")}
        first = 0 if (work.task, work.format) in zero_based else 1
    return ImageRequest(job, source, first, splits_given, options.num_shards)
