"""Word counts of a corpus by tensorflow_transform's analyzers, exact and in bounded memory.

Each worker counts its own words first, so an analyzer gets few large record batches instead of
every word. `tft.sum` and `tft.vocabulary` add up the counts of all workers. The counts are int64
everywhere, so they are exact and the same on every engine.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
from apache_beam.transforms.window import GlobalWindows
from apache_beam.utils.windowed_value import WindowedValue

from recordmill.records.arrays import Bytes, Int64s
from recordmill.records.state import Count, encode
from recordmill.transforms.dataset import counters
from recordmill.transforms.dataset.rejects import Reject
from recordmill.transforms.sources.document_spec import DocumentSpec
from recordmill.transforms.sources.documents import read_documents
from recordmill.transforms.sources.work_item_files import read_work_item
from recordmill.transforms.storage import files
from recordmill.transforms.vocabulary.vocab_spec import Kind
from recordmill.transforms.vocabulary.word_counts import (
    SketchSpec,
    WordTable,
    add_to_sketch,
    may_reach,
)
from recordmill.transforms.vocabulary.word_cutting import key_of, word_counter

_BATCH_WORDS = 1 << 16
_CHARACTER = b" "  # the first byte of a character's key; the key of a word has no space
_VOCABULARY = "words"


@dataclass(frozen=True, slots=True)
class WordCountSpec:
    """The input of a count of words, and its options.

    Attributes:
      work: the folder for temporary files and for the work items; every worker can reach it.
      documents: how documents lie in the input.
      lower_case: lower-case words; of WordPiece, also strip accents.
      sketch: the size of the sketch; None counts every word.
      kind: the tokenizer whose words are counted.
    """

    work: str
    documents: DocumentSpec
    lower_case: bool
    sketch: SketchSpec | None = None
    kind: Kind = "wordpiece"

    @property
    def passing_path(self) -> str:
        """The file of the mask of counters that reach the threshold."""
        return files.join(self.work, "passing.bin")

    @property
    def totals_path(self) -> str:
        """The file of the totals over all work items."""
        return files.join(self.work, "totals.json")

    def result_path(self, name: str) -> str:
        """Returns the folder of the result of an analysis."""
        return files.join(self.work, name)


def _per_row(values: pa.Array) -> pa.Array:
    """Returns lists of one value each: TFT's columns are lists."""
    return pa.ListArray.from_arrays(pa.array(range(len(values) + 1), pa.int32()), values)


class _Sketch:
    """Adds up a sketch; its only record batch is one row with all counters."""

    def __init__(self, spec: WordCountSpec) -> None:
        if spec.sketch is None:
            raise ValueError("a sketch needs its size")
        self._spec = spec.sketch
        self._counters = np.zeros(self._spec.size, np.int64)

    def add(self, table: WordTable) -> None:
        add_to_sketch(self._counters, table, self._spec)

    def batches(self) -> Iterator[pa.RecordBatch]:
        ends = pa.array([0, self._spec.size], pa.int32())
        column = pa.ListArray.from_arrays(ends, pa.array(self._counters))
        yield pa.RecordBatch.from_arrays([column], ["counters"])


class _Counts:
    """Adds up exact counts of characters, and of the words that may be frequent."""

    def __init__(self, spec: WordCountSpec) -> None:
        self._kind = spec.kind
        self._sketch = spec.sketch
        self._passing: Bytes | None = None
        if spec.sketch is not None:
            self._passing = np.frombuffer(files.read_bytes(spec.passing_path), np.uint8)
        self._words: Counter[bytes] = Counter()
        self._characters: Int64s = np.zeros(0, np.int64)

    def add(self, table: WordTable) -> None:
        if self._kind != "bpe":  # whose symbols are bytes
            characters = table.characters()
            self._characters = characters + (self._characters if len(self._characters) else 0)
        if self._passing is not None and self._sketch is not None:
            table = table.select(may_reach(table, self._passing, self._sketch))
        words = self._words
        for word, count in table.items():
            words[word] += count

    def batches(self) -> Iterator[pa.RecordBatch]:
        codes = np.flatnonzero(self._characters).tolist()
        words = (key_of(self._kind, word) for word in self._words)
        keys = [*words, *(_CHARACTER + chr(code).encode() for code in codes)]
        counts = [*self._words.values(), *(int(self._characters[code]) for code in codes)]
        for at in range(0, len(keys), _BATCH_WORDS):
            part = slice(at, at + _BATCH_WORDS)
            columns = [pa.array(keys[part], pa.binary()), pa.array(counts[part], pa.int64())]
            yield pa.RecordBatch.from_arrays(list(map(_per_row, columns)), ["words", "counts"])


