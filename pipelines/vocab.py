"""A WordPiece vocabulary from text, and `python -m recordmill.pipelines.vocab`.

Count the words of the corpus, choose the most frequent, learn pieces from them. A large corpus is
read twice, so that what is held in memory does not grow with it (`transforms/word_counts.py`).
"""

from __future__ import annotations

import json
import os
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from typing import Any

import apache_beam as beam
import numpy as np

from recordmill.pipelines.engines import Engine, choose_engine, parse_arguments
from recordmill.pipelines.launch import one_line
from recordmill.pipelines.local import JobSize, default_workers
from recordmill.pipelines.options import input_patterns, required
from recordmill.pipelines.planning import check_writable
from recordmill.pipelines.tensorflow_loading import load_tensorflow
from recordmill.pipelines.text_options import add_input_arguments
from recordmill.pipelines.text_planning import check_columns, task_bytes
from recordmill.records.arguments import Parser
from recordmill.records.errors import RunError, UsageError
from recordmill.transforms import files
from recordmill.transforms.analyze_words import (
    CountWords,
    SketchWords,
    WordCountSpec,
    read_counts,
    read_sketch,
)
from recordmill.transforms.documents import DocumentSpec
from recordmill.transforms.job import read_json
from recordmill.transforms.plan import write_tasks
from recordmill.transforms.source_list import SourceList
from recordmill.transforms.sources import list_sources, plan_tasks
from recordmill.transforms.tokenization import SPECIAL_TOKENS
from recordmill.transforms.word_counts import SketchSpec, choose_threshold, passing
from recordmill.transforms.wordpiece_learning import LearnSpec, choose_words, learn_vocabulary

# So much text has two million distinct words at worst, which memory holds; the size alone decides,
# and never the number of workers, so that both ways of counting never compete for one input.
_ONE_PASS_BYTES = 16_000_000
# Loading TensorFlow in workers takes 10 seconds a pass, in which one process reads so much.
_ONE_PROCESS_BYTES = 256_000_000


@dataclass(frozen=True, slots=True)
class VocabRequest:
    """What the user asked for, checked.

    Attributes:
      patterns: globs of the input.
      input_format: as in --input_format.
      output: the vocabulary file.
      documents: how documents lie in the input.
      lower_case: as in --do_lower_case.
      max_rejected: the share of inputs that may be rejected, in [0, 1].
      learn: the vocabulary wanted.
    """

    patterns: list[str]
    input_format: str
    output: str
    documents: DocumentSpec
    lower_case: bool
    max_rejected: float
    learn: LearnSpec

    def __post_init__(self) -> None:
        if not 0 <= self.max_rejected <= 1:
            raise UsageError(f"--max_rejected must be in [0, 1], got {self.max_rejected}")


def add_vocab_arguments(parser: Any) -> None:
    """Adds the flags of `recordmill vocab`."""
    add_input_arguments(parser)
    group = parser.add_argument_group("output")
    group.add_argument("--output", help="The vocabulary file, local or gs://….")
    group.add_argument("--overwrite", action="store_true", help="Replace the file there.")
    group = parser.add_argument_group("vocabulary")
    group.add_argument(
        "--vocab_size", type=int, default=30522,
        help="The most tokens, special ones included; about so many are learned.",
    )  # fmt: skip
    group.add_argument(
        "--special_tokens", default=",".join(SPECIAL_TOKENS), metavar="TOKEN,…",
        help="The first tokens of the file, in this order.",
    )  # fmt: skip
    group.add_argument(
        "--min_count", type=int, default=2,
        help="Pieces that occur less often are no tokens, single characters excepted.",
    )  # fmt: skip
    group.add_argument(
        "--max_unique_chars", type=int, default=1000,
        help="The most single characters, each two tokens; more for Chinese and Japanese.",
    )  # fmt: skip


def vocab_request(options: Any) -> VocabRequest:
    """Checks the flags of `recordmill vocab` and freezes them.

    Raises:
      UsageError: one line: the rule, what was found, what to do.
    """
    required(options, "input", "output")
    learn = LearnSpec(
        options.vocab_size,
        tuple(options.special_tokens.split(",")),
        options.min_count,
        options.max_unique_chars,
    )
    # Words do not depend on where sentences end.
    documents = DocumentSpec(
        options.documents, "none", options.encoding, options.encoding_errors, options.text_field
    )
    return VocabRequest(
        input_patterns(options), options.input_format, options.output, documents,
        options.do_lower_case, options.max_rejected, learn,
    )  # fmt: skip


def _check_output(output: str, *, overwrite: bool) -> None:
    if output.endswith("/") or (files.is_local(output) and os.path.isdir(output)):
        raise UsageError(f"--output must be a file, got the folder {output}; add a file's name")
    if files.exists(output) and not overwrite:
        raise UsageError(
            f"--output {output} is already there; choose another, or --overwrite to replace it"
        )
    check_writable(output.rpartition("/")[0] or ("/" if output.startswith("/") else "."))


