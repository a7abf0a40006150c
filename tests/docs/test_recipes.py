"""The recipes of CONTRIBUTING.md name every place that a change touches."""

from __future__ import annotations

import re
from typing import get_args

import pytest

from recordmill.records.augmentations import AUGMENTATIONS
from recordmill.records.spec import tag_of
from recordmill.transforms.images.image_spec import FORMATS
from recordmill.transforms.images.source_spec import Layout
from recordmill.transforms.sources.formats import FORMATS as SOURCE_FORMATS
from recordmill.transforms.text.text_spec import AnyObjective

from . import doc_blocks

ROOT = doc_blocks.ROOT
TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
RECIPES = dict(re.findall(r"^### (Adding [^\n]*)\n(.*?)(?=^##)", TEXT, re.MULTILINE | re.DOTALL))
# Recipe -> its names, and for each file of the recipe how a name stands in it.
PLACES: dict[str, tuple[list[str], dict[str, str]]] = {
    "Adding an augmentation": (
        [name for name in AUGMENTATIONS if name != "crop"],
        {
            "records/augmentations.py": 'tag="{}"',
            "transforms/images/augmentation.py": '"{}"',
            "reader/transforms/image_augmentation.py": '"{}"',
        },
    ),
    "Adding an objective": (
        [tag_of(kind) for kind in get_args(AnyObjective)],
        {"transforms/text/text_spec.py": 'tag="{}"', "docs/guides/text.md": "`{}`"},
    ),
    "Adding a source": (
        list(SOURCE_FORMATS),
        {"transforms/sources/formats.py": '"{}"'},
    ),
    "Adding an image layout": (
        [name for name in get_args(Layout) if name != "auto"],
        {
            "transforms/images/source_spec.py": '"{}"',
            "transforms/images/listing/list_images.py": '"{}"',
            "docs/guides/images.md": "`{}`",
        },
    ),
    "Adding an image format": (
        list(FORMATS),
        {
            "records/image_formats.py": "def {}(",
            "transforms/images/columns.py": "def {}(",
            "tests/test_foreign_image_readers.py": "{}",
        },
    ),
}


@pytest.mark.parametrize("recipe", RECIPES)
def test_files_of_a_recipe_are_there(recipe: str) -> None:
    paths = re.findall(r"`([\w/]+\.(?:py|pyi|md))`", RECIPES[recipe])
    assert paths
    for path in paths:
        if "/" in path:
            assert (ROOT / path).is_file(), path


@pytest.mark.parametrize("recipe", PLACES)
def test_what_there_is_stands_where_the_recipe_says(recipe: str) -> None:
    names, places = PLACES[recipe]
    assert len(names) > 4
    for path, form in places.items():
        assert f"`{path}`" in RECIPES[recipe]
        text = (ROOT / path).read_text(encoding="utf-8")
        assert [name for name in names if form.format(name) not in text] == [], path
