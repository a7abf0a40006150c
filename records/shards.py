"""Shard names as a type: formatting, parsing and globbing agree by construction.

A template is the path of a shard in its dataset. It has TFDS's variables, so that
`dataset_info.json` holds it as it is: `{SPLIT}`, and `{SHARD_X_OF_Y}` for 00003-of-00080.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from recordmill.records.errors import UsageError, one_of

_SPLIT_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_SHARD_X_OF_Y = r"(?P<index>\d{5,})-of-(?P<count>\d{5,})"

DEFAULT_TEMPLATE = "{SPLIT}/{SPLIT}-{SHARD_X_OF_Y}.tfrecords"
# A new naming is a template here. `_meta` must stay free of names that readers glob for.
NAMINGS = {
    "default": "{SPLIT}/{SPLIT}-{SHARD_X_OF_Y}.{EXTENSION}",
    "flat": "{SPLIT}-{SHARD_X_OF_Y}.{EXTENSION}",
    "tfds": "{DATASET}-{SPLIT}.tfrecord-{SHARD_X_OF_Y}",
    "seqio": "{SPLIT}.tfrecord-{SHARD_X_OF_Y}",
    "tfx": "Split-{SPLIT}/data_tfrecord-{SHARD_X_OF_Y}.gz",
}
EXTENSIONS = ("tfrecords", "tfrecord")


def shard_template(naming: str, extension: str | None = None, *, dataset: str) -> str:
    """Returns the template of a naming.

    >>> shard_template("flat", dataset="cats")
    '{SPLIT}-{SHARD_X_OF_Y}.tfrecord'

    Args:
      naming: one of NAMINGS.
      extension: one of EXTENSIONS; None is tfrecords for the default naming, and else tfrecord.
      dataset: the name of the dataset.

    Raises:
      UsageError: no such naming or extension, or the naming has an extension of its own.
    """
    template = NAMINGS[one_of("--naming", naming, NAMINGS)]
    if extension is None:
        extension = "tfrecords" if naming == "default" else "tfrecord"
    elif "{EXTENSION}" not in template:
        raise UsageError(
            f"--extension={extension} has no effect with --naming={naming}, whose names have "
            "their own; remove one of the two"
        )
    one_of("--extension", extension, EXTENSIONS)
    return template.replace("{EXTENSION}", extension).replace("{DATASET}", dataset)


def shard_folder(split: str, template: str = DEFAULT_TEMPLATE) -> str:
    """Returns the folder of a split's shards, relative to the dataset; "" for the dataset's own."""
    return template.rpartition("/")[0].replace("{SPLIT}", split)


def is_shard_file(file_name: str, split: str, template: str = DEFAULT_TEMPLATE) -> bool:
    """Returns whether a name, without folders, is that of a shard of a split."""
    form = template.rpartition("/")[2]
    return bool(_pattern(form, f"(?P<split>{re.escape(split)})").fullmatch(file_name))


def is_shard_path(path: str, template: str = DEFAULT_TEMPLATE) -> bool:
    """Returns whether a path, relative to the dataset, is that of a shard of any split."""
    match = _pattern(template, f"(?P<split>{_SPLIT_NAME.pattern})").fullmatch(path)
    return match is not None and int(match["index"]) < int(match["count"])


def _pattern(template: str, split: str) -> re.Pattern[str]:
    """Returns the pattern of a template, where the group `split` is that of `{SPLIT}`."""
    pattern = re.escape(template)
    return re.compile(
        pattern.replace(re.escape("{SPLIT}"), split, 1)
        .replace(re.escape("{SPLIT}"), "(?P=split)")
        .replace(re.escape("{SHARD_X_OF_Y}"), _SHARD_X_OF_Y)
    )


@dataclass(frozen=True, slots=True, order=True)
class ShardName:
    """Shard `index` of the `count` shards of a split.

    >>> ShardName("train", 3, 80).path
    'train/train-00003-of-00080.tfrecords'
    >>> ShardName.parse("train-00003-of-00080.tfrecords")
    ShardName(split='train', index=3, count=80)

    Attributes:
      split, index, count: see above.
      template: of its path.
      file: its path where another tool has chosen it; "" where the template says it.

    Raises:
      UsageError: the name of the split has other characters than letters, digits and underscores.
      ValueError: the index is not below the count.
    """

    split: str
    index: int
    count: int
    template: str = field(default=DEFAULT_TEMPLATE, repr=False)
    file: str = field(default="", repr=False)

    def __post_init__(self) -> None:
        if not _SPLIT_NAME.fullmatch(self.split):
            raise UsageError(
                f"a split's name must be letters, digits and underscores, got {self.split!r}"
            )
        if not 0 <= self.index < self.count:
            raise ValueError(f"shard index must be in [0, {self.count}), got {self.index}")

    @property
    def stem(self) -> str:
        """The name without folder and extension, of files of the run: the same in each naming."""
        return f"{self.split}-{self.index:05d}-of-{self.count:05d}"

    @property
    def path(self) -> str:
        """The shard file, relative to the dataset."""
        if self.file:
            return self.file
        number = f"{self.index:05d}-of-{self.count:05d}"
        return self.template.replace("{SPLIT}", self.split).replace("{SHARD_X_OF_Y}", number)

    @property
    def index_path(self) -> str:
        """The file of "<offset> <size>" lines, relative to the dataset.

        It is named as the shard, without `.tfrecord`, which readers glob for. Files that other
        tools named may differ in that alone, so their indexes have names of ours.
        """
        if self.file:
            return f"_meta/index/{self.split}/{self.stem}.idx"
        return f"_meta/index/{re.sub(r'[.]tfrecords?', '', self.path)}.idx"

    def with_template(self, template: str) -> ShardName:
        """Returns the same shard under another naming."""
        return ShardName(self.split, self.index, self.count, template)

    @classmethod
    def parse(cls, file_name: str, template: str = DEFAULT_TEMPLATE) -> ShardName:
        """Reads a file name without folders.

        Raises:
          ValueError: `file_name` is not a shard's, or only its folder names the split.
        """
        form = template.rpartition("/")[2]
        match = _pattern(form, "(?P<split>.+)").fullmatch(file_name)
        if not match or "split" not in match.groupdict():
            form = form.replace("{SPLIT}", "<split>").replace("{SHARD_X_OF_Y}", "NNNNN-of-NNNNN")
            raise ValueError(f"{file_name!r} is not {form}")
        return cls(match["split"], int(match["index"]), int(match["count"]), template)
