"""The flags of the text job, and the frozen, checked configuration that is made of them."""

from __future__ import annotations

import argparse
from dataclasses import dataclass, fields, replace

from recordmill.pipelines.arguments import BooleanFlag
from recordmill.pipelines.beam_internals import FlagGroup
from recordmill.pipelines.clean_options import add_clean_arguments, clean_spec
from recordmill.pipelines.flags import TextFlags, TextInputFlags
from recordmill.pipelines.language_options import (
    add_language_arguments,
)
from recordmill.pipelines.map_options import add_map_arguments, map_spec
from recordmill.pipelines.options import (
    add_boundary_argument,
    add_budget_argument,
    add_output_arguments,
    job_options,
    parse_splits,
    required,
)
from recordmill.pipelines.presets import add_preset_arguments, with_preset
from recordmill.pipelines.row_options import add_row_arguments, row_spec
from recordmill.pipelines.table_options import (
    add_table_arguments,
    parse_columns,
    parse_delimiter,
)
from recordmill.pipelines.text_checks import check_effects
from recordmill.pipelines.text_inputs import (
    add_bert_arguments,
    add_query_arguments,
    check_query,
    split_patterns,
    split_shares,
    with_bert_flags,
)
from recordmill.records.text_formats import RECORD_TYPES
from recordmill.transforms.dataset.argument_names import naming_flags
from recordmill.transforms.sources.document_spec import (
    DOCUMENTS,
    SPLITTERS,
    USUAL_COMPRESSION_RATIO,
    DocumentSpec,
)
from recordmill.transforms.sources.kept_fields import parse_fields
from recordmill.transforms.sources.work_items import INPUT_FORMATS
from recordmill.transforms.text.bert_tasks import REPLACEMENTS
from recordmill.transforms.text.task import TextTask, check_kept_fields
from recordmill.transforms.text.tasks import TASKS
from recordmill.transforms.text.text_job import TextJob


def add_input_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the flags for the location and the format of text."""
    group = parser.add_argument_group("input")
    group.add_argument(
        "--input", action="append", nargs="+", metavar="GLOB",
        help="Files to read, local or gs://…: globs, or comma lists of them; the flag may be "
        "repeated. train=GLOB and validation=GLOB name the splits that files are for.",
    )  # fmt: skip
    group.add_argument(
        "--input_format", default="auto", choices=INPUT_FORMATS,
        help="auto goes by the extension, as .parquet; in .json, objects may be one a line, in "
        "an array, or one alone; .gz, .bz2, .xz and .zst are decompressed in any case.",
    )  # fmt: skip
    add_query_arguments(group)
    group.add_argument(
        "--text_field",
        default="text",
        help="The field or column of the text, in all formats but plain text.",
    )
    add_table_arguments(group, columns="The names of the columns, with --header=none.")
    group.add_argument("--encoding", default="utf-8", help="The encoding of the input files.")
    group.add_argument(
        "--encoding_errors", default="strict", choices=("strict", "replace"),
        help="strict rejects lines with invalid bytes, replace puts U+FFFD instead of the bytes.",
    )  # fmt: skip
    group.add_argument(
        "--max_compression_ratio", type=int, default=USUAL_COMPRESSION_RATIO, metavar="N",
        help="A compressed file, a row group of Parquet or a batch of Arrow that unpacks to more "
        "than 64 MiB and more than N times its size is read up to there, and rejected.",
    )  # fmt: skip
    group.add_argument(
        "--max_document_bytes", type=int, default=0, metavar="N",
        help="A document with more than N bytes of text is rejected; 0 for no limit.",
    )  # fmt: skip
    add_boundary_argument(group)
    add_budget_argument(group)
    group.add_argument(
        "--do_lower_case", action=BooleanFlag, default=True,
        help="Lower-case and strip accents; it must match the vocabulary.",
    )  # fmt: skip


def add_text_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of `recordmill text`."""
    add_input_arguments(parser)
    parser.add_argument_group("input").add_argument(
        "--documents", default="blank_line", choices=DOCUMENTS,
        help="What a document is in plain text: a block between blank lines, a line, or a file.",
    )  # fmt: skip
    parser.add_argument_group("input").add_argument(
        "--split_by", default="",
        help="A field of any format but plain text; documents with the same value share a split.",
    )  # fmt: skip
    parser.add_argument_group("input").add_argument(
        "--split_from", default="", metavar="FIELD",
        help="A field whose value is the name of the split, one of --splits=train,validation.",
    )  # fmt: skip
    add_row_arguments(parser.add_argument_group("input"))
    add_map_arguments(parser.add_argument_group("cleaning"), "Document")
    add_clean_arguments(parser.add_argument_group("cleaning"))
    parser.add_argument_group("input").add_argument(
        "--check_case", action=BooleanFlag, default=True,
        help="Refuse a vocabulary whose capital letters do not fit --do_lower_case.",
    )  # fmt: skip
    add_bert_arguments(parser.add_argument_group("names of google-research/bert"))
    add_output_arguments(parser)
    task = parser.add_argument_group("task")
    add_preset_arguments(task)
    _add_example_arguments(task)
    _add_masking_arguments(task)
    add_language_arguments(parser.add_argument_group("language models"))


