"""`recordmill inspect DIR`: what a dataset is, and some of its records, for people.

Exit status 0: shown; 1: a file or record is broken or missing, or no record has what --key or
--where ask for; 2: wrong usage.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from recordmill.pipelines.command_specs import InspectSpec
from recordmill.pipelines.inspection.contents import LABELS
from recordmill.pipelines.inspection.example_lines import (
    MASKS,
    describe,
    example_json,
    example_lines,
    named_line,
)
from recordmill.pipelines.inspection.found_files import open_records
from recordmill.pipelines.inspection.json_text import json_text
from recordmill.pipelines.inspection.overview import inferred_schema, overview, overview_lines
from recordmill.pipelines.inspection.record_files import Record, RecordFiles
from recordmill.pipelines.inspection.record_values import record_values
from recordmill.pipelines.inspection.styles import style_for
from recordmill.pipelines.inspection.token_form import form_of
from recordmill.pipelines.inspection.token_lines import legend_lines
from recordmill.pipelines.inspection.vocabularies import read_vocabulary
from recordmill.records.conditions import parse_condition
from recordmill.records.errors import UsageError, visible
from recordmill.records.schema import Schema

_FILE_NAMES = ("image/filename", "filename", "file_name", "image/source_id")
Shown = Sequence[tuple[Record, Mapping[str, Any]]]


def _check_picture(path: str) -> None:
    from PIL import Image

    extension = "." + path.rpartition(".")[2].lower()
    if extension not in Image.registered_extensions():
        raise UsageError(f"--images must be a picture file, such as sheet.png, got {path}")


def _numbered(records: RecordFiles, text: str, split: str) -> Record:
    name, colon, number = text.rpartition(":")
    if not re.fullmatch("[0-9]{1,18}", number):
        raise UsageError(f"--record must be NUMBER or SPLIT:NUMBER, such as train:12, got {text!r}")
    return records.record(name if colon else split, int(number))


def _matching(
    records: RecordFiles, options: InspectSpec, schema: Schema | None, read: Counter[str]
) -> Iterator[Record]:
    """Yields the records that --key or --where chooses; counts those that it reads, by split."""
    key = (options.key or "").encode()
    condition = parse_condition(options.where, schema) if options.where else None
    for split in [options.split] if options.split else records.splits:
        for record in records.all_records(split):
            read[split] += 1
            values = record_values(record, any_form=records.any_form)
            if condition:
                if condition(values):
                    yield record
            elif any(isinstance(value, list) and key in value for value in values.values()):
                yield record


def _chosen(
    records: RecordFiles, options: InspectSpec, schema: Schema | None, read: Counter[str]
) -> Iterator[Record]:
    filled = (name for name in records.splits if any(f.file_bytes for f in records.split(name)))
    split = options.split or next(filled, "")
    if options.record:
        yield from (_numbered(records, text, split) for text in options.record)
    elif options.key or options.where:
        yield from islice(_matching(records, options, schema, read), options.examples)
    elif split:
        yield from records.some_records(split, options.examples)


def _drawings(shown: Shown, schema: Schema | None, names: Mapping[int, str]) -> list[Any]:
    """Returns what is drawn for each record, None for those without an image."""
    from recordmill.pipelines.inspection.image_sheet import drawing_of

    return [
        drawing_of(values, schema, _caption(record, values, schema), names)
        for record, values in shown
    ]


def _caption(record: Record, values: Mapping[str, Any], schema: Schema | None) -> str:
    """Returns the lines below a picture: the record and its class, and the name of its file."""
    features = {feature.name: feature for feature in schema.features} if schema else {}
    labels = [
        describe(values[name], features.get(name)) for name in LABELS if len(values.get(name, ()))
    ]
    names = [values[name][0] for name in _FILE_NAMES if isinstance(values.get(name), list)]
    lines = [" · ".join([record.name, *labels[:1]])]
    return "\n".join([*lines, *(name.decode("utf-8", "replace") for name in names[:1] if name)])


def _draw(found: Sequence[Any], path: str) -> int:
    """Writes the picture file; returns the number of images in it."""
    from recordmill.pipelines.inspection.image_sheet import draw_sheet

    drawings = [drawing for drawing in found if drawing]
    if not drawings:
        raise UsageError("--images needs records with images, and these have none; remove it")
    try:
        draw_sheet(drawings).save(path)
    except OSError as error:
        raise UsageError(f"--images={path} cannot be written: {error.strerror or error}") from error
    return len(drawings)


def run(options: InspectSpec) -> int:
    """Runs `recordmill inspect`; returns the exit status."""
    if options.images:
        _check_picture(options.images)
    records = open_records(options.dataset)
    if options.split:
        records.split(options.split)
    schema = records.schema
    known = schema or inferred_schema(records)
    vocabulary = read_vocabulary(options.vocab_file, records)
    read: Counter[str] = Counter()
    shown = [
        (record, record_values(record, any_form=records.any_form))
        for record in _chosen(records, options, schema, read)
    ]
    drawings: list[Any] = [None] * len(shown)
    if options.images or any(name in values for _, values in shown for name in MASKS):
        from recordmill.pipelines.inspection.image_sheet import mask_names_of

        drawings = _drawings(shown, schema, mask_names_of(records.manifest))
    drawn = _draw(drawings, options.images) if options.images else 0
    missed = bool((options.key or options.where) and options.examples and not shown)
    status = int(bool(records.problems) or missed)
    if options.json:
        examples = [example_json(record, values) for record, values in shown]
        print(json_text(overview(records, known) | {"examples": examples}))
        return status
    style = style_for(options.color, sys.stdout)
    for name, value in overview_lines(records, known):
        print(f"{style('name', f'{name:<11}')} {visible(value)}")
    features = map(visible, known.describe().split("\n"))
    print("\n  ".join([style("name", "features"), *features]))
    form = form_of(records.manifest, vocabulary)
    for (record, values), drawing in zip(shown, drawings, strict=True):
        print("\n" + "\n".join(example_lines(record, values, schema, vocabulary, style, form)))
        if drawing and (held := drawing.describe_mask()):
            print(named_line("pixels of the mask", visible(held), style))
    legend = legend_lines([values for _, values in shown], vocabulary, form)
    if legend:
        print("\n" + "\n".join(legend))
    if drawn:
        print(f"\n{options.images}: {drawn} image{'s' * (drawn != 1)}")
    if missed:
        print(f"\n{_no_match(options, read)}")
    return status


def _no_match(options: InspectSpec, read: Counter[str]) -> str:
    asked = f"--key={options.key}" if options.key else f"--where={options.where!r}"
    return (
        f"no record matches {asked}; {read.total():,} were read, and values are compared as they "
        "are stored: a text with all its characters, a token as its id"
    )
