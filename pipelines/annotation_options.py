"""Flags of the image job that say how annotations are to be read: boxes, labels, ids, masks."""

from __future__ import annotations

from recordmill.pipelines.beam_internals import FlagGroup
from recordmill.pipelines.flags import ImageFlags
from recordmill.records.errors import UsageError
from recordmill.transforms.dataset.argument_names import naming_flags
from recordmill.transforms.images.listing.boxes import BOX_FORMATS, BOX_UNITS
from recordmill.transforms.images.listing.source_spec import USUAL_OBJECTS, RecordForm
from recordmill.transforms.images.mask_classes import KEEP, MaskClassSpec


def add_record_arguments(group: FlagGroup) -> None:
    """Adds the flags of --layout=fixed."""
    group.add_argument(
        "--record_shape", default="", metavar="CxHxW | HxWxC",
        help="--layout=fixed: the shape of the raw pixels at the end of each record of .bin files, "
        "3x32x32 for CIFAR, whose channels are stored one after the other, else as 32x32x3.",
    )  # fmt: skip
    group.add_argument(
        "--record_bytes", type=int, default=0, metavar="N",
        help="--layout=fixed: the bytes of a record; 0 for its pixels and a byte before them, the "
        "label, unless --labels=none.",
    )  # fmt: skip
    group.add_argument(
        "--label_offset", type=int, default=0, metavar="N",
        help="--layout=fixed: which byte of a record is the label: its number, or where --labels "
        "names a file, the position in it.",
    )  # fmt: skip


def record_form(options: ImageFlags) -> RecordForm | None:
    """Returns what the flags of --layout=fixed say.

    Raises:
      UsageError: one is given without the others, or its value is not valid.
    """
    if options.record_shape:
        return RecordForm.parse(options.record_shape, options.record_bytes, options.label_offset)
    for name in ("record_bytes", "label_offset"):
        if getattr(options, name):
            raise UsageError(f"--{name} has no meaning without --record_shape; remove it")
    return None


_CATEGORY_IDS = ("original", "contiguous")


def add_annotation_arguments(group: FlagGroup) -> None:
    """Adds the flags."""
    group.add_argument(
        "--max_objects", type=int, default=USUAL_OBJECTS, metavar="N",
        help="Images with more objects are rejected.",
    )  # fmt: skip
    group.add_argument(
        "--box_format", default="", choices=("", *BOX_FORMATS), metavar="xyxy | xywh | cxcywh",
        help="What the four numbers of a table's boxes are: corners; corner and size; centre and "
        "size. Usual names of columns are found, or one column bbox. Unset: corners in the columns "
        "xmin, ymin, xmax, ymax.",
    )  # fmt: skip
    group.add_argument(
        "--box_units", default="", choices=("", *BOX_UNITS), metavar="pixels | fraction",
        help="Of boxes in tables, COCO's JSON and Pascal VOC's XML; fraction of the image's width "
        "and height. Unset: pixels, and boxes that look like fractions are refused.",
    )  # fmt: skip
    group.add_argument(
        "--keep_fields", default="", metavar="COLUMN[:int|:float],…",
        help="Columns of the table of images that are carried into the records, as features of "
        "their names: text as bytes, or numbers, as caption,year:int,score:float.",
    )  # fmt: skip
    group.add_argument(
        "--label_pattern", default="", metavar="REGEX",
        help="A regular expression with one group, which is the label, searched in the names of "
        "image files, as '^(cat|dog)' for cat.17.jpg.",
    )  # fmt: skip
    group.add_argument(
        "--category_ids", default="", choices=("", *_CATEGORY_IDS),
        metavar="original | contiguous",
        help="The numbers of COCO's labels: its own category ids, or ranks from --first_label on. "
        "Unset: original for --task=detection in the formats object_detection and "
        "model_garden, whose evaluators compare with COCO's JSON; else contiguous, because TFDS's "
        "ClassLabel counts all numbers up to the highest as classes.",
    )  # fmt: skip


def add_content_arguments(group: FlagGroup) -> None:
    """Adds the flag of files whose names and bytes disagree."""
    group.add_argument(
        "--wrong_extension", default="reject", choices=("accept", "reject"),
        help="What becomes of images whose names say another format than their bytes, such as a "
        "PNG called .jpg; the bytes decide how they are decoded.",
    )  # fmt: skip


def add_mask_arguments(group: FlagGroup) -> None:
    """Adds the flags for the classes of masks."""
    group.add_argument(
        "--binary_masks", action="store_true",
        help="Segmentation: two classes. In mask images all above 127 is class 1, the rest class "
        "0; of regions all are class 1.",
    )  # fmt: skip
    group.add_argument(
        "--mask_threshold", type=int, metavar="N",
        help="Segmentation: in mask images all above N is class 1, the rest class 0; for masks "
        "with noise, such as JPEG's.",
    )  # fmt: skip
    group.add_argument(
        "--mask_values", default="", metavar="VALUE:CLASS,… | keep",
        help="Segmentation: the class of each value in mask images, such as 0:0,255:1. By default "
        "values are classes and 255 is none, which a sample of the masks is checked for; keep "
        "skips that. DAGM has 0:0,1:1,255:1.",
    )  # fmt: skip
    group.add_argument(
        "--mask_class", default="", metavar="NAME",
        help="Segmentation by regions (Severstal): this class is class 1, all others class 0.",
    )  # fmt: skip


def check_annotation_flags(options: ImageFlags) -> None:
    """Checks that these flags go with the task.

    Raises:
      UsageError: one has no effect on the task.
    """
    if options.label_pattern and options.task != "classification":
        raise UsageError(
            f"--label_pattern must go with --task=classification, got --task={options.task}"
        )
    for name in ("box_format", "box_units"):
        if getattr(options, name) and options.task != "detection":
            raise UsageError(
                f"--{name} must go with --task=detection, got --task={options.task}; remove it"
            )


@naming_flags()
def mask_spec(options: ImageFlags) -> MaskClassSpec:
    """Checks the flags of masks and freezes them.

    Raises:
      UsageError: one line: the rule, what was found, what to do.
    """
    keep = options.mask_values == KEEP
    is_mapping = options.mask_values and not keep
    return MaskClassSpec(
        binary=options.binary_masks,
        threshold=options.mask_threshold,
        values=MaskClassSpec.parse_values(options.mask_values) if is_mapping else (),
        keep=keep,
        one_class=options.mask_class,
    )
