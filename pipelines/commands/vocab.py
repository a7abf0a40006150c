"""`recordmill vocab`: make a vocabulary from text, of WordPiece, byte-level BPE or Unigram."""

from __future__ import annotations

import os
import time
from contextlib import closing
from functools import partial

from msgspec.structs import asdict

from recordmill.pipelines.command_table import Call
from recordmill.pipelines.engines.choice import choose_engine
from recordmill.pipelines.engines.engine_spec import EngineSpec
from recordmill.pipelines.input_patterns import text_patterns
from recordmill.pipelines.job_request import required
from recordmill.pipelines.launch import engine_of
from recordmill.pipelines.planning.input_checks import check_outside
from recordmill.pipelines.planning.item_sizes import PassedOver
from recordmill.pipelines.planning.text_planner import check_columns, list_input
from recordmill.pipelines.text_request import check_formats, check_query, check_ratio
from recordmill.pipelines.vocabulary import VocabRequest, write_vocabulary
from recordmill.records.errors import UsageError
from recordmill.transforms.dataset.writable import check_writable
from recordmill.transforms.sources.document_spec import DocumentSpec
from recordmill.transforms.sources.documents import count_documents
from recordmill.transforms.sources.source_checks import check_contents
from recordmill.transforms.sources.source_list import SourceList, first_sources
from recordmill.transforms.storage import files
from recordmill.transforms.vocabulary.vocab_spec import VocabSpec


def vocab_request(spec: VocabSpec) -> VocabRequest:
    """Returns what the options ask for.

    Raises:
      UsageError: one line: the rule, what was found, what to do.
    """
    required(spec.input, "input")
    required(spec, "output")
    patterns = text_patterns(spec.input.input)
    check_query(spec.input, patterns, [])
    # Words do not depend on where sentences end.
    documents = DocumentSpec(**asdict(spec.source), sentence_splitter="none")
    return VocabRequest(spec, patterns, documents)


def _check_output(output: str, *, overwrite: bool) -> None:
    if output.endswith("/") or (files.is_local(output) and os.path.isdir(output)):
        raise UsageError(f"--output must be a file, got the folder {output}; add a file's name")
    if files.exists(output) and not overwrite:
        raise UsageError(
            f"--output {output} is already there; choose another, or --overwrite to replace it"
        )
    check_writable(output.rpartition("/")[0] or ("/" if output.startswith("/") else "."))


def _check_engine(engine: EngineSpec) -> None:
    """Refuses options of jobs that write datasets."""
    if not engine.wait:
        raise UsageError("--no_wait has no meaning for vocab, which goes on after Beam's job")
    if engine.report:
        raise UsageError("--report has no meaning for vocab, which writes no dataset; leave it out")
    if engine.progress not in ("auto", "none"):
        raise UsageError("--progress has no meaning for vocab, which shows none; leave it out")


def run(call: Call) -> int:
    """Runs `recordmill vocab`; returns 0; the command line turns errors into a status.

    Raises:
      UsageError: wrong flags, or an input or output that cannot be used.
      RunError: the run failed, or went over the error budget.
    """
    where = engine_of(call)
    spec = call.make(VocabSpec)
    request = vocab_request(spec)
    _check_engine(where)
    engine = choose_engine(where, call.given.beam)
    patterns, documents = request.patterns, request.documents
    engine.check({"--input": patterns[0], "--output": spec.output})
    began = time.monotonic()
    check_outside(patterns, spec.output, is_file=True)
    # The input comes first: where it is wrong, no folder is made for the output.
    passed_over = PassedOver()
    listed = list_input(patterns, spec.input, documents, pass_over=passed_over.add)
    with closing(SourceList(listed)) as sources:
        passed_over.report()
        check_formats(documents, sources.formats, num_splits=1)
        check_ratio(documents, is_compressed=sources.is_compressed)
        check_contents(sources, documents, by_name=spec.input.by_name)
        check_columns(sources, documents, [("--text_field", documents.text_field)])
        _check_output(spec.output, overwrite=spec.overwrite)
        count = partial(count_documents, spec=documents)
        with first_sources(sources, spec.input.limit, count) as first:
            summary = write_vocabulary(request, first, engine)
    is_cased = spec.kind.name == "wordpiece" and not spec.kind.do_lower_case
    print(
        f"{spec.output}  {summary.tokens} tokens from the {summary.chosen_words} most frequent "
        f"of {summary.distinct_words} distinct words counted, {summary.words} words in all; "
        f"{time.monotonic() - began:.1f} s\n"
        f"use it by: recordmill text --tokenizer={spec.output}"
        f"{' --no-do_lower_case' if is_cased else ''}"
    )
    return 0
