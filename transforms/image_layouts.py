"""--layout=auto: what a dataset of images looks like, by the names in it.

Names that a layout has by its definition decide; of a large tree only the beginning is looked at.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import replace
from itertools import islice

from recordmill.records.errors import UsageError
from recordmill.transforms import files
from recordmill.transforms.image_dagm import is_dagm
from recordmill.transforms.image_entries import Listing, has_image_ending
from recordmill.transforms.image_files import find_files
from recordmill.transforms.image_idx import is_idx_images
from recordmill.transforms.image_severstal import is_severstal
from recordmill.transforms.image_spec import SourceSpec, is_split_name
from recordmill.transforms.table_rows import is_table, read_columns

_PEEKED_FILES = 1000
_IMAGE_FOLDERS = ("JPEGImages", "images", "Images", "imgs", "img")
_XML_FOLDERS = ("Annotations", "annotations", "xmls")
_MASK_FOLDERS = ("masks", "Masks", "mask", "labels", "annotations")


def detect_layout(spec: SourceSpec) -> SourceSpec:
    """Returns the specification with its layout, and with the folders where that has usual ones.

    Raises:
      UsageError: it cannot be told, or flags contradict it.
    """
    if spec.layout != "auto":
        return spec
    if spec.annotations:
        return replace(spec, layout=_of_annotations(spec.annotations))
    if all(is_table(pattern) for pattern in spec.patterns):
        return replace(spec, layout="table")
    if len(spec.patterns) == 1 and not spec.masks and spec.labels_from != "folder":
        folder = spec.patterns[0].rstrip("/")
        if files.is_local(folder) and os.path.isdir(folder):
            for known in (_severstal, _voc, _pairs):
                if found := known(folder, spec):
                    return found
            if spec.labels_from == "auto":
                _refuse_annotations(folder)
    return replace(spec, layout=_of_files(spec))


def _of_annotations(path: str) -> str:
    if is_table(path):
        return "severstal" if is_severstal(read_columns(path)) else "table"
    if path.lower().endswith(".json"):
        return "coco"
    if path.lower().endswith(".xml") or not os.path.splitext(path)[1]:
        return "voc"
    raise UsageError(
        "--annotations must be a table (.csv, .tsv, .jsonl), COCO's .json or a folder of Pascal "
        f"VOC's .xml, got {path}"
    )


def _of_files(spec: SourceSpec) -> str:
    peeked = list(islice(find_files(spec.patterns, Listing()), _PEEKED_FILES))
    names = [name for name, _ in peeked]
    if any(is_idx_images(name) for name in names):
        return "idx"
    images = [name for name in names if has_image_ending(name)]
    if any(is_dagm(found.path) for _, found in peeked if has_image_ending(found.path)):
        return "dagm"
    wants_none = spec.labels_from == "none" or (spec.masks and spec.labels_from == "auto")
    if wants_none:
        return "pairs" if spec.masks else "flat"
    folders = {name.split("/")[0] for name in images if "/" in name} - set(_IMAGE_FOLDERS)
    if folders and all(map(is_split_name, folders)) and not spec.split_from:
        raise UsageError(
            f"--split_from=folder is needed where folders are named {', '.join(sorted(folders))}; "
            "or --layout=folders if these are labels"
        )
    has_archives = any(name.lower().endswith((".tar", ".zip")) for name in names)
    return "folders" if folders or has_archives or spec.labels_from == "folder" else "flat"


def _folder(base: str, names: tuple[str, ...], wanted: Callable[[str], bool]) -> str:
    """Returns the first of some folders below `base` that has such a file, "" for none."""
    for name in names:
        folder = files.join(base, name)
        if os.path.isdir(folder):
            with os.scandir(folder) as entries:
                if any(wanted(entry.name) for entry in entries):
                    return folder
    return ""


def _severstal(base: str, spec: SourceSpec) -> SourceSpec | None:
    table, images = files.join(base, "train.csv"), files.join(base, "train_images")
    if os.path.isfile(table) and os.path.isdir(images) and is_severstal(read_columns(table)):
        return replace(spec, layout="severstal", patterns=(images,), annotations=table)
    return None


def _voc(base: str, spec: SourceSpec) -> SourceSpec | None:
    images = _folder(base, _IMAGE_FOLDERS, has_image_ending)
    notes = _folder(base, _XML_FOLDERS, lambda name: name.lower().endswith(".xml"))
    if images and notes:
        return replace(spec, layout="voc", patterns=(images,), annotations=notes)
    return None


def _pairs(base: str, spec: SourceSpec) -> SourceSpec | None:
    images = _folder(base, _IMAGE_FOLDERS, has_image_ending)
    masks = _folder(base, _MASK_FOLDERS, has_image_ending)
    if images and masks:
        return replace(spec, layout="pairs", patterns=(images,), masks=masks)
    return None


def _refuse_annotations(base: str) -> None:
    """Refuses a folder that seems to hold annotations of a kind that needs a flag."""
    for folder in (base, files.join(base, "annotations")):
        if not os.path.isdir(folder):
            continue
        with os.scandir(folder) as entries:
            names = sorted(entry.name for entry in entries)
        notes = [n for n in names if re.match(r"instances.*\.json$", n) or is_table(n)]
        if notes:
            listed = ", ".join(files.join(folder, name) for name in notes[:3])
            raise UsageError(
                f"--annotations must say which file labels the images of {base}: {listed}; or give "
                "--labels=from_folder or none, to do without"
            )