@dataclass(slots=True)
class Totals:
    """The numbers of documents, words and rejects in a part of the input.

    Attributes:
      documents, words: their numbers; a word counts each time that it occurs.
      rejected: reason -> number of rejects.
      first_reject: the first reject in order of source and position, None without any.
    """

    documents: Count = 0
    words: Count = 0
    rejected: Counter[str] = field(default_factory=Counter)
    first_reject: Reject | None = None

    def add_reject(self, reject: Reject) -> None:
        """Counts a reject."""
        self.rejected[reject.reason] += 1
        self.first_reject = min(filter(None, (self.first_reject, reject)))

    def __add__(self, other: Totals) -> Totals:
        first = min(filter(None, (self.first_reject, other.first_reject)), default=None)
        return Totals(
            self.documents + other.documents, self.words + other.words,
            self.rejected + other.rejected, first,
        )  # fmt: skip


def _add_totals(parts: Iterable[Totals]) -> Totals:
    return reduce(Totals.__add__, parts, Totals())


class _ReadWordsDoFn(beam.DoFn):
    """Numbers of work items -> record batches at the end of a bundle, totals of each work item."""

    def __init__(self, spec: WordCountSpec, gather: type[_Sketch | _Counts]) -> None:
        self._spec = spec
        self._gather = gather

    def setup(self) -> None:
        self._counter = word_counter(self._spec.kind, lower_case=self._spec.lower_case)

    def start_bundle(self) -> None:
        self._counter.take()  # drops the counts of a bundle that failed
        self._gathered = self._gather(self._spec)

    def process(self, number: int) -> Iterator[beam.pvalue.TaggedOutput]:
        totals = Totals()
        for source in read_work_item(self._spec.work, number):
            for batch in read_documents(source, self._spec.documents):
                totals.documents += len(batch.keys) - batch.continues
                for reject in batch.rejects:
                    totals.add_reject(reject)
                for table in self._counter.add(batch.lines):
                    self._keep(table, totals)
        self._keep(self._counter.take(), totals)
        counters.count("documents_read", totals.documents)
        counters.count_rejects(totals.rejected)
        yield beam.pvalue.TaggedOutput("totals", totals)

    def _keep(self, table: WordTable, totals: Totals) -> None:
        totals.words += int(table.counts.sum())
        self._gathered.add(table)

    def finish_bundle(self) -> Iterator[WindowedValue]:
        for batch in self._gathered.batches():
            yield GlobalWindows.windowed_value(batch)
        del self._gathered


def _read_words(spec: WordCountSpec, gather: type[_Sketch | _Counts]) -> Any:
    """Returns a ParDo whose outputs are `batches` and `totals`."""
    read = beam.ParDo(_ReadWordsDoFn(spec, gather)).with_output_types(pa.RecordBatch)
    return read.with_outputs("totals", main="batches")


def _columns(*names: str, size: int | None = None) -> Any:
    """Returns how TFT reads the columns, for its adapter: as scalars, or as vectors of `size`."""
    from tensorflow_metadata.proto.v0 import schema_pb2
    from tfx_bsl.tfxio.tensor_adapter import TensorAdapterConfig

    shape = {} if size is None else {"dim": [{"size": size}]}
    types = {"words": pa.binary(), "counts": pa.int64(), "counters": pa.int64()}
    return TensorAdapterConfig(
        pa.schema([(name, pa.list_(types[name])) for name in names]),
        {
            name: schema_pb2.TensorRepresentation(
                dense_tensor={"column_name": name, "shape": shape}
            )
            for name in names
        },
    )


def _sum_counters(inputs: dict[str, Any]) -> dict[str, Any]:
    import tensorflow as tf
    import tensorflow_transform as tft

    counters = inputs["counters"]
    totals = tft.sum(counters, reduce_instance_dims=False)
    return {"counters": tf.zeros_like(counters) + totals}