@contextmanager
def _work_folder(output: str) -> Iterator[str]:
    """Makes a folder beside the output, which every worker can reach, and removes it at the end."""
    folder, _, name = output.rpartition("/")
    beside = files.join(folder or ("/" if output.startswith("/") else "."), "")
    work = f"{beside}.{name}.{uuid.uuid4().hex[:12]}.tmp"
    files.make_folder(work)
    try:
        yield work
    finally:
        files.delete_folder(work)


@dataclass(frozen=True, slots=True)
class _Run:
    """Runs the passes over a planned input."""

    engine: Engine
    tasks: int
    input_bytes: int

    def over_tasks(self, work: str, transform: beam.PTransform[beam.PCollection[int], Any]) -> None:
        """Applies a transform to the numbers of all tasks, on the engine asked for."""

        def build(pipeline: beam.Pipeline) -> object:
            return (
                pipeline
                | "Tasks" >> beam.Create(range(self.tasks), reshuffle=False)
                | "SpreadTasks" >> beam.Reshuffle()
                | "Words" >> transform
            )

        try:
            self.engine.run(
                build,
                folder=work,
                failure_path=files.join(work, "failure.txt"),
                size=JobSize(
                    self.tasks,
                    self.input_bytes,
                    1 if self.input_bytes <= _ONE_PROCESS_BYTES else default_workers(),
                ),
            )
        except RunError:
            raise
        except Exception as error:
            raise RunError(one_line(error)) from error


def count_words(
    run: _Run, spec: WordCountSpec, sketch: SketchSpec | None
) -> tuple[dict[str, int], dict[str, int]]:
    """Returns the counts of words and of characters.

    Args:
      run: over the tasks that `spec.work` holds.
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


def _check_totals(totals: dict[str, Any], max_rejected: float) -> None:
    rejected = sum(totals["rejected"].values())
    inputs = totals["documents"] + rejected
    if rejected > max_rejected * inputs:
        reasons = ", ".join(f"{reason} {count}" for reason, count in totals["rejected"].items())
        first = json.loads(totals["first_reject"])
        raise RunError(
            f"{rejected} of {inputs} inputs rejected ({reasons}), which is {rejected / inputs:.3%} "
            f"where --max_rejected allows {max_rejected:.3%}; the first is in {first['source']} at "
            f"byte {first['position']}; mend them, or raise --max_rejected"
        )
    if not totals["words"]:
        raise RunError("the input has no words; see --input, --documents and --text_field")


def write_vocabulary(request: VocabRequest, sources: SourceList, engine: Engine) -> None:
    """Counts, learns, writes the file and prints a summary.

    Args:
      request: what the user asked for.
      sources: the input.
      engine: what counts the words.

    Raises:
      RunError: one line: why the run ended.
    """
    began = time.monotonic()
    input_bytes = sources.text_bytes
    tasks = plan_tasks(
        sources,
        target_bytes=task_bytes(input_bytes, engine.workers),
        splittable=request.documents.splittable,
    )
    load_tensorflow("tensorflow_text")
    learn = request.learn
    sketch = None if input_bytes <= _ONE_PASS_BYTES else SketchSpec.for_words(learn.most_words)
    with _work_folder(request.output) as work:
        count = write_tasks(work, tasks)
        spec = WordCountSpec(work, request.documents, request.lower_case)
        run = _Run(engine, count, input_bytes)
        words, characters = count_words(run, spec, sketch)
        totals = read_json(spec.totals_path)
    _check_totals(totals, request.max_rejected)
    chosen = choose_words(words, characters, learn)
    tokens = learn_vocabulary(chosen, learn)
    files.write_bytes(request.output, "".join(f"{token}\n" for token in tokens).encode())
    print(
        f"{request.output}  {len(tokens)} tokens from the {len(chosen)} most frequent of "
        f"{len(words)} distinct words counted, {totals['words']} words in all; "
        f"{time.monotonic() - began:.1f} s"
    )


def main(arguments: list[str] | None = None) -> int:
    """Runs `recordmill vocab`; returns 0, or raises what the command line turns into a status.

    Raises:
      UsageError: wrong flags, or an input or output that cannot be used.
      RunError: the run failed, or went over the error budget.
    """
    parser = Parser(
        prog="recordmill vocab", allow_abbrev=False,
        description="A WordPiece vocabulary from text. Beam's own flags pass through.",
    )  # fmt: skip
    add_vocab_arguments(parser)
    options, flags = parse_arguments(parser, arguments)
    request = vocab_request(options)
    if not options.wait:
        raise UsageError("--no_wait has no meaning for vocab, which goes on after Beam's job")
    engine = choose_engine(options, flags)
    engine.check({"--input": request.patterns[0], "--output": request.output})
    # The input comes first: where it is wrong, no folder is made for the output.
    found = list_sources(request.patterns, input_format=request.input_format)
    with closing(SourceList(found)) as sources:
        check_columns(sources, request.documents, [("--text_field", request.documents.text_field)])
        _check_output(request.output, overwrite=options.overwrite)
        write_vocabulary(request, sources, engine)
    return 0


if __name__ == "__main__":
    from recordmill.pipelines.command_line import main as command_line

    sys.exit(command_line(["vocab", *sys.argv[1:]]))
