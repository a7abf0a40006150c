"""The flags of `recordmill examples`, and the job that they ask for."""

from __future__ import annotations

import argparse
from dataclasses import dataclass

from apache_beam.io.filesystem import BeamIOError

from recordmill.pipelines.arguments import BooleanFlag
from recordmill.pipelines.beam_internals import FlagGroup
from recordmill.pipelines.flags import ExamplesFlags
from recordmill.pipelines.in_place_options import InPlaceRequest, in_place_request
from recordmill.pipelines.map_options import add_map_arguments, map_spec
from recordmill.pipelines.options import (
    add_boundary_argument,
    add_budget_argument,
    add_output_arguments,
    job_options,
    required,
)
from recordmill.pipelines.table_options import (
    add_table_arguments,
    parse_columns,
    parse_delimiter,
)
from recordmill.pipelines.text_inputs import split_patterns
from recordmill.records.conditions import parse_comparisons
from recordmill.records.errors import UsageError
from recordmill.records.schema import Feature
from recordmill.records.schema_files import read_schema
from recordmill.records.tfds_metadata import labels_file
from recordmill.transforms.dataset.writable import reason
from recordmill.transforms.examples.examples_job import ORDERS, ExamplesJob
from recordmill.transforms.examples.table_spec import RECORD_FORMATS, TableSpec
from recordmill.transforms.storage import files

_DEFAULT_SPLITS = "train:1"
_MOST_SCHEMA_BYTES = 1 << 26


@dataclass(frozen=True, slots=True)
class ExamplesRequest:
    """A job of existing records and its input.

    Attributes:
      job: what to do.
      patterns: globs.
      splits: of each glob, "" where each record's is chosen.
      allow_outside: folders that links may lead to beside those of the globs.
      input_format: of the files, "auto" where their names say it.
      table_flags: flags of tables that are given.
    """

    job: ExamplesJob
    patterns: list[str]
    splits: list[str]
    allow_outside: tuple[str, ...] = ()
    input_format: str = "auto"
    table_flags: frozenset[str] = frozenset()


