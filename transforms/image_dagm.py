"""DAGM 2007: `Class1/Train/0001.PNG`, and beside it `Label/Labels.txt` and `Label/0001_label.PNG`.

A row of Labels.txt has five fields behind tabs: number, whether there is a defect, image, 0, mask,
0 where there is none; the first line is a header, or belongs to no image.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby

from apache_beam.io.filesystem import BeamIOError

from recordmill.records.errors import UsageError
from recordmill.transforms import files
from recordmill.transforms.globs import relative
from recordmill.transforms.image_entries import Entry, Listing
from recordmill.transforms.image_files import find_entries, input_root
from recordmill.transforms.image_joins import Listed
from recordmill.transforms.image_references import ListedReject, StoredBytes
from recordmill.transforms.image_spec import SourceSpec

_PLACE = re.compile(r"(?:^|/)(Class\d+)/(?:\1/)?(Train|Test)/[^/]+$", re.IGNORECASE)
_IN_LABEL = re.compile(r"/(Train|Test)/Label/[^/]+$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class _Labels:
    """What Labels.txt says: defect flag and mask by image, or a problem by image."""

    rows: dict[str, tuple[str, str]]
    problems: tuple[str, ...] = ()


def is_dagm(path: str) -> bool:
    """Tells whether a path is of an image in DAGM's layout."""
    return bool(_PLACE.search(path))


def dagm_images(spec: SourceSpec, listing: Listing) -> Iterator[Listed]:
    """Yields DAGM's images; labels are the folders Class1 …, or with labels_from="field" the flag.

    Memory: what two folders' Labels.txt say.

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
                yield _reference(spec, item, labels.rows.get(name))
        # A glob may leave images out on purpose.
        root = input_root(spec.patterns)
        for name in sorted(labels.rows.keys() - names):
            path = f"{folder}/{name}"
            if not files.exists(path):
                yield ListedReject(relative(path, root), "no_image", "Labels.txt names it")
        for problem in labels.problems:
            source = relative(f"{folder}/Label/Labels.txt", root)
            yield ListedReject(source, "bad_row", problem)


def _images(spec: SourceSpec, listing: Listing) -> Iterator[Entry | ListedReject]:
    for item in find_entries(spec.patterns, listing):
        if isinstance(item, ListedReject):
            yield item
        elif _IN_LABEL.search(item.path):
            listing.filtered["mask"] += 1
        elif is_dagm(item.path):
            yield item
        else:
            yield ListedReject(item.name, "no_label", "it lies in no Class*/Train or Class*/Test")


def _folder(item: Entry | ListedReject) -> str:
    return item.path.rpartition("/")[0] if isinstance(item, Entry) else ""


def _reference(spec: SourceSpec, item: Entry, row: tuple[str, str] | None) -> Listed:
    if row is None:
        return ListedReject(item.name, "no_label", "Label/Labels.txt does not name it")
    flag, mask = row
    _, label, split = _PLACE.split(item.path)[:3]
    labels: tuple[str, ...] = {"field": (flag,), "none": ()}.get(spec.labels_from, (label,))
    return spec.reference(
        item,
        labels=labels,
        mask=None if mask == "0" else StoredBytes(f"{_folder(item)}/Label/{mask}"),
        has_mask=True,
        split=split,
    )


def _read_labels(folder: str, listing: Listing) -> _Labels:
    path = f"{folder}/Label/Labels.txt"
    try:
        text = files.read_bytes(path).decode()
    except (OSError, BeamIOError, UnicodeDecodeError) as error:
        raise UsageError(
            f"--layout=dagm needs {path}, which cannot be read: "
            f"{getattr(error, 'strerror', None) or error}"
        ) from error
    listing.use(path)
    rows: dict[str, tuple[str, str]] = {}
    problems = []
    for number, line in enumerate(text.splitlines(), 1):
        fields = [field.strip() for field in line.split("\t")]
        if len(fields) == 5 and "." in fields[2]:
            _, flag, name, _, mask = fields
            if rows.setdefault(name, (flag, mask)) != (flag, mask):
                problems.append(f"line {number} names {name} again")
        elif number > 1 and line.strip():
            problems.append(f"line {number} has not the five fields of DAGM: {line[:80]!r}")
    return _Labels(rows, tuple(problems))
