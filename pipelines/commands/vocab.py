"""`recordmill vocab`: make a vocabulary from text, of WordPiece, byte-level BPE or Unigram."""

from __future__ import annotations

import argparse
import os
import time
from contextlib import closing
from dataclasses import dataclass

from recordmill.pipelines.arguments import BooleanFlag, Parser
from recordmill.pipelines.beam_internals import option_actions
from recordmill.pipelines.engines.choice import choose_engine, parse_arguments
from recordmill.pipelines.flags import TextInputFlags
from recordmill.pipelines.options import required
from recordmill.pipelines.planning.item_sizes import report_passed_over
from recordmill.pipelines.planning.text_planner import check_columns, list_input
from recordmill.pipelines.text_checks import check_encoding, check_formats, check_ratio
from recordmill.pipelines.text_inputs import check_query, text_patterns
from recordmill.pipelines.text_options import add_input_arguments, document_spec
from recordmill.pipelines.vocabulary import VocabRequest, write_vocabulary
from recordmill.records.errors import UsageError
from recordmill.transforms.dataset.writable import check_writable
from recordmill.transforms.sources.source_checks import check_contents
from recordmill.transforms.sources.source_list import SourceList
from recordmill.transforms.storage import files
from recordmill.transforms.text.tokenization import SPECIAL_TOKENS
from recordmill.transforms.vocabulary.tokenizer_learning import (
    BPE_SPECIAL_TOKENS,
    UNIGRAM_SPECIAL_TOKENS,
    BytePairSpec,
    UnigramSpec,
)
from recordmill.transforms.vocabulary.word_cutting import KINDS, Kind
from recordmill.transforms.vocabulary.wordpiece_learning import LearnSpec


def add_vocab_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of `recordmill vocab`."""
    add_input_arguments(parser)
    group = parser.add_argument_group("output")
    group.add_argument("--output", default="", help="The vocabulary file, local or gs://….")
    group.add_argument("--overwrite", action=BooleanFlag, help="Replace the file in --output.")
    group = parser.add_argument_group("vocabulary")
    group.add_argument(
        "--kind", default="wordpiece", choices=KINDS,
        help="wordpiece writes BERT's vocab.txt; bpe a Hugging Face tokenizer.json of byte-level "
        "BPE, as GPT-2's; unigram a SentencePiece .model, as T5's.",
    )  # fmt: skip
    lower_case = option_actions(parser)["--do_lower_case"]
    lower_case.default = None
    lower_case.help = (
        "Lower-case words, and the text of the tokenizer; of wordpiece, also strip accents. "
        "(default: true for wordpiece, else false)"
    )
    group.add_argument(
        "--vocab_size", type=int, default=30522,
        help="The maximum number of tokens, special ones included; about so many are learned.",
    )  # fmt: skip
    group.add_argument(
        "--special_tokens", default="", metavar="TOKEN,…",
        help="The first tokens of the file, in this order. (default: of wordpiece "
        f"{','.join(SPECIAL_TOKENS)}, of bpe {','.join(BPE_SPECIAL_TOKENS)}, of unigram "
        f"{','.join(UNIGRAM_SPECIAL_TOKENS)})",
    )  # fmt: skip
    group.add_argument(
        "--min_count", type=int, default=2,
        help="Parts of words that occur less often are no tokens, except single characters. Not of "
        "unigram.",
    )  # fmt: skip
    group.add_argument(
        "--max_unique_chars", type=int, default=1000,
        help="The maximum number of single characters, of wordpiece two tokens each; Chinese needs "
        "more. Not of bpe.",
    )  # fmt: skip


@dataclass(frozen=True)
class VocabFlags(TextInputFlags):
    """Of `recordmill vocab`."""

    vocab_size: int
    do_lower_case: bool | None
    kind: Kind
    special_tokens: str
    min_count: int
    max_unique_chars: int


def _learn_spec(options: VocabFlags, *, lower_case: bool) -> LearnSpec | BytePairSpec | UnigramSpec:
    """Returns the vocabulary wanted.

    Raises:
      UsageError: a value is not valid, or a flag has no effect on this kind.
    """
    given = options.given(add_vocab_arguments)
    without = {"bpe": ["max_unique_chars"], "unigram": ["min_count"]}.get(options.kind, [])
    for name in without:
        if name in given:
            raise UsageError(f"--{name} has no effect with --kind={options.kind}; leave it out")
    special = tuple(options.special_tokens.split(",")) if options.special_tokens else ()
    if options.kind == "bpe":
        return BytePairSpec(
            options.vocab_size, lower_case, special or BPE_SPECIAL_TOKENS, options.min_count
        )
    if options.kind == "unigram":
        return UnigramSpec(
            options.vocab_size,
            lower_case,
            special or UNIGRAM_SPECIAL_TOKENS,
            options.max_unique_chars,
        )
    return LearnSpec(
        options.vocab_size, special or SPECIAL_TOKENS, options.min_count, options.max_unique_chars
    )


def vocab_request(options: VocabFlags) -> VocabRequest:
    """Checks the flags of `recordmill vocab` and freezes them.

    Raises:
      UsageError: one line: the rule, what was found, what to do.
    """
    required(options, "input", "output")
    check_encoding(options)
    lower_case = options.do_lower_case
    if lower_case is None:
        lower_case = options.kind == "wordpiece"
    learn = _learn_spec(options, lower_case=lower_case)
    # Words do not depend on where sentences end.
    documents = document_spec(options, "none")
    patterns = text_patterns(options)
    check_query(options, patterns, [])
    return VocabRequest(
        patterns, options.input_format, options.output, documents,
        lower_case, options.max_rejected, learn, options.kind, tuple(options.allow_outside or ()),
        options.query, options.partition_column,
    )  # fmt: skip


def _check_output(output: str, *, overwrite: bool) -> None:
    if output.endswith("/") or (files.is_local(output) and os.path.isdir(output)):
        raise UsageError(f"--output must be a file, got the folder {output}; add a file's name")
    if files.exists(output) and not overwrite:
        raise UsageError(
            f"--output {output} is already there; choose another, or --overwrite to replace it"
        )
    check_writable(output.rpartition("/")[0] or ("/" if output.startswith("/") else "."))


def make_parser() -> Parser:
    """Returns the parser of the command's own flags."""
    parser = Parser(
        prog="recordmill vocab",
        description="Makes a vocabulary from text: WordPiece, byte-level BPE or Unigram. Beam's "
        "own flags pass through.",
    )
    parser.add_full_help()
    add_vocab_arguments(parser)
    return parser


