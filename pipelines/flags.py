"""The parsed flags of jobs as typed values.

A parser gives a Namespace, whose attributes may be anything. Each kind of job turns it into one of
these at once. The fields are named as the flags, and have no defaults of their own: those are the
parser's. `tests/pipelines/test_flags.py` holds them together.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from typing import Self


@dataclass(frozen=True)
class Flags:
    """The base of parsed flags: each field is the value of the flag of that name."""

    @classmethod
    def read(cls, options: argparse.Namespace) -> Self:
        """Takes the flags from what a parser returned; others in it do not matter.

        Raises:
          AttributeError: the parser has no such flag.
        """
        return cls(**{field.name: getattr(options, field.name) for field in fields(cls)})

    def given(self, add_arguments: Callable[[argparse.ArgumentParser], None]) -> frozenset[str]:
        """Returns the names of the flags that do not have their default value.

        A flag that is given with its default value counts as not given, because templates give all.

        Args:
          add_arguments: adds the flags to a parser, with their defaults.
        """
        parser = argparse.ArgumentParser()
        add_arguments(parser)
        names = (field.name for field in fields(self))
        return frozenset(n for n in names if getattr(self, n) != parser.get_default(n))


@dataclass(frozen=True)
class InputFlags(Flags):
    """Where a command reads and writes."""

    input: list[list[str]] | None
    max_rejected: float
    output: str
    overwrite: bool


@dataclass(frozen=True)
class JobFlags(InputFlags):
    """Of `add_output_arguments`, except --splits, which images take from their input too."""

    temp_dir: str | None
    num_shards: str | None
    shard_size: str | None
    num_readers: int | None
    compression: str
    naming: str
    extension: str | None
    warnings: str
    random_seed: int


@dataclass(frozen=True)
class TextInputFlags(InputFlags):
    """Of `add_input_arguments` of text: how documents lie in files."""

    input_format: str
    query: str
    partition_column: str
    text_field: str
    header: str
    columns: str
    delimiter: str
    quoting: str
    max_compression_ratio: int
    max_document_bytes: int
    allow_outside: list[str] | None
    encoding: str
    encoding_errors: str


@dataclass(frozen=True)
class MapFlags(Flags):
    """Of `add_map_arguments`."""

    map: list[str] | None
    map_errors: str


@dataclass(frozen=True)
class TextFlags(TextInputFlags, JobFlags, MapFlags):
    """Of `recordmill text`."""

    do_lower_case: bool
    splits: str
    split_by: str
    split_from: str
    documents: str
    text_pair_field: str
    label_field: str | None
    labels: str
    keep_fields: str
    normalize: str
    min_tokens: int
    max_tokens: int | None
    deduplicate: str
    near_threshold: float
    list_dropped: bool
    check_case: bool
    preset: str | None
    input_file: str | None
    output_file: str | None
    task: str
    vocab_file: str
    allow_special_tokens: bool
    max_seq_length: int
    dupe_factor: int | None
    dupe_splits: str | None
    short_seq_prob: float
    min_short_seq_length: int | None
    overlap_size: int | None
    allow_cross_document_examples: bool
    use_v2_feature_names: bool
    use_position_id: bool
    use_segment_ids: bool
    record_type: str | None
    sentence_splitter: str
    max_predictions_per_seq: int
    masked_lm_prob: float
    do_whole_word_mask: bool
    max_ngram_size: int
    replacement: str
    # Language models.
    format: str | None
    packing: str | None
    pad_id: int | None
    eos_id: int | None
    prompt_field: str
    loss_mask: bool
    fim_rate: float
    fim_spm_rate: float
    noise_density: float
    mean_noise_span_length: float
    denoisers: str
    first_sentinel_id: int | None
    mode_tokens: str
    decoder_start_id: int | None
    sentence_order: bool
    no_nsp: bool


@dataclass(frozen=True)
class ExamplesFlags(JobFlags, MapFlags):
    """Of `recordmill examples`."""

    in_place_metadata: bool
    splits: str
    allow_outside: list[str] | None
    input_format: str
    columns: str
    header: str
    delimiter: str
    quoting: str
    weights: str
    where: str
    schema: str
    order: str
    key: str
    deduplicate: bool


@dataclass(frozen=True)
class ImageFlags(JobFlags, MapFlags):
    """Of `recordmill images`; --splits is None where it is not given."""

    splits: str | None
    # Input.
    layout: str
    annotations: list[str] | None
    allow_outside: list[str] | None
    masks: str
    mask_suffix: str
    labels: str
    label_folder: int | None
    path_field: str
    label_field: str
    label_delimiter: str
    split_from: str
    split_by: str
    only_defective: bool
    box_format: str
    box_units: str
    keep_fields: str
    label_pattern: str
    record_shape: str
    record_bytes: int
    label_offset: int
    category_ids: str
    # Task.
    task: Literal["classification", "detection", "segmentation"]
    format: str | None
    first_label: int | None
    multilabel: bool
    include_masks: bool
    channels: Literal[1, 3] | None
    binary_masks: bool
    mask_threshold: int | None
    mask_values: str
    mask_class: str
    # Pixels.
    image_size: str | None
    resize: Literal["stretch", "fit", "crop", "longest", "shortest"]
    resample: Literal["nearest", "bilinear", "bicubic", "lanczos"]
    reducing_gap: float
    fill: str
    encoding: Literal["keep", "JPEG", "PNG", "WEBP", "raw", "float"] | None
    quality: int
    float_range: Literal["zero_one", "zero_centered"]
    gif: Literal["first", "reject"]
    wrong_extension: Literal["accept", "reject"]
    no_check: bool
    max_pixels: int | None
    max_scans: int
    max_metadata_bytes: int
    max_objects: int
    max_drawn_pixels: int
    # Statistics and augmentation.
    statistics: Literal["none", "sample", "full"]
    statistics_sample: int | None
    augmentations: str
    copies: int
    augment_splits: str
    keep_original: bool
    write_augmentations: bool
    min_visible: float
