"""The options that all jobs have: the dataset, its splits and shards, and users' functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, ClassVar, Literal

from recordmill.records.errors import UsageError
from recordmill.records.manifest import STATISTICS_OF_ALL, STATISTICS_PATH
from recordmill.records.shards import EXTENSIONS, NAMINGS, ShardName
from recordmill.records.spec import Spec, option

WarningsOption = Annotated[Literal["print", "error", "none"], option(
    "What to do if the statistics look wrong, such as half of all tokens being padding: print it, "
    "fail before _SUCCESS is written (error), or say nothing (none).", group="output",
    fingerprint=False, example="error"
)]  # fmt: skip
Overwrite = Annotated[bool, option(
    "Replace the dataset in --output: exactly the files that its manifest lists, with "
    "run.json and report.html in _meta.", short="replace the dataset that is there",
    of_run=True, fingerprint=False, python="overwrite=True"
)]  # fmt: skip
TempDir = Annotated[str | None, option(
    "The folder for temporary files; by default the one of the output.", path="folder",
    picker="GCS_WRITE_FOLDER", of_run=True, fingerprint=False, python="output",
    group="output", example="/scratch"
)]  # fmt: skip
Seed = Annotated[int, option("The seed of every random draw.", python="seed", example="7")]
Splits = Annotated[str, option(
    "Such as train:0.9,validation:0.1; all copies of an input go to the same split.",
    group="output", short="such as train:0.9,validation:0.1", value="NAME:SHARE,…",
    pattern=r"^[A-Za-z][A-Za-z0-9_]*(:[0-9.]+)?(,[A-Za-z][A-Za-z0-9_]*(:[0-9.]+)?)*$",
    example="train:0.9,validation:0.1"
)]  # fmt: skip

# Arguments of users' own pipelines, in words where their types do not say enough.
_SHARES = "names with shares, such as {'train': 0.9, 'validation': 0.1}"
Shares = Annotated[Mapping[str, float], _SHARES]
SharesOrNames = Annotated[
    Mapping[str, float] | Sequence[str], f"{_SHARES}, or names, such as ['train', 'test']"
]
ShardCounts = Annotated[
    int | Mapping[str, int], "a whole number, or one for each split, such as {'train': 80}"
]
KeptFields = Annotated[str, "a string such as 'caption,year:int'"]


class OutputSpec(Spec, frozen=True, kw_only=True):
    """The dataset that a job writes: its folder, splits and shards."""

    group: ClassVar[str] = "output"

    output: Annotated[str, option(
        "The folder of the dataset, local or gs://….",
        short="the folder of the dataset, local or gs://…", value="DIR", path="folder",
        picker="GCS_WRITE_FOLDER", of_run=True, fingerprint=False, default="required",
        example="gs://bucket/ds"
    )] = ""  # fmt: skip
    overwrite: Overwrite = False
    temp_dir: TempDir = None
    splits: Splits = "train:1"
    num_shards: Annotated[str | None, option(
        "The number of shards of the first split; other splits get theirs in proportion.",
        short="of the first split; or --shard_size=200MB", value="N | NAME:N,…",
        pattern=r"^([A-Za-z][A-Za-z0-9_]*:)?[0-9]+(,[A-Za-z][A-Za-z0-9_]*:[0-9]+)*$", example="80"
    )] = None  # fmt: skip
    shard_size: Annotated[str | None, option(
        "The size of a shard in bytes, such as 64MiB; by default 200MB.", python="shard_bytes",
        pattern=r"^[0-9.]+([KMGkmg][Ii]?)?[Bb]?$", example="1GB"
    )] = None  # fmt: skip
    num_readers: Annotated[int | None, option(
        "The number of workers that will read: each gets 10 shards, of at least 10 MB.", ge=1,
        example="8"
    )] = None  # fmt: skip
    compression: Annotated[Literal["NONE", "GZIP", "ZLIB"], option(
        "The compression of shards; TFDS, Cerebras, seqio and DALI read only NONE. GZIP with "
        "--naming=tfx.", value="KIND", example="GZIP"
    )] = "NONE"  # fmt: skip
    naming: Annotated[str, option(
        "Shards are SPLIT/SPLIT-00000-of-00010.tfrecords; flat: SPLIT-00000-of-00010.tfrecord, "
        "without folders; tfds: NAME-SPLIT.tfrecord-00000-of-00010, as tfds itself writes; seqio: "
        "a task's cache, with its info, stats and COMPLETED; tfx: "
        "Split-SPLIT/data_tfrecord-00000-of-00010.gz, with GZIP, as ExampleGen writes.",
        choices=tuple(NAMINGS), example="flat"
    )] = "default"  # fmt: skip
    extension: Annotated[str | None, option(
        "Of shards: by default tfrecords, with --naming=flat tfrecord; tfds, seqio and tfx have "
        "their own.", choices=EXTENSIONS, example="tfrecord"
    )] = None  # fmt: skip
    warnings: WarningsOption = "print"
    random_seed: Seed = 12345

    def check(self) -> None:
        """Checks that one option alone decides the number of shards, and names with compression."""
        sizes = ("num_shards", "shard_size", "num_readers")
        given = [f"--{name}" for name in sizes if getattr(self, name)]
        if len(given) > 1:
            raise UsageError(
                "give one of --num_shards, --shard_size and --num_readers, not "
                f"{' and '.join(given)}"
            )
        _ = self.stored_compression

    @property
    def stored_compression(self) -> str:
        """The compression as the manifest has it, "" for none.

        Raises:
          UsageError: the reader of these names cannot read it.
        """
        compression = "" if self.compression == "NONE" else self.compression
        if self.naming == "tfx" and compression in ("", "GZIP"):
            return "GZIP"
        if self.naming in ("seqio", "tfx") and compression:
            form = "NONE" if self.naming == "seqio" else "GZIP"
            raise UsageError(
                f"--naming={self.naming} needs --compression={form}, and got {compression}, which "
                f"{self.naming} does not read"
            )
        return compression


class WriteSpec(Spec, frozen=True, kw_only=True):
    """Arguments of the transforms that write a dataset; others than the flags, as objects."""

    splits: Annotated[Shares | None, option(
        "Name -> share, such as `{'train': 0.9, 'validation': 0.1}`; one split by default."
    )] = None  # fmt: skip
    num_shards: Annotated[ShardCounts | None, option(
        "Of the first split, or of each by name; without it `shard_bytes` decides."
    )] = None  # fmt: skip
    shard_bytes: Annotated[int, option("The size of a shard, before compression.")] = 200_000_000
    compression: Annotated[Literal["", "GZIP", "ZLIB"], option("The compression of shards.")] = ""
    seed: Seed = 12345
    overwrite: Overwrite = False


class MapOptions(Spec, frozen=True, kw_only=True):
    """Functions of users' own for each document, image or record."""

    group: ClassVar[str] = "cleaning"

    map: Annotated[tuple[str, ...], option(
        "A function of your own that takes a Document (of text), an Image (of images) or a record "
        "(a dict of its features, or bytes) and returns one, None to drop it, or a list of "
        "several; or package.module:function; may be given several times. Its source travels to "
        "the workers.", value="FILE.py:FUNCTION", split="repeat", python="your function",
        example="cleaning.py:clean"
    )] = ()  # fmt: skip
    map_errors: Annotated[Literal["reject", "fail"], option(
        "What happens where a function of --map raises an error: what it was called for is a "
        "reject, or the run stops (fail).", example="fail"
    )] = "reject"  # fmt: skip


