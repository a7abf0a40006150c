"""Flags of the text job, and the frozen, checked configuration that they become at once.

They are no subclasses of Beam's PipelineOptions: those share one name space with every other
pipeline of the process, where a second `--input` anywhere is a crash. What is left of the command
line is Beam's.
"""

from __future__ import annotations

import argparse
import hashlib
import os
from dataclasses import dataclass
from typing import Any, NoReturn

from recordmill.records.errors import UsageError, one_of
from recordmill.transforms import files
from recordmill.transforms.documents import DOCUMENTS, SPLITTERS, DocumentSpec
from recordmill.transforms.job import TASKS, ShardSpec, SplitSpec, TaskSpec, TextJob
from recordmill.transforms.masking import MaskSpec
from recordmill.transforms.pairing import PairSpec
from recordmill.transforms.windows import WindowSpec

TEMPORARY = "_tmp"


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors are one line."""

    def error(self, message: str) -> NoReturn:
        """Raises instead of printing the usage of a hundred flags.

        Raises:
          UsageError: always.
        """
        raise UsageError(message)


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
    group.add_argument(
        "--max_rejected", type=float, default=0.0,
        help="The share of inputs that may be rejected before the run fails.",
    )  # fmt: skip
    group.add_argument(
        "--do_lower_case", action=argparse.BooleanOptionalAction, default=True,
        help="Lower-case and strip accents; it must suit the vocabulary.",
    )  # fmt: skip


def add_text_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of `recordmill text`."""
    add_input_arguments(parser)
    group = parser.add_argument_group("output")
    group.add_argument("--output", help="The dataset's folder, local or gs://….")
    group.add_argument(
        "--overwrite", action="store_true",
        help="Replace the dataset there: exactly the files that its manifest lists.",
    )  # fmt: skip
    group.add_argument(
        "--temp_dir", help="Where temporary files go; the output's own folder by default."
    )
    group.add_argument(
        "--splits", default="train:1", metavar="NAME:SHARE,…",
        help="For example train:0.9,validation:0.1; copies of a document share a split.",
    )  # fmt: skip
    group.add_argument(
        "--split_by", default="",
        help="A field of JSONL, CSV, TSV: documents with the same value share a split.",
    )  # fmt: skip
    group.add_argument(
        "--num_shards", metavar="N | NAME:N,…",
        help="Exactly so many shards for the first split, the others in proportion.",
    )  # fmt: skip
    group.add_argument("--shard_size", help="Bytes of a shard, such as 200MB (the default).")
    group.add_argument(
        "--num_readers", type=int,
        help="How many workers will read: 10 shards each, of at least 10 MB.",
    )  # fmt: skip
    group.add_argument(
        "--compression", default="NONE", choices=("NONE", "GZIP", "ZLIB"),
        help="Of the shards; TFDS, Cerebras and DALI read only NONE.",
    )  # fmt: skip
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
    task.add_argument("--random_seed", type=int, default=12345)


_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "KI": 1 << 10, "MI": 1 << 20, "GI": 1 << 30}


def parse_bytes(flag: str, text: str) -> int:
    """Reads "200MB", "64MiB" or a plain number of bytes."""
    number = text.upper().removesuffix("B").rstrip("KMGI")
    unit = text.upper().removesuffix("B")[len(number) :]
    try:
        value = int(float(number) * _UNITS[unit])
    except (KeyError, ValueError, OverflowError) as error:
        raise UsageError(
            f"{flag} must be a number of bytes such as 200MB or 64MiB, got {text!r}"
        ) from error
    return value


def parse_splits(text: str, num_shards: str | None) -> tuple[SplitSpec, ...]:
    """Reads --splits and --num_shards."""
    counts: dict[str, int] = {}
    shares: dict[str, float] = {}
    try:
        for part in text.split(","):
            name, colon, share = part.strip().partition(":")
            if name in shares:
                raise UsageError(f"--splits names {name} twice")
            shares[name] = float(share) if colon else 1.0
    except UsageError:
        raise
    except ValueError as error:
        raise UsageError(f"--splits must be like train:0.9,validation:0.1, got {text!r}") from error
    if num_shards is not None:
        try:
            for part in str(num_shards).split(","):
                name, colon, count = part.strip().rpartition(":")
                if (name if colon else next(iter(shares))) in counts:
                    raise UsageError(f"--num_shards gives two numbers for one split: {num_shards}")
                counts[name if colon else next(iter(shares))] = int(count)
        except UsageError:
            raise
        except ValueError as error:
            raise UsageError(
                f"--num_shards must be a number or like train:80,validation:8, got {num_shards!r}"
            ) from error
        for name, shards in counts.items():
            one_of("--num_shards: the split", name, shares)
            if shards < 1:
                raise UsageError(f"--num_shards must be at least 1, got {shards}")
        if next(iter(shares)) not in counts:
            raise UsageError(f"--num_shards must give one for {next(iter(shares))}")
    return tuple(SplitSpec(name, share, counts.get(name)) for name, share in shares.items())


def required(options: Any, *names: str) -> None:
    """Checks that flags were given.

    Raises:
      UsageError: names the first that was not.
    """
    for name in names:
        if not getattr(options, name):
            raise UsageError(f"--{name} is required")


def input_patterns(options: Any) -> list[str]:
    """Returns the globs of --input."""
    return [pattern for group in options.input for pattern in group]


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
    given = [n for n in ("num_shards", "shard_size", "num_readers") if getattr(options, n)]
    if len(given) > 1:
        raise UsageError(f"give one of --num_shards, --shard_size, --num_readers, not {given}")
    shards = ShardSpec(num_readers=options.num_readers)
    if options.shard_size:
        shards = ShardSpec(parse_bytes("--shard_size", options.shard_size))
    output = options.output.rstrip("/") or "/"
    staging = files.join(output, TEMPORARY)
    work = staging
    if options.temp_dir:
        whole = os.path.abspath(output) if files.is_local(output) else output
        digest = hashlib.blake2b(whole.encode(), digest_size=6).hexdigest()
        work = files.join(options.temp_dir, f"recordmill-{digest}")
    job = TextJob(
        output=output,
        work=work,
        staging=staging,
        task=TaskSpec(
            task, 1 if task == "mlm_tokens" else copies, pair, mask, window,
            options.use_v2_feature_names, options.use_position_id,
        ),
        documents=_documents(options),
        splits=parse_splits(options.splits, options.num_shards),
        shards=shards,
        lower_case=options.do_lower_case,
        compression="" if options.compression == "NONE" else options.compression,
        seed=options.random_seed,
        max_rejected=options.max_rejected,
        overwrite=options.overwrite,
    )  # fmt: skip
    return TextRequest(job, input_patterns(options), options.input_format, options.vocab_file)
