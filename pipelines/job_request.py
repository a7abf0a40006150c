"""From the options that all jobs share to the arguments of a `Job`."""

from __future__ import annotations

import hashlib
import os
from typing import TypedDict

from recordmill.records.errors import UsageError, at_least, one_of
from recordmill.records.shards import shard_template
from recordmill.records.tfds_metadata import name_and_version
from recordmill.transforms.dataset.output_spec import OutputSpec, ShardSpec, SplitSpec
from recordmill.transforms.dataset.workspace import Workspace
from recordmill.transforms.storage import files

TEMPORARY = "_tmp"
DEFAULT_SPLITS = "train:1"  # where neither --splits nor the input names splits

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
    counts = parse_num_shards(num_shards, list(shares))
    return tuple(SplitSpec(name, share, counts.get(name)) for name, share in shares.items())


def parse_num_shards(text: str | None, splits: list[str]) -> dict[str, int]:
    """Reads --num_shards: split -> number, for the first split at least; {} where none is given."""
    if text is None:
        return {}
    counts: dict[str, int] = {}
    try:
        for part in str(text).split(","):
            name, colon, count = part.strip().rpartition(":")
            if not colon:
                name = splits[0]
            if name in counts:
                raise UsageError(f"--num_shards gives two numbers for one split: {text}")
            counts[name] = int(count)
    except UsageError:
        raise
    except ValueError as error:
        raise UsageError(
            f"--num_shards must be a number or like train:80,validation:8, got {text!r}"
        ) from error
    for name, shards in counts.items():
        one_of("--num_shards: the split", name, splits)
        at_least("--num_shards", shards, 1)
    if splits[0] not in counts:
        raise UsageError(f"--num_shards must give one for {splits[0]}")
    return counts


def required(spec: object, *names: str) -> None:
    """Checks that options were given.

    Raises:
      UsageError: names the first that was not.
    """
    for name in names:
        if not getattr(spec, name):
            raise UsageError(f"--{name} is required")


class JobOptions(TypedDict):
    """The arguments of `Job`."""

    workspace: Workspace
    shard_template: str
    splits: tuple[SplitSpec, ...]
    shards: ShardSpec
    compression: str
    seed: int
    max_rejected: float
    overwrite: bool
    warnings: str


def job_options(
    output: OutputSpec, *, max_rejected: float, splits: str, num_shards: str | None
) -> JobOptions:
    """Returns the arguments of `Job` that all jobs share.

    Args:
      output: of a job.
      max_rejected: as in the option.
      splits, num_shards: the options of these names, as they apply.

    Raises:
      UsageError: one line: the rule, what was found, what to do.
    """
    shards = ShardSpec(num_readers=output.num_readers)
    if output.shard_size:
        shards = ShardSpec(parse_bytes("--shard_size", output.shard_size))
    folder = output.output.rstrip("/") or "/"
    staging = files.join(folder, TEMPORARY)
    work = staging
    if output.temp_dir:
        whole = os.path.abspath(folder) if files.is_local(folder) else folder
        digest = hashlib.blake2b(whole.encode(), digest_size=6).hexdigest()
        work = files.join(output.temp_dir, f"recordmill-{digest}")
    workspace = Workspace(output=folder, work=work, staging=staging)
    name, _ = name_and_version(workspace.absolute_output)
    return {
        "workspace": workspace,
        "shard_template": shard_template(output.naming, output.extension, dataset=name),
        "splits": parse_splits(splits, num_shards),
        "shards": shards,
        "compression": output.stored_compression,
        "seed": output.random_seed,
        "max_rejected": max_rejected,
        "overwrite": output.overwrite,
        "warnings": output.warnings,
    }
