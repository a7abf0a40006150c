"""Plan the shards of existing records: their number, from what scatter found."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from recordmill.records.errors import RunError
from recordmill.transforms.dataset.content_sample import ContentSample, shared_contents
from recordmill.transforms.dataset.error_budget import check_budget, say_rejected
from recordmill.transforms.dataset.shard_counts import count_shards
from recordmill.transforms.examples.examples_job import ExamplesJob
from recordmill.transforms.examples.examples_state import ReadResult, RecordPlan
from recordmill.transforms.examples.schema_survey import SchemaSurvey
from recordmill.transforms.shuffle.merge_tree import MergeTree
from recordmill.transforms.shuffle.shard_ranges import (
    PlannedSplit,
    SplitShards,
    read_planned_splits,
)
from recordmill.transforms.shuffle.shuffle_stages import decide_once, finished_results

_LEFT_OUT = {"dropped_where": "--where", "dropped_map": "--map", "sampled_out": "--weights"}


@dataclass(slots=True)
class RecordTotals:
    """The sums over all results of reading."""

    splits: int
    records: list[int] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    rejected: Counter[str] = field(default_factory=Counter)
    rejected_files: dict[int, tuple[int, int]] = field(default_factory=dict)
    survey: SchemaSurvey = field(default_factory=SchemaSurvey)
    contents: dict[str, ContentSample] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.records = [0] * self.splits
        self.sizes = [0] * self.splits

    def add(self, number: int, result: ReadResult) -> None:
        """Adds the result of one work item or bundle."""
        for split, (records, size) in enumerate(zip(result.records, result.sizes, strict=True)):
            self.records[split] += records
            self.sizes[split] += size
        self.counts.update(result.counts)
        self.rejected.update(result.rejected)
        if result.rejected:
            self.rejected_files[number] = result.rejected_file
        self.survey.merge(result.survey)
        for name, sample in result.contents.items():
            known = self.contents.setdefault(name, ContentSample())
            known.merge(sample)
            known.keep_least()


def plan_record_shards(job: ExamplesJob, tree: MergeTree) -> list[SplitShards]:
    """Adds up the results of scatter, and decides the shards.

    Writes the decision, or reads an existing one: a restarted job keeps it.

    Raises:
      RunError: too many rejects, nothing to write, or fewer records than shards.
    """
    decide_once(
        job, tree, RecordPlan, lambda: _add_up(job, tree),
        lambda totals, _: decide_shards(job, totals),
    )  # fmt: skip
    return read_record_plan(job)


def _add_up(job: ExamplesJob, tree: MergeTree) -> RecordTotals:
    totals = RecordTotals(len(job.splits))
    for number, result in finished_results(job, tree, job.read_result):
        totals.add(number, result)
    check_budget(job, accepted=totals.counts["records_read"], reasons=totals.rejected)
    return totals


def read_record_plan(job: ExamplesJob) -> list[SplitShards]:
    """Reads what `plan_record_shards` decided.

    Raises:
      DamagedStateError: it is missing or damaged.
    """
    return read_planned_splits(job, job.read_shard_plan())


def decide_shards(job: ExamplesJob, totals: RecordTotals) -> RecordPlan:
    """Decides the number of shards of each split from the bytes of its records.

    Raises:
      RunError: a split has no records, or fewer than shards.
    """
    empty = [split.name for split, n in zip(job.splits, totals.records, strict=True) if not n]
    if empty:
        left_out = "".join(
            f", {totals.counts[name]} left out by {flag}"
            for name, flag in _LEFT_OUT.items()
            if totals.counts[name]
        )
        raise RunError(
            f"no records for split {', '.join(empty)}: {totals.counts['records_read']} read"
            f"{left_out}{say_rejected(totals.rejected)}; check --input, --splits and what leaves "
            "records out, and start anew with --overwrite"
        )
    shards = count_shards(totals.sizes, job.splits, job.shards)
    for i, spec in enumerate(job.splits):
        if spec.num_shards is not None and shards[i] > totals.records[i]:
            raise RunError(
                f"{spec.name} has {totals.records[i]} records, and {shards[i]} shards were asked "
                "for; set a smaller --num_shards and --overwrite"
            )
        shards[i] = min(shards[i], totals.records[i])
    return RecordPlan(
        splits=tuple(
            PlannedSplit(spec.name, shards[i], totals.records[i], totals.sizes[i], totals.sizes[i])
            for i, spec in enumerate(job.splits)
        ),
        counts=dict(totals.counts),
        rejected=dict(totals.rejected),
        rejected_files=totals.rejected_files,
        survey=totals.survey,
        shared_contents=tuple(shared_contents(dict(sorted(totals.contents.items())), "records")),
    )
