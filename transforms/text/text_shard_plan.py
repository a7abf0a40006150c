"""Plan the shards of a text job: their number, from what scatter found."""

from __future__ import annotations

import gzip
from collections import Counter
from collections.abc import Iterator, Sequence
from tempfile import SpooledTemporaryFile

from recordmill.records.errors import RunError
from recordmill.transforms.dataset.content_sample import ContentSample, shared_contents
from recordmill.transforms.dataset.error_budget import UnfitOptionsError, check_budget, say_rejected
from recordmill.transforms.dataset.labels import (
    check_class_count,
    class_names,
    first_fraction,
    forms_problem,
)
from recordmill.transforms.dataset.rejects import of_whole_documents, write_rejects
from recordmill.transforms.dataset.shard_counts import count_shards
from recordmill.transforms.shuffle.merge_tree import MergeTree
from recordmill.transforms.shuffle.shard_ranges import (
    PlannedSplit,
    SplitShards,
    read_planned_splits,
)
from recordmill.transforms.shuffle.shuffle_stages import decide_once, finished_results
from recordmill.transforms.storage import files
from recordmill.transforms.storage.external_sort import Row, sort_rows
from recordmill.transforms.text.cleaning.dropped import DropList
from recordmill.transforms.text.text_job import TextJob
from recordmill.transforms.text.text_state import ScatterResult, ShardPlan

_SPOOL_BYTES = 1 << 22


def plan_shards(job: TextJob, tree: MergeTree) -> list[SplitShards]:
    """Adds up the results of scatter, and decides the shards.

    Writes the decision, or reads an existing one: a restarted job keeps it.

    Raises:
      RunError: too many rejects, nothing to write, or fewer chunks than shards.
    """
    decide_once(
        job, tree, ShardPlan, lambda: _add_up(job, tree),
        lambda totals, histograms: _decide(job, totals, histograms.sum(axis=1).tolist()),
    )  # fmt: skip
    return read_shard_plan(job)


def read_shard_plan(job: TextJob) -> list[SplitShards]:
    """Reads what `plan_shards` decided.

    Raises:
      DamagedStateError: it is missing or damaged.
    """
    return read_planned_splits(job, job.read_shard_plan())


class ScatterTotals:
    """The sums over all work items of scatter; chunks and tokens are those of each split."""

    def __init__(self, splits: int) -> None:
        self.chunks = [0] * splits
        self.tokens = [0] * splits
        self.documents_read = 0
        self.inputs_read = 0
        self.documents_used = 0
        self.documents_added = 0
        self.rejected: Counter[str] = Counter()
        self.labels: set[str] = set()
        self.contents: dict[str, ContentSample] = {}
        self.rejected_files: dict[int, tuple[int, int]] = {}
        self.dropped: dict[str, list[int]] = {}
        self.dropped_files: dict[int, tuple[int, int]] = {}

    def add(self, number: int, result: ScatterResult) -> None:
        """Adds the result of one work item, and the number of its lists."""
        for split, (chunks, tokens) in enumerate(zip(result.chunks, result.tokens, strict=True)):
            self.chunks[split] += chunks
            self.tokens[split] += tokens
        self.documents_read += result.documents_read
        self.inputs_read += result.inputs_read
        self.documents_used += result.documents_used
        self.documents_added += result.documents_added
        self.rejected.update(result.rejected)
        self.labels.update(result.labels)
        for name, sample in result.contents.items():
            known = self.contents.setdefault(name, ContentSample())
            known.merge(sample)
            known.keep_least()
        if result.rejected:
            self.rejected_files[number] = result.rejected_file
        for reason, counts in result.dropped.items():
            known_counts = self.dropped.get(reason, [0] * len(counts))
            self.dropped[reason] = [a + b for a, b in zip(known_counts, counts, strict=True)]
        if result.dropped_file[0]:
            self.dropped_files[number] = result.dropped_file


def _join_lists(job: TextJob, totals: ScatterTotals) -> None:
    """Sorts the lines of all lists into one each, as elements have no order."""
    workspace, lists = job.workspace, job.workspace.of_lists
    if totals.rejected_files:
        paths = [lists.rejected_path(number) for number in sorted(totals.rejected_files)]
        with SpooledTemporaryFile(max_size=_SPOOL_BYTES) as lines:
            for line in _sorted_lines(job, paths):
                lines.write(line.encode())
            _, size, crc32c = write_rejects(
                lines, number=0, path=workspace.rejected_path(0),
                partial_folder=workspace.partial_folder,
            )  # fmt: skip
        totals.rejected_files = {0: (size, crc32c)}
    if totals.dropped_files:
        paths = [lists.dropped_path(number) for number in sorted(totals.dropped_files)]
        with DropList(listed=True) as drops:
            for line in _sorted_lines(job, paths):
                drops.add_line(line)
            totals.dropped_files = {0: drops.write(workspace, 0)}


