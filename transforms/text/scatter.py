"""Scatter: read documents, tokenize them, cut them into chunks, and write these in order of hash.

Each work item writes its run files and then its description. If the description exists, the work
item is done. Only the numbers of work items pass to the next stage.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import compress

import numpy as np

from recordmill.records.arrays import Int64s
from recordmill.records.hashing import seed_for
from recordmill.transforms.dataset import counters
from recordmill.transforms.dataset.content_sample import ContentSample
from recordmill.transforms.dataset.error_budget import RejectList
from recordmill.transforms.dataset.splits import choose_splits
from recordmill.transforms.dataset.stages import Done
from recordmill.transforms.sources.changes import reading
from recordmill.transforms.sources.document_batch import DocumentBatch
from recordmill.transforms.sources.document_spec import READ_LIMITS, DocumentLimits
from recordmill.transforms.sources.documents import read_documents
from recordmill.transforms.sources.element_rows import name_of
from recordmill.transforms.sources.input_stage import InputStage
from recordmill.transforms.sources.lines import Lines
from recordmill.transforms.sources.mapped_documents import (
    DocumentMapper,
    DropDocument,
    MapSums,
)
from recordmill.transforms.sources.row_fields import RowSpec
from recordmill.transforms.sources.text_arrays import cut_all_lines
from recordmill.transforms.sources.text_pieces import strip_texts
from recordmill.transforms.sources.work_item_files import read_work_item
from recordmill.transforms.sources.work_items import SourceRange
from recordmill.transforms.text.chunk_fields import ChunkFields
from recordmill.transforms.text.chunk_runs import ChunkRuns, TextTools
from recordmill.transforms.text.chunks import (
    CHUNK_PURPOSE,
    ChunkCutter,
    Chunks,
)
from recordmill.transforms.text.cleaning.cleaner import DocumentCleaner
from recordmill.transforms.text.cleaning.dropped import DropList, holds_dropped
from recordmill.transforms.text.cleaning.fingerprinting import load_duplicates
from recordmill.transforms.text.cleaning.unicode_forms import LineNormalizer
from recordmill.transforms.text.text_job import TextJob
from recordmill.transforms.text.text_state import ScatterResult


@dataclass(frozen=True, slots=True)
class ScatterLimits:
    """The sizes in which scatter works; tests inject small ones.

    Attributes:
      min_run_tokens: a run file has so many tokens, unless the work item ends before.
      max_run_tokens: a run file of a large file that cannot be cut has about so many.
      documents: the sizes in which documents are read, of which some decide what is read.
    """

    min_run_tokens: int = 1 << 24
    max_run_tokens: int = 1 << 26
    documents: DocumentLimits = READ_LIMITS


SCATTER_LIMITS = ScatterLimits()


@dataclass(slots=True)
class _Progress:
    """The numbers of a work item so far, and the run files that it has written."""

    runs: ChunkRuns
    rejects: RejectList
    cleaner: DocumentCleaner[tuple[int, Chunks]]
    documents: int = 0
    more_inputs: int = 0
    mapped: MapSums = field(default_factory=MapSums)


class Scatterer:
    """Runs work items of scatter one after the other; not thread-safe."""

    def __init__(
        self, job: TextJob, limits: ScatterLimits = SCATTER_LIMITS, input_bytes: int = 0
    ) -> None:
        self._job = job
        self._limits = limits
        # An input has at least a byte, once it is unpacked.
        self._most_inputs = input_bytes and job.documents.most_unpacked_bytes(input_bytes)
        self._tools = TextTools(job)
        self._shares = [split.share for split in job.splits]
        self._split_names = [split.name for split in job.splits]
        self._key_seed = seed_for(job.seed, CHUNK_PURPOSE)
        form = job.clean.normalize
        self._normalizer = (
            LineNormalizer(form, whole_texts=job.documents.keeps_text) if form != "none" else None
        )
        self._mapper: DocumentMapper | None = None

    def run(self, number: int) -> ScatterResult:
        """Does work item `number` unless it is done; returns its description."""
        workspace = self._job.workspace
        done = self._job.read_scatter_result(number)
        if done is not None and self._is_whole(number, done):
            return done
        sources = read_work_item(workspace.inputs_folder, number)
        # A file that cannot be cut may hold more text than a work item should: it becomes several
        # run files.
        text_bytes = sum(source.text_bytes for source in sources)
        limits = self._limits
        most_tokens = max(limits.min_run_tokens, min(text_bytes // 2, limits.max_run_tokens))
        cutter = ChunkCutter(self._tools.objective.cut, self._key_seed, self._tools.id_type)
        with (
            RejectList(self._job, number, workspace.of_lists, self._most_inputs) as rejects,
            DropList(listed=self._job.clean.list_dropped) as drops,
        ):
            cleaner: DocumentCleaner[tuple[int, Chunks]] = DocumentCleaner(
                self._job.clean,
                self._normalizer,
                load_duplicates(self._job, number),
                self._splits,
                drops,
            )
            runs = ChunkRuns(self._tools, partial(self._run_path, number), most_tokens)
            progress = _Progress(runs, rejects, cleaner)
            progress.mapped.drop = self._mapped_drops(drops)
            for source in sources:
                with reading(source.path, source.size, source.modified_ns):
                    self._read(source, cutter, progress)
            runs.write()
            rejected = rejects.write()
            dropped_file = drops.write(workspace.of_lists, number)
        documents_read = (
            progress.documents
            + cleaner.num_duplicates
            + progress.mapped.dropped
            - progress.mapped.added
        )
        result = ScatterResult(
            runs=tuple(runs.runs),
            chunks=tuple(runs.chunks),
            tokens=tuple(runs.tokens),
            documents_read=documents_read,
            inputs_read=documents_read + progress.more_inputs,
            documents_used=cutter.documents - cleaner.num_of_wrong_length,
            rejected=dict(rejects.reasons),
            rejected_file=(rejected.size_bytes, rejected.crc32c),
            labels=tuple(sorted(runs.labels)),
            contents=runs.samples(),
            dropped=drops.by_reason(len(self._shares)),
            dropped_file=dropped_file,
            documents_added=progress.mapped.added,
        )
        workspace.write_state(self._job.description_path(0, number), result)
        return result

    def _is_whole(self, number: int, result: ScatterResult) -> bool:
        """Tells whether what a finished work item wrote is still there."""
        lists = self._job.workspace.of_lists
        rejects = lists.holds_rejects(number, result.rejected_file[0])
        dropped = holds_dropped(lists, number, result.dropped_file[0])
        return rejects and dropped and self._job.holds_run_files(0, result.runs)

    def _run_path(self, number: int, run: int) -> str:
        return f"{self._job.run_path(0, number)}-{run}.bin"

    def _read(self, source: SourceRange, cutter: ChunkCutter, progress: _Progress) -> None:
        before: DocumentBatch | None = None
        batches = self._documents(source, progress)
        for batch in progress.cleaner.documents(batches, source):
            if before:
                self._add(before, source, cutter, progress, goes_on=batch.continues)
            before = batch
        if before:
            self._add(before, source, cutter, progress, goes_on=False)

    def _documents(self, source: SourceRange, progress: _Progress) -> Iterator[DocumentBatch]:
        """Yields the documents of a range, as the user's functions return them if there are any."""
        job, groups, limits = self._job, len(self._shares) > 1, self._limits.documents
        if not job.map:
            return read_documents(source, job.documents, groups=groups, limits=limits)
        if self._mapper is None:
            self._mapper = DocumentMapper(job.map, job.documents, limits, groups=groups)
        return self._mapper.read(source, progress.mapped)

    def _mapped_drops(self, drops: DropList) -> DropDocument:
        """Returns what counts and lists a document that the user's functions drop."""

        def drop(batch: DocumentBatch, number: int, source: SourceRange) -> None:
            split = int(self._splits(batch, source)[number])
            described = partial(batch.description, source.name, int(batch.positions[number]))
            drops.add("map", split, described)

        return drop

    def _sample_contents(
        self, batch: DocumentBatch, source: SourceRange, splits: Int64s, progress: _Progress
    ) -> None:
        """Samples the texts of each split, where not their hash decides the split."""
        spec = self._job.documents
        by_hash = not (source.split or spec.split_by or spec.split_from)
        if batch.describe:  # elements have groups; but of equal texts only one may be left
            by_hash = self._job.clean.deduplicates
        if len(self._shares) == 1 or by_hash:
            return
        begins = np.unique(batch.line_documents)  # a document without lines has no text
        begins = begins[begins > 0] if batch.continues else begins
        contents = batch.contents()
        for split in np.unique(splits[begins]).tolist():
            mine = begins[splits[begins] == split]
            sample = progress.runs.contents.setdefault(split, ContentSample())
            name = partial(_name_of, batch, source.name, batch.positions[mine].tolist())
            sample.add_named(contents[mine], name)

    def _splits(self, batch: DocumentBatch, source: SourceRange) -> Int64s:
        """Returns `[num_documents] int64`: the split of each document."""
        if source.split:
            return np.full(len(batch.keys), self._split_names.index(source.split), np.int64)
        if batch.splits is not None:
            return batch.splits
        return choose_splits(batch.groups, self._shares)

    def _add(
        self,
        batch: DocumentBatch,
        source: SourceRange,
        cutter: ChunkCutter,
        progress: _Progress,
        *,
        goes_on: bool,
    ) -> None:
        progress.rejects.add(batch.rejects)
        progress.documents += len(batch.keys) - batch.continues
        progress.more_inputs += batch.more_inputs
        if not len(batch.keys):
            return
        lines = batch.lines
        if self._job.documents.strips:
            lines = _stripped(batch, self._job.documents.row, goes_on=goes_on)
        if source.format == "text" and self._tools.tokenizer.splits_lines:
            # Of long texts SentencePiece's library must do more, and no faster.
            lines, of_line = cut_all_lines(lines)
            batch = replace(batch, lines=lines, line_documents=batch.line_documents[of_line])
        tokens = self._tools.tokenizer.tokenize(lines)
        progress.runs.held_tokens += len(tokens.ids)
        chunks, of_document = cutter.cut(batch, tokens, goes_on=goes_on)
        if batch.carried is not None:
            fields = ChunkFields.encode(batch.carried).take(of_document)
            chunks = replace(chunks, fields=fields)
            progress.runs.held_tokens += len(fields.words)
        splits = self._splits(batch, source)
        self._sample_contents(batch, source, splits, progress)
        chosen = splits[of_document]
        verdicts = progress.cleaner.judge(
            batch, np.diff(tokens.row_splits), splits, source, goes_on=goes_on
        )
        if verdicts:
            for number, part in verdicts.released:
                progress.runs.parts[number].append(part)
            if verdicts.waits:
                part = self._tools.take(chunks, of_document == len(batch.keys) - 1)
                progress.cleaner.hold((int(splits[-1]), part))
            chosen = np.where(verdicts.keep[of_document], chosen, -1)
        if batch.carried is not None:
            kept = compress(batch.carried, verdicts.keep) if verdicts else batch.carried
            progress.runs.add_labels(kept)
        progress.runs.add(chunks, chosen)


