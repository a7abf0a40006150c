"""Chunks of documents to run files of bounded size, for work items and for bundles."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

import numpy as np

from recordmill.records.arrays import Bools, Int64s
from recordmill.transforms.dataset.content_sample import ContentSample
from recordmill.transforms.dataset.labels import check_class_count
from recordmill.transforms.shuffle.run_files import RunFileInfo, histogram, write_run_file
from recordmill.transforms.text.chunk_records import id_type, id_words, sorted_records
from recordmill.transforms.text.chunks import Chunks, concatenate, select
from recordmill.transforms.text.objective import Objective
from recordmill.transforms.text.text_job import TextJob


class TextTools:
    """What a worker loads once to make chunks of documents; not thread-safe.

    Attributes:
      job: whose chunks they are.
      objectives: of each split.
      objective: of the first split: all cut documents alike.
      tokenizer: with its memory of words.
      words_per_id: see `id_words`.
      id_type: of ids in run files.
    """

    def __init__(self, job: TextJob) -> None:
        self.job = job
        self.objectives = job.load_objectives()
        self.objective: Objective = self.objectives[0]
        vocabulary = self.objective.vocabulary
        self.tokenizer = vocabulary.start(
            lower_case=job.lower_case, allow_special_tokens=job.allow_special_tokens
        )
        self.words_per_id = id_words(len(vocabulary))
        self.id_type = id_type(self.words_per_id)

    def compact(self, chunks: Chunks) -> Chunks:
        """Returns chunks with ids in the type of run files, in memory that has nothing else."""
        is_view = chunks.ids.base is not None
        return replace(chunks, ids=chunks.ids.astype(self.id_type, copy=is_view))

    def take(self, chunks: Chunks, mine: Bools) -> Chunks:
        """Returns some of the chunks over a copy of their tokens alone."""
        return self.compact(_own_tokens(select(chunks, mine)))

    def write(
        self, path: str, parts: list[list[Chunks]]
    ) -> tuple[RunFileInfo, list[tuple[int, int]]]:
        """Writes the chunks of each split to a run file, and clears them.

        Returns:
          The run file, and the chunks and tokens of each split.
        """
        self.job.workspace.check_own()
        splits = []
        for each in parts:
            splits.append(concatenate(each, self.id_type))
            each.clear()
        histograms = [
            histogram(chunks.hashes, objective.estimate_output_bytes(chunks).astype(np.int64))
            for objective, chunks in zip(self.objectives, splits, strict=True)
        ]
        records = (sorted_records(chunks, self.words_per_id) for chunks in splits)
        run = write_run_file(path, records, histograms, token=self.job.workspace.token, sync=False)
        return run, [(len(chunks), chunks.size) for chunks in splits]


@dataclass(slots=True)
class ChunkRuns:
    """Holds chunks of each split until there are enough for a run file.

    Attributes:
      tools: that make them.
      path: (number) -> the path of the run file of this number.
      most_tokens: a run file is written as soon as so many tokens are held.
      parts: the chunks of each split that no run file holds yet.
      held_tokens: in these.
      runs: that were written.
      chunks, tokens: of each split, in these.
      labels: that occur.
      contents: split -> a sample of its texts.
    """

    tools: TextTools
    path: Callable[[int], str]
    most_tokens: int
    parts: list[list[Chunks]] = field(default_factory=list)
    held_tokens: int = 0
    runs: list[RunFileInfo] = field(default_factory=list)
    chunks: list[int] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    labels: set[str] = field(default_factory=set)
    contents: dict[int, ContentSample] = field(default_factory=dict)

    def __post_init__(self) -> None:
        splits = len(self.tools.job.splits)
        self.parts = [[] for _ in range(splits)]
        self.chunks, self.tokens = [0] * splits, [0] * splits

    def add(self, chunks: Chunks, chosen: Int64s) -> None:
        """Adds chunks, and writes a run file if enough are held.

        Args:
          chunks: of any splits.
          chosen: `[num_chunks] int64`: the split of each, -1 for none.
        """
        for number, parts in enumerate(self.parts):
            mine = chosen == number
            if mine.all():
                parts.append(self.tools.compact(chunks))
            elif mine.any():
                parts.append(self.tools.take(chunks, mine))
        if self.held_tokens >= self.most_tokens:
            self.write()

    def write(self) -> None:
        """Writes what is held as one run file."""
        run, sizes = self.tools.write(self.path(len(self.runs)), self.parts)
        self.runs.append(run)
        self.held_tokens = 0
        for split, (chunks, tokens) in enumerate(sizes):
            self.chunks[split] += chunks
            self.tokens[split] += tokens

    def add_labels(self, carried: Iterable[tuple[str, ...]]) -> None:
        """Collects the labels that occur, unless they are given, or are numbers to be predicted.

        Raises:
          RunError: there are too many for classes.
        """
        label = self.tools.job.documents.row.label
        if label is None or label.is_number or label.names:
            return
        self.labels.update(row[0] for row in carried)
        check_class_count(label.name, self.labels)

    def samples(self) -> dict[str, ContentSample]:
        """Returns the sample of each split by name."""
        for sample in self.contents.values():
            sample.keep_least()
        splits = self.tools.job.splits
        return {splits[i].name: sample for i, sample in sorted(self.contents.items())}


def _own_tokens(chunks: Chunks) -> Chunks:
    """Copies the tokens of the chunks only; overlaps are stored twice."""
    ends = np.cumsum(chunks.token_counts)
    starts = ends - chunks.token_counts
    index = np.repeat(chunks.token_starts - starts, chunks.token_counts) + np.arange(
        int(ends[-1]) if len(ends) else 0
    )
    fields = chunks.fields.own_words() if chunks.fields else None
    return replace(chunks, token_starts=starts, ids=chunks.ids[index], fields=fields)
