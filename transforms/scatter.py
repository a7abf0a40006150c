"""Scatter: read, tokenize and cut documents, and leave them in order of their hash.

Each task writes one run file and then its description; a task whose description is there is done.
What crosses to the next stage are the numbers of tasks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from tempfile import SpooledTemporaryFile
from typing import IO, Any

import apache_beam as beam
import google_crc32c
import numpy as np

from recordmill.records.errors import RunError
from recordmill.records.hashing import U64, combine, seed_for
from recordmill.transforms import files
from recordmill.transforms.documents import DocumentBatch, read_documents
from recordmill.transforms.job import fail, read_json, write_json
from recordmill.transforms.lines import Int64s
from recordmill.transforms.pieces import PieceCutter, Pieces, concatenate, select
from recordmill.transforms.plan import read_task
from recordmill.transforms.runs import histogram, id_words, write_run
from recordmill.transforms.sources import SourceRange
from recordmill.transforms.tasks import Task
from recordmill.transforms.text_job import TextJob
from recordmill.transforms.tokenization import WordPieceTokenizer

_MIN_RUN_TOKENS = 1 << 24
_MAX_RUN_TOKENS = 1 << 26
_SPOOL_BYTES = 1 << 22


def choose_splits(groups: U64, shares: Iterable[float]) -> Int64s:
    """Returns `[n] int64`: the split of each document, by the hash of its group.

    The choice depends on neither seed nor vocabulary: a document stays in its split for ever.
    """
    bounds = np.cumsum(list(shares))[:-1]
    salted = combine(groups, np.full(len(groups), seed_for(0, "splits"), np.uint64))
    units = (salted >> np.uint64(11)).astype(np.float64) / (1 << 53)
    return np.searchsorted(bounds, units, side="right").astype(np.int64)


@dataclass(slots=True)
class _Gathered:
    """What a task has read so far, and the runs that it wrote of it."""

    number: int
    most_tokens: int
    parts: list[list[Pieces]]
    rejects: IO[bytes]
    runs: list[dict[str, Any]] = field(default_factory=list)
    reasons: Counter[str] = field(default_factory=Counter)
    documents: int = 0
    held_tokens: int = 0
    pieces: Counter[int] = field(default_factory=Counter)
    tokens: Counter[int] = field(default_factory=Counter)


class Scatterer:
    """Runs scatter tasks one after the other; not thread-safe."""

    def __init__(self, job: TextJob) -> None:
        self._job = job
        self._task: Task = job.load_task()
        vocabulary = self._task.vocabulary
        self._tokenizer = WordPieceTokenizer(vocabulary, lower_case=job.lower_case)
        self._wide = id_words(len(vocabulary))
        self._shares = [split.share for split in job.splits]
        self._key_seed = seed_for(job.seed, "pieces")

    def run(self, number: int) -> dict[str, Any]:
        """Does task `number` unless it is done; returns its description."""
        description = self._job.run_path(0, number) + ".json"
        if files.exists(description):
            return dict(read_json(description))
        sources = read_task(self._job.work, number)
        # A file that cannot be cut may hold more text than a task should: it becomes several runs.
        text_bytes = sum(source.text_bytes for source in sources)
        most_tokens = max(_MIN_RUN_TOKENS, min(text_bytes // 2, _MAX_RUN_TOKENS))
        cutter = PieceCutter(self._task.cut, self._key_seed)
        with SpooledTemporaryFile(max_size=_SPOOL_BYTES) as rejects:
            gathered = _Gathered(number, most_tokens, [[] for _ in self._shares], rejects)
            for source in sources:
                self._read(source, cutter, gathered)
            self._write_run(gathered)
            rejected_file = self._write_rejects(gathered)
        content = {
            "runs": gathered.runs,
            "pieces": [gathered.pieces[split] for split in range(len(self._shares))],
            "tokens": [gathered.tokens[split] for split in range(len(self._shares))],
            "documents_read": gathered.documents,
            "documents_used": cutter.documents,
            "rejected": dict(sorted(gathered.reasons.items())),
            "rejected_file": rejected_file,
        }
        write_json(description, content)
        return content

    def _write_run(self, gathered: _Gathered) -> None:
        """Writes what is held as one run, and forgets it."""
        id_type = np.uint16 if self._wide == 1 else np.int32
        splits = []
        for split, parts in enumerate(gathered.parts):
            splits.append(concatenate(parts, id_type))
            parts.clear()
            gathered.pieces[split] += len(splits[-1])
            gathered.tokens[split] += int(splits[-1].token_counts.sum())
        histograms = [
            histogram(pieces.hashes, self._task.weigh(pieces).astype(np.int64)) for pieces in splits
        ]
        path = f"{self._job.run_path(0, gathered.number)}-{len(gathered.runs)}.bin"
        gathered.runs.append(write_run(path, splits, histograms, wide=self._wide))
        gathered.held_tokens = 0

    def _write_rejects(self, gathered: _Gathered) -> list[int]:
        """Copies the lines of rejects to their file; returns its size and crc32c."""
        size, crc = gathered.rejects.tell(), 0
        if size:
            gathered.rejects.seek(0)
            path = self._job.rejected_path(gathered.number)
            with files.writing(path, self._job.partial_folder) as out:
                while block := gathered.rejects.read(_SPOOL_BYTES):
                    out.write(block)
                    crc = google_crc32c.extend(crc, block)
        return [size, crc]

    def _read(self, source: SourceRange, cutter: PieceCutter, gathered: _Gathered) -> None:
        before: DocumentBatch | None = None
        for batch in read_documents(source, self._job.documents, groups=len(self._shares) > 1):
            if before:
                self._add(before, cutter, gathered, goes_on=batch.continues)
            before = batch
        if before:
            self._add(before, cutter, gathered, goes_on=False)

    def _add(
        self, batch: DocumentBatch, cutter: PieceCutter, gathered: _Gathered, *, goes_on: bool
    ) -> None:
        for reject in batch.rejects:
            gathered.rejects.write(reject.to_line().encode())
            gathered.reasons[reject.reason] += 1
        gathered.documents += len(batch.keys) - batch.continues
        if not len(batch.keys):
            return
        tokens = self._tokenizer.tokenize(batch.lines)
        gathered.held_tokens += len(tokens.ids)
        pieces, of_document = cutter.cut(batch, tokens, goes_on=goes_on)
        chosen = choose_splits(batch.groups, self._shares)[of_document]
        for number, parts in enumerate(gathered.parts):
            mine = chosen == number
            if mine.all():
                parts.append(_compact(pieces, self._wide))
            elif mine.any():
                parts.append(_compact(_own_tokens(select(pieces, mine)), self._wide))
        if gathered.held_tokens >= gathered.most_tokens:
            self._write_run(gathered)


def _compact(pieces: Pieces, wide: int) -> Pieces:
    ids = pieces.ids.astype(np.uint16 if wide == 1 else np.int32)
    return Pieces(
        pieces.hashes, pieces.documents, pieces.token_starts, pieces.token_counts,
        pieces.sentence_splits, pieces.sentence_lengths, ids,
    )  # fmt: skip


def _own_tokens(pieces: Pieces) -> Pieces:
    """Copies the tokens of the pieces only; overlaps are stored twice."""
    ends = np.cumsum(pieces.token_counts)
    starts = ends - pieces.token_counts
    index = np.repeat(pieces.token_starts - starts, pieces.token_counts) + np.arange(
        int(ends[-1]) if len(ends) else 0
    )
    return Pieces(
        pieces.hashes, pieces.documents, starts, pieces.token_counts,
        pieces.sentence_splits, pieces.sentence_lengths, pieces.ids[index],
    )  # fmt: skip


class _ScatterDoFn(beam.DoFn):
    def __init__(self, job: TextJob) -> None:
        self._job = job
        self._documents = beam.metrics.Metrics.counter("recordmill", "documents_read")

    def setup(self) -> None:
        self._scatterer = Scatterer(self._job)

    def process(self, number: int) -> Iterator[int]:
        try:
            content = self._scatterer.run(number)
        except RunError as error:
            fail(self._job, error)
        self._documents.inc(content["documents_read"])
        for reason, count in content["rejected"].items():
            beam.metrics.Metrics.counter("recordmill", f"rejected_{reason}").inc(count)
        yield number


class ScatterDocuments(beam.PTransform[beam.PCollection[int], beam.PCollection[int]]):
    """Numbers of read tasks -> the same numbers, each once its run is written.

    Memory: a task's tokens and one block of text, whatever the size of the input. Running a task
    twice, or two copies of it at once, writes the same bytes under the same name.
    """

    def __init__(self, job: TextJob) -> None:
        super().__init__()
        self._job = job

    def expand(self, tasks: beam.PCollection[int]) -> beam.PCollection[int]:
        """Writes a run per task."""
        return tasks | "ScatterTask" >> beam.ParDo(_ScatterDoFn(self._job)).with_output_types(int)
