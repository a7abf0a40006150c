"""The configuration of a text job, small enough to be sent to every stage, and its statistics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from msgspec import structs

from recordmill.records.arrays import Bytes, Int64s
from recordmill.records.errors import UsageError, one_of
from recordmill.records.schema import Schema
from recordmill.records.seqio_metadata import token_statistics
from recordmill.records.spec import python_names
from recordmill.transforms.dataset.error_budget import UnfitOptionsError
from recordmill.transforms.dataset.job import Job, JobStatistics, JobSummary
from recordmill.transforms.dataset.labels import LABELS_PATH, labels_file
from recordmill.transforms.dataset.run_state import DamagedStateError
from recordmill.transforms.shuffle.run_files import SortedRecords
from recordmill.transforms.shuffle.shuffle_job import MergeRecords, ShuffleJob
from recordmill.transforms.sources.document_spec import DocumentSpec
from recordmill.transforms.storage import files
from recordmill.transforms.subwords.hugging_face import JsonTokenizer
from recordmill.transforms.subwords.tokenizer import Tokenizer
from recordmill.transforms.text.bind_objective import bind
from recordmill.transforms.text.chunk_records import decode_chunks, id_words, sorted_records
from recordmill.transforms.text.feature_tokens import larger
from recordmill.transforms.text.objective import Objective
from recordmill.transforms.text.text_spec import (
    USUAL_PREDICTIONS,
    AnyObjective,
    CleanSpec,
    Masked,
    TextSpec,
)
from recordmill.transforms.text.text_state import ScatterResult, ShardPlan, TextShardStatistics
from recordmill.transforms.text.tokenizer_files import load_tokenizer

LOADED_FROM = "of this run"  # the source of a job's tokenizer, which equals others of that source


@dataclass(frozen=True, slots=True, kw_only=True)
class TextJob(ShuffleJob):
    """A text job.

    Attributes:
      objective: what examples to make of the text.
      documents: how documents lie in the input.
      lower_case: whether the tokenizer lowers text and strips accents.
      dupe_splits: the splits that get all copies of the text; others get one. None means the
        split called train, or the first one.
      clean: which documents are dropped, and how text is normalized.
      allow_special_tokens: the spelling of a special token in text becomes its id.
      lines_of_fastokens: of a BPE, which lines have their ids of fastokens, see
        `byte_pairs.quick_pairs`; "": all have them of `tokenizers`, which are the same.
    """

    argument_names: ClassVar[Mapping[str, str]] = python_names(TextSpec)
    shard_statistics: ClassVar[Any] = TextShardStatistics

    objective: AnyObjective
    documents: DocumentSpec = DocumentSpec()  # noqa: RUF009 - it is frozen
    lower_case: bool = True
    dupe_splits: tuple[str, ...] | None = None
    clean: CleanSpec = CleanSpec()  # noqa: RUF009 - it is frozen
    allow_special_tokens: bool = False
    lines_of_fastokens: str = ""

    def __post_init__(self) -> None:
        # Not super(): a dataclass with slots is made anew, and super() knows only the first.
        Job.__post_init__(self)
        for name in self.dupe_splits or ():
            one_of("--dupe_splits", name, [split.name for split in self.splits])

    @property
    def copies(self) -> tuple[int, ...]:
        """How often each split uses a text."""
        names = [split.name for split in self.splits]
        copied = self.dupe_splits
        if copied is None:
            copied = ("train" if "train" in names else names[0],)
        return tuple(self.objective.dupe_factor if name in copied else 1 for name in names)

    @property
    def drops(self) -> bool:
        """Whether documents may be dropped at all."""
        return self.clean.drops or bool(self.map)

    def resolved(self) -> dict[str, Any]:
        """Returns all options; documents of a user's own pipeline lie in no files."""
        found = Job.resolved(self)
        if isinstance(self.objective, Masked):
            found["objective"]["max_predictions_per_seq"] = self.objective.most_predictions
        if self.workspace.of_pipeline:
            of_texts = ("row", "sentence_splitter", "strips")
            found["documents"] = {name: found["documents"][name] for name in of_texts}
        return found

    def fingerprint_options(self) -> dict[str, Any]:
        """Returns the options that decide bytes; to give the default is as good as to give none."""
        if not isinstance(self.objective, Masked):
            return Job.fingerprint_options(self)
        most = self.objective.most_predictions
        number = None if most == USUAL_PREDICTIONS else most
        objective = structs.replace(self.objective, max_predictions_per_seq=number)
        return Job.fingerprint_options(replace(self, objective=objective))

    def describe_counts(self, counts: Mapping[str, Any]) -> str:
        """Returns one line of what became of the documents."""
        dropped = counts.get("dropped", {})
        added = counts.get("documents_added", 0)
        return (
            f"documents: {counts['documents_read']} read, "
            + (f"{added} added by --map, " if added else "")
            + f"{counts['documents_written']} written, "
            + f"{counts['documents_without_tokens']} without tokens"
            + "".join(f", {number} dropped as {reason}" for reason, number in dropped.items())
        )

    def load_objectives(self, classes: tuple[str, ...] = ()) -> list[Objective]:
        """Returns the objective of each split, with the copies that the split gets.

        Args:
          classes: `planned_classes`, where they are known and needed.
        """
        loaded = self.load_objective(classes)
        return [replace(loaded, copies=copies) for copies in self.copies]  # type: ignore[type-var]

    def load_objective(self, classes: tuple[str, ...] = ()) -> Objective:
        """Reads the vocabulary that the planner wrote beside the run files."""
        vocabulary = self.load_vocabulary()
        return bind(self.objective, vocabulary, self.seed, self.documents.row, classes)

    def planned_classes(self) -> tuple[str, ...]:
        """Returns the names of class 0, 1, …; known when shards are planned, () for no classes."""
        return self.read_shard_plan().classes

    def load_vocabulary(self) -> Tokenizer:
        """Reads the vocabulary alone.

        Raises:
          DamagedStateError: it is missing or damaged.
        """
        path = self.vocabulary_path
        try:
            tokenizer = load_tokenizer(files.read_bytes(path), LOADED_FROM)
        except (FileNotFoundError, UsageError) as error:
            raise DamagedStateError(
                f"{path} is missing or damaged; start anew with --overwrite"
            ) from error
        if isinstance(tokenizer, JsonTokenizer) and tokenizer.kind == "bpe":
            return replace(tokenizer, lines_of_fastokens=self.lines_of_fastokens)
        return tokenizer

    def schema(self) -> Schema:
        """Returns the schema of the records."""
        return self.load_objective(self.planned_classes()).schema

    def record_merger(self) -> MergeRecords:
        """Returns what merges the chunks of run files."""
        words_per_id = id_words(len(self.load_vocabulary()))

        def merge(slices: Sequence[Bytes], low: int, high: int) -> SortedRecords:
            bounds = [low] * len(slices), [high] * len(slices)
            has_fields = self.documents.row.is_carried
            chunks = decode_chunks(slices, *bounds, words_per_id, has_fields=has_fields)
            return sorted_records(chunks, words_per_id)

        return merge

    def planned_splits(self) -> list[tuple[str, int]]:
        """Returns what `plan_shards` decided."""
        splits = self.read_shard_plan().splits
        return [(split.name, split.shards) for split in splits]

    def statistics(self) -> JobStatistics:
        """Returns the object that adds up the statistics of the shards."""
        return _TextStatistics(self, self.read_shard_plan())

    def read_shard_plan(self) -> ShardPlan:
        """Reads what `plan_shards` decided."""
        return self.workspace.need_state(self.shard_plan_path, ShardPlan)

    @property
    def vocabulary_path(self) -> str:
        """The job's own copy of the vocabulary."""
        return files.join(self.workspace.work, "vocab.txt")

    def read_scatter_result(self, number: int) -> ScatterResult | None:
        """Returns what a work item of scatter did, None where it is not done."""
        return self.workspace.read_state(self.description_path(0, number), ScatterResult)