def _sum_words(inputs: dict[str, Any]) -> dict[str, Any]:
    import tensorflow_transform as tft

    tft.vocabulary(
        inputs["words"], weights=inputs["counts"], store_frequency=True, vocab_filename=_VOCABULARY
    )
    return inputs


def _analyze(
    batches: beam.PCollection, config: Any, analyzers: Callable[..., Any], spec: WordCountSpec,
    name: str,
) -> None:  # fmt: skip
    import tensorflow_transform.beam as tft_beam

    with tft_beam.Context(temp_dir=files.join(spec.work, f"{name}-temp")):
        function = (batches, config) | "Analyze" >> tft_beam.AnalyzeDataset(analyzers)
        # The sink writes when the pipeline runs; nothing follows it.
        _ = function | "WriteAnalysis" >> tft_beam.WriteTransformFn(spec.result_path(name))


class SketchWords(beam.PTransform[beam.PCollection[int], beam.PCollection[Totals]]):
    """Numbers of work items -> totals of each; the sketch of all words goes to `spec.work`.

    Memory: two sketches for each worker, whatever the size of the input. Deterministic: the sketch
    depends on neither order nor retries.
    """

    def __init__(self, spec: WordCountSpec) -> None:
        super().__init__()
        self._spec = spec

    def expand(self, work_items: beam.PCollection[int]) -> beam.PCollection[Totals]:
        """Sums the counters of every worker."""
        # One record batch, of all counters, for each bundle.
        read = work_items | "SketchWords" >> _read_words(self._spec, _Sketch)
        size = self._spec.sketch.size if self._spec.sketch else 0
        _analyze(read.batches, _columns("counters", size=size), _sum_counters, self._spec, "sketch")
        return read.totals


class CountWords(beam.PTransform[beam.PCollection[int], beam.PCollection[Totals]]):
    """Numbers of work items -> their totals as one element; the word counts go to `spec.work`.

    Memory: the words that pass the sketch, or all words without a sketch, once in each worker and
    once in the sum. Deterministic: the counts depend on neither order nor retries.
    """

    def __init__(self, spec: WordCountSpec) -> None:
        super().__init__()
        self._spec = spec

    def expand(self, work_items: beam.PCollection[int]) -> beam.PCollection[Totals]:
        """Sums the counts of every worker."""
        read = work_items | "CountWords" >> _read_words(self._spec, _Counts)  # up to 65536 words
        _analyze(read.batches, _columns("words", "counts"), _sum_words, self._spec, "counts")
        return (
            read.totals
            | "SumTotals" >> beam.CombineGlobally(_add_totals)
            | "WriteTotals" >> beam.Map(_write_totals, self._spec.totals_path)
        )


def _write_totals(totals: Totals, path: str) -> Totals:
    files.write_bytes(path, encode(totals))
    return totals


def read_sketch(spec: WordCountSpec) -> Int64s:
    """Returns the counters that `SketchWords` wrote, `[spec.sketch.size] int64`.

    Raises:
      ValueError: `spec` has no sketch.
    """
    import tensorflow as tf
    import tensorflow_transform as tft

    if spec.sketch is None:
        raise ValueError("there is no sketch")
    output = tft.TFTransformOutput(spec.result_path("sketch"))
    counters = {"counters": tf.zeros([1, spec.sketch.size], tf.int64)}
    sums: Int64s = output.transform_raw_features(counters)["counters"].numpy()[0]
    return sums


def read_counts(spec: WordCountSpec) -> tuple[dict[str, int], dict[str, int]]:
    """Returns the counts of words and of characters that `CountWords` wrote."""
    import tensorflow_transform as tft

    output = tft.TFTransformOutput(spec.result_path("counts"))
    words: dict[str, int] = {}
    characters: dict[str, int] = {}
    with files.open_read(output.vocabulary_file_by_name(_VOCABULARY)) as handle:
        for line in handle:
            count, _, key = line.rstrip(b"\n").partition(b" ")
            if key.startswith(_CHARACTER):
                characters[key[1:].decode()] = int(count)
            else:
                words[key.decode()] = int(count)
    return words, characters