class SplitSpec(Spec, frozen=True):
    """A split: its name, its share of the input, and its number of shards if that is given.

    Raises:
      UsageError: the name has another use, the share is not in (0, 1], or there is to be no shard.
    """

    name: str
    share: float
    num_shards: int | None = None

    def check(self) -> None:
        """Checks name and numbers."""
        ShardName(self.name, 0, 1)
        if self.name in STATISTICS_OF_ALL:
            raise UsageError(
                f"--splits: {self.name} cannot be the name of a split, because "
                f"{STATISTICS_PATH} has another use for it"
            )
        if not 0 < self.share <= 1:
            raise UsageError(
                f"--splits: the share of {self.name} must be in (0, 1], got {self.share}"
            )
        if self.num_shards is not None and self.num_shards < 1:
            raise UsageError(f"--num_shards must be at least 1, got {self.num_shards}")


class ShardSpec(Spec, frozen=True):
    """How many shards a split gets, if `SplitSpec.num_shards` does not say it.

    Attributes:
      shard_bytes: the size of a shard in bytes, before compression.
      num_readers: the number of workers that will read: 10 shards for each, unless shards would be
        smaller than 10 MB.

    Raises:
      UsageError: a value is below 1.
    """

    words: ClassVar[Mapping[str, str]] = {"shard_size": "shard_bytes"}

    shard_bytes: int = 200_000_000
    num_readers: int | None = None

    def check(self) -> None:
        """Checks the numbers."""
        if self.shard_bytes < 1:
            raise UsageError(f"--shard_size must be at least 1 byte, got {self.shard_bytes}")
        if self.num_readers is not None and self.num_readers < 1:
            raise UsageError(f"--num_readers must be at least 1, got {self.num_readers}")
