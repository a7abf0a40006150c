"""--layout=auto: recognises the layout of an image dataset by the names in it.

Only names that are part of a layout's definition count, and only the first files of a large tree.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from glob import escape, iglob
from itertools import islice

from msgspec.structs import replace

from recordmill.records.errors import UsageError
from recordmill.transforms.images.extensions import IMAGE_EXTENSIONS, has_image_extension
from recordmill.transforms.images.listing.coco import image_folders
from recordmill.transforms.images.listing.dagm import is_dagm
from recordmill.transforms.images.listing.entries import Listing, is_split_name
from recordmill.transforms.images.listing.idx import is_idx_images
from recordmill.transforms.images.listing.image_files import find_files, input_boundary
from recordmill.transforms.images.listing.severstal import is_severstal
from recordmill.transforms.images.source_spec import SourceSpec
from recordmill.transforms.sources.dataset_folders import expand_folder
from recordmill.transforms.sources.tables import is_table, table_columns
from recordmill.transforms.storage import files

_PEEKED_FILES = 1000
_MOST_FOLDERS = 100  # of the input that are searched for a tree; more are classes
_IMAGE_FOLDERS = ("JPEGImages", "images", "Images", "imgs", "img")
_XML_FOLDERS = ("Annotations", "annotations", "xmls")
_MASK_FOLDERS = ("masks", "Masks", "mask", "labels", "annotations")


def detect_layout(spec: SourceSpec) -> SourceSpec:
    """Returns the specification with its layout, and with the folders that the layout names.

    Raises:
      UsageError: the layout is not clear, or flags contradict it.
    """
    if spec.layout != "auto":
        return spec
    if spec.annotation:
        return replace(spec, layout=_layout_of_annotations(spec.annotation))
    saved = [path for pattern in spec.patterns for _, path in expand_folder(pattern)]
    if tuple(saved) != spec.patterns:  # folders of Hugging Face's datasets
        return replace(spec, layout="table", patterns=tuple(saved))
    if all(is_table(pattern) for pattern in spec.patterns):
        return replace(spec, layout="table")
    labels_images = spec.labels_from == "folder" or bool(spec.label_pattern)
    if len(spec.patterns) == 1 and not spec.masks and not labels_images:
        folder = spec.patterns[0].rstrip("/")
        if files.is_local(folder) and os.path.isdir(folder):
            for recognise in (_as_severstal, _as_voc, _as_coco, _as_yolo, _as_pairs):
                if resolved := recognise(folder, spec):
                    return resolved
            if resolved := _one_level_below(folder, spec):
                return resolved
            if spec.labels_from == "auto":
                _refuse_annotations(folder)
    return replace(spec, layout=_layout_of_files(spec))


def _layout_of_annotations(path: str) -> str:
    if is_table(path):
        return "severstal" if is_severstal(table_columns(path)) else "table"
    if path.lower().endswith(".json"):
        return "coco"
    if path.lower().endswith(".xml") or not os.path.splitext(path)[1]:
        return "voc"
    raise UsageError(
        "--annotations must be a table (.csv, .tsv, .jsonl), COCO's .json or a folder of Pascal "
        f"VOC's .xml, got {path}"
    )


def _layout_of_files(spec: SourceSpec) -> str:
    listing = Listing(boundary=input_boundary(spec))
    peeked = list(islice(find_files(spec.patterns, listing), _PEEKED_FILES))
    names = [name for name, _ in peeked]
    if any(is_idx_images(name) for name in names):
        return "idx"
    images = [name for name in names if has_image_extension(name)]
    if any(is_dagm(file.path) for _, file in peeked if has_image_extension(file.path)):
        return "dagm"
    if spec.label_pattern and not spec.masks:
        return "flat"
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


def _first_folder(base: str, names: tuple[str, ...], wanted: Callable[[str], bool]) -> str:
    """Returns the first of some folders below `base` that has such a file, "" for none."""
    for name in names:
        folder = files.join(base, name)
        if os.path.isdir(folder):
            with os.scandir(folder) as entries:
                if any(wanted(entry.name) for entry in entries):
                    return folder
    return ""


def _as_severstal(base: str, spec: SourceSpec) -> SourceSpec | None:
    table, images = files.join(base, "train.csv"), files.join(base, "train_images")
    if os.path.isfile(table) and os.path.isdir(images) and is_severstal(table_columns(table)):
        return replace(spec, layout="severstal", patterns=(images,), annotations=(table,))
    return None


def _as_voc(base: str, spec: SourceSpec) -> SourceSpec | None:
    images = _first_folder(base, _IMAGE_FOLDERS, has_image_extension)
    notes = _first_folder(base, _XML_FOLDERS, lambda name: name.lower().endswith(".xml"))
    if images and notes:
        return replace(spec, layout="voc", patterns=(images,), annotations=(notes,))
    return None


def _as_coco(base: str, spec: SourceSpec) -> SourceSpec | None:
    """Finds the JSON of all splits, and the folder of images of each; one without is left out."""
    if spec.labels_from == "none":
        return None
    folders: dict[str, str] = {}
    for folder in (files.join(base, "annotations"), base):
        if not folders and os.path.isdir(folder):
            with os.scandir(folder) as entries:
                names = sorted(entry.name for entry in entries)
            for path in (
                files.join(folder, n) for n in names if re.match(r"instances.*\.json$", n)
            ):
                for images in image_folders(path):
                    if images.startswith(f"{base}/") and _has_images(images):
                        folders[path] = images
                        break
    if not folders:
        return None
    patterns = tuple(dict.fromkeys(folders.values()))
    return replace(spec, layout="coco", patterns=patterns, annotations=tuple(folders))


def _as_yolo(base: str, spec: SourceSpec) -> SourceSpec | None:
    """Recognises folders `images` and `labels` with texts, which may be below those of splits, or
    have them below.
    """
    if spec.labels_from == "none":
        return None
    for form in ("{}", "{}/*", "*/{}"):
        images, labels = form.format("images"), form.format("labels")
        has_texts = _any_file(base, labels, (".txt",))
        if has_texts and _any_file(base, images, IMAGE_EXTENSIONS):
            if _any_file(base, labels, IMAGE_EXTENSIONS):
                continue  # these are masks, with a text about them
            return replace(spec, layout="yolo", patterns=(base,))
    return None


def _any_file(base: str, folders: str, extensions: tuple[str, ...]) -> bool:
    """Returns whether a folder that matches has such a file."""
    for folder in sorted(iglob(files.join(escape(base), folders))):
        if os.path.isdir(folder):
            with os.scandir(folder) as entries:
                if any(entry.name.lower().endswith(extensions) for entry in entries):
                    return True
    return False


def _has_images(folder: str) -> bool:
    if not os.path.isdir(folder):
        return False
    with os.scandir(folder) as entries:
        return any(has_image_extension(entry.name) for entry in entries)


def _one_level_below(base: str, spec: SourceSpec) -> SourceSpec | None:
    """Recognises a tree that lies in a folder of the input, as archives often unpack.

    Raises:
      UsageError: several folders hold one.
    """
    with os.scandir(base) as entries:
        folders = sorted(entry.path for entry in entries if entry.is_dir())
    trees = {}
    for folder in folders[:_MOST_FOLDERS]:
        for recognise in (_as_severstal, _as_voc, _as_coco, _as_yolo):
            if folder not in trees and (resolved := recognise(folder, spec)):
                trees[folder] = resolved
    if len(trees) > 1:
        raise UsageError(f"--input must be one of the datasets in {base}: {', '.join(trees)}")
    return next(iter(trees.values()), None)


def _as_pairs(base: str, spec: SourceSpec) -> SourceSpec | None:
    images = _first_folder(base, _IMAGE_FOLDERS, has_image_extension)
    masks = _first_folder(base, _MASK_FOLDERS, has_image_extension)
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
                f"--annotations must name the file that labels the images of {base}: {listed}; or "
                "give --labels=from_folder or none, to do without"
            )
