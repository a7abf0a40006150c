"""The globs of text input, as people write them: comma lists, BERT's own flags."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from itertools import chain

from recordmill.pipelines.beam_internals import FlagGroup
from recordmill.pipelines.flags import InputFlags, TextFlags, TextInputFlags
from recordmill.pipelines.options import input_patterns
from recordmill.records.errors import UsageError
from recordmill.transforms.sources.bigquery_service import is_bigquery, parse_address
from recordmill.transforms.sources.databases import is_database, take_password
from recordmill.transforms.sources.dataset_folders import expand_folder
from recordmill.transforms.storage import files
from recordmill.transforms.storage.globs import glob_root

_NAMED = re.compile(r"([A-Za-z][A-Za-z0-9_]*)=(.+)", re.DOTALL)
_DEFAULT_SPLITS = "train:1"


def with_bert_flags(options: TextFlags) -> TextFlags:
    """Returns flags in which --input_file and --output_file stand in --input and --output.

    google-research/bert writes the files that --output_file lists; here --output is a folder, and
    one file is one shard.

    Raises:
      UsageError: both forms are given, or several output files.
    """
    for old, new in (("input_file", "input"), ("output_file", "output")):
        if getattr(options, old) and getattr(options, new):
            raise UsageError(f"--{old} is BERT's name of --{new}; give one of them")
    if options.input_file:
        options = replace(options, input=[[options.input_file]])
    if options.output_file:
        count = options.output_file.count(",") + 1
        if count > 1:
            raise UsageError(
                f"--output_file names {count} files, and shards are written to one folder under "
                f"names of their own; give --output=FOLDER --num_shards={count}"
            )
        sized = options.num_shards or options.shard_size or options.num_readers
        num_shards = options.num_shards if sized else "1"
        options = replace(options, output=options.output_file, num_shards=num_shards)
    return options


def text_patterns(options: InputFlags) -> list[str]:
    """Returns the globs of --input, each of which may be a comma list."""
    parts = [part for pattern in input_patterns(options) for part in _parts(pattern)]
    return [path for part in parts for _, path in expand_folder(part)]


def split_patterns(options: InputFlags) -> tuple[list[str], list[str]]:
    """Returns the globs of --input, and for each its split, "" for none.

    The split stands before its `=`, or a folder of Hugging Face's datasets has it.

    Raises:
      UsageError: some globs have a split and others have not.
    """
    patterns: list[str] = []
    splits: list[str] = []
    for given in input_patterns(options):
        named = _NAMED.fullmatch(given)
        if named and files.is_local(given) and os.path.exists(glob_root(given) or given):
            named = None  # a folder such as year=2024
        split, pattern = (named[1], named[2]) if named else ("", given)
        for own_split, path in chain.from_iterable(map(expand_folder, _parts(pattern))):
            patterns.append(path)
            splits.append(split or own_split)
    if len(set(splits)) > 1 and "" in splits:
        other = patterns[splits.index("")]
        raise UsageError(
            f"--input must name a split for every glob or for none, and {other} has none; write "
            f"--input=NAME={other}"
        )
    return patterns, splits


def add_bert_arguments(group: FlagGroup) -> None:
    """Adds the flags of google-research/bert's own command line."""
    group.add_argument("--input_file", help="BERT's name of --input: a comma list of globs.")
    group.add_argument(
        "--output_file",
        help="BERT's name of --output, with one shard unless another number is asked for.",
    )


def add_query_arguments(group: FlagGroup) -> None:
    """Adds the flags of databases."""
    group.add_argument(
        "--query", default="", metavar="SELECT",
        help="What is read where --input is a database, sqlite:///FILE or postgresql://…, or "
        "bigquery://PROJECT: an answer whose rows are documents.",
    )  # fmt: skip
    group.add_argument(
        "--partition_column", default="", metavar="NAME",
        help="The column of integers of the answer to --query by which workers share its rows, "
        "such as the primary key. Not of BigQuery.",
    )  # fmt: skip


