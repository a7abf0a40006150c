"""What readers and reports use of `_meta/statistics.json`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec

from recordmill.records.errors import UsageError
from recordmill.records.manifest import STATISTICS_OF_ALL, STATISTICS_PATH
from recordmill.records.state import Count, FormatError, convert, decode


class _Bounds(msgspec.Struct, frozen=True):
    """Of a side of all images."""

    min: float
    mean: float
    max: float


class SplitStatistics(msgspec.Struct, frozen=True):
    """The statistics of a split that anybody uses; others are passed over.

    What a split has not counted its file lacks: the defaults are no values.

    Attributes:
      classes: name -> records.
      class_pixels: name -> pixels of masks.
      tokens_per_example: the records of each length from 0 on.
      channel_mean, channel_std: of images in [0, 1] or [0, 255].
      log2_pixels: images by the logarithm of their pixels.
    """

    classes: dict[str, Count] = {}
    class_pixels: dict[str, Count] = {}
    tokens_per_example: list[Count] = []
    padding_rate: float = 0.0
    prediction_rate: float = 0.0
    masked_rate: float = 0.0
    replaced_rate: float = 0.0
    kept_rate: float = 0.0
    random_next_rate: float = 0.0
    unknown_rate: float = 0.0
    unknown_tokens: Count = 0
    channel_mean: list[float] = []
    channel_std: list[float] = []
    width: _Bounds | None = None
    height: _Bounds | None = None
    log2_pixels: dict[Annotated[int, msgspec.Meta(ge=0, le=62)], Count] = {}
    masks: Count = 0
    masks_without_object: Count = 0
    boxes_clipped: Count = 0
    boxes_dropped_inverted: Count = 0
    boxes_dropped_empty: Count = 0
    boxes_dropped_outside: Count = 0
    boxes_dropped_cut: Count = 0


class _Warning(msgspec.Struct, frozen=True):
    rule: str = ""
    split: str = ""
    text: str = ""


_OF_ALL: dict[str, Any] = dict(
    zip(STATISTICS_OF_ALL, (dict[str, object], list[_Warning]), strict=True)
)


def check_statistics(content: Mapping[str, object]) -> None:
    """Checks that all that anybody uses of the content of `statistics.json` has its type.

    Raises:
      FormatError: names the first statistic that has another.
    """
    for name, part in content.items():
        try:
            convert(part, _OF_ALL.get(name, SplitStatistics))
        except FormatError as error:
            raise FormatError(f"{name}: {error}") from error


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
