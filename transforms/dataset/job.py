"""The common part of all jobs: workspace, splits, shards, and statistics that a job adds up.

A job is small enough to be sent with every stage. Options of text and of images are in subclasses;
plan, restart, rejects and commit need only this module.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from typing import Any, ClassVar, Literal, get_args

from recordmill.records.errors import UsageError, one_of
from recordmill.records.manifest import Manifest
from recordmill.records.schema import Schema
from recordmill.records.seqio_metadata import seqio_files
from recordmill.records.shards import DEFAULT_TEMPLATE, ShardName
from recordmill.records.spec import name_arguments, plain, python_names
from recordmill.records.tfds_metadata import tfds_files
from recordmill.transforms.dataset.output_spec import OutputSpec, ShardSpec, SplitSpec
from recordmill.transforms.dataset.user_functions import MapSpec
from recordmill.transforms.dataset.workspace import Workspace

Compression = Literal["", "GZIP", "ZLIB"]
Warnings = Literal["print", "error", "none"]
COMPRESSIONS: tuple[str, ...] = get_args(Compression)
WARNINGS: tuple[str, ...] = get_args(Warnings)
# They decide no byte of shards.
_OF_RUN = ("workspace", "max_rejected", "overwrite", "warnings", "lines_of_fastokens")


@dataclass(frozen=True, slots=True)
class JobSummary:
    """The outcome of a job beside its shards.

    Attributes:
      statistics: the content of `statistics.json`.
      counts: of inputs and examples: read = written + rejected + filtered.
      rejected_files: number -> (bytes, crc32c) of each file of rejects.
      extra_files: path, relative to the dataset, -> content of what else belongs to it.
      inputs: of the inputs of all splits, for `statistics.json`.
      dropped_files: number -> (bytes, crc32c) of each list of documents that were left out.
      schema: of the records, where only the shards say it.
    """

    statistics: dict[str, Any]
    counts: dict[str, Any]
    rejected_files: dict[int, tuple[int, int]]
    extra_files: dict[str, bytes]
    inputs: dict[str, Any] = field(default_factory=dict)
    dropped_files: dict[int, tuple[int, int]] = field(default_factory=dict)
    schema: Schema | None = None


class JobStatistics(ABC):
    """Adds up the statistics of shards; its memory does not grow with their number."""

    @abstractmethod
    def add(self, split: str, records: int, statistics: Any) -> None:
        """Adds a shard: its split, its number of records, and its `Job.shard_statistics`."""

    @abstractmethod
    def of_splits(self) -> dict[str, Any]:
        """Returns split -> what its shards say, for `statistics.json`."""

    @abstractmethod
    def summarize(self) -> JobSummary:
        """Returns the sums.

        Raises:
          RunError: more inputs were rejected than the job allows, or nothing is left.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Job(ABC):
    """The options of a job that do not depend on its kind.

    Attributes:
      workspace: the folders that the job writes to.
      splits: the splits, in order.
      shards: how many shards each split gets.
      compression: the compression of shards: "", "GZIP" or "ZLIB".
      seed: the seed of every random choice.
      max_rejected: the share of inputs that may be rejected, in [0, 1].
      overwrite: whether a finished dataset may be replaced.
      warnings: the reaction to warnings of `statistics_warnings.py`, one of `WARNINGS`.
      shard_template: the template of the paths of shards.
      map: the user's functions, which see each element of the input first.

      argument_names: of users' pipelines, see `python_names`.
      shard_statistics: the type of the statistics in the description of a shard.

    Raises:
      UsageError: a value is not valid, or the shares of the splits do not add up to 1.
    """

    argument_names: ClassVar[Mapping[str, str]] = python_names(OutputSpec)
    shard_statistics: ClassVar[Any] = dict[str, Any]

    workspace: Workspace
    splits: tuple[SplitSpec, ...] = (SplitSpec("train", 1.0),)
    shards: ShardSpec = field(default_factory=ShardSpec)
    compression: str = ""
    seed: int = 12345
    max_rejected: float = 0.0
    overwrite: bool = False
    warnings: str = "print"
    shard_template: str = DEFAULT_TEMPLATE
    map: MapSpec = field(default_factory=MapSpec)

    def __post_init__(self) -> None:
        one_of("--compression", self.compression, COMPRESSIONS)
        one_of("--warnings", self.warnings, WARNINGS)
        if not 0 <= self.max_rejected <= 1:
            raise UsageError(f"--max_rejected must be in [0, 1], got {self.max_rejected}")
        names = [split.name for split in self.splits]
        if len(set(names)) != len(names):
            raise UsageError(f"--splits must name each split once, got {','.join(names)}")
        total = sum(split.share for split in self.splits)
        if abs(total - 1) > 1e-6:
            raise UsageError(f"--splits must have shares that add up to 1, got {total:g}")

    def worded(self, message: str) -> str:
        """Returns a message as the job's users know it: those of a pipeline give no flags."""
        of_pipeline = self.workspace.of_pipeline
        return name_arguments(message, self.argument_names) if of_pipeline else message

    def shard_name(self, split: str, index: int, count: int) -> ShardName:
        """Returns the name of a shard."""
        return ShardName(split, index, count, self.shard_template)

    def completed(self) -> Job:
        """Returns the job with what only its first stages found out: by default itself.

        Raises:
          DamagedStateError: they have not written it.
        """
        return self

    def check_kept(self) -> None:
        """Checks that files which the dataset has without a copy are as they were read.

        Raises:
          RunError: one is not; nothing may be published then.
        """
        return

    @abstractmethod
    def schema(self) -> Schema:
        """Returns the schema of the records."""

    @abstractmethod
    def planned_splits(self) -> list[tuple[str, int]]:
        """Returns the splits and the number of shards of each; known when shards are built."""

    def shard_names(self) -> Iterator[ShardName]:
        """Yields the name of every shard; known when shards are built."""
        for split, count in self.planned_splits():
            yield from (self.shard_name(split, index, count) for index in range(count))

    def files_of_readers(
        self, manifest: Manifest, *, description: str, statistics: dict[str, Any]
    ) -> dict[str, bytes]:
        """Returns path -> content of what TFDS and seqio read beside the shards."""
        found = tfds_files(manifest, description=description)
        return found | seqio_files(manifest, statistics)

    @abstractmethod
    def statistics(self) -> JobStatistics:
        """Returns the object that adds up the statistics of the shards."""

    @abstractmethod
    def describe_counts(self, counts: Mapping[str, Any]) -> str:
        """Returns one line of what became of the inputs, given the manifest's counts."""

    def resolved(self) -> dict[str, Any]:
        """Returns all options of the dataset, for its manifest."""
        return self._options(fingerprint=False)

    def fingerprint_options(self) -> dict[str, Any]:
        """Returns the options that decide the bytes of shards, but for those with their defaults.

        So an option that a release adds changes no fingerprint of a dataset that does not use it.
        """
        return self._options(fingerprint=True)

    def _options(self, *, fingerprint: bool) -> dict[str, Any]:
        options = {}
        for each in fields(self):
            value = getattr(self, each.name)
            if each.name in _OF_RUN or (fingerprint and value == _default(each)):
                continue
            options[each.name] = plain(value, fingerprint=fingerprint)
        options.pop("map", None)
        if self.map:
            options["map"] = self.map.fingerprint_options()
        return options


def _default(each: Field[Any]) -> Any:
    return each.default if each.default_factory is MISSING else each.default_factory()
