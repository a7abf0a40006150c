"""From the options of `recordmill images` to the job and its input, checked as far as flags go."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from recordmill.pipelines.job_request import DEFAULT_SPLITS, job_options, required
from recordmill.pipelines.map_functions import map_spec
from recordmill.records.errors import UsageError
from recordmill.records.spec import naming_flags
from recordmill.transforms.dataset.labels import read_labels
from recordmill.transforms.dataset.user_functions import UserFunction
from recordmill.transforms.images.image_job import ImageJob
from recordmill.transforms.images.image_spec import ImagesSpec, LabelNumbering
from recordmill.transforms.images.source_spec import LABELS_FROM, SourceSpec


@dataclass(frozen=True, slots=True)
class ImageRequest:
    """The checked options: the job, and what only planning needs.

    Attributes:
      job: still without its labels, and without splits that the input names.
      source: where the images are.
      numbering: how labels get their numbers.
      splits_given: whether --splits was given.
      num_shards: the option, as given.
      limit: so many images are read; None: all.
      given: flag -> value of the options that do not have their default value.
    """

    job: ImageJob
    source: SourceSpec
    numbering: LabelNumbering
    splits_given: bool
    num_shards: str | None
    limit: int | None
    given: Mapping[str, Any]


@naming_flags()
def image_request(spec: ImagesSpec, functions: Sequence[UserFunction] = ()) -> ImageRequest:
    """Makes the job of the options of `recordmill images`.

    Args:
      spec: of the job.
      functions: that a program gives instead of --map.

    Raises:
      UsageError: one line: the rule, what was found, what to do.
    """
    output = spec.output
    if not spec.source.patterns:
        raise UsageError("--input is required")
    required(output, "output")
    source = spec.source
    if source.labels_from not in LABELS_FROM:
        kinds = "from_folder, from_field, number, none"
        names = read_labels(source.labels_from, kinds=kinds)
        source = replace(source, labels=names, labels_from="auto")
    num_shards = output.num_shards
    if output.splits is None and ":" in (num_shards or ""):
        num_shards = None  # the input may name those splits
    images = replace(
        spec.images,
        seed=output.random_seed,
        numbers=source.labels_from == "number",
        unlabeled=spec.images.task == "classification" and source.labels_from == "none",
        keep_fields=source.keep_fields,
    )
    job = ImageJob(
        **job_options(
            output,
            max_rejected=spec.max_rejected,
            splits=output.splits or DEFAULT_SPLITS,
            num_shards=num_shards,
        ),
        images=images,
        copies=spec.copies,
        keep_original=spec.keep_original,
        statistics_images=spec.statistics_images,
        map=map_spec(spec.map, functions),
    )
    return ImageRequest(
        job, source, spec.numbering, output.splits is not None, output.num_shards,
        spec.limit, spec.given_options(),
    )  # fmt: skip


def check_split_by(split_by: str, *, named: bool, splits: int) -> None:
    """Refuses --split_by where no split is drawn.

    Args:
      split_by: the option.
      named: whether the input names the splits.
      splits: their number.

    Raises:
      UsageError: no image can change its split.
    """
    if split_by and (named or splits == 1):
        why = "the input names the splits" if named else "there is one split"
        raise UsageError(
            f"--split_by={split_by} has no effect where {why}; leave it out, or give --splits such "
            "as train:0.9,validation:0.1" + (" with --split_from=none" if named else "")
        )


def check_first_label(given: Mapping[str, Any], *, numbered: bool) -> None:
    """Refuses --first_label where no class of the input gets a number from it.

    Args:
      given: the options that do not have their default value.
      numbered: whether the input's classes, or those of --labels, are numbered.

    Raises:
      UsageError: they are not.
    """
    if "first_label" in given and not numbered:
        raise UsageError(
            "--first_label has no effect where classes have no names, or are 0 and 1; give "
            "--labels=FILE, or leave it out"
        )
