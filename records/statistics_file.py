"""What readers use of `_meta/statistics.json`."""

from __future__ import annotations

import msgspec

from recordmill.records.errors import UsageError
from recordmill.records.manifest import STATISTICS_PATH
from recordmill.records.state import Count, FormatError, convert, decode


class SplitStatistics(msgspec.Struct, frozen=True):
    """The statistics of a split that a reader uses; others are passed over.

    Attributes:
      classes: name -> records.
      tokens_per_example: the records of each length from 0 on, None where they are not counted.
      channel_mean, channel_std: of images in [0, 1] or [0, 255], None where they are not counted.
    """

    classes: dict[str, Count] = {}
    tokens_per_example: list[Count] | None = None
    channel_mean: list[float] | None = None
    channel_std: list[float] | None = None


def read_split_statistics(content: bytes, split: str, dataset: str) -> SplitStatistics:
    """Reads the statistics of a split; all absent where the file has none of it.

    Args:
      content: of the file.
      split: its name.
      dataset: the folder, for messages.

    Raises:
      UsageError: the file is cut, or a statistic has the wrong type.
    """
    try:
        splits = decode(content, dict[str, object])
        return convert(splits.get(split, {}), SplitStatistics)
    except FormatError as error:
        raise UsageError(
            f"{dataset}/{STATISTICS_PATH} cannot be used for split {split!r}: {error}; copy it "
            "again, and check the dataset with `recordmill verify`"
        ) from error