def main(arguments: list[str]) -> int:
    """Runs `recordmill vocab`; returns 0; the command line turns errors into a status.

    Raises:
      UsageError: wrong flags, or an input or output that cannot be used.
      RunError: the run failed, or went over the error budget.
    """
    namespace, flags = parse_arguments(make_parser(), arguments)
    options = VocabFlags.read(namespace)
    request = vocab_request(options)
    if not flags.wait:
        raise UsageError("--no_wait has no meaning for vocab, which goes on after Beam's job")
    if flags.report:
        raise UsageError("--report has no meaning for vocab, which writes no dataset; leave it out")
    if flags.progress != "auto":
        raise UsageError("--progress has no meaning for vocab, which shows none; leave it out")
    engine = choose_engine(flags)
    engine.check({"--input": request.patterns[0], "--output": request.output})
    began = time.monotonic()
    # The input comes first: where it is wrong, no folder is made for the output.
    passed_over: list[str] = []
    listed = list_input(request, request.documents, pass_over=passed_over.append)
    with closing(SourceList(listed)) as sources:
        report_passed_over(passed_over)
        check_formats(request.documents, sources.formats, num_splits=1)
        check_ratio(request.documents, is_compressed=sources.is_compressed)
        check_contents(sources, request.documents)
        check_columns(sources, request.documents, [("--text_field", request.documents.text_field)])
        _check_output(request.output, overwrite=options.overwrite)
        summary = write_vocabulary(request, sources, engine)
    case = "" if request.lower_case or request.kind != "wordpiece" else " --no-do_lower_case"
    print(
        f"{request.output}  {summary.tokens} tokens from the {summary.chosen_words} most frequent "
        f"of {summary.distinct_words} distinct words counted, {summary.words} words in all; "
        f"{time.monotonic() - began:.1f} s\n"
        f"use it by: recordmill text --tokenizer={request.output}{case}"
    )
    return 0