def check_query(options: TextInputFlags, patterns: list[str], splits: list[str]) -> None:
    """Checks that a database, or BigQuery, comes with what it needs, and alone.

    Args:
      options: of the job.
      patterns: of --input, without passwords.
      splits: of each pattern, "" for none.

    Raises:
      UsageError: says what belongs together.
    """
    database = next(filter(is_database, patterns), "")
    flags = {"query": options.query, "partition_column": options.partition_column}
    table = next(filter(is_bigquery, patterns), "")
    if table:
        _check_table(options, table)
    for name, value in flags.items():
        if value and not database and not table:
            raise UsageError(
                f"--{name} is for databases, and --input {patterns[0]} is none; give "
                "--input=sqlite:///FILE, --input=postgresql://… or --input=bigquery://…, or leave "
                "it out"
            )
        if database and not value:
            raise UsageError(
                f"--input {database} needs --query, a SELECT, and --partition_column, a column of "
                f"integers of its answer; --{name} is missing"
            )
    database = table or database
    if database and len(patterns) > 1:
        raise UsageError(
            f"--input {database} must be the only input; join tables in --query by UNION ALL"
        )
    if database and any(splits):
        raise UsageError(
            f"--input {database} cannot name a split; give --split_from, a column of the answer"
        )
    if database and options.input_format != "auto":
        raise UsageError(
            f"--input_format={options.input_format} has no effect on a database; leave it out"
        )


def _check_table(options: TextInputFlags, url: str) -> None:
    """Checks that BigQuery is asked for a table or for the answer to a query."""
    has_table = bool(parse_address(url).table)
    if has_table and options.query:
        raise UsageError(
            f"--input {url} names a table, and --query asks for others; give the project alone, "
            "bigquery://PROJECT, or leave out --query"
        )
    if not has_table and not options.query:
        raise UsageError(
            f"--input {url} names no table; give bigquery://PROJECT.DATASET.TABLE, or --query"
        )
    if options.partition_column:
        raise UsageError(
            "--partition_column has no effect on BigQuery, which cuts tables into streams itself; "
            "leave it out"
        )


def split_shares(options: TextFlags, named: list[str]) -> str:
    """Returns --splits with a share for each split, where something else than shares decides.

    Args:
      options: of the text job.
      named: the splits that --input names.

    Raises:
      UsageError: two flags decide the splits, or the names are not known.
    """
    names = list(dict.fromkeys(filter(None, named)))
    field = options.split_from
    given = options.splits != _DEFAULT_SPLITS
    if names and (given or field):
        flag = "split_from" if field else "splits"
        raise UsageError(f"--{flag} has no effect where --input names the splits; leave it out")
    if field:
        names = [name.strip() for name in options.splits.split(",")]
        if not given or any(":" in name for name in names):
            raise UsageError(
                f"--split_from={field} needs the names of the splits, without shares, such as "
                f"--splits=train,validation; got --splits={options.splits}"
            )
    if (names or field) and options.split_by:
        why = "with --split_from" if field else "where --input names the splits"
        raise UsageError(f"--split_by has no effect {why}; leave it out")
    if not names:
        return options.splits
    return ",".join(f"{name}:{1 / len(names)!r}" for name in names)


def _parts(pattern: str) -> list[str]:
    """Splits a comma list, but no name of a file or folder that has a comma."""
    if is_bigquery(pattern):
        return [pattern]
    if is_database(pattern):
        return [take_password(pattern)]
    if files.is_local(pattern) and (os.path.exists(pattern) or _is_below_comma(pattern)):
        return [pattern]
    return [part for part in (part.strip() for part in pattern.split(",")) if part]


def _is_below_comma(pattern: str) -> bool:
    root = glob_root(pattern)
    return "," in root and os.path.isdir(root)