class _TextStatistics(JobStatistics):
    """Adds up lengths and draws by split; the shard plan has the numbers of documents."""

    def __init__(self, job: TextJob, plan: ShardPlan) -> None:
        self._job = job
        self._plan = plan
        names = (split.name for split in job.splits)
        self._copies = dict(zip(names, job.copies, strict=True))
        self._examples: Counter[str] = Counter()
        self._counts: dict[str, Counter[str]] = {}
        self._classes: dict[str, Counter[str]] = {}
        self._lengths: dict[str, Int64s] = {}
        self._tokens: dict[str, Counter[str]] = {}
        self._most_tokens: dict[str, dict[str, int]] = {}

    def add(self, split: str, records: int, statistics: TextShardStatistics) -> None:
        self._examples[split] += records
        self._counts.setdefault(split, Counter()).update(statistics.counts)
        self._classes.setdefault(split, Counter()).update(statistics.classes)
        before = self._lengths.get(split, np.zeros(0, np.int64))
        self._lengths[split] = add_counts(before, np.array(statistics.lengths, np.int64))
        self._tokens.setdefault(split, Counter()).update(statistics.feature_tokens)
        most = self._most_tokens.get(split, {})
        self._most_tokens[split] = larger(most, statistics.most_tokens)

    def summarize(self) -> JobSummary:
        """Adds up what the job has written.

        Raises:
          UnfitOptionsError: a split has no examples, although it has tokens.
        """
        for split in self._copies:
            if not self._examples[split]:
                rows = self._counts[split]["rows_too_short"]
                raise UnfitOptionsError(
                    f"no examples for split {split}: all its rows ({rows}) are of one token, in "
                    "which no span fits; check --documents, --packing and --splits, and run again"
                )
        read, used = self._plan.documents_read, self._plan.documents_used
        added = self._plan.documents_added
        dropped = {reason: sum(counts) for reason, counts in self._plan.dropped.items()}
        classes = self._plan.classes
        return JobSummary(
            statistics={
                split: found | {"copies": self._copies[split]} | self._dropped(split)
                for split, found in self.of_splits().items()
            },
            counts={
                "documents_read": read,
                "documents_written": used,
                **({"documents_added": added} if self._job.map else {}),
                "documents_without_tokens": read + added - used - sum(dropped.values()),
                **({"dropped": dropped} if self._job.drops else {}),
                "rejected": self._plan.rejected,
                "examples": self._examples.total(),
            },
            rejected_files=self._plan.rejected_files,
            extra_files=self._extra_files(classes),
            inputs={"shared_contents": list(self._plan.shared_contents)},
            dropped_files=self._plan.dropped_files,
        )

    def _extra_files(self, classes: tuple[str, ...]) -> dict[str, bytes]:
        """Returns the tokenizer, and the names of classes."""
        path = f"_meta/{self._job.load_vocabulary().stored_name}"
        found = {path: files.read_bytes(self._job.vocabulary_path)}
        return found | ({LABELS_PATH: labels_file(classes)} if classes else {})

    def of_splits(self) -> dict[str, Any]:
        objective = self._job.objective
        return {
            split: summarize_examples(
                self._examples[split],
                TextShardStatistics(
                    counts=self._counts[split],
                    classes=self._classes[split],
                    lengths=self._lengths[split].tolist(),
                ),
                padded_length=objective.padded_length,
                packed_tokens=objective.packed_tokens,
            )
            | self._feature_tokens(split)
            for split in self._lengths
        }

    def _feature_tokens(self, split: str) -> dict[str, int]:
        """Returns the tokens of features under seqio's names, where they were counted."""
        found: dict[str, int] = {}
        for feature, most in self._most_tokens[split].items():
            of_all, of_one = token_statistics(feature)
            found |= {of_all: self._tokens[split][feature], of_one: most}
        return found

    def _dropped(self, split: str) -> dict[str, Any]:
        """Returns the documents of a split that were dropped, by reason."""
        position = list(self._copies).index(split)
        counts = {reason: n[position] for reason, n in self._plan.dropped.items() if n[position]}
        return {"dropped": counts} if self._job.drops else {}


