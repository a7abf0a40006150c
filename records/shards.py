"""Shard names as a type: formatting, parsing and globbing agree by construction."""

from __future__ import annotations

import re
from dataclasses import dataclass

from recordmill.records.errors import UsageError

_FILE_NAME = re.compile(r"(?P<split>.+)-(?P<index>\d{5,})-of-(?P<count>\d{5,})\.tfrecords")
_SPLIT_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")

TFDS_TEMPLATE = "{SPLIT}/{SPLIT}-{SHARD_X_OF_Y}.tfrecords"


@dataclass(frozen=True, slots=True, order=True)
class ShardName:
    """Shard `index` of the `count` shards of a split.

    >>> ShardName("train", 3, 80).path
    'train/train-00003-of-00080.tfrecords'
    >>> ShardName.parse("train-00003-of-00080.tfrecords")
    ShardName(split='train', index=3, count=80)
    """

    split: str
    index: int
    count: int

    def __post_init__(self) -> None:
        if not _SPLIT_NAME.fullmatch(self.split):
            raise UsageError(
                f"a split's name must be letters, digits and underscores, got {self.split!r}"
            )
        if not 0 <= self.index < self.count:
            raise ValueError(f"shard index must be in [0, {self.count}), got {self.index}")

    @property
    def stem(self) -> str:
        """The name without folder and ending: what index and manifest files share."""
        return f"{self.split}-{self.index:05d}-of-{self.count:05d}"

    @property
    def path(self) -> str:
        """The shard file, relative to the dataset."""
        return f"{self.split}/{self.stem}.tfrecords"

    @property
    def index_path(self) -> str:
        """The file of "<offset> <size>" lines, relative to the dataset."""
        return f"_meta/index/{self.split}/{self.stem}.idx"

    @classmethod
    def parse(cls, file_name: str) -> ShardName:
        """Reads a file name without folders.

        Raises:
          ValueError: `file_name` is not a shard's.
        """
        match = _FILE_NAME.fullmatch(file_name)
        if not match:
            raise ValueError(f"{file_name!r} is not <split>-NNNNN-of-NNNNN.tfrecords")
        return cls(match["split"], int(match["index"]), int(match["count"]))