def _stripped(batch: DocumentBatch, row: RowSpec, *, goes_on: bool) -> Lines:
    """Returns the lines of a batch without white space at both ends of their texts."""
    documents = batch.line_documents
    begins, ends = (np.ones(len(documents), np.bool_) for _ in range(2))
    if not row.is_example and len(documents):
        begins[1:] = ends[:-1] = documents[1:] != documents[:-1]
        begins[0] = not (batch.continues and documents[0] == 0)
        ends[-1] = not (goes_on and documents[-1] == len(batch.keys) - 1)
    return strip_texts(batch.lines, begins, ends)


def _name_of(batch: DocumentBatch, source: str, positions: list[int], number: int) -> str:
    """Returns what a person finds one of some documents by, as one text."""
    position = positions[number]
    if batch.describe:
        return name_of(batch.describe(position))
    return f"{source} at position {position}"


class ScatterDocuments(InputStage[TextJob]):
    """Writes the run files of each work item.

    Memory: a work item's tokens and one block of text, whatever the size of the input. Doing a work
    item twice, or twice at once, writes the same bytes under the same name.
    """

    name = "Scatter"
    phase = "read"

    @cached_property
    def _scatterer(self) -> Scatterer:
        return Scatterer(self.job, self._limits, self._input_bytes)

    @property
    def results_folder(self) -> str:
        """The folder of run files."""
        return self.job.runs_folder(0)

    def do(self, item: int) -> Done:
        """Reads and tokenizes the documents of a work item."""
        result = self._scatterer.run(item)
        return Done(
            counts={
                "documents_read": result.documents_read,
                "documents_written": result.documents_used,
                **counters.of_rejects(result.rejected),
            }
        )
