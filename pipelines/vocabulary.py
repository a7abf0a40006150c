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
from dataclasses import dataclass
from typing import TYPE_CHECKING

from recordmill.pipelines.engines.error_text import one_line
from recordmill.pipelines.engines.local import JobSize
from recordmill.pipelines.engines.processes import processes_for
from recordmill.pipelines.planning.item_sizes import work_item_bytes
from recordmill.pipelines.temporary_folders import make_folder_beside, remove_folder
from recordmill.records.errors import RunError
from recordmill.transforms.dataset.rejects import of_whole_documents
from recordmill.transforms.sources.document_spec import DocumentSpec
from recordmill.transforms.sources.item_cutting import cut_work_items
from recordmill.transforms.sources.source_list import SourceList
from recordmill.transforms.sources.work_item_files import write_work_items
from recordmill.transforms.storage import files
from recordmill.transforms.vocabulary.counting_stages import (
    Totals,
    WordCountSpec,
    counting_stages,
    read_counts,
)
from recordmill.transforms.vocabulary.tokenizer_learning import learn_tokenizer
from recordmill.transforms.vocabulary.vocab_spec import VocabSpec
from recordmill.transforms.vocabulary.word_counts import SketchSpec

if TYPE_CHECKING:
    from recordmill.pipelines.engines.choice import Engine

# So much text has two million distinct words at worst, which memory holds; the size alone decides,
# and never the number of workers, so that both ways of counting never compete for one input.
ONE_PASS_BYTES = 16_000_000


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


def count_words(
    engine: Engine, spec: WordCountSpec, input_bytes: int
) -> tuple[dict[str, int], dict[str, int], Totals]:
    """Returns the counts of words and of characters, and the totals.

    Args:
      engine: counts the words.
      spec: what to count; its work items are written.
      input_bytes: of the input.

    Raises:
      RunError: a work item failed, or the engine.
    """
    if spec.sketch:
        print("reading twice: which words may be frequent, then how frequent", file=sys.stderr)
    try:
        engine.run(
            counting_stages(spec),
            folder=spec.work,
            failure_path=files.join(spec.work, "failure.txt"),
            size=JobSize(spec.work_items, input_bytes, processes_for(input_bytes)),
        )
    except RunError:
        raise
    except Exception as error:
        raise RunError(one_line(error)) from error
    return read_counts(spec)


def _check_totals(totals: Totals, max_rejected: float) -> None:
    lines = totals.documents + totals.more_inputs
    documents = of_whole_documents(totals.rejected)
    for accepted, found in (lines, totals.rejected), (totals.documents, documents):
        rejected = sum(found.values())
        inputs = accepted + rejected
        first = totals.first_reject
        if first and rejected > max_rejected * inputs:
            reasons = ", ".join(f"{reason} {count}" for reason, count in sorted(found.items()))
            share = rejected / inputs
            raise RunError(
                f"{rejected} of {inputs} inputs rejected ({reasons}), which is {share:.3%} where "
                f"--max_rejected allows {max_rejected:.3%}; the first is in {first.source} at "
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
    target = work_item_bytes(input_bytes, engine.workers)
    work_items = cut_work_items(sources, target, request.documents.cutting)
    spec, kind = request.spec, request.spec.kind
    sketch = None if input_bytes <= ONE_PASS_BYTES else SketchSpec.for_words(kind.most_words)
    with _work_folder(spec.output) as work:
        counted = WordCountSpec(
            work,
            write_work_items(work, work_items),
            request.documents,
            kind.do_lower_case,
            sketch,
            kind.name,
            spec.input.max_rejected,
            input_bytes,
        )
        words, characters, totals = count_words(engine, counted, input_bytes)
        _check_totals(totals, spec.input.max_rejected)
        made = learn_tokenizer(words, characters, kind)
        files.write_bytes(spec.output, made.data, partial_folder=work)
    return VocabularySummary(made.tokens, made.chosen_words, len(words), totals.words)
