"""Mask images, paired with the images by name."""

from __future__ import annotations

from collections.abc import Iterator

from recordmill.records.errors import UsageError
from recordmill.transforms.images.listing.entries import Entry, Listing
from recordmill.transforms.images.listing.image_files import find_entries, input_root
from recordmill.transforms.images.listing.joins import Listed, reject_row, stem
from recordmill.transforms.images.references import ImageReference, ListedReject
from recordmill.transforms.images.source_spec import SourceSpec
from recordmill.transforms.storage.external_sort import Row, cogroup


def pair_masks(images: Iterator[Listed], spec: SourceSpec, listing: Listing) -> Iterator[Listed]:
    """Yields the images with their masks; those without, and masks without image, are rejected.

    Names are compared below the two globs' roots, without extension and --mask_suffix;
    where the masks' root is in the images' root, below the latter. An input that is a mask itself
    is filtered.
    """

    def rows() -> Iterator[Row]:
        for item in images:
            if isinstance(item, ListedReject):
                yield reject_row(item)
            else:
                yield stem(item.name), "image", item.to_line()
        yield from _mask_rows(spec, listing)

    for key, contents in cogroup(rows(), scratch=listing.scratch):
        for reject in contents.get("reject", ()):
            yield ListedReject(*reject)
        masks = [Entry(*content) for content in contents.get("mask", ())]
        themselves = set(contents.get("mask_itself", ()))
        candidates = [ImageReference.from_line(line) for line in contents.get("image", ())]
        wanted = [image for image in candidates if image.image.path not in themselves]
        if len(wanted) < len(candidates):
            masked = next(image for image in candidates if image not in wanted)
            listing.pass_over("mask", masked.name, len(candidates) - len(wanted))
        yield from _paired(key, wanted, masks, spec)


def _paired(
    key: str, images: list[ImageReference], masks: list[Entry], spec: SourceSpec
) -> Iterator[Listed]:
    for image in images[1:]:
        detail = f"{images[0].name} has that name too, except for the extension"
        yield ListedReject(image.name, "duplicate", detail)
    for mask in masks[1:]:
        detail = f"{masks[0].name} is a mask of that name too, except for the extension"
        yield ListedReject(mask.name, "duplicate", detail)
    if images and masks:
        yield images[0].with_mask(masks[0].stored)
    elif images and images[0].has_mask and not images[0].objects:
        yield images[0]  # its annotations say that it shows no object
    elif images:
        wanted = f"{key}{spec.mask_suffix}"
        yield ListedReject(
            images[0].name, "no_mask", f"{spec.masks} has no image called {wanted}.*"
        )
    elif masks:
        yield ListedReject(masks[0].name, "no_image", "it is a mask without an image")


def _mask_rows(spec: SourceSpec, listing: Listing) -> Iterator[Row]:
    root = input_root(spec.patterns)
    mask_root = input_root([spec.masks])
    inside = f"{mask_root}/".startswith(f"{root}/") and mask_root != root
    above = mask_root[len(root) :].lstrip("/") + "/" if inside else ""
    before = dict(listing.passed_over)
    has_masks = False
    for item in find_entries([spec.masks], listing, flag="--masks"):
        has_masks = True
        if isinstance(item, ListedReject):
            yield reject_row(item)
            continue
        name = stem(above + item.name)
        yield name, "mask_itself", item.path
        if name.endswith(spec.mask_suffix):
            yield name.removesuffix(spec.mask_suffix), "mask", tuple(item)
        else:
            listing.pass_over("no_mask_suffix", name)
    if not has_masks:
        passed = listing.passed_over
        others = ", ".join(
            kind for kind in passed if kind != "hidden" and passed[kind] != before.get(kind)
        )
        raise UsageError(
            f"--masks must be images, and {spec.masks} holds none{others and f', but {others}'}; "
            "write the masks as PNG, a class number a pixel"
        )
