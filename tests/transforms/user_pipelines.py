"""Pipelines of users' own that write a dataset here, with the elements in any bundles."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions

from recordmill.records.manifest import Manifest
from recordmill.transforms.dataset.write_elements import WriteElements


def split_up(pipeline: beam.Pipeline, elements: list[Any], bundles: int) -> beam.PCollection[Any]:
    """The elements in so many bundles."""
    return (
        pipeline
        | "Parts" >> beam.Create([elements[i::bundles] for i in range(bundles)])
        | "Spread" >> beam.Reshuffle()
        | "Elements" >> beam.FlatMap(lambda part: part)
    )


def write_elements(
    writing: beam.PTransform, elements: list[Any], *, bundles: int, workers: int, repeats: int = 0
) -> None:
    """Runs a pipeline that writes the elements, each bundle of them so many times more."""
    flags: dict[str, Any] = {"direct_num_workers": workers, "direct_runner_bundle_repeat": repeats}
    if workers > 1:
        flags["direct_running_mode"] = "multi_processing"
    with beam.Pipeline(runner="FnApiRunner", options=PipelineOptions([], **flags)) as pipeline:
        _ = split_up(pipeline, elements, bundles) | "Write" >> writing


def in_small_items(writing: WriteElements, **limits: int) -> WriteElements:
    """Cuts what bundles write to files of rows, each a work item, as large inputs are cut."""
    sink = writing._sink
    writing._sink = replace(
        sink, **{"file_bytes": 1, "item_bytes": 1, "batch_elements": 7, **limits}
    )
    return writing


def counts(output: Path) -> dict[str, Any]:
    return Manifest.from_bytes((output / "_meta/manifest.json").read_bytes()).counts
