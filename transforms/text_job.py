"""What every stage of a text job needs to know, small enough to be sent with it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from recordmill.records.errors import UsageError, one_of
from recordmill.records.schema import Schema
from recordmill.transforms import files
from recordmill.transforms.documents import DocumentSpec
from recordmill.transforms.job import Conclusion, Job, Tally, read_json
from recordmill.transforms.lines import Int64s
from recordmill.transforms.masking import MaskSpec
from recordmill.transforms.pairing import PairSpec
from recordmill.transforms.runs import Run, read_run
from recordmill.transforms.tasks import BertTask, MlmTask, MlmTokensTask, Task
from recordmill.transforms.tokenization import Vocabulary
from recordmill.transforms.windows import WindowSpec

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


@dataclass(frozen=True, slots=True, kw_only=True)
class TextJob(Job):
    """A text job.

    Attributes:
      task: what to write.
      documents: how to read.
      lower_case: of the tokenizer.
    """

    task: TaskSpec
    documents: DocumentSpec = field(default_factory=DocumentSpec)
    lower_case: bool = True

    def load_task(self) -> Task:
        """Reads the vocabulary that the plan put beside the runs."""
        vocabulary = Vocabulary.from_bytes(files.read_bytes(self.vocabulary_path), "vocab.txt")
        return self.task.bind(vocabulary, self.seed)

    def schema(self) -> Schema:
        """Returns what the records hold."""
        return self.load_task().schema

    def planned_splits(self) -> list[tuple[str, int]]:
        """Returns what `plan_shards` decided."""
        splits = read_json(self.shard_plan_path)["splits"]
        return [(split["name"], split["shards"]) for split in splits]

    def tally(self) -> Tally:
        """Returns what adds up the shards at the end."""
        return _TextTally(read_json(self.shard_plan_path))

    @property
    def vocabulary_path(self) -> str:
        """The job's own copy of the vocabulary."""
        return files.join(self.work, "vocab.txt")

    @property
    def shard_plan_path(self) -> str:
        """What was decided on shards when all text was read, and what that reading found."""
        return files.join(self.work, "shards.json")

    def run_path(self, level: int, number: int) -> str:
        """A run file without its ending: of scatter (level 0) or of a regroup."""
        return files.join(self.work, f"runs-{level}", f"run-{number:06d}")


class _TextTally(Tally):
    """Adds up lengths and draws by split; what was read stands in the plan of shards."""

    def __init__(self, decided: dict[str, Any]) -> None:
        self._decided = decided
        self._examples: Counter[str] = Counter()
        self._counts: dict[str, Counter[str]] = {}
        self._lengths: dict[str, Int64s] = {}

    def add(self, split: str, records: int, found: dict[str, Any]) -> None:
        self._examples[split] += records
        self._counts.setdefault(split, Counter()).update(found["counts"])
        before = self._lengths.get(split, np.zeros(0, np.int64))
        self._lengths[split] = add_counts(before, np.array(found["lengths"], np.int64))

    def conclude(self) -> Conclusion:
        totals, rejected = self._decided["totals"], self._decided["rejected"]
        read, used = totals["documents_read"], totals["documents_used"]
        return Conclusion(
            statistics={split: self._statistics(split) for split in self._lengths},
            counts={
                "documents_read": read,
                "documents_written": used,
                "documents_without_tokens": read - used,
                "rejected": rejected,
                "examples": self._examples.total(),
            },
            rejected_files={int(n): tuple(f) for n, f in self._decided["rejected_files"].items()},
            extra_files={},
        )

    def _statistics(self, split: str) -> dict[str, Any]:
        lengths, counts = self._lengths[split], self._counts[split]
        examples = self._examples[split]
        tokens = int((lengths * np.arange(len(lengths))).sum())
        found: dict[str, Any] = {
            "examples": examples,
            "tokens": tokens,
            "tokens_per_example": lengths.tolist(),
            **dict(sorted(counts.items())),
        }
        predictions = counts["predictions"]
        if predictions:
            found["prediction_rate"] = round(predictions / max(tokens, 1), 6)
            for name in ("masked", "kept", "replaced"):
                found[f"{name}_rate"] = round(counts[f"predictions_{name}"] / predictions, 6)
        if "random_next" in counts:
            found["random_next_rate"] = round(counts["random_next"] / max(examples, 1), 6)
        return found


def add_counts(total: Int64s, more: Int64s) -> Int64s:
    """Adds two histograms of which one may be longer."""
    longer, shorter = (total, more) if len(total) >= len(more) else (more, total)
    longer = longer.copy()
    longer[: len(shorter)] += shorter
    return longer


def read_runs(job: TextJob, level: int, number: int, *, histograms: bool = True) -> list[Run]:
    """Reads the tails of the runs that one task wrote: mostly one, more from a huge file."""
    infos = read_json(job.run_path(level, number) + ".json")["runs"]
    return [read_run(info, histograms=histograms) for info in infos]
