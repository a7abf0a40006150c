"""Flags of the image job, and the frozen, checked configuration that they become at once."""

from __future__ import annotations

import argparse
from dataclasses import dataclass

from recordmill.pipelines.annotation_options import (
    add_annotation_arguments,
    add_content_arguments,
    add_mask_arguments,
    add_record_arguments,
    check_annotation_flags,
    mask_spec,
    record_form,
)
from recordmill.pipelines.beam_internals import FlagGroup
from recordmill.pipelines.flags import ImageFlags
from recordmill.pipelines.image_flags import check_flags
from recordmill.pipelines.map_options import add_map_arguments, map_spec
from recordmill.pipelines.options import (
    add_boundary_argument,
    add_budget_argument,
    add_output_arguments,
    input_patterns,
    job_options,
    required,
)
from recordmill.records.errors import UsageError, one_of
from recordmill.transforms.dataset.argument_names import naming_flags
from recordmill.transforms.dataset.labels import read_labels
from recordmill.transforms.images.augmentation import OPERATIONS, AugmentationSpec
from recordmill.transforms.images.decoding import USUAL_SCANS, DecodeSpec
from recordmill.transforms.images.encoding import ENCODINGS, EncodeSpec
from recordmill.transforms.images.examples import FORMATS, TASKS, ImageSpec
from recordmill.transforms.images.geometry import MODES, RESAMPLING, TransformSpec, parse_size
from recordmill.transforms.images.image_job import SAMPLE_IMAGES, ImageJob, images_of_statistics
from recordmill.transforms.images.label_numbers import LabelNumbering
from recordmill.transforms.images.listing.list_images import SourceSpec
from recordmill.transforms.images.listing.source_spec import LAYOUTS
from recordmill.transforms.images.masks import USUAL_DRAWN_PIXELS
from recordmill.transforms.images.metadata import USUAL_METADATA_BYTES
from recordmill.transforms.images.pillow_internals import MAX_PIXELS
from recordmill.transforms.sources.kept_fields import parse_fields

_LABELS_FROM = {
    "auto": "auto", "from_folder": "folder", "from_field": "field", "none": "none",
    "number": "number",
}  # fmt: skip
DEFAULT_SPLITS = "train:1"  # where neither --splits nor the input names splits
_USUAL_FORMATS = {"classification": "tfds", "detection": "object_detection", "segmentation": "tfds"}


def add_source_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of the input: where images and their annotations are."""
    group = parser.add_argument_group("input")
    group.add_argument(
        "--input", action="append", nargs="+", metavar="GLOB",
        help="Images, archives (.tar, .zip) or idx files, as globs or folders, local or gs://…; or "
        "tables that name or hold images.",
    )  # fmt: skip
    group.add_argument(
        "--layout", default="auto", choices=LAYOUTS,
        help="How the input is arranged; auto goes by names that a layout has by definition.",
    )  # fmt: skip
    group.add_argument(
        "--annotations", action="append", metavar="PATH",
        help="A table (.csv, .tsv, .jsonl, .parquet), COCO's .json, or the folder of Pascal VOC's "
        "XML. COCO's may be given several times, one file for each split.",
    )  # fmt: skip
    group.add_argument(
        "--masks", default="", metavar="GLOB",
        help="Mask images, paired with images by name below the roots of the two globs.",
    )  # fmt: skip
    group.add_argument(
        "--mask_suffix",
        default="",
        help="What masks have behind the image's name, such as _mask.",
    )
    group.add_argument(
        "--labels", default="auto", metavar="from_folder | from_field | number | none | FILE",
        help="Where labels come from; number: a table's field is a number to be predicted, and no "
        "class; or a file of all labels, one a line in order of their ids: "
        "images with others are rejected.",
    )  # fmt: skip
    group.add_argument(
        "--label_folder", type=int,
        help="The folder that is the label: 1 the first below the input root or below the split's, "
        "-1 the image's own. Unset: the first below the folders that all images share.",
    )  # fmt: skip
    group.add_argument("--path_field", default="", help="The table's column of images or paths.")
    group.add_argument("--label_field", default="", help="The table's column of labels.")
    group.add_argument(
        "--label_delimiter", default="", help="Between several labels of an image in one field."
    )
    group.add_argument(
        "--split_from", default="", metavar="folder | none | COLUMN",
        help="Take the splits that the input names: the first folder below the input root, or a "
        "column; none ignores those of DAGM, MNIST and Pascal VOC.",
    )  # fmt: skip
    group.add_argument(
        "--split_by", default="", metavar="folder | COLUMN",
        help="Images of one folder, or with the same value in a column, share a split.",
    )  # fmt: skip
    group.add_argument(
        "--only_defective", action="store_true",
        help="DAGM: leave out the images that Labels.txt marks as free of defects.",
    )  # fmt: skip
    add_annotation_arguments(group)
    add_record_arguments(group)
    add_boundary_argument(group)
    add_budget_argument(group)


def add_image_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of `recordmill images`."""
    add_source_arguments(parser)
    add_output_arguments(parser)
    add_map_arguments(parser.add_argument_group("input"), "Image")
    # No default: the input may name the splits, which an explicit --splits contradicts.
    parser.set_defaults(splits=None)
    _add_task_arguments(parser.add_argument_group("task"))
    _add_pixel_arguments(parser.add_argument_group("pixels"))
    _add_statistics_arguments(parser.add_argument_group("statistics"))
    _add_augmentation_arguments(parser.add_argument_group("augmentation"))


