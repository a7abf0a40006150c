"""The job that makes a vocabulary from text, as a function: of WordPiece, BPE or Unigram.

It counts the words of the corpus, chooses the most frequent ones, and learns tokens from them. A
large corpus is read twice, so that the memory does not grow with it
(`transforms/vocabulary/word_counts.py`).
"""

from __future__ import annotations

import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import apache_beam as beam
import numpy as np

from recordmill.pipelines.cores import usable_cores
from recordmill.pipelines.engines.choice import Engine
from recordmill.pipelines.engines.error_text import one_line
from recordmill.pipelines.engines.local import JobSize
from recordmill.pipelines.planning.item_sizes import work_item_bytes
from recordmill.pipelines.temporary_folders import make_folder_beside, remove_folder
from recordmill.records.errors import RunError
from recordmill.records.state import decode
from recordmill.transforms.dataset.tensorflow_loading import load_tensorflow
from recordmill.transforms.sources.document_spec import DocumentSpec
from recordmill.transforms.sources.item_cutting import cut_work_items
from recordmill.transforms.sources.source_list import SourceList
from recordmill.transforms.sources.work_item_files import write_work_items
from recordmill.transforms.storage import files
from recordmill.transforms.vocabulary.analyze_words import (
    CountWords,
    SketchWords,
    Totals,
    WordCountSpec,
    read_counts,
    read_sketch,
)
from recordmill.transforms.vocabulary.tokenizer_learning import learn_tokenizer
from recordmill.transforms.vocabulary.vocab_spec import VocabSpec
from recordmill.transforms.vocabulary.word_counts import SketchSpec, choose_threshold, passing

# So much text has two million distinct words at worst, which memory holds; the size alone decides,
# and never the number of workers, so that both ways of counting never compete for one input.
ONE_PASS_BYTES = 16_000_000
# Loading TensorFlow in workers takes 10 seconds a pass, in which one process reads so much.
_ONE_PROCESS_BYTES = 256_000_000


@dataclass(frozen=True, slots=True)
class VocabRequest:
    """The checked request for a vocabulary.

    Attributes:
      spec: the options.
      patterns: globs of the input.
      documents: how documents lie in the input.
    """

    spec: VocabSpec
    patterns: list[str]
    documents: DocumentSpec


@contextmanager
def _work_folder(output: str) -> Iterator[str]:
    """Makes a folder beside the output, which every worker can reach, and removes it at the end.

    What a killed run left beside a local output is removed first.
    """
    if files.is_local(output):
        work = make_folder_beside(output)
        try:
            yield work
        finally:
            remove_folder(work)
        return
    folder, _, name = output.rpartition("/")
    work = files.join(folder, f".{name}.{uuid.uuid4().hex[:12]}.tmp")
    files.make_folder(work)
    try:
        yield work
    finally:
        files.delete_folder(work)


@dataclass(frozen=True, slots=True)
class CountingRun:
    """Runs the passes over a planned input.

    Attributes:
      engine: counts the words.
      work_items: the number of work items that the input is cut into.
      input_bytes: the bytes of the input.
    """

    engine: Engine
    work_items: int
    input_bytes: int

    def over_tasks(self, work: str, transform: beam.PTransform[beam.PCollection[int], Any]) -> None:
        """Applies a transform to the numbers of all work items, on the engine asked for.

        Raises:
          RunError: a work item failed, or the engine.
        """

        def build(pipeline: beam.Pipeline) -> object:
            return (
                pipeline
                | "WorkItems" >> beam.Create(range(self.work_items), reshuffle=False)
                | "SpreadWorkItems" >> beam.Reshuffle()
                | "Words" >> transform
            )

        try:
            self.engine.run(
                build,
                folder=work,
                failure_path=files.join(work, "failure.txt"),
                size=JobSize(
                    self.work_items,
                    self.input_bytes,
                    1 if self.input_bytes <= _ONE_PROCESS_BYTES else usable_cores(),
                ),
            )
        except RunError:
            raise
        except Exception as error:
            raise RunError(one_line(error)) from error


def count_words(
    run: CountingRun, spec: WordCountSpec, sketch: SketchSpec | None
) -> tuple[dict[str, int], dict[str, int]]:
    """Returns the counts of words and of characters.

    Args:
      run: over the work items that `spec.work` holds.
      spec: what to count.
      sketch: where given, words that are rarer than about the `sketch.kept_words` most frequent
        ones are left out.
    """
    threshold = 1
    if sketch is not None:
        spec = replace(spec, sketch=sketch)
        print("reading for the first time: which words may be frequent", file=sys.stderr)
        run.over_tasks(spec.work, SketchWords(spec))
        counters = read_sketch(spec)
        threshold = choose_threshold(counters, sketch)
        files.write_bytes(spec.passing_path, np.asarray(passing(counters, threshold)).tobytes())
        print("reading for the second time: how frequent they are", file=sys.stderr)
    run.over_tasks(spec.work, CountWords(spec))
    words, characters = read_counts(spec)
    return {word: count for word, count in words.items() if count >= threshold}, characters


def _check_totals(totals: Totals, max_rejected: float) -> None:
    rejected = totals.rejected.total()
    inputs = totals.documents + rejected
    first = totals.first_reject
    if first and rejected > max_rejected * inputs:
        reasons = ", ".join(
            f"{reason} {count}" for reason, count in sorted(totals.rejected.items())
        )
        raise RunError(
            f"{rejected} of {inputs} inputs rejected ({reasons}), which is {rejected / inputs:.3%} "
            f"where --max_rejected allows {max_rejected:.3%}; the first is in {first.source} at "
            f"position {first.position}; fix them, or raise --max_rejected"
        )
    if not totals.words:
        raise RunError("the input has no words; see --input, --documents and --text_field")


@dataclass(frozen=True, slots=True)
class VocabularySummary:
    """The numbers of tokens and words of a new vocabulary.

    Attributes:
      tokens: the number of tokens in the file.
      chosen_words: the number of distinct words that the tokens were learned from.
      distinct_words: the number of distinct words counted.
      words: the number of words in the input.
    """

    tokens: int
    chosen_words: int
    distinct_words: int
    words: int


def write_vocabulary(
    request: VocabRequest, sources: SourceList, engine: Engine
) -> VocabularySummary:
    """Counts the words, learns the tokens and writes the file.

    Args:
      request: what the user asked for.
      sources: the input.
      engine: what counts the words.

    Raises:
      RunError: one line: why the run failed.
    """
    input_bytes = sources.text_bytes
    work_items = cut_work_items(
        sources,
        target_bytes=work_item_bytes(input_bytes, engine.workers),
        splittable=request.documents.splittable,
        delimiter=request.documents.delimiter,
        quotes=request.documents.quotes,
    )
    load_tensorflow("tensorflow_text")
    spec, kind = request.spec, request.spec.kind
    sketch = None if input_bytes <= ONE_PASS_BYTES else SketchSpec.for_words(kind.most_words)
    with _work_folder(spec.output) as work:
        count = write_work_items(work, work_items)
        counted = WordCountSpec(work, request.documents, kind.do_lower_case, kind=kind.name)
        run = CountingRun(engine, count, input_bytes)
        words, characters = count_words(run, counted, sketch)
        totals = decode(files.read_bytes(counted.totals_path), Totals)
        _check_totals(totals, spec.input.max_rejected)
        made = learn_tokenizer(words, characters, kind)
        files.write_bytes(spec.output, made.data, partial_folder=work)
    return VocabularySummary(made.tokens, made.chosen_words, len(words), totals.words)
