"""Leading folders that all images share: they distinguish no images, so they name nothing."""

from __future__ import annotations

from msgspec.structs import replace

from recordmill.records.errors import UsageError
from recordmill.transforms.images.listing.entries import Listing, is_split_name
from recordmill.transforms.images.listing.image_files import find_entries, input_boundary
from recordmill.transforms.images.references import ListedReject
from recordmill.transforms.images.source_spec import SourceSpec


class FolderPrefix:
    """The leading folders common to some images, and the folders that follow them.

    Attributes:
      common: the folders that all images share.
      branches: the folders right below those.
      deepest: the most folders of an image.
    """

    def __init__(self) -> None:
        self.common: list[str] | None = None
        self.branches: set[str] = set()
        self.deepest = 0

    def add(self, folders: list[str]) -> None:
        """Adds the folders of an image; one that is in no folder says nothing."""
        if not folders:
            return
        self.deepest = max(self.deepest, len(folders))
        if self.common is None:
            self.common = folders
            return
        length = len(self.common)
        shared = next(
            (
                i
                for i, pair in enumerate(zip(self.common, folders, strict=False))
                if len({*pair}) > 1
            ),
            min(length, len(folders)),
        )
        if shared < length:
            self.branches = {self.common[shared]}
            self.common = self.common[:shared]
        self.branches.update(folders[shared : shared + 1])

    @property
    def is_clear(self) -> bool:
        """Whether more images cannot change anything: none is shared, and labels follow."""
        return self.common == [] and not all(map(is_split_name, self.branches))


def skip_common_folders(spec: SourceSpec) -> SourceSpec:
    """Returns the specification with the number of folders that name nothing.

    Lists the input until two images differ in their first folder: for usual trees, the images of
    one class.

    Raises:
      UsageError: the folders below the common ones are splits, and --split_from is not given.
    """
    has_splits = spec.split_from == "folder"
    by_name = bool(spec.label_pattern) or spec.labels_from == "none"
    has_labels = spec.layout == "folders" and not by_name
    if not has_splits and not (has_labels and spec.label_folder is None):
        return spec
    prefix = _shared_prefix(spec)
    common = prefix.common or []
    needed = has_splits + has_labels
    if has_splits:
        # A folder that is called like a split is one, also where it is the only one.
        first = next((i for i, name in enumerate(common) if is_split_name(name)), len(common))
        common = common[:first]
    elif not spec.split_from and prefix.branches and all(map(is_split_name, prefix.branches)):
        raise UsageError(
            f"--split_from=folder is needed where folders are named "
            f"{', '.join(sorted(prefix.branches))}; or --label_folder={len(common) + 1} if these "
            "are labels"
        )
    return replace(spec, common_folders=max(min(len(common), prefix.deepest - needed), 0))


def _shared_prefix(spec: SourceSpec) -> FolderPrefix:
    prefix = FolderPrefix()
    for item in find_entries(spec.patterns, Listing(boundary=input_boundary(spec))):
        if not isinstance(item, ListedReject):
            prefix.add(item.folders)
            if prefix.is_clear:
                break
    return prefix
