"""References as lines of JSON, with and without the paths of the input."""

from __future__ import annotations

import json

from recordmill.transforms.images.references import ImageReference, StoredBytes


def at(root: str, **options: object) -> ImageReference:
    image = StoredBytes(f"{root}/a.zip", "zip", 10, 20, crc32=7)
    return ImageReference(
        "a.zip/cat/1.jpg", image, ("cat",), mask=StoredBytes(f"{root}/1.png"), **options
    )  # type: ignore[arg-type]


def test_lines_without_paths_do_not_depend_on_where_the_input_is():
    here, there = at("/in").to_lines(), at('/else"where').to_lines()
    assert here.line != there.line
    assert here.without_paths == there.without_paths
    assert here.line == at("/in").to_line()
    assert json.loads(here.without_paths)["image"] == {
        "path": "", "storage": "zip", "offset": 10, "size": 20, "crc32": 7,
    }  # fmt: skip


def test_a_path_inside_a_name_or_label_stays():
    # Removing the text of the path from the line would make these two images the same.
    first = ImageReference("a/cat", StoredBytes("cat"), ("cat",)).to_lines()
    second = ImageReference("a/", StoredBytes("cat"), ("",)).to_lines()
    assert first.without_paths != second.without_paths
