"""The settings of jobs for programs and notebooks: the names of the flags, with their types.

`tests/pipelines/test_programs.py` holds them and the flags together.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypedDict

Function = str | Callable[[Any], Any]
Path = str | os.PathLike[str]


class EngineSettings(TypedDict, total=False):
    """Of every job: where it reads and writes, where it runs, and Beam's own flags."""

    input: Path | Sequence[Path]
    output: Path
    runner: str
    direct_num_workers: int
    stall_timeout: float
    progress: str
    report: bool
    config: Path
    beam_flags: Sequence[str]


class JobSettings(EngineSettings, total=False):
    """Of every job that writes a dataset."""

    max_rejected: float
    overwrite: bool
    temp_dir: Path
    num_shards: int | str | Mapping[str, int]
    shard_size: int | str
    num_readers: int
    compression: str
    naming: str
    extension: str
    warnings: str
    random_seed: int
    splits: str | Mapping[str, float]


class SourceSettings(TypedDict, total=False):
    """Of every job that reads text."""

    input_format: str
    query: str
    partition_column: str
    text_field: str
    header: str
    columns: str | Sequence[str]
    delimiter: str
    quoting: str
    max_compression_ratio: int
    max_document_bytes: int
    allow_outside: Path | Sequence[Path]
    encoding: str
    encoding_errors: str


class TextSettings(JobSettings, SourceSettings, total=False):
    """Of `write_text_dataset`."""

    map: Function | Sequence[Function]
    map_errors: str
    do_lower_case: bool
    split_by: str
    split_from: str
    documents: str
    text_pair_field: str
    label_field: str
    labels: Path
    keep_fields: str | Sequence[str]
    normalize: str
    min_tokens: int
    max_tokens: int
    deduplicate: str
    near_threshold: float
    list_dropped: bool
    check_case: bool
    preset: str
    input_file: Path
    output_file: Path
    task: str
    vocab_file: Path
    allow_special_tokens: bool
    max_seq_length: int
    dupe_factor: int
    dupe_splits: str | Sequence[str]
    short_seq_prob: float
    min_short_seq_length: int
    overlap_size: int
    allow_cross_document_examples: bool
    use_v2_feature_names: bool
    use_position_id: bool
    use_segment_ids: bool
    record_type: str
    sentence_splitter: str
    max_predictions_per_seq: int
    masked_lm_prob: float
    do_whole_word_mask: bool
    max_ngram_size: int
    replacement: str
    format: str
    packing: str
    pad_id: int
    eos_id: int
    prompt_field: str
    loss_mask: bool
    fim_rate: float
    fim_spm_rate: float
    noise_density: float
    mean_noise_span_length: float
    denoisers: str
    first_sentinel_id: int
    mode_tokens: str
    decoder_start_id: int
    sentence_order: bool
    no_nsp: bool


class ImageSettings(JobSettings, total=False):
    """Of `write_image_dataset`."""

    map: Function | Sequence[Function]
    map_errors: str
    layout: str
    annotations: Path | Sequence[Path]
    allow_outside: Path | Sequence[Path]
    masks: Path
    mask_suffix: str
    labels: Path
    label_folder: int
    path_field: str
    label_field: str
    label_delimiter: str
    split_from: str
    split_by: str
    only_defective: bool
    box_format: str
    box_units: str
    keep_fields: str | Sequence[str]
    label_pattern: str
    category_ids: str
    task: Literal["classification", "detection", "segmentation"]
    format: str
    first_label: int
    multilabel: bool
    include_masks: bool
    channels: Literal[1, 3]
    binary_masks: bool
    mask_threshold: int
    mask_values: str
    mask_class: str
    image_size: str
    resize: Literal["stretch", "fit", "crop", "longest", "shortest"]
    resample: Literal["nearest", "bilinear", "bicubic", "lanczos"]
    reducing_gap: float
    fill: str
    encoding: Literal["keep", "JPEG", "PNG", "WEBP", "raw", "float"]
    quality: int
    float_range: Literal["zero_one", "zero_centered"]
    gif: Literal["first", "reject"]
    wrong_extension: Literal["accept", "reject"]
    no_check: bool
    max_pixels: int
    max_scans: int
    max_metadata_bytes: int
    max_objects: int
    max_drawn_pixels: int
    statistics: Literal["none", "sample", "full"]
    statistics_sample: int
    augmentations: str
    copies: int
    augment_splits: str
    keep_original: bool
    write_augmentations: bool
    min_visible: float
    record_bytes: int
    label_offset: int
    record_shape: str


class ExamplesSettings(JobSettings, total=False):
    """Of `write_examples_dataset`."""

    in_place_metadata: bool
    map: Function | Sequence[Function]
    map_errors: Literal["reject", "fail"]
    allow_outside: Path | Sequence[Path]
    input_format: str
    columns: str | Sequence[str]
    header: str
    delimiter: str
    quoting: str
    weights: str | Sequence[float]
    where: str
    schema: Path
    order: Literal["shuffle", "input", "key"]
    key: str
    deduplicate: bool


class VocabularySettings(EngineSettings, SourceSettings, total=False):
    """Of `learn_vocabulary`."""

    max_rejected: float
    overwrite: bool
    vocab_size: int
    do_lower_case: bool
    kind: Literal["wordpiece", "bpe", "unigram"]
    special_tokens: str | Sequence[str]
    min_count: int
    max_unique_chars: int
