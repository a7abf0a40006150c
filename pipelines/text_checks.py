"""Flags of the text job that have no effect on what is asked for: they are refused.

Who gives such a flag expects something of it, and would not get it.
"""

from __future__ import annotations

import codecs
from collections.abc import Set

from recordmill.pipelines.flags import TextFlags, TextInputFlags
from recordmill.pipelines.language_options import LANGUAGE_FLAGS, check_language_flags
from recordmill.pipelines.options import parse_splits
from recordmill.records.errors import UsageError
from recordmill.transforms.sources.document_spec import USUAL_COMPRESSION_RATIO, DocumentSpec
from recordmill.transforms.sources.work_items import COLUMN_FORMATS

_WINDOWS = ("mlm", "mlm_tokens")
_MASKED = ("bert", "mlm")
_CLASSIFY = ("classify",)
_TABLES = ("csv", "tsv")
_RECORDS = ("jsonl", "json", *_TABLES, *COLUMN_FORMATS, "webdataset")

# Flag -> the tasks that it has a meaning for.
_TASKS = {
    "overlap_size": _WINDOWS,
    "min_short_seq_length": _WINDOWS,
    "allow_cross_document_examples": _WINDOWS,
    "short_seq_prob": ("bert", *_WINDOWS),
    "use_v2_feature_names": (*_MASKED, *_CLASSIFY),
    "use_position_id": ("bert", "mlm", "gpt"),
    "use_segment_ids": ("mlm", "gpt"),
    "sentence_splitter": ("bert",),
    "dupe_splits": (*_MASKED, "t5", "ul2"),
    "max_predictions_per_seq": _MASKED,
    "masked_lm_prob": _MASKED,
    "do_whole_word_mask": _MASKED,
    "max_ngram_size": _MASKED,
    "replacement": _MASKED,
    "record_type": ("mlm_tokens",),
    "text_pair_field": _CLASSIFY,
    "label_field": _CLASSIFY,
    "labels": _CLASSIFY,
    **LANGUAGE_FLAGS,
}


def check_effects(options: TextFlags, given: Set[str]) -> None:
    """Refuses flags that have no effect beside the other flags.

    Args:
      options: of the text job.
      given: those that have not their default value.

    Raises:
      UsageError: names the flag, and why it has no effect.
    """
    task = options.task
    for name, tasks in _TASKS.items():
        if name in given and task not in tasks:
            raise UsageError(f"--{name} has no meaning for --task={task}; leave it out")
    if task == "mlm_tokens" and options.dupe_factor not in (None, 1):
        raise UsageError(
            "--dupe_factor must be 1 for --task=mlm_tokens, which is masked on reading"
        )
    if task == "classify" and options.dupe_factor not in (None, 1):
        raise UsageError("--dupe_factor must be 1 for --task=classify, which writes each row once")
    if task == "mlm_tokens" and options.naming == "seqio" and options.record_type != "example":
        raise UsageError(
            "--naming=seqio needs --record_type=example for --task=mlm_tokens, because seqio reads "
            "no SequenceExamples"
        )
    check_language_flags(options, given)
    splits = parse_splits(options.splits, None)
    whole_words = options.do_whole_word_mask or options.max_ngram_size > 1
    check_encoding(options)
    without_effect = {
        "min_short_seq_length": (options.short_seq_prob == 0, "with --short_seq_prob=0"),
        "replacement": (not whole_words, "without --do_whole_word_mask or --max_ngram_size"),
    }
    for name, (is_without, why) in without_effect.items():
        if is_without and name in given:
            raise _no_effect(name, why)
    if options.dupe_splits and options.dupe_factor == 1:
        raise _no_effect("dupe_splits", "where there is one copy")
    if options.dupe_splits and len(splits) == 1:
        raise _no_effect("dupe_splits", f"where there is one split, {splits[0].name}")