def summarize_examples(
    examples: int,
    sums: TextShardStatistics,
    *,
    padded_length: int | None,
    packed_tokens: int | None = None,
) -> dict[str, Any]:
    """Returns the content of `statistics.json` for a split.

    Args:
      examples: the number of examples.
      sums: over its shards.
      padded_length, packed_tokens: of the objective.
    """
    lengths, counts = np.asarray(sums.lengths, np.int64), Counter(sums.counts)
    tokens = int((lengths * np.arange(len(lengths))).sum())
    statistics: dict[str, Any] = {
        "examples": examples,
        "tokens": tokens,
        "tokens_per_example": lengths.tolist(),
        **dict(sorted(counts.items())),
    }
    if sums.classes:
        statistics["classes"] = dict(sorted(sums.classes.items()))
    if "cut_examples" in counts:
        statistics["cut_rate"] = round(counts["cut_examples"] / max(examples, 1), 6)
    predictions = counts["predictions"]
    if predictions:
        statistics["prediction_rate"] = round(predictions / max(tokens, 1), 6)
        for name in ("masked", "kept", "replaced"):
            statistics[f"{name}_rate"] = round(counts[f"predictions_{name}"] / predictions, 6)
    if "random_next" in counts:
        statistics["random_next_rate"] = round(counts["random_next"] / max(examples, 1), 6)
    if "unknown_tokens" in counts:
        statistics["unknown_rate"] = round(counts["unknown_tokens"] / max(tokens, 1), 6)
    if packed_tokens:
        statistics["fill_rate"] = round(tokens / max(examples * packed_tokens, 1), 6)
        documents = max(counts["documents_in_rows"], 1)
        statistics["documents_cut_rate"] = round(counts["documents_cut"] / documents, 6)
    if "repeated_tokens" in counts:
        statistics["repeated_rate"] = round(counts["repeated_tokens"] / max(tokens, 1), 6)
    if counts["noise_tokens"]:
        statistics["noise_rate"] = round(counts["noise_tokens"] / max(tokens, 1), 6)
        mean = counts["noise_tokens"] / max(counts["noise_spans"], 1)
        statistics["mean_noise_span_length"] = round(mean, 6)
    if padded_length:
        positions = max(examples * padded_length, 1)
        statistics["padding_rate"] = round(1 - tokens / positions, 6)
    return statistics


def add_counts(total: Int64s, more: Int64s) -> Int64s:
    """Adds two histograms, `[num_cells] int64`, of which one may be longer."""
    longer, shorter = (total, more) if len(total) >= len(more) else (more, total)
    longer = longer.copy()
    longer[: len(shorter)] += shorter
    return longer
