"""The stages that count the words of a corpus, exactly and in bounded memory.

    [sketch words  add sketches]  count words  add counts

A work item reads a share of the input, and writes what it counts to a file: at most 64 files,
however large the input. Counts are integers, so sums depend on neither order nor workers.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import msgspec
import numpy as np

from recordmill.records.arrays import Bytes, Int64s
from recordmill.records.errors import RunError
from recordmill.records.state import Count
from recordmill.transforms.dataset import counters
from recordmill.transforms.dataset.error_budget import most_rejects, say_rejected
from recordmill.transforms.dataset.rejects import Reject
from recordmill.transforms.dataset.stages import Done, OnceStage, Stage
from recordmill.transforms.dataset.workspace import Workspace
from recordmill.transforms.sources.document_spec import DocumentSpec
from recordmill.transforms.sources.documents import read_documents
from recordmill.transforms.sources.work_item_files import read_work_item
from recordmill.transforms.storage import files
from recordmill.transforms.vocabulary.vocab_spec import Kind
from recordmill.transforms.vocabulary.word_counts import (
    SketchSpec,
    WordTable,
    add_to_sketch,
    choose_threshold,
    may_reach,
    passing,
)
from recordmill.transforms.vocabulary.word_cutting import key_of, word_counter

_MOST_FILES = 64  # a sketch may have 256 MB


@dataclass(frozen=True, slots=True)
class WordCountSpec:
    """The input of a count of words, and its options.

    Attributes:
      work: the folder for temporary files and for the work items; every worker can reach it.
      work_items: the number of work items of the input.
      documents: how documents lie in the input.
      lower_case: lower-case words; of WordPiece, also strip accents.
      sketch: the size of the sketch; None counts every word.
      kind: the tokenizer whose words are counted.
      max_rejected: the share of inputs that may be rejected.
      input_bytes: of the whole input; 0 where nobody knows.
    """

    work: str
    work_items: int
    documents: DocumentSpec
    lower_case: bool
    sketch: SketchSpec | None = None
    kind: Kind = "wordpiece"
    max_rejected: float = 0.0
    input_bytes: int = 0

    @property
    def workspace(self) -> Workspace:
        """The folder, which no other run knows."""
        return Workspace(output=self.work, work=self.work, staging=self.work)

    def worded(self, message: str) -> str:
        """Returns the message: a command counts, whose flags it names."""
        return message

    @property
    def most_rejects(self) -> int:
        """How many rejects a part of the input may have."""
        size = self.input_bytes
        return most_rejects(self.max_rejected, size and self.documents.most_unpacked_bytes(size))

    @property
    def passing_path(self) -> str:
        """The file of the mask of counters that reach the threshold, behind the threshold."""
        return files.join(self.work, "passing")

    @property
    def counts_path(self) -> str:
        """The file of the counts of the whole input."""
        return files.join(self.work, "counts")


class Totals(msgspec.Struct):
    """The numbers of documents, words and rejects in a part of the input.

    Attributes:
      documents, words: their numbers; a word counts each time that it occurs.
      more_inputs: see `DocumentBatch`.
      rejected: reason -> number of rejects.
      first_reject: the first reject in order of source and position, None without any.
    """

    documents: Count = 0
    words: Count = 0
    more_inputs: int = 0
    rejected: dict[str, int] = {}
    first_reject: Reject | None = None

    def add_reject(self, reject: Reject) -> None:
        """Counts a reject."""
        self.rejected[reject.reason] = self.rejected.get(reject.reason, 0) + 1
        self.first_reject = min(filter(None, (self.first_reject, reject)))

    def __add__(self, other: Totals) -> Totals:
        return Totals(
            self.documents + other.documents,
            self.words + other.words,
            self.more_inputs + other.more_inputs,
            dict(Counter(self.rejected) + Counter(other.rejected)),
            min(filter(None, (self.first_reject, other.first_reject)), default=None),
        )


class WordCounts(msgspec.Struct):
    """What is counted in a part of the input.

    Attributes:
      words: word, as the counter of its kind cuts it -> how often it occurs.
      characters: code point -> the same; none of BPE, whose symbols are bytes.
      totals: of the part.
    """

    words: dict[bytes, int]
    characters: dict[int, int]
    totals: Totals


_encode_counts = msgspec.msgpack.Encoder().encode
_decode_counts = msgspec.msgpack.Decoder(WordCounts).decode


def _read_counts(path: str) -> WordCounts:
    return _decode_counts(zlib.decompress(files.read_bytes(path)))


def _write_counts(path: str, counts: WordCounts) -> None:
    files.write_bytes(path, zlib.compress(_encode_counts(counts), 1))


class _ReadStage(Stage[WordCountSpec]):
    """A stage whose work items read shares of the input."""

    def items(self) -> int:
        """Returns the number of shares."""
        return min(self.job.work_items, _MOST_FILES)

    def describe(self, item: int) -> str:
        """Returns the name of its first file."""
        return read_work_item(self.job.work, item)[0].name

    def path(self, item: int) -> str:
        """The file of what a work item counts."""
        return files.join(self.job.work, f"{self.name}-{item:06d}")

    def tables(self, item: int, totals: Totals) -> Iterator[WordTable]:
        """Yields the words of every so many-th work item of the input, and adds to the totals."""
        counter = word_counter(self.job.kind, lower_case=self.job.lower_case)
        for number in range(item, self.job.work_items, self.items()):
            for source in read_work_item(self.job.work, number):
                for batch in read_documents(source, self.job.documents):
                    totals.documents += len(batch.keys) - batch.continues
                    totals.more_inputs += batch.more_inputs
                    for reject in batch.rejects:
                        totals.add_reject(reject)
                    self._check_budget(totals)
                    yield from counter.add(batch.lines)
        yield counter.take()

    def _check_budget(self, totals: Totals) -> None:
        """Ends the run where a part alone has more rejects than the whole may have."""
        allowed, first = self.job.max_rejected, totals.first_reject
        if first and sum(totals.rejected.values()) > self.job.most_rejects:
            raise RunError(
                f"of a part of the input {totals.documents} documents read"
                f"{say_rejected(totals.rejected)}, which alone are more than --max_rejected "
                f"allows, {allowed:.3%} of all; the first is in {first.source} at position "
                f"{first.position}; fix them, or raise --max_rejected"
            )


class SketchWords(_ReadStage):
    """Writes a sketch of the words of each share. Memory: a sketch."""

    name = "SketchWords"

    def do(self, item: int) -> Done:
        """Reads a share of the input."""
        spec = need_sketch(self.job)
        sketch = np.zeros(spec.size, np.int64)
        for table in self.tables(item, Totals()):
            add_to_sketch(sketch, table, spec)
        files.write_bytes(self.path(item), zlib.compress(sketch.data, 1))
        return Done()


class AddSketches(OnceStage[WordCountSpec]):
    """Adds up all sketches, and writes which counters reach the threshold.

    Memory: two sketches.
    """

    name = "AddSketches"

    def do(self, item: int) -> Done:
        """Reads the sketches one after the other."""
        spec, parts = need_sketch(self.job), SketchWords(self.job)
        sketch = np.zeros(spec.size, np.int64)
        for part in range(parts.items()):
            data = zlib.decompress(files.read_bytes(parts.path(part)))
            sketch += np.frombuffer(data, np.int64)
        threshold = choose_threshold(sketch, spec)
        packed = passing(sketch, threshold)
        files.write_bytes(self.job.passing_path, threshold.to_bytes(8, "little") + packed.tobytes())
        return Done()


def need_sketch(spec: WordCountSpec) -> SketchSpec:
    """Returns the size of the sketch.

    Raises:
      ValueError: every word is counted.
    """
    if spec.sketch is None:
        raise ValueError("a sketch needs its size")
    return spec.sketch


def read_passing(spec: WordCountSpec) -> tuple[int, Bytes]:
    """Returns the threshold, and which counters reach it, see `passing`."""
    data = files.read_bytes(spec.passing_path)
    return int.from_bytes(data[:8], "little"), np.frombuffer(data, np.uint8, offset=8)


class CountWords(_ReadStage):
    """Writes the counts of the words of each share that may be frequent, and of its characters.

    Memory: the words that pass the sketch, or all words without a sketch, once.
    """

    name = "CountWords"

    def do(self, item: int) -> Done:
        """Reads a share of the input."""
        job, totals = self.job, Totals()
        packed = read_passing(job)[1] if job.sketch else None
        words: Counter[bytes] = Counter()
        characters: Int64s = np.zeros(0, np.int64)
        for table in self.tables(item, totals):
            totals.words += int(table.counts.sum())
            if job.kind != "bpe":
                found = table.characters()
                characters = found + characters if len(characters) else found
            if packed is not None:
                table = table.select(may_reach(table, packed, need_sketch(job)))
            for word, count in table.items():
                words[word] += count
        codes = {code: int(characters[code]) for code in np.flatnonzero(characters).tolist()}
        _write_counts(self.path(item), WordCounts(dict(words), codes, totals))
        read = {"documents_read": totals.documents}
        return Done(counts=read | counters.of_rejects(totals.rejected))


class AddCounts(OnceStage[WordCountSpec]):
    """Adds up all counts. Memory: the words that pass the sketch, twice."""

    name = "AddCounts"

    def do(self, item: int) -> Done:
        """Reads the counts one after the other."""
        parts = CountWords(self.job)
        words: Counter[bytes] = Counter()
        characters: Counter[int] = Counter()
        totals = Totals()
        for part in range(parts.items()):
            counted = _read_counts(parts.path(part))
            words.update(counted.words)
            characters.update(counted.characters)
            totals += counted.totals
        _write_counts(self.job.counts_path, WordCounts(dict(words), dict(characters), totals))
        return Done()


def counting_stages(spec: WordCountSpec) -> list[Stage[WordCountSpec]]:
    """Returns the stages that count the words of an input whose work items are written."""
    sketch: list[Stage[WordCountSpec]] = [SketchWords(spec), AddSketches(spec)]
    return [*(sketch if spec.sketch else ()), CountWords(spec), AddCounts(spec)]


def read_counts(spec: WordCountSpec) -> tuple[dict[str, int], dict[str, int], Totals]:
    """Returns the counts of words and of characters, the most frequent first, and the totals.

    Words are as `key_of` has them. With a sketch, only those that reach its threshold are there.
    """
    counted = _read_counts(spec.counts_path)
    threshold = read_passing(spec)[0] if spec.sketch else 1
    words = {
        key_of(spec.kind, word).decode(): count
        for word, count in counted.words.items()
        if count >= threshold
    }
    characters = {chr(code): count for code, count in counted.characters.items()}
    return _by_count(words), _by_count(characters), counted.totals


def _by_count(counts: dict[str, int]) -> dict[str, int]:
    return dict(sorted(counts.items(), key=lambda each: (-each[1], each[0])))