def check_encoding(options: TextInputFlags) -> None:
    """Refuses --encoding_errors where there are none.

    Raises:
      UsageError: every byte is a character in the encoding.
    """
    whole_encoding = _codec_name(options.encoding) == "iso8859-1"
    if whole_encoding and options.encoding_errors != "strict":
        raise _no_effect("encoding_errors", "with an encoding in which every byte is a character")


def _codec_name(encoding: str) -> str:
    try:
        return codecs.lookup(encoding).name
    except LookupError:
        return ""


def _no_effect(name: str, why: str) -> UsageError:
    return UsageError(f"--{name} has no effect {why}; leave it out")


def check_formats(spec: DocumentSpec, formats: Set[str], num_splits: int) -> None:
    """Refuses flags that are about formats which the input does not have.

    Args:
      spec: how documents lie in the input.
      formats: of the files that were listed.
      num_splits: of the dataset.

    Raises:
      UsageError: names the flag and the formats.
    """
    if spec.row.label and "text" in formats:
        raise UsageError(
            "--task=classify needs rows with fields: JSONL, CSV, Parquet or others, and there is "
            "plain text; name the format with --input_format"
        )
    for name, given in (
        ("split_by", spec.split_by), ("split_from", spec.split_from),
        ("keep_fields", spec.row.keep_fields), ("prompt_field", spec.row.prompt_field),
    ):  # fmt: skip
        if given and "text" in formats:
            raise UsageError(
                f"--{name} needs fields, as JSONL, CSV and Parquet have, and there is plain text"
            )
    if spec.split_by and num_splits == 1:
        raise _no_effect("split_by", "where there is one split")
    if spec.documents != "blank_line" and "text" not in formats:
        raise UsageError(
            f"--documents={spec.documents} is for plain text, and the input is "
            f"{_listed(formats)}; leave it out"
        )
    if spec.encoding != "utf-8" and formats <= set(COLUMN_FORMATS):
        raise UsageError(
            f"--encoding has no effect on {_listed(formats)}, whose strings are UTF-8; leave it out"
        )
    flags = {
        "header": spec.header != "first_row", "delimiter": spec.delimiter,
        "quoting": not spec.quotes,
    }  # fmt: skip
    for name in (name for name, given in flags.items() if given):
        if not formats & set(_TABLES):
            raise UsageError(
                f"--{name} is for CSV and TSV, and the input is {_listed(formats)}; leave it out, "
                "or give --input_format=csv"
            )
    if spec.text_field != "text" and not formats & set(_RECORDS):
        raise UsageError(
            f"--text_field={spec.text_field} is for formats with fields, and the input is "
            f"{_listed(formats)}; leave it out, or name the format with --input_format"
        )


def check_order(formats: Set[str], *, deduplicates: bool) -> None:
    """Refuses --deduplicate of rows without an order: which one is the first was left to chance.

    Raises:
      UsageError: says what to do.
    """
    if deduplicates and "bigquery" in formats:
        raise UsageError(
            "--deduplicate keeps the first of equal documents, and rows of BigQuery have no order; "
            "leave it out, and give --query with QUALIFY ROW_NUMBER() OVER (PARTITION BY text "
            "ORDER BY id) = 1"
        )


def check_ratio(spec: DocumentSpec, *, is_compressed: bool) -> None:
    """Refuses --max_compression_ratio where nothing is compressed.

    Raises:
      UsageError: it was given all the same.
    """
    if spec.max_compression_ratio != USUAL_COMPRESSION_RATIO and not is_compressed:
        raise _no_effect("max_compression_ratio", "where no file is compressed")


def _listed(formats: Set[str]) -> str:
    names = {
        "text": "plain text", "jsonl": "JSONL", "json": "JSON", "csv": "CSV", "tsv": "TSV",
        "parquet": "Parquet", "arrow": "Arrow", "avro": "Avro", "sql": "a database",
        "bigquery": "BigQuery", "webdataset": "WebDataset",
    }  # fmt: skip
    return " and ".join(sorted(names[name] for name in formats))
