"""What every stage of a text job needs to know, small enough to be sent with it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any

from recordmill.records.errors import RunError, UsageError, one_of
from recordmill.records.shards import ShardName
from recordmill.transforms import files
from recordmill.transforms.documents import DocumentSpec
from recordmill.transforms.masking import MaskSpec
from recordmill.transforms.pairing import PairSpec
from recordmill.transforms.runs import Run, read_run
from recordmill.transforms.tasks import BertTask, MlmTask, MlmTokensTask, Task
from recordmill.transforms.tokenization import Vocabulary
from recordmill.transforms.windows import WindowSpec

COMPRESSIONS = ("", "GZIP", "ZLIB")
TASKS = ("bert", "mlm", "mlm_tokens")


@dataclass(frozen=True, slots=True)
class TaskSpec:
    """A task by name, with its options; `bind` makes it work on a vocabulary."""

    name: str
    copies: int = 10
    pair: PairSpec = field(default_factory=PairSpec)
    mask: MaskSpec = field(default_factory=MaskSpec)
    window: WindowSpec = field(default_factory=WindowSpec)
    use_v2_feature_names: bool = False
    use_position_id: bool = False

    def __post_init__(self) -> None:
        one_of("--task", self.name, TASKS)
        if self.copies < 1:
            raise UsageError(f"--dupe_factor must be at least 1, got {self.copies}")

    def bind(self, vocabulary: Vocabulary, seed: int) -> Task:
        """Returns the task with its vocabulary."""
        if self.name == "bert":
            return BertTask(
                vocabulary, seed, self.copies, self.pair, self.mask,
                self.use_v2_feature_names, self.use_position_id,
            )  # fmt: skip
        if self.name == "mlm":
            return MlmTask(vocabulary, seed, self.copies, self.window, self.mask)
        return MlmTokensTask(vocabulary, seed, self.copies, self.window)


@dataclass(frozen=True, slots=True)
class SplitSpec:
    """A split: its name, its share of the documents, and its number of shards where given."""

    name: str
    share: float
    num_shards: int | None = None

    def __post_init__(self) -> None:
        ShardName(self.name, 0, 1)
        if not 0 < self.share <= 1:
            raise UsageError(f"--splits: the share of {self.name} must be in (0, 1]")


@dataclass(frozen=True, slots=True)
class ShardSpec:
    """How many shards: as `SplitSpec.num_shards` says, or else by size.

    Attributes:
      shard_bytes: the size of a shard before compression.
      num_readers: 10 shards a reader, unless they would be smaller than 10 MB.
    """

    shard_bytes: int = 200_000_000
    num_readers: int | None = None

    def __post_init__(self) -> None:
        if self.shard_bytes < 1:
            raise UsageError(f"--shard_size must be at least 1 byte, got {self.shard_bytes}")
        if self.num_readers is not None and self.num_readers < 1:
            raise UsageError(f"--num_readers must be at least 1, got {self.num_readers}")


@dataclass(frozen=True, slots=True)
class TextJob:
    """A text job.

    Attributes:
      output: the dataset.
      work: where runs and the plan lie until the end.
      staging: where finished shards wait, on the output's own file system.
      task: what to write.
      documents: how to read.
      splits: which splits, in order.
      shards: how many.
      lower_case: of the tokenizer.
      compression: of the shards.
      seed: of every random choice.
      max_rejected: the share of inputs that may be rejected.
      overwrite: whether a finished dataset may be replaced.
    """

    output: str
    work: str
    staging: str
    task: TaskSpec
    documents: DocumentSpec = field(default_factory=DocumentSpec)
    splits: tuple[SplitSpec, ...] = (SplitSpec("train", 1.0),)
    shards: ShardSpec = field(default_factory=ShardSpec)
    lower_case: bool = True
    compression: str = ""
    seed: int = 12345
    max_rejected: float = 0.0
    overwrite: bool = False

    def __post_init__(self) -> None:
        if self.compression not in COMPRESSIONS:
            one_of("--compression", self.compression, ("NONE", "GZIP", "ZLIB"))
        if not 0 <= self.max_rejected <= 1:
            raise UsageError(f"--max_rejected must be in [0, 1], got {self.max_rejected}")
        names = [split.name for split in self.splits]
        if len(set(names)) != len(names):
            raise UsageError(f"--splits must name each split once, got {','.join(names)}")
        total = sum(split.share for split in self.splits)
        if abs(total - 1) > 1e-6:
            raise UsageError(f"--splits must have shares that add up to 1, got {total:g}")

    def load_task(self) -> Task:
        """Reads the vocabulary that the plan put beside the runs."""
        vocabulary = Vocabulary.from_bytes(files.read_bytes(self.vocabulary_path), "vocab.txt")
        return self.task.bind(vocabulary, self.seed)

    @property
    def vocabulary_path(self) -> str:
        """The job's own copy of the vocabulary."""
        return files.join(self.work, "vocab.txt")

    def run_path(self, level: int, number: int) -> str:
        """A run file without its ending: of scatter (level 0) or of a regroup."""
        return files.join(self.work, f"runs-{level}", f"run-{number:06d}")

    def rejected_path(self, number: int) -> str:
        """The rejects of a scatter task."""
        return files.join(self.staging, "rejected", f"rejected-{number:06d}.jsonl")

    def done_path(self, name: ShardName) -> str:
        """What a finished shard says of itself."""
        return files.join(self.staging, "done", f"{name.stem}.json")

    def index_path(self, name: ShardName) -> str:
        """The index of a finished shard, until it is published."""
        return files.join(self.staging, "index", name.split, f"{name.stem}.idx")

    @property
    def partial_folder(self) -> str:
        """Where files lie until they are whole, whose folders are published as they are."""
        return files.join(self.staging, "partial")

    @property
    def failure_path(self) -> str:
        """Why the run ended, in one line, for the process that the user sees."""
        return files.join(self.staging, "failure.txt")

    def decides_bytes(self) -> dict[str, Any]:
        """Returns the options that decide the bytes of shards."""
        options = asdict(self)
        for name in ("output", "work", "staging", "max_rejected", "overwrite"):
            del options[name]
        return options


def read_json(path: str) -> Any:
    """Reads a JSON file of the job."""
    return json.loads(files.read_bytes(path))


def read_runs(job: TextJob, level: int, number: int, *, histograms: bool = True) -> list[Run]:
    """Reads the tails of the runs that one task wrote: mostly one, more from a huge file."""
    infos = read_json(job.run_path(level, number) + ".json")["runs"]
    return [read_run(info, histograms=histograms) for info in infos]


def write_json(path: str, content: Any) -> None:
    """Writes a JSON file of the job, whole or not at all."""
    files.write_bytes(path, json.dumps(content, sort_keys=True).encode())


def fail(job: TextJob, error: RunError) -> None:
    """Leaves the reason where the launching process finds it, and raises it."""
    files.write_bytes(job.failure_path, str(error).encode())
    raise error
