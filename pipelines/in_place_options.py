"""`recordmill examples --in_place_metadata`: what it takes of the flags, and which it refuses."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace

from recordmill.pipelines.flags import ExamplesFlags
from recordmill.pipelines.options import job_options, required
from recordmill.pipelines.text_inputs import split_patterns
from recordmill.records.errors import UsageError
from recordmill.records.schema import Feature
from recordmill.transforms.examples.in_place_job import InPlaceJob
from recordmill.transforms.storage import files
from recordmill.transforms.storage.globs import common_root, whole_folders

_TAKEN = ("input", "in_place_metadata", "output", "overwrite", "schema", "temp_dir", "warnings")


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


def in_place_request(
    options: ExamplesFlags,
    given: frozenset[str],
    read_schema: Callable[[str], tuple[Feature, ...]],
) -> InPlaceRequest:
    """Checks the flags of a job of metadata and freezes them.

    Args:
      options: of the command.
      given: the names of those flags that have another value than their default.
      read_schema: reads --schema.

    Raises:
      UsageError: one line: the rule, what was found, what to do.
    """
    required(options, "input")
    for name in sorted(given - {*_TAKEN}):
        if name == "input_format" and options.input_format == "tfrecord":
            continue
        raise UsageError(
            f"--{name} has no effect with --in_place_metadata, which leaves records, files and "
            "their splits as they are; leave it out"
        )
    patterns, splits = split_patterns(options)
    folder = options.output or folder_of(patterns)
    options = replace(options, output=folder)
    job = job_options(options, splits="train:1", num_shards=None)
    job["workspace"] = replace(job["workspace"], in_place=True)
    return InPlaceRequest(
        InPlaceJob(**job, given_schema=read_schema(options.schema)), patterns, splits
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
