"""DAGM 2007: `Class1/Train/0001.PNG`, and beside it `Label/Labels.txt` and `Label/0001_label.PNG`.

A row of Labels.txt has five fields behind tabs: number, whether there is a defect, image, 0, mask,
0 where there is none; others may follow, because Cerebras' own writer expects six. The first
line is a header, or belongs to no image.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby

from recordmill.records.errors import UsageError
from recordmill.transforms.images.listing.entries import Entry, Listing, make_reference
from recordmill.transforms.images.listing.image_files import find_entries, input_root
from recordmill.transforms.images.listing.joins import Listed, without_annotation
from recordmill.transforms.images.references import ListedReject, StoredBytes
from recordmill.transforms.images.source_spec import SourceSpec
from recordmill.transforms.storage import files
from recordmill.transforms.storage.boundary import leaves
from recordmill.transforms.storage.globs import relative

_MOST_BYTES = 1 << 26  # of Labels.txt
_CLASS_AND_SPLIT = re.compile(r"(?:^|/)(Class\d+)/(?:\1/)?(Train|Test)/[^/]+$", re.IGNORECASE)
_IN_LABEL = re.compile(r"/(Train|Test)/Label/[^/]+$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class _Labels:
    """The content of Labels.txt.

    Attributes:
      rows: image -> its defect flag and its mask.
      problems: of lines that cannot be used.
    """

    rows: dict[str, tuple[str, str]]
    problems: tuple[str, ...] = ()


def is_dagm(path: str) -> bool:
    """Returns whether a path is of an image in DAGM's layout."""
    return bool(_CLASS_AND_SPLIT.search(path))


def dagm_images(spec: SourceSpec, listing: Listing) -> Iterator[Listed]:
    """Yields DAGM's images; labels are the folders Class1 …, or with labels_from="field" the flag.

    Memory: Labels.txt of two folders.

    Raises:
      UsageError: a folder has no Labels.txt, or a glob matches nothing.
    """
    for folder, items in groupby(_images(spec, listing), lambda item: _folder(item)):
        if not folder:
            yield from (item for item in items if isinstance(item, ListedReject))
            continue
        labels = _read_labels(folder, listing)
        names = set()
        for item in items:
            if isinstance(item, Entry):
                name = item.path.rpartition("/")[2]
                names.add(name)
                row = labels.rows.get(name)
                if spec.only_defective and row and row[0] == "0":
                    listing.filtered["not_defective"] += 1
                else:
                    yield _reference(spec, item, row, listing)
        # An image that exists and is not listed is excluded by the globs on purpose.
        root = input_root(spec.patterns)
        for name in sorted(labels.rows.keys() - names):
            path = f"{folder}/{name}"
            if not listing.holds(path):
                yield ListedReject(relative(path, root), "outside_input", leaves(path))
            elif not files.exists(path):
                yield ListedReject(relative(path, root), "no_image", "Labels.txt names it")
        for problem in labels.problems:
            source = relative(f"{folder}/Label/Labels.txt", root)
            yield ListedReject(source, "bad_row", problem)


def _images(spec: SourceSpec, listing: Listing) -> Iterator[Entry | ListedReject]:
    for item in find_entries(spec.patterns, listing):
        if isinstance(item, ListedReject):
            yield item
        elif _IN_LABEL.search(item.path):
            listing.pass_over("mask", item.name)
        elif is_dagm(item.path):
            yield item
        else:
            yield ListedReject(item.name, "no_label", "it is in no Class*/Train or Class*/Test")


def _folder(item: Entry | ListedReject) -> str:
    return item.path.rpartition("/")[0] if isinstance(item, Entry) else ""


def _reference(
    spec: SourceSpec, item: Entry, row: tuple[str, str] | None, listing: Listing
) -> Listed:
    if row is None:
        return without_annotation(item.name, "Label/Labels.txt does not name it")
    flag, mask = row
    mask_path = f"{_folder(item)}/Label/{mask}"
    if mask != "0" and not listing.holds(mask_path):
        return ListedReject(item.name, "outside_input", f"its mask {mask}: {leaves(mask_path)}")
    _, label, split = _CLASS_AND_SPLIT.split(item.path)[:3]
    labels: tuple[str, ...] = {"field": (flag,), "none": ()}.get(spec.labels_from, (label,))
    return make_reference(
        spec,
        item,
        labels=labels,
        mask=None if mask == "0" else StoredBytes(mask_path),
        has_mask=True,
        split=split,
    )


def _read_labels(folder: str, listing: Listing) -> _Labels:
    path = f"{folder}/Label/Labels.txt"
    listing.check_inside(path)
    try:
        text = files.read_limited(path, _MOST_BYTES).decode()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(
            f"--layout=dagm needs {path}, which cannot be read: "
            f"{getattr(error, 'strerror', None) or error}"
        ) from error
    listing.report_file(path)
    rows: dict[str, tuple[str, str]] = {}
    problems = []
    for number, line in enumerate(text.split("\n"), 1):
        fields = [field.strip() for field in line.split("\t")]
        if len(fields) >= 5 and "." in fields[2]:
            _, flag, name, _, mask = fields[:5]
            if rows.setdefault(name, (flag, mask)) != (flag, mask):
                problems.append(f"line {number} names {name} again")
        elif number > 1 and line.strip():
            problems.append(f"line {number} has not the five fields of DAGM: {line[:80]!r}")
    return _Labels(rows, tuple(problems))
