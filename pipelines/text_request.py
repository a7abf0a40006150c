"""From the options of `recordmill text` to the job and its input, checked as far as flags go."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass

from msgspec.structs import asdict, replace

from recordmill.pipelines.input_patterns import split_patterns
from recordmill.pipelines.job_request import DEFAULT_SPLITS, job_options, parse_splits, required
from recordmill.pipelines.map_functions import map_spec
from recordmill.records.errors import UsageError
from recordmill.records.spec import naming_flags
from recordmill.transforms.dataset.output_spec import SplitSpec
from recordmill.transforms.dataset.user_functions import UserFunction
from recordmill.transforms.sources.bigquery_service import is_bigquery, parse_address
from recordmill.transforms.sources.databases import is_database
from recordmill.transforms.sources.document_spec import DocumentSpec
from recordmill.transforms.sources.formats import COLUMN_FORMATS, FORMATS
from recordmill.transforms.sources.input_spec import USUAL_COMPRESSION_RATIO, InputSpec
from recordmill.transforms.sources.kept_fields import parse_fields
from recordmill.transforms.sources.row_fields import RowSpec
from recordmill.transforms.text.label_spec import label_spec
from recordmill.transforms.text.text_job import TextJob
from recordmill.transforms.text.text_spec import (
    Classify,
    Gpt,
    MlmTokens,
    TextSpec,
    TokenizerSpec,
)


@dataclass(frozen=True, slots=True)
class TextRequest:
    """The checked options: the job, and what only planning needs.

    Attributes:
      job: the configuration of the job.
      patterns: the globs of the input.
      splits: for each glob the split that its files are for, "" for any.
      input: where the input is.
      tokenizer: the vocabulary, and what is asked of it.
    """

    job: TextJob
    patterns: list[str]
    splits: list[str]
    input: InputSpec
    tokenizer: TokenizerSpec


@naming_flags()
def text_request(spec: TextSpec, functions: Sequence[UserFunction] = ()) -> TextRequest:
    """Checks the options of `recordmill text` against each other, and makes the job of them.

    Args:
      spec: of the job.
      functions: that a program gives instead of --map.

    Raises:
      UsageError: one line: the rule, what was found, what to do.
    """
    spec = _with_output_file(spec)
    required(spec.input, "input")
    required(spec.output, "output")
    required(spec.tokenizer, "vocab_file")
    patterns, splits = split_patterns(spec.input.input)
    check_query(spec.input, patterns, splits)
    shares = split_shares(spec, splits)
    mapped = map_spec(spec.map, functions)
    _check_effects(spec, parse_splits(shares, None))
    spec.clean.check_lists(maps=bool(mapped))
    output, tokenizer = spec.output, spec.tokenizer
    job = TextJob(
        **job_options(
            output,
            max_rejected=spec.input.max_rejected,
            splits=shares,
            num_shards=output.num_shards,
        ),
        objective=spec.objective,
        documents=_documents(spec, shares),
        lower_case=tokenizer.do_lower_case is not False,
        dupe_splits=_dupe_splits(spec, shares),
        clean=spec.clean,
        allow_special_tokens=tokenizer.allow_special_tokens,
        map=mapped,
    )
    return TextRequest(job, patterns, splits, spec.input, tokenizer)


def _with_output_file(spec: TextSpec) -> TextSpec:
    """Returns the spec with BERT's --output_file as --output.

    google-research/bert writes the files that --output_file lists; here --output is a folder, and
    one file is one shard.

    Raises:
      UsageError: both are given, or several files.
    """
    path, output = spec.output_file, spec.output
    if not path:
        return spec
    if output.output:
        raise UsageError("--output_file is BERT's name of --output; give one of them")
    count = path.count(",") + 1
    if count > 1:
        raise UsageError(
            f"--output_file names {count} files, and shards are written to one folder under "
            f"names of their own; give --output=FOLDER --num_shards={count}"
        )
    sized = output.num_shards or output.shard_size or output.num_readers
    num_shards = output.num_shards if sized else "1"
    return replace(spec, output=replace(output, output=path, num_shards=num_shards))


def _documents(spec: TextSpec, shares: str) -> DocumentSpec:
    """Returns how documents lie in the input, and what is read of them."""
    names = tuple(split.name for split in parse_splits(shares, None))
    return DocumentSpec(
        **asdict(spec.source),
        documents=spec.documents,
        sentence_splitter=spec.objective.splitter,
        strips=spec.objective.strips,
        split_by=spec.split_by,
        split_from=spec.split_from,
        split_names=names if spec.split_from else (),
        row=_row(spec),
    )


def _row(spec: TextSpec) -> RowSpec:
    """Returns what is read of a record beside its text.

    Raises:
      UsageError: two of them are one field, or a record cannot hold them.
    """
    kept, objective, text = parse_fields(spec.keep_fields), spec.objective, spec.source.text_field
    if kept:
        objective.check_kept_fields()
    if isinstance(objective, Classify):
        if objective.text_pair_field == text:
            raise UsageError(f"--text_pair_field must be another field than --text_field={text}")
        label = label_spec(objective.label_field, objective.labels)
        return RowSpec(label, objective.text_pair_field, kept)
    prompt = objective.prompt_field if isinstance(objective, Gpt) else ""
    if prompt and prompt == text:
        raise UsageError(f"--prompt_field must be another field than --text_field={text}")
    return RowSpec(keep_fields=kept, prompt_field=prompt)


def _dupe_splits(spec: TextSpec, shares: str) -> tuple[str, ...] | None:
    if not spec.dupe_splits:
        return None
    if spec.dupe_splits == "all":
        return tuple(split.name for split in parse_splits(shares, None))
    return tuple(name.strip() for name in spec.dupe_splits.split(","))


def _check_effects(spec: TextSpec, splits: Sequence[SplitSpec]) -> None:
    """Refuses options that have no effect beside those of other structs.

    Raises:
      UsageError: names the option, and why it has no effect.
    """
    objective, naming = spec.objective, spec.output.naming
    if (
        isinstance(objective, MlmTokens)
        and naming == "seqio"
        and objective.record_type != "example"
    ):
        raise UsageError(
            "--naming=seqio needs --record_type=example for --task=mlm_tokens, because seqio "
            "reads no SequenceExamples"
        )
    if not spec.dupe_splits:
        return
    if objective.one_copy or isinstance(objective, Gpt):
        raise UsageError(f"--dupe_splits has no effect with --task={objective.name}; leave it out")
    if objective.dupe_factor == 1:
        raise _no_effect("dupe_splits", "where there is one copy")
    if len(splits) == 1:
        raise _no_effect("dupe_splits", f"where there is one split, {splits[0].name}")


def check_query(options: InputSpec, patterns: list[str], splits: list[str]) -> None:
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
    if database and options.limit:
        raise UsageError(
            f"--limit={options.limit} has no effect on a database; give --query with LIMIT "
            f"{options.limit}, and leave it out"
        )
    if database and any(splits):
        raise UsageError(
            f"--input {database} cannot name a split; give --split_from, a column of the answer"
        )
    for name in ("input_format", "input_compression"):
        if database and name in options.given():
            raise UsageError(
                f"--{name}={getattr(options, name)} has no effect on a database; leave it out"
            )


def _check_table(options: InputSpec, url: str) -> None:
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


def split_shares(spec: TextSpec, named: list[str]) -> str:
    """Returns --splits with a share for each split, where something else than shares decides.

    Args:
      spec: of the text job.
      named: the splits that --input names.

    Raises:
      UsageError: two flags decide the splits, or the names are not known.
    """
    names = list(dict.fromkeys(filter(None, named)))
    field, splits = spec.split_from, spec.output.splits
    given = splits != DEFAULT_SPLITS
    if names and (given or field):
        flag = "split_from" if field else "splits"
        raise UsageError(f"--{flag} has no effect where --input names the splits; leave it out")
    if field:
        names = [name.strip() for name in splits.split(",")]
        if not given or any(":" in name for name in names):
            raise UsageError(
                f"--split_from={field} needs the names of the splits, without shares, such as "
                f"--splits=train,validation; got --splits={splits}"
            )
    if (names or field) and spec.split_by:
        why = "with --split_from" if field else "where --input names the splits"
        raise UsageError(f"--split_by has no effect {why}; leave it out")
    if not names:
        return splits
    return ",".join(f"{name}:{1 / len(names)!r}" for name in names)


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
    allowed = {name for each in formats for name in FORMATS[each].options}
    for name in spec.given():
        owners = [kind for kind, each in FORMATS.items() if name in each.options]
        if owners and name not in allowed:
            titles = " and ".join(FORMATS[each].title for each in owners)
            raise UsageError(
                f"--{name} is for {titles}, and the input is {_listed(formats)}; leave it out, "
                f"or give --input_format={owners[0]}"
            )
    if spec.text_field != "text" and not formats - {"text"}:
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
    return " and ".join(sorted(FORMATS[name].title for name in formats))