def _add_example_arguments(task: FlagGroup) -> None:
    """Adds the flags for what an example is made of."""
    task.add_argument(
        "--task", default="bert", choices=tuple(TASKS),
        help="bert: masked pairs of segments; mlm: masked windows; mlm_tokens: windows that the "
        "reader masks; classify: labelled texts or pairs of texts, as BERT's run_classifier; gpt: "
        "rows of documents with the next token as label; t5: spans to be filled in; t5_tokens: "
        "rows that the reader corrupts so; ul2: a mixture of such denoisers.",
    )  # fmt: skip
    task.add_argument(
        "--vocab_file", "--tokenizer", default="", metavar="FILE",
        help="BERT's vocab.txt, a Hugging Face tokenizer.json, GPT-2's encoder.json beside its "
        "vocab.bpe, or a SentencePiece .model.",
    )  # fmt: skip
    task.add_argument(
        "--allow_special_tokens", action=BooleanFlag,
        help="Where the text spells a special token, such as <|endoftext|>, its id is written; "
        "otherwise that is text like any other. Not of vocab.txt.",
    )  # fmt: skip
    task.add_argument(
        "--max_seq_length", type=int, default=128,
        help="Tokens of an example, special ones included.",
    )  # fmt: skip
    task.add_argument(
        "--dupe_factor", type=int,
        help="Copies of the text, each masked or corrupted in its own way; by default 10, for "
        "mlm_tokens, classify, gpt and t5_tokens 1.",
    )  # fmt: skip
    task.add_argument(
        "--dupe_splits", metavar="NAME,… | all",
        help="The splits that get all copies of the text, others get one; by default train, or the "
        "first split where none is called train.",
    )  # fmt: skip
    task.add_argument(
        "--short_seq_prob", type=float, default=0.1,
        help="Of pretraining: the probability that an example is made shorter than "
        "--max_seq_length.",
    )  # fmt: skip
    task.add_argument(
        "--min_short_seq_length", type=int,
        help="mlm: the least length of a shorter window; by default 2 + --overlap_size.",
    )  # fmt: skip
    task.add_argument(
        "--overlap_size", type=int,
        help="mlm: tokens that a window shares with the next; by default --max_seq_length / 4.",
    )  # fmt: skip
    task.add_argument(
        "--allow_cross_document_examples", action=BooleanFlag,
        help="mlm: a window may continue in the next document, with [SEP] between them.",
    )  # fmt: skip
    _add_feature_arguments(task)


def _add_feature_arguments(task: FlagGroup) -> None:
    """Adds the flags for the features of an example, and for its sentences."""
    task.add_argument(
        "--use_v2_feature_names", action=BooleanFlag,
        help="bert, mlm, classify: name the features as Model Garden's second version does.",
    )  # fmt: skip
    task.add_argument(
        "--use_position_id",
        action=BooleanFlag,
        help="bert, gpt, and mlm with --packing: write the feature position_ids too.",
    )
    task.add_argument(
        "--use_segment_ids", action=BooleanFlag,
        help="mlm: write segment_ids too, all 0, as Model Garden's loader needs them. With "
        "--packing, and for gpt: 1, 2, … by document, 0 on padding; then no label of gpt is of "
        "another document.",
    )  # fmt: skip
    task.add_argument(
        "--record_type", choices=RECORD_TYPES,
        help="mlm_tokens: by default sequence_example, which Cerebras reads; TFDS reads example.",
    )  # fmt: skip
    task.add_argument(
        "--sentence_splitter", default="auto", choices=SPLITTERS,
        help="bert: a line is a sentence (none), or a rule splits lines (punctuation); auto goes "
        "by the input.",
    )  # fmt: skip