def _sorted_lines(job: TextJob, paths: Sequence[str]) -> Iterator[str]:
    """Yields the lines of lists in order; memory is bounded.

    Raises:
      RunError: a list is missing.
    """

    def rows() -> Iterator[Row]:
        for path in paths:
            with files.open_read(path) as handle:
                unpacked = gzip.GzipFile(fileobj=handle) if path.endswith(".gz") else handle
                for line in unpacked:
                    yield line.decode(), "", None

    try:
        for line, _, _ in sort_rows(rows()):
            yield line
    except FileNotFoundError as error:
        raise RunError(
            f"{error.filename} is missing; run the pipeline again, from its beginning"
        ) from error


def _add_up(job: TextJob, tree: MergeTree) -> ScatterTotals:
    totals = ScatterTotals(len(job.splits))
    for number, result in finished_results(job, tree, job.read_scatter_result):
        totals.add(number, result)
    if job.workspace.of_pipeline:
        _join_lists(job, totals)
    check_budget(job, accepted=totals.inputs_read, reasons=totals.rejected)
    # A document that is left out takes any number of lines with it.
    of_documents = of_whole_documents(totals.rejected)
    check_budget(job, accepted=totals.documents_read, reasons=of_documents)
    return totals


def _run_again(job: TextJob) -> str:
    """Returns what to do with other options; a dataset that was to be replaced is still there."""
    return "run again with --overwrite" if job.overwrite else "run again"


def _decide(job: TextJob, totals: ScatterTotals, split_bytes: list[int]) -> ShardPlan:
    """Decides the number of shards of each split from its expected bytes."""
    empty = [split.name for split, size in zip(job.splits, split_bytes, strict=True) if not size]
    if empty:
        dropped = {reason: sum(counts) for reason, counts in totals.dropped.items()}
        # What drops most of the documents is what is to be looked at.
        cause = max(dropped, key=dropped.__getitem__, default="")
        if dropped.get(cause, 0) > totals.documents_used:
            causes = f"what drops them ({cause})"
        elif totals.rejected.total() > totals.documents_used:
            causes = f"what rejects them, which {job.workspace.rejected_folder} lists"
        else:
            causes = "--documents and --splits"
        raise UnfitOptionsError(
            f"no text for split {', '.join(empty)}: {totals.documents_read} documents read, "
            f"{totals.documents_used} with tokens"
            + say_rejected(totals.rejected)
            + "".join(f", {count} dropped as {reason}" for reason, count in dropped.items())
            + f"; check {causes}, and {_run_again(job)}"
        )
    shards = count_shards(split_bytes, job.splits, job.shards)
    for i, spec in enumerate(job.splits):
        most = totals.chunks[i] * job.copies[i]  # no shard may be empty
        if spec.num_shards is not None and shards[i] > most:
            raise UnfitOptionsError(
                f"{spec.name} has text for at most {most} shards, {shards[i]} were asked for; set "
                f"a smaller --num_shards and {_run_again(job)}"
            )
        shards[i] = min(shards[i], most)
    return ShardPlan(
        splits=tuple(
            PlannedSplit(spec.name, shards[i], totals.chunks[i], totals.tokens[i], split_bytes[i])
            for i, spec in enumerate(job.splits)
        ),
        documents_read=totals.documents_read,
        documents_used=totals.documents_used,
        rejected=dict(totals.rejected),
        rejected_files=totals.rejected_files,
        classes=_classes(job, totals.labels),
        shared_contents=tuple(shared_contents(dict(sorted(totals.contents.items())), "documents")),
        dropped=totals.dropped,
        dropped_files=totals.dropped_files,
        documents_added=totals.documents_added,
    )


def _classes(job: TextJob, labels: set[str]) -> tuple[str, ...]:
    """Returns the names of class 0, 1, …: those of --labels, or those of the labels that occur.

    Raises:
      RunError: the labels are numbers to be predicted, too many, or a number in two forms.
    """
    label = job.documents.row.label
    if label is None or label.is_number or label.names:
        return label.names if label else ()
    check_class_count(label.name, labels)
    if problem := forms_problem(labels):
        raise RunError(f"--label_field={label.name}: {problem}; start anew with --overwrite")
    fraction = first_fraction(labels)
    if fraction:
        raise RunError(
            f"--labels=number is needed where labels are numbers to be predicted; {len(labels)} "
            f"different ones occur in --label_field={label.name}, such as {fraction}; add it and "
            "--overwrite"
        )
    return class_names(labels)
