"""The flags that all jobs share, and the functions that read them.

These flags are no subclass of Beam's PipelineOptions: all subclasses share one name space with
every other pipeline of the process, where a second `--input` anywhere is a crash. Beam gets the
rest of the command line.
"""

from __future__ import annotations

import argparse
import hashlib
import os
from typing import TypedDict

from recordmill.pipelines.beam_internals import FlagGroup
from recordmill.pipelines.flags import InputFlags, JobFlags
from recordmill.records.errors import UsageError, at_least, one_of
from recordmill.records.shards import EXTENSIONS, NAMINGS, shard_template
from recordmill.records.tfds_metadata import name_and_version
from recordmill.transforms.dataset.job import WARNINGS
from recordmill.transforms.dataset.output_spec import ShardSpec, SplitSpec
from recordmill.transforms.dataset.workspace import Workspace
from recordmill.transforms.storage import files

TEMPORARY = "_tmp"


def add_budget_argument(group: FlagGroup) -> None:
    """Adds the flag that limits the share of rejected inputs."""
    group.add_argument(
        "--max_rejected", type=float, default=0.0,
        help="The share of inputs that may be rejected; the run fails above it.",
    )  # fmt: skip


def add_boundary_argument(group: FlagGroup) -> None:
    """Adds the flag for files outside of the input."""
    group.add_argument(
        "--allow_outside", action="append", metavar="PATH",
        help="A folder outside of the input that links and annotations may name too; may be given "
        "several times. Unset: what leads outside is rejected.",
    )  # fmt: skip


def add_output_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the flags for the output folder, its splits and its shards."""
    group = parser.add_argument_group("output")
    group.add_argument("--output", default="", help="The folder of the dataset, local or gs://….")
    group.add_argument(
        "--overwrite", action="store_true",
        help="Replace the dataset in --output: exactly the files that its manifest lists, with "
        "run.json and report.html in _meta.",
    )  # fmt: skip
    group.add_argument(
        "--temp_dir", help="The folder for temporary files; by default the one of the output."
    )
    group.add_argument(
        "--splits", default="train:1", metavar="NAME:SHARE,…",
        help="Such as train:0.9,validation:0.1; all copies of an input go to the same split.",
    )  # fmt: skip
    group.add_argument(
        "--num_shards", metavar="N | NAME:N,…",
        help="The number of shards of the first split; other splits get theirs in proportion.",
    )  # fmt: skip
    group.add_argument(
        "--shard_size", help="The size of a shard in bytes, such as 64MiB; by default 200MB."
    )
    group.add_argument(
        "--num_readers", type=int,
        help="The number of workers that will read: each gets 10 shards, of at least 10 MB.",
    )  # fmt: skip
    group.add_argument(
        "--compression", default="NONE", choices=("NONE", "GZIP", "ZLIB"),
        help="The compression of shards; TFDS, Cerebras, seqio and DALI read only NONE. GZIP with "
        "--naming=tfx.",
    )  # fmt: skip
    group.add_argument(
        "--naming", default="default", choices=tuple(NAMINGS),
        help="Shards are SPLIT/SPLIT-00000-of-00010.tfrecords; flat: "
        "SPLIT-00000-of-00010.tfrecord, without folders; tfds: NAME-SPLIT.tfrecord-00000-of-00010, "
        "as tfds itself writes; seqio: a task's cache, with its info, stats and COMPLETED; tfx: "
        "Split-SPLIT/data_tfrecord-00000-of-00010.gz, with GZIP, as ExampleGen writes.",
    )  # fmt: skip
    group.add_argument(
        "--extension", choices=EXTENSIONS,
        help="Of shards: by default tfrecords, with --naming=flat tfrecord; tfds, seqio and tfx "
        "have their own.",
    )  # fmt: skip
    group.add_argument(
        "--warnings", default="print", choices=WARNINGS,
        help="What to do if the statistics look wrong, such as half of all tokens being padding: "
        "print it, fail before _SUCCESS is written (error), or say nothing (none).",
    )  # fmt: skip
    group.add_argument(
        "--random_seed", type=int, default=12345, help="The seed of every random draw."
    )


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


def required(options: object, *names: str) -> None:
    """Checks that flags were given.

    Raises:
      UsageError: names the first that was not.
    """
    for name in names:
        if not getattr(options, name):
            raise UsageError(f"--{name} is required")


def input_patterns(options: InputFlags) -> list[str]:
    """Returns the globs of --input."""
    return [pattern for group in options.input or () for pattern in group]


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


def _compression(options: JobFlags) -> str:
    """Returns --compression as the manifest has it, or what the reader of these names expects.

    Raises:
      UsageError: that reader cannot read it.
    """
    compression = "" if options.compression == "NONE" else options.compression
    if options.naming == "tfx" and compression in ("", "GZIP"):
        return "GZIP"
    if options.naming in ("seqio", "tfx") and compression:
        form = "NONE" if options.naming == "seqio" else "GZIP"
        raise UsageError(
            f"--naming={options.naming} needs --compression={form}, and got {compression}, which "
            f"{options.naming} does not read"
        )
    return compression


def job_options(options: JobFlags, *, splits: str, num_shards: str | None) -> JobOptions:
    """Returns the arguments of `Job` that `add_output_arguments` gives.

    Args:
      options: of a job.
      splits, num_shards: the flags of these names, as they apply.

    Raises:
      UsageError: one line: the rule, what was found, what to do.
    """
    given = [f"--{n}" for n in ("num_shards", "shard_size", "num_readers") if getattr(options, n)]
    if len(given) > 1:
        raise UsageError(
            f"give one of --num_shards, --shard_size and --num_readers, not {' and '.join(given)}"
        )
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
    workspace = Workspace(output=output, work=work, staging=staging)
    name, _ = name_and_version(workspace.absolute_output)
    return {
        "workspace": workspace,
        "shard_template": shard_template(options.naming, options.extension, dataset=name),
        "splits": parse_splits(splits, num_shards),
        "shards": shards,
        "compression": _compression(options),
        "seed": options.random_seed,
        "max_rejected": options.max_rejected,
        "overwrite": options.overwrite,
        "warnings": options.warnings,
    }