def _add_task_arguments(group: FlagGroup) -> None:
    group.add_argument(
        "--task",
        default="classification",
        choices=TASKS,
        help="What a model learns from the images.",
    )
    group.add_argument(
        "--format", choices=tuple(FORMATS),
        help="Whose features are written: by default tfds, for detection object_detection.",
    )  # fmt: skip
    group.add_argument(
        "--first_label", type=int, choices=(0, 1),
        help="The number of the first label: by default 1 for segmentation, imagenet and detection "
        "but tfds', else 0.",
    )  # fmt: skip
    group.add_argument(
        "--multilabel", action="store_true", help="Classification: any number of labels an image."
    )
    group.add_argument(
        "--include_masks", action="store_true", help="Detection: the pixels of each object too."
    )
    group.add_argument(
        "--channels", type=int, choices=(1, 3),
        help="1 is grey; by default 3, for --format=unet 1. With 3, unet's masks have 3 too.",
    )  # fmt: skip
    add_mask_arguments(group)


def _add_pixel_arguments(group: FlagGroup) -> None:
    group.add_argument(
        "--image_size",
        metavar="HEIGHTxWIDTH",
        help="Such as 224x224, or 224; unset keeps all sizes.",
    )
    group.add_argument(
        "--resize", default="stretch", choices=MODES,
        help="fit pads, crop cuts out the middle, longest and shortest set that side.",
    )  # fmt: skip
    group.add_argument(
        "--resample", default="bilinear", choices=tuple(RESAMPLING), help="The filter of resizing."
    )
    group.add_argument(
        "--reducing_gap", type=float, default=2.0,
        help="Large images are first reduced by a whole number, JPEG while it is decoded, if that "
        "leaves so many times --image_size; 1 is fastest, 3 like the filter alone.",
    )  # fmt: skip
    group.add_argument(
        "--fill",
        default="0",
        metavar="GREY | R,G,B",
        help="Of pixels beyond the image's edge.",
    )
    group.add_argument(
        "--encoding", choices=ENCODINGS,
        help="keep writes unchanged images byte for byte as they are stored.",
    )  # fmt: skip
    group.add_argument("--quality", type=int, default=95, help="Of JPEG and WebP.")
    group.add_argument(
        "--float_range", default="zero_one", choices=("zero_one", "zero_centered"),
        help="x / 255 or x / 127.5 - 1.",
    )  # fmt: skip
    group.add_argument("--gif", default="first", choices=("first", "reject"), help="If animated.")
    add_content_arguments(group)
    group.add_argument(
        "--no_check", action="store_true",
        help="Trust images that are kept byte for byte, instead of decoding each once.",
    )  # fmt: skip
    group.add_argument("--max_pixels", type=int, help="Images of more pixels are rejected.")
    group.add_argument(
        "--max_scans", type=int, default=USUAL_SCANS, metavar="N",
        help="Progressive JPEGs of more scans are rejected; usual ones have ten.",
    )  # fmt: skip
    group.add_argument(
        "--max_metadata_bytes", type=int, default=USUAL_METADATA_BYTES, metavar="N",
        help="Images whose tags, EXIF and comments take more to read are rejected.",
    )  # fmt: skip
    group.add_argument(
        "--max_drawn_pixels", type=int, default=USUAL_DRAWN_PIXELS, metavar="N",
        help="Images whose regions take more pixels to draw are rejected.",
    )  # fmt: skip


def _add_statistics_arguments(group: FlagGroup) -> None:
    group.add_argument(
        "--statistics", default="none", choices=("none", "sample", "full"),
        help="Mean and standard deviation of each channel, of images of the first split, by "
        "tensorflow_transform.",
    )  # fmt: skip
    group.add_argument(
        "--statistics_sample", type=int, metavar="N",
        help=f"Images of a sample, {SAMPLE_IMAGES} by default.",
    )  # fmt: skip