def _add_masking_arguments(task: FlagGroup) -> None:
    """Adds the flags for which tokens are masked, and how."""
    task.add_argument(
        "--max_predictions_per_seq",
        type=int,
        default=20,
        help="Masked tokens of an example, at most.",
    )
    task.add_argument(
        "--masked_lm_prob", type=float, default=0.15, help="The share of tokens that are masked."
    )
    task.add_argument(
        "--do_whole_word_mask", action=BooleanFlag, help="Mask all tokens of a word or none."
    )
    task.add_argument(
        "--max_ngram_size", type=int, default=1, help="Mask up to so many words in a row."
    )
    task.add_argument(
        "--replacement", default="per_token", choices=REPLACEMENTS,
        help="Draw what masked tokens become for each token, as BERT does, or for each word, as "
        "Model Garden does.",
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class TextRequest:
    """The checked flags: the job, and what only planning needs.

    Attributes:
      job: the configuration of the job.
      patterns: the globs of the input.
      splits: for each glob the split that its files are for, "" for any.
      input_format: as in --input_format.
      vocab_file: the path of the vocabulary.
      check_case: as in --check_case.
      allow_outside: folders beyond those of the globs that links may lead to.
      query, partition_column: as in the flags, where the input is a database.
    """

    job: TextJob
    patterns: list[str]
    splits: list[str]
    input_format: str
    vocab_file: str
    check_case: bool = True
    allow_outside: tuple[str, ...] = ()
    query: str = ""
    partition_column: str = ""


def document_spec(
    options: TextInputFlags, splitter: str, split_by: str = "", documents: str = "blank_line"
) -> DocumentSpec:
    """Returns what `add_input_arguments` says of how documents lie in files.

    Args:
      options: has those flags.
      splitter, split_by, documents: see `DocumentSpec`.

    Raises:
      UsageError: one line: the rule, what was found, what to do.
    """
    return DocumentSpec(
        documents, splitter, options.encoding, options.encoding_errors,
        options.text_field, split_by, options.header, parse_columns(options.columns),
        parse_delimiter(options.delimiter), quoting=options.quoting,
        max_compression_ratio=options.max_compression_ratio,
        max_document_bytes=options.max_document_bytes,
    )  # fmt: skip


def _documents(options: TextFlags, splitter: str) -> DocumentSpec:
    spec = document_spec(options, splitter, options.split_by, options.documents)
    spec = replace(spec, row=row_spec(options))
    if not options.split_from:
        return spec
    names = tuple(split.name for split in parse_splits(options.splits, None))
    return replace(spec, split_from=options.split_from, split_names=names)


def _dupe_splits(options: TextFlags) -> tuple[str, ...] | None:
    """Reads --dupe_splits."""
    if not options.dupe_splits:
        return None
    if options.dupe_splits == "all":
        return tuple(split.name for split in parse_splits(options.splits, None))
    return tuple(name.strip() for name in options.dupe_splits.split(","))


@naming_flags()
def _task(options: TextFlags) -> TextTask:
    """Returns what the flags say of examples.

    Raises:
      UsageError: one line: the rule, what was found, what to do.
    """
    task = TASKS[options.task]
    given = {each.name: getattr(options, each.name, None) for each in fields(task)}
    return task(**{name: value for name, value in given.items() if value is not None})


def text_request(namespace: argparse.Namespace) -> TextRequest:
    """Checks the flags of `recordmill text` and freezes them.

    Raises:
      UsageError: one line: the rule, what was found, what to do.
    """
    options = TextFlags.read(namespace)
    options = with_preset(options, getattr(namespace, "given_flags", frozenset()))
    given = options.given(add_text_arguments)
    options = with_bert_flags(options)
    required(options, "input", "output", "vocab_file")
    patterns, splits = split_patterns(options)
    check_query(options, patterns, splits)
    options = replace(options, splits=split_shares(options, splits))
    check_effects(options, given)
    functions = map_spec(options, getattr(namespace, "map_functions", ()))
    task = _task(options)
    check_kept_fields(task.spec, parse_fields(options.keep_fields))
    job = TextJob(
        **job_options(options, splits=options.splits, num_shards=options.num_shards),
        objective=task.spec,
        documents=_documents(options, task.splitter),
        lower_case=options.do_lower_case,
        dupe_splits=_dupe_splits(options),
        clean=clean_spec(options, given, maps=bool(functions)),
        allow_special_tokens=options.allow_special_tokens,
        map=functions,
    )
    return TextRequest(
        job, patterns, splits, options.input_format, options.vocab_file, options.check_case,
        tuple(options.allow_outside or ()), options.query, options.partition_column,
    )  # fmt: skip
