"""What `recordmill examples` is asked for: the job of its options, and the input."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace

import msgspec

from recordmill.pipelines.input_patterns import split_patterns
from recordmill.pipelines.job_request import job_options, required
from recordmill.pipelines.map_functions import map_spec
from recordmill.records.errors import UsageError
from recordmill.records.schema import Feature
from recordmill.records.schema_files import read_schema
from recordmill.records.tfds_metadata import labels_file
from recordmill.transforms.dataset.user_functions import UserFunction
from recordmill.transforms.dataset.writable import reason
from recordmill.transforms.examples.examples_job import ExamplesJob
from recordmill.transforms.examples.examples_spec import ExamplesSpec
from recordmill.transforms.examples.in_place_job import InPlaceJob
from recordmill.transforms.storage import files
from recordmill.transforms.storage.globs import common_root, whole_folders

_MOST_SCHEMA_BYTES = 1 << 26


@dataclass(frozen=True, slots=True)
class ExamplesRequest:
    """A job of existing records and its input.

    Attributes:
      job: what to do.
      spec: the options.
      patterns: globs.
      splits: of each glob, "" where each record's is chosen.
    """

    job: ExamplesJob
    spec: ExamplesSpec
    patterns: list[str]
    splits: list[str]


@dataclass(frozen=True, slots=True)
class InPlaceRequest:
    """A job of metadata and its input.

    Attributes:
      job: what to do.
      patterns: globs.
      splits: of each glob, "" where names and folders of its files say it.
    """

    job: InPlaceJob
    patterns: list[str]
    splits: list[str]


def any_request(
    spec: ExamplesSpec, functions: Sequence[UserFunction] = ()
) -> ExamplesRequest | InPlaceRequest:
    """Returns what the options ask for.

    Args:
      spec: the options.
      functions: that a program gives instead of --map.

    Raises:
      UsageError: one line: the rule, what was found, what to do.
    """
    if spec.in_place_metadata:
        return in_place_request(spec, functions)
    return examples_request(spec, functions)


def examples_request(spec: ExamplesSpec, functions: Sequence[UserFunction] = ()) -> ExamplesRequest:
    """Returns the job that writes records.

    Args:
      spec: the options.
      functions: that a program gives instead of --map.

    Raises:
      UsageError: one line: the rule, what was found, what to do.
    """
    required(spec, "input")
    required(spec.output, "output")
    patterns, splits = split_patterns(spec.input)
    if spec.weights and len(spec.weights) != len(patterns):
        raise UsageError(
            f"--weights must have a number for each of the {len(patterns)} globs of --input, got "
            f"{len(spec.weights)}"
        )
    output = spec.output
    job = ExamplesJob(
        **job_options(
            output,
            max_rejected=spec.max_rejected,
            splits=_shares(spec, splits),
            num_shards=output.num_shards,
        ),
        records=spec.records,
        weights=spec.weights,
        given_schema=_given_schema(spec.schema),
        tables=spec.tables,
        map=map_spec(spec.map, functions),
    )
    return ExamplesRequest(job, spec, patterns, splits)


def in_place_request(spec: ExamplesSpec, functions: Sequence[UserFunction] = ()) -> InPlaceRequest:
    """Returns the job that makes metadata of records which stay where they are.

    Args:
      spec: the options.
      functions: that a program gives instead of --map, which there must not be.

    Raises:
      UsageError: one line: the rule, what was found, what to do.
    """
    required(spec, "input")
    spec.check_in_place(maps=bool(functions))
    patterns, splits = split_patterns(spec.input)
    folder = spec.output.output or folder_of(patterns)
    job = job_options(
        msgspec.structs.replace(spec.output, output=folder),
        max_rejected=spec.max_rejected,
        splits=spec.output.splits,
        num_shards=None,
    )
    job["workspace"] = replace(job["workspace"], in_place=True)
    return InPlaceRequest(
        InPlaceJob(**job, given_schema=_given_schema(spec.schema)), patterns, splits
    )


def folder_of(patterns: list[str]) -> str:
    """Returns the folder that all files of some globs are in: that of the dataset.

    Args:
      patterns: local ones may be relative to the current folder, and the result is then.
    """
    root = common_root(glob.root for glob in whole_folders(patterns)) or "/"
    if all(files.is_local(pattern) and not os.path.isabs(pattern) for pattern in patterns):
        return os.path.relpath(root)
    return os.path.normpath(root) if files.is_local(root) else root


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
    except OSError as error:
        raise UsageError(f"--schema={path} cannot be read: {reason(error)}") from error
    except ValueError as error:
        raise UsageError(f"--schema={path}: {' '.join(str(error).split())}") from error


def _shares(spec: ExamplesSpec, splits: list[str]) -> str:
    """Returns --splits, or the splits that --input names, whose shares their files will decide.

    Raises:
      UsageError: both name splits.
    """
    names = list(dict.fromkeys(filter(None, splits)))
    if not names:
        return spec.output.splits
    if "splits" in spec.output.given():
        raise UsageError("--splits has no effect where --input names the splits; leave it out")
    return ",".join(f"{name}:{1 / len(names)!r}" for name in names)