def add_examples_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of `recordmill examples`."""
    _add_input_arguments(parser.add_argument_group("input"))
    _add_record_arguments(parser.add_argument_group("records"))
    add_output_arguments(parser)


def _add_input_arguments(group: FlagGroup) -> None:
    group.add_argument(
        "--input", action="append", nargs="+", metavar="GLOB",
        help="TFRecord files of any tool, plain, GZIP or ZLIB, or tables (Parquet, Arrow, Avro, "
        "CSV, TSV) whose rows become tf.Examples, local or gs://…: globs, or comma lists of them; "
        "the flag may be repeated. train=GLOB and validation=GLOB name the splits that files are "
        "for.",
    )  # fmt: skip
    group.add_argument(
        "--input_format", default="auto", choices=RECORD_FORMATS,
        help="auto: tables by the extensions of their files, and TFRecords.",
    )  # fmt: skip
    add_table_arguments(
        group,
        columns="The columns of tables that become features; with --header=none the names of all. "
        "Unset: all.",
    )
    group.add_argument(
        "--weights", default="", metavar="W,…",
        help="How often the records of each glob of --input are written, in their order: 2 is "
        "twice, 0.5 a half of them. Unset: each once.",
    )  # fmt: skip
    group.add_argument(
        "--in_place_metadata", action=BooleanFlag, default=False,
        help="Write no records: make index, schema, statistics and manifest beside the TFRecords "
        "of --input, which stay as they are. --output is then the folder above all of them, which "
        "may be left out.",
    )  # fmt: skip
    add_boundary_argument(group)
    add_budget_argument(group)


def _add_record_arguments(records: FlagGroup) -> None:
    records.add_argument(
        "--where", default="", metavar="CONDITION",
        help="The records that are written, by a condition on those that are read, such as "
        "'label==3', 'len(ids)>5 and lang==de'; ~ is a regular expression. Unset: all.",
    )  # fmt: skip
    add_map_arguments(records, "record", kind="dict of its features, or bytes")
    records.add_argument(
        "--schema", default="", metavar="FILE",
        help="The features that each record must have, instead of inferring them: a features.json, "
        "of TFDS too, or the manifest of a dataset. A record that does not fit is a reject.",
    )  # fmt: skip
    records.add_argument(
        "--order", default="shuffle", choices=ORDERS,
        help="shuffle: all records in random order, whatever file they are from. key: by the value "
        "of --key. input: as they are read, in order of the files' names.",
    )  # fmt: skip
    records.add_argument(
        "--key", default="", metavar="FEATURE",
        help="With --order=key: records are in order of the first value of this feature, numbers "
        "by size, text and bytes by their bytes, and where that is equal by their content.",
    )  # fmt: skip
    records.add_argument(
        "--deduplicate", action=BooleanFlag, default=False,
        help="Leave out records whose bytes are those of another one of the same split.",
    )  # fmt: skip


def any_request(namespace: argparse.Namespace) -> ExamplesRequest | InPlaceRequest:
    """Checks the flags of `recordmill examples` and freezes them.

    Raises:
      UsageError: one line: the rule, what was found, what to do.
    """
    options = ExamplesFlags.read(namespace)
    if not options.in_place_metadata:
        return examples_request(namespace)
    given = options.given(add_examples_arguments)
    given |= {"map"} if getattr(namespace, "map_functions", ()) else set()
    return in_place_request(options, given, _given_schema)


def examples_request(namespace: argparse.Namespace) -> ExamplesRequest:
    """Checks the flags of a job that writes records, and freezes them.

    Raises:
      UsageError: one line: the rule, what was found, what to do.
    """
    options = ExamplesFlags.read(namespace)
    if options.in_place_metadata:
        raise UsageError(
            "--in_place_metadata has no estimate: it reads each file once and writes small files; "
            "run it by `recordmill examples`"
        )
    required(options, "input", "output")
    patterns, splits = split_patterns(options)
    given = options.given(add_examples_arguments)
    weights = _weights(options.weights, patterns)
    if options.order != "shuffle" and "random_seed" in given and not weights:
        raise UsageError(f"--random_seed has no effect with --order={options.order}; leave it out")
    job = ExamplesJob(
        **job_options(options, splits=_shares(options, splits), num_shards=options.num_shards),
        order=options.order,
        key=options.key,
        deduplicate=options.deduplicate,
        weights=weights,
        where=_condition(options.where),
        given_schema=_given_schema(options.schema),
        tables=_tables(options),
        map=map_spec(options, getattr(namespace, "map_functions", ())),
    )
    return ExamplesRequest(
        job, patterns, splits, tuple(options.allow_outside or ()), options.input_format,
        given & {"columns", "header", "delimiter", "quoting"},
    )  # fmt: skip


def _tables(options: ExamplesFlags) -> TableSpec:
    """Returns how rows of tables become records.

    Raises:
      UsageError: flags do not go together.
    """
    names = parse_columns(options.columns)
    if len(set(names)) != len(names) or not all(names):
        raise UsageError(f"--columns must name each column once, got {options.columns}")
    tables = TableSpec(names, options.header, parse_delimiter(options.delimiter), options.quoting)
    tables.delimited  # noqa: B018 - checks
    return tables


def _condition(text: str) -> str:
    """Returns --where.

    Raises:
      UsageError: it is no condition.
    """
    if text:
        parse_comparisons(text, None)
    return text


def _given_schema(path: str) -> tuple[Feature, ...]:
    """Reads --schema.

    Raises:
      UsageError: one line: the file cannot be read, or is no schema.
    """
    if not path:
        return ()
    folder = path.rpartition("/")[0]

    def class_names(feature: str) -> tuple[str, ...]:
        names = files.join(folder, labels_file(feature)) if folder else labels_file(feature)
        if not files.exists(names):
            return ()
        return tuple(files.read_limited(names, _MOST_SCHEMA_BYTES).decode().splitlines())

    try:
        content = files.read_limited(path, _MOST_SCHEMA_BYTES)
        return read_schema(content, class_names).features
    except (OSError, BeamIOError) as error:
        raise UsageError(f"--schema={path} cannot be read: {reason(error)}") from error
    except ValueError as error:
        raise UsageError(f"--schema={path}: {' '.join(str(error).split())}") from error


def _weights(text: str, patterns: list[str]) -> tuple[float, ...]:
    """Reads --weights.

    Raises:
      UsageError: they are not one number above 0 for each glob.
    """
    if not text:
        return ()
    try:
        weights = tuple(float(part) for part in text.split(","))
    except ValueError as error:
        raise UsageError(f"--weights must be numbers such as 2,0.5, got {text!r}") from error
    if len(weights) != len(patterns):
        raise UsageError(
            f"--weights must have a number for each of the {len(patterns)} globs of --input, got "
            f"{len(weights)}"
        )
    if not all(0 < weight <= 1000 for weight in weights):
        raise UsageError(f"--weights must be above 0 and at most 1000, got {text}")
    return weights


def _shares(options: ExamplesFlags, splits: list[str]) -> str:
    """Returns --splits, or the splits that --input names, whose shares their files will decide.

    Raises:
      UsageError: both name splits.
    """
    names = list(dict.fromkeys(filter(None, splits)))
    if not names:
        return options.splits
    if options.splits != _DEFAULT_SPLITS:
        raise UsageError("--splits has no effect where --input names the splits; leave it out")
    return ",".join(f"{name}:{1 / len(names)!r}" for name in names)
