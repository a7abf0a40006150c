"""Trees of files for tests of listing: the bytes do not matter, only names do."""

from __future__ import annotations

from pathlib import Path

from recordmill.transforms.image_references import LISTING_REASONS, ImageReference, ListedReject
from recordmill.transforms.image_sources import Listing, SourceSpec, list_images


def fill(folder: Path, *names: str) -> Path:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(name.encode())
    return folder


def listed(*patterns: str, listing: Listing | None = None, **options):
    """Returns the images by name, and the rejects as (source, reason)."""
    items = list(list_images(SourceSpec(patterns=patterns, **options), listing))
    images = {item.name: item for item in items if isinstance(item, ImageReference)}
    rejects = [(item.source, item.reason) for item in items if isinstance(item, ListedReject)]
    assert len(images) + len(rejects) == len(items)
    assert {reason for _, reason in rejects} <= LISTING_REASONS.keys()
    for image in images.values():
        assert ImageReference.from_line(image.to_line()) == image
    return images, rejects
