"""The documents of bundles to run files: cleaned, tokenized, cut into chunks."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import partial
from itertools import compress
from typing import Any

import numpy as np

from recordmill.records.arrays import Int64s
from recordmill.records.hashing import seed_for
from recordmill.transforms.dataset import counters
from recordmill.transforms.dataset.bundles import BundleWriter, Written, bundle_path
from recordmill.transforms.dataset.content_sample import ContentSample
from recordmill.transforms.dataset.splits import choose_splits
from recordmill.transforms.sources.document_batch import DocumentBatch
from recordmill.transforms.storage import files
from recordmill.transforms.subwords.tokenizer import Tokens
from recordmill.transforms.text.bundle_results import BundleResult, write_samples
from recordmill.transforms.text.chunk_fields import ChunkFields
from recordmill.transforms.text.chunk_runs import ChunkRuns, TextTools
from recordmill.transforms.text.chunks import CHUNK_PURPOSE, ChunkCutter, Chunks
from recordmill.transforms.text.cleaning.document_lengths import LengthFilter
from recordmill.transforms.text.cleaning.drop_lists import (
    LinesFile,
    dropped_line,
    name_line,
    write_lines,
)
from recordmill.transforms.text.cleaning.element_hashes import (
    KEPT,
    REASONS,
    TOO_LONG,
    TOO_SHORT,
    WITHOUT_TOKENS,
    ElementHashes,
    RunHashes,
)
from recordmill.transforms.text.cleaning.unicode_forms import LineNormalizer
from recordmill.transforms.text.text_elements import DocumentMaker, ElementBatch
from recordmill.transforms.text.text_job import TextJob
from recordmill.transforms.text.text_state import ScatterResult

# The hashes of a document count as so many tokens, so that a run file has not too many, and its
# name as a token for each of these bytes.
_TOKENS_OF_HASHES = 32
_BYTES_OF_TOKEN = 2
_HELD_LINES = 1 << 16


class DocumentBundles(BundleWriter):
    """Writes documents, bundle after bundle.

    Args:
      job: the job.
      run_tokens: a run file is written as soon as so many tokens are held.
    """

    def __init__(self, job: TextJob, run_tokens: int) -> None:
        self._job = job
        self._run_tokens = run_tokens
        self._tools = TextTools(job)
        self._shares = [split.share for split in job.splits]
        self._maker = DocumentMaker(job.documents, groups=len(self._shares) > 1)
        self._seed = seed_for(job.seed, CHUNK_PURPOSE)
        form = job.clean.normalize
        self._normalizer = (
            LineNormalizer(form, whole_texts=job.documents.keeps_text) if form != "none" else None
        )
        self._lengths: LengthFilter[Chunks] | None = None
        if job.clean.limits_length:
            self._lengths = LengthFilter(job.clean.min_tokens, job.clean.max_tokens)
        self._hashes = ElementHashes(job) if job.clean.deduplicates else None
        self._lists = job.clean.list_dropped

    def begin(self) -> None:
        """Begins a bundle."""
        self._base = bundle_path(self._job)
        self._runs = ChunkRuns(self._tools, partial(_run_path, self._base), self._run_tokens)
        self._cutter = ChunkCutter(self._tools.objective.cut, self._seed, self._tools.id_type)
        self._read = self._used = 0
        self._reasons: Counter[str] = Counter()
        self._rejects = bytearray()
        self._dropped: dict[str, list[int]] = {}
        self._run_hashes: list[RunHashes] = []
        self._lines: list[bytes] = []
        self._written_lines: list[LinesFile] = []
        if self._hashes:
            self._hashes.begin(f"{self._base}-0")

    def add(self, elements: list[Any]) -> None:
        """Tokenizes documents and cuts them into chunks."""
        for batch in self._maker.batches(elements):
            self._add(batch)

    def _add(self, made: ElementBatch) -> None:
        batch, runs = made.documents, self._runs
        for reject in batch.rejects:
            self._rejects += reject.to_line().encode()
            self._reasons[reject.reason] += 1
        if not len(batch.keys):
            return
        self._read += len(batch.keys)
        splits = choose_splits(batch.groups, self._shares)
        self._sample(made, splits)
        if self._normalizer:
            batch = replace(batch, lines=self._normalizer(batch.lines))
        tokens = self._tools.tokenizer.tokenize(batch.lines)
        runs.held_tokens += len(tokens.ids)
        chunks, of_document = self._cutter.cut(batch, tokens, goes_on=False)
        carried = batch.carried
        if carried is not None:
            fields = ChunkFields.encode(carried).take(of_document)
            chunks = replace(chunks, fields=fields)
            runs.held_tokens += len(fields.words)
        counts = self._counts(batch, tokens)
        fates = self._fates(counts, of_document)
        chosen = np.where(fates == KEPT, splits, -1)
        if self._hashes:
            numbers = self._hashes.add(batch, made.identities, splits, fates)
            chunks = replace(chunks, documents=numbers[of_document])
            runs.held_tokens += _TOKENS_OF_HASHES * len(numbers)
            if self._lists:
                lines = [self._name(made, i, counts, fates) for i in range(len(numbers))]
                self._hashes.add_names(lines)
                runs.held_tokens += sum(map(len, lines)) // _BYTES_OF_TOKEN
        else:
            for fate, reason in REASONS.items():
                self._drop(reason, splits[fates == fate])
                for i in np.flatnonzero(fates == fate).tolist() if self._lists else ():
                    name = self._name(made, i, counts, fates)
                    self._lines.append(dropped_line(name, reason))
            self._write_lines(_HELD_LINES)
            self._used += int((fates == KEPT).sum())
            if carried is not None:
                right = (fates == KEPT) | (fates == WITHOUT_TOKENS)
                runs.add_labels(compress(carried, right.tolist()))
        runs.add(chunks, chosen[of_document])
        self._end_runs()

    def _counts(self, batch: DocumentBatch, tokens: Tokens) -> Int64s:
        """Returns `[num_documents] int64`: the tokens of each document."""
        lengths = np.diff(tokens.row_splits)
        size = len(batch.keys)
        return np.bincount(batch.line_documents, lengths, minlength=size).astype(np.int64)

    def _fates(self, counts: Int64s, of_document: Int64s) -> Int64s:
        """Returns `[num_documents] int64`: what becomes of each document but for duplicates."""
        fates = np.full(len(counts), WITHOUT_TOKENS, np.int64)
        fates[of_document] = KEPT
        if self._lengths:
            verdicts = self._lengths.judge(counts, continues=False, goes_on=False)
            fates[verdicts.too_short] = TOO_SHORT
            fates[verdicts.too_long] = TOO_LONG
        return fates

    def _name(self, made: ElementBatch, number: int, counts: Int64s, fates: Int64s) -> bytes:
        """Returns the line by which a list tells of a document."""
        found: dict[str, Any] = dict(made.describe(number))
        if int(fates[number]) in REASONS:
            found["tokens"] = int(counts[number])
        return name_line(made.identities[number], found)

    def _write_lines(self, most: int) -> None:
        """Writes the lines of dropped documents, where there are more than so many."""
        if len(self._lines) > most:
            path = f"{self._base}-{len(self._written_lines)}.lines"
            self._written_lines.append(write_lines(path, self._lines))
            self._lines = []

    def _end_runs(self) -> None:
        """Writes the hashes of a run file that has been written."""
        if self._hashes and len(self._runs.runs) > len(self._run_hashes):
            self._run_hashes.append(self._hashes.end())
            self._hashes.begin(f"{self._base}-{len(self._run_hashes)}")

    def _drop(self, reason: str, splits: Int64s) -> None:
        if len(splits):
            counts = np.bincount(splits, minlength=len(self._shares)).tolist()
            before = self._dropped.get(reason, [0] * len(counts))
            self._dropped[reason] = [a + b for a, b in zip(before, counts, strict=True)]

    def _sample(self, made: ElementBatch, splits: Int64s) -> None:
        """Samples the texts of each split: groups may put a text into several.

        Not where only one of equal texts will be left.
        """
        if len(self._shares) == 1 or self._hashes:
            return
        batch = made.documents
        begins = np.unique(batch.line_documents)  # a document without lines has no text
        for split in np.unique(splits[begins]).tolist():
            mine = begins[splits[begins] == split]
            sample = self._runs.contents.setdefault(split, ContentSample())
            sample.add_named(batch.contents[mine], partial(_name_of, made, mine))

    def end(self) -> Written:
        """Writes what is held."""
        runs = self._runs
        runs.write()
        self._end_runs()
        counters.count("documents_read", self._read)
        counters.count("documents_written", self._used)
        counters.count_rejects(self._reasons)
        result = ScatterResult(
            runs=tuple(runs.runs), chunks=tuple(runs.chunks), tokens=tuple(runs.tokens),
            documents_read=self._read, documents_used=self._used, rejected=dict(self._reasons),
            rejected_file=(0, 0), labels=tuple(sorted(runs.labels)), dropped=self._dropped,
        )  # fmt: skip
        self._write_lines(0)
        return BundleResult(
            result, self._write_rejects(), self._write_samples(), tuple(self._run_hashes),
            tuple(self._written_lines),
        ).written()  # fmt: skip

    def _write_rejects(self) -> tuple[str, ...]:
        if not self._rejects:
            return ()
        path = f"{self._base}.rejects"
        files.write_bytes(path, bytes(self._rejects))
        return (path.rpartition("/")[2],)

    def _write_samples(self) -> tuple[str, ...]:
        samples = self._runs.samples()
        if not samples:
            return ()
        path = f"{self._base}.samples"
        write_samples(path, samples)
        return (path.rpartition("/")[2],)


def _name_of(made: ElementBatch, chosen: Int64s, number: int) -> str:
    return made.name(int(chosen[number]))


def _run_path(base: str, number: int) -> str:
    return f"{base}-{number}.bin"