def _add_augmentation_arguments(group: FlagGroup) -> None:
    group.add_argument(
        "--augmentations", default="", metavar="NAME[(STRENGTH,…)],…",
        help=f"Of {', '.join(OPERATIONS)}; such as flip,rotate(15),randaugment(2,9).",
    )  # fmt: skip
    group.add_argument("--copies", type=int, default=1, help="Augmented copies of each image.")
    group.add_argument(
        "--augment_splits", default="train", metavar="all | NAME,…",
        help="The splits whose images are augmented; the others get one copy of each image, as it "
        "is, because a model is measured on them.",
    )  # fmt: skip
    group.add_argument(
        "--keep_original", action="store_true", help="Write the untouched image too."
    )
    group.add_argument(
        "--write_augmentations",
        action="store_true",
        help="Write drawn parameters as a feature.",
    )
    group.add_argument(
        "--min_visible", type=float, default=0.1,
        help="Objects of which a smaller share is still visible are removed.",
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class ImageRequest:
    """The checked flags: the job, and what only planning needs.

    Attributes:
      job: still without its labels, and without splits that the input names.
      source: where the images are.
      numbering: how labels get their numbers.
      splits_given: whether --splits was given.
      num_shards: the flag, as given.
      given: the flags that do not have their default value.
    """

    job: ImageJob
    source: SourceSpec
    numbering: LabelNumbering
    splits_given: bool
    num_shards: str | None
    given: frozenset[str] = frozenset()


def _source_spec(options: ImageFlags) -> SourceSpec:
    """Checks these flags and freezes them."""
    labels: tuple[str, ...] = ()
    if options.labels not in _LABELS_FROM:
        labels = read_labels(options.labels, kinds="from_folder, from_field, number, none")
    check_annotation_flags(options)
    first, *more = options.annotations or [""]
    return SourceSpec(
        patterns=tuple(input_patterns(options)),
        layout=options.layout,
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
        only_defective=options.only_defective,
        annotations=first,
        more_annotations=tuple(more),
        keep_fields=parse_fields(options.keep_fields),
        label_pattern=options.label_pattern,
        box_format=options.box_format,
        box_units=options.box_units,
        allow_outside=tuple(options.allow_outside or ()),
        records=record_form(options),
        max_objects=options.max_objects,
    )


def _parse_names(flag: str, text: str) -> tuple[str, ...]:
    names = tuple(part.strip() for part in text.split(","))
    if not all(names) or len(set(names)) != len(names):
        raise UsageError(f"{flag} must be all, or names with commas between, got {text!r}")
    return names


def _parse_fill(text: str) -> tuple[int, int, int]:
    try:
        values = [int(part) for part in text.split(",")]
    except ValueError as error:
        raise UsageError(f"--fill must be like 0 or 255,128,0, got {text!r}") from error
    red, green, blue = values * 3 if len(values) == 1 else [*values, -1, -1, -1][:3]
    return red, green, blue


def _statistics_images(options: ImageFlags) -> int | None:
    sample = options.statistics_sample
    if sample is not None and options.statistics != "sample":
        raise UsageError(f"--statistics_sample={sample} must go with --statistics=sample")
    return images_of_statistics(options.statistics, SAMPLE_IMAGES if sample is None else sample)


@naming_flags()
def _image_spec(options: ImageFlags) -> ImageSpec:
    """Checks the flags of task, pixels and augmentation and freezes them."""
    task = options.task
    name = options.format or _USUAL_FORMATS[task]
    encodings = FORMATS[one_of("--format", name, FORMATS)].encodings
    return ImageSpec(
        task=task,
        format=name,
        labels={},
        seed=options.random_seed,
        decode=DecodeSpec(
            gif=options.gif,
            check=not options.no_check,
            max_pixels=MAX_PIXELS if options.max_pixels is None else options.max_pixels,
            wrong_extension=options.wrong_extension,
            max_scans=options.max_scans,
            max_metadata_bytes=options.max_metadata_bytes,
        ),
        transform=TransformSpec(
            parse_size(options.image_size) if options.image_size else None,
            options.resize,
            _parse_fill(options.fill),
            options.resample,
            options.reducing_gap,
        ),
        augmentation=AugmentationSpec.parse(options.augmentations),
        encode=EncodeSpec(options.encoding or encodings[0], options.quality, options.float_range),
        channels=options.channels or (1 if name == "unet" else 3),
        multilabel=options.multilabel,
        numbers=options.labels == "number",
        keep_fields=parse_fields(options.keep_fields),
        unlabeled=task == "classification" and options.labels == "none",
        masks=options.include_masks,
        mask_classes=mask_spec(options),
        write_augmentations=options.write_augmentations,
        min_visible=options.min_visible,
        max_drawn_pixels=options.max_drawn_pixels,
    )


def image_request(namespace: argparse.Namespace) -> ImageRequest:
    """Checks the flags of `recordmill images` and freezes them.

    Raises:
      UsageError: one line: the rule, what was found, what to do.
    """
    options = ImageFlags.read(namespace)
    required(options, "input", "output")
    source, images = _source_spec(options), _image_spec(options)
    given = options.given(add_image_arguments)
    check_flags(given, images, options)
    splits, num_shards = options.splits, options.num_shards
    if splits is None and ":" in (num_shards or ""):
        num_shards = None  # the input may name those splits
    job = ImageJob(
        **job_options(
            options, splits=DEFAULT_SPLITS if splits is None else splits, num_shards=num_shards
        ),
        images=images,
        copies=options.copies,
        keep_original=options.keep_original,
        augment_splits=_parse_names("--augment_splits", options.augment_splits),
        statistics_images=_statistics_images(options),
        map=map_spec(options, getattr(namespace, "map_functions", ())),
    )
    numbering = LabelNumbering(options.first_label, options.category_ids)
    return ImageRequest(job, source, numbering, splits is not None, options.num_shards, given)
