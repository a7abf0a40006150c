"""Flags of the text job, and the frozen, checked configuration that they become at once."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import Any

from recordmill.pipelines.options import (
    add_budget_argument,
    add_output_arguments,
    input_patterns,
    job_options,
    required,
)
from recordmill.records.errors import UsageError
from recordmill.transforms.documents import DOCUMENTS, SPLITTERS, DocumentSpec
from recordmill.transforms.masking import MaskSpec
from recordmill.transforms.pairing import PairSpec
from recordmill.transforms.text_job import TASKS, TaskSpec, TextJob
from recordmill.transforms.windows import WindowSpec


def add_input_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the flags that say where text is and what it looks like."""
    group = parser.add_argument_group("input")
    group.add_argument(
        "--input", action="append", nargs="+", metavar="GLOB",
        help="Files to read, local or gs://…; several globs, or the flag several times.",
    )  # fmt: skip
    group.add_argument(
        "--input_format", default="auto", choices=("auto", "text", "jsonl", "csv", "tsv"),
        help="auto goes by the ending; .gz, .bz2, .xz and .zst are opened in any case.",
    )  # fmt: skip
    group.add_argument(
        "--documents", default="blank_line", choices=DOCUMENTS,
        help="In plain text a document is a block between blank lines, a line, or a file.",
    )  # fmt: skip
    group.add_argument(
        "--text_field", default="text", help="The field or column of JSONL, CSV, TSV."
    )
    group.add_argument("--encoding", default="utf-8", help="Of the input files.")
    group.add_argument(
        "--encoding_errors", default="strict", choices=("strict", "replace"),
        help="strict rejects lines with invalid bytes, replace puts U+FFFD in their place.",
    )  # fmt: skip
    add_budget_argument(group)
    group.add_argument(
        "--do_lower_case", action=argparse.BooleanOptionalAction, default=True,
        help="Lower-case and strip accents; it must suit the vocabulary.",
    )  # fmt: skip


def add_text_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of `recordmill text`."""
    add_input_arguments(parser)
    parser.add_argument_group("input").add_argument(
        "--split_by", default="",
        help="A field of JSONL, CSV, TSV: documents with the same value share a split.",
    )  # fmt: skip
    add_output_arguments(parser)
    task = parser.add_argument_group("task")
    task.add_argument("--task", default="bert", choices=TASKS)
    task.add_argument("--vocab_file", help="WordPiece vocabulary, a token a line.")
    task.add_argument("--max_seq_length", type=int, default=128)
    task.add_argument("--max_predictions_per_seq", type=int, default=20)
    task.add_argument("--masked_lm_prob", type=float, default=0.15)
    task.add_argument("--dupe_factor", type=int, help="Copies of the text. 10; 1 unmasked.")
    task.add_argument("--short_seq_prob", type=float, default=0.1)
    task.add_argument("--min_short_seq_length", type=int, help="mlm: 2 + overlap_size.")
    task.add_argument("--overlap_size", type=int, help="mlm: max_seq_length / 4.")
    task.add_argument(
        "--allow_cross_document_examples", action="store_true",
        help="mlm: windows run over the ends of documents, with [SEP] between.",
    )  # fmt: skip
    task.add_argument("--do_whole_word_mask", action=argparse.BooleanOptionalAction, default=False)
    task.add_argument("--max_ngram_size", type=int, default=1)
    task.add_argument(
        "--replacement", default="per_token", choices=("per_token", "per_word"),
        help="Draw [MASK], random or the same token for each token (BERT) or word (Garden).",
    )  # fmt: skip
    task.add_argument("--use_v2_feature_names", action="store_true")
    task.add_argument("--use_position_id", action="store_true")
    task.add_argument(
        "--sentence_splitter", default="auto", choices=SPLITTERS,
        help="none: a line is a sentence; punctuation: by rule; auto: what the input wants.",
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class TextRequest:
    """What the user asked for: the job, and what only planning needs."""

    job: TextJob
    patterns: list[str]
    input_format: str
    vocab_file: str


def _documents(options: Any) -> DocumentSpec:
    splitter = options.sentence_splitter
    if splitter == "auto" and options.task != "bert":
        splitter = "none"
    return DocumentSpec(
        options.documents, splitter, options.encoding, options.encoding_errors,
        options.text_field, options.split_by,
    )  # fmt: skip


def _only_for(task: str, options: Any, **defaults: Any) -> None:
    for name, default in defaults.items():
        if getattr(options, name) != default:
            raise UsageError(f"--{name} has no meaning for --task={task}; leave it out")


def text_request(options: Any) -> TextRequest:
    """Checks the flags of `recordmill text` and freezes them.

    Raises:
      UsageError: one line: the rule, what was found, what to do.
    """
    required(options, "input", "output", "vocab_file")
    task = options.task
    if task == "bert":
        _only_for(
            task, options, overlap_size=None, min_short_seq_length=None,
            allow_cross_document_examples=False,
        )  # fmt: skip
    else:
        _only_for(task, options, use_v2_feature_names=False, use_position_id=False)
    if task == "mlm_tokens" and options.dupe_factor not in (None, 1):
        raise UsageError(
            "--dupe_factor must be 1 for --task=mlm_tokens, which is masked on reading"
        )
    copies = options.dupe_factor if options.dupe_factor is not None else 10
    overlap = options.overlap_size
    if overlap is None:
        overlap = 0 if task == "bert" else options.max_seq_length // 4
    least = options.min_short_seq_length
    length = options.max_seq_length
    mask = MaskSpec(
        options.masked_lm_prob, options.max_predictions_per_seq, options.do_whole_word_mask,
        options.max_ngram_size, options.replacement == "per_word",
    )  # fmt: skip
    window = WindowSpec()
    pair = PairSpec()
    if task == "bert":
        pair = PairSpec(length, options.short_seq_prob)
    else:
        window = WindowSpec(
            length, overlap, options.short_seq_prob, 2 + overlap if least is None else least,
            options.allow_cross_document_examples,
        )  # fmt: skip
    task_spec = TaskSpec(
        task, 1 if task == "mlm_tokens" else copies, pair, mask, window,
        options.use_v2_feature_names, options.use_position_id,
    )  # fmt: skip
    job = TextJob(
        **job_options(options),
        task=task_spec,
        documents=_documents(options),
        lower_case=options.do_lower_case,
    )
    return TextRequest(job, input_patterns(options), options.input_format, options.vocab_file)
