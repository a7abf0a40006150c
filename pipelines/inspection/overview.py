"""What a dataset is, in a few lines: task, splits, shards, features, how it was made."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from recordmill.pipelines.inspection.example_lines import is_image
from recordmill.pipelines.inspection.record_files import RecordFiles
from recordmill.pipelines.inspection.record_values import RECORD, record_forms, record_values
from recordmill.records.manifest import Manifest
from recordmill.records.schema import Feature, Schema

_UNITS = (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3))


def readable_bytes(count: int) -> str:
    """Returns a number of bytes with a unit of thousands: 12.3 MB."""
    for unit, size in _UNITS:
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} bytes"


def task_of(manifest: Manifest) -> str:
    """Returns what the records are for, such as "bert", "detection (tfds)" or "examples"."""
    config = manifest.config
    if isinstance(config.get("objective"), dict):
        return str(config["objective"].get("name"))
    images = config.get("images")
    if isinstance(images, dict):
        return f"{images.get('task')} ({images.get('format')})"
    if config.get("pipeline") in ("examples", "WriteExamples"):
        return "examples"
    return "unknown"


def inferred_schema(records: RecordFiles, count: int = 16) -> Schema:
    """Returns the features of records that no manifest describes, from the first ones.

    Args:
      records: of another tool.
      count: of the records that are looked at, in each split.
    """
    lengths: dict[str, set[int]] = {}
    kinds: dict[str, str] = {}
    meanings: dict[str, str] = {}
    steps: set[str] = set()
    for split in records.splits:
        for record in records.some_records(split, count):
            forms = record_forms(record)
            for name, values in record_values(record, any_form=records.any_form).items():
                dtype, count_of_steps = forms[name]
                lengths.setdefault(name, set()).add(len(values))
                kinds[name] = dtype or kinds.get(name, "")
                if count_of_steps is not None:
                    steps.add(name)
                if isinstance(values, list) and values and is_image(values[0]):
                    meanings[name] = "encoded images"
                elif name == RECORD and values[:1] == [record.data]:
                    meanings[name] = "the bytes of a record that is no tf.train.Example"
    features = []
    for name, dtype in kinds.items():
        same = lengths[name] if len(lengths[name]) == 1 else {None}
        shape = () if same == {1} else tuple(same)
        meaning = meanings.get(name, "" if dtype else "no record that was read has values of it")
        shown = name if name.isprintable() and name else repr(name)
        features.append(
            Feature(shown, dtype or "unknown", shape, meaning, name in steps)  # type: ignore[arg-type]
        )
    return Schema(tuple(features))


def overview(records: RecordFiles, schema: Schema) -> dict[str, Any]:
    """Returns what a dataset is, as values for JSON."""
    manifest = records.manifest
    content: dict[str, Any] = {
        "path": records.path,
        "splits": {
            name: {
                "shards": len(split),
                "records": _total(split),
                "bytes": sum(file.file_bytes for file in split),
                "compression": split[0].compression,
            }
            for name, split in records.splits.items()
        },
        "features": schema.to_json(),
    }
    if records.problems:
        content["problems"] = list(records.problems)
    if records.empty:
        content["empty"] = list(records.empty)
    if manifest:
        content |= {
            "name": manifest.name,
            "version": manifest.version,
            "finished": records.finished,
            "task": task_of(manifest),
            "seed": manifest.config.get("seed"),
            "counts": manifest.counts,
            "versions": manifest.versions,
            "fingerprint": manifest.fingerprint,
            "config": manifest.config,
        }
    return content


def _total(split: Any) -> int | None:
    known = [file.records for file in split]
    return None if None in known else sum(known)


def overview_lines(records: RecordFiles, schema: Schema) -> Iterator[tuple[str, str]]:
    """Yields names and values of what a dataset is, for people."""
    content = overview(records, schema)
    manifest = records.manifest
    if manifest:
        unfinished = "" if records.finished else "; NOT FINISHED: run its command again"
        yield "dataset", f"{content['name']} {content['version']}{unfinished}"
        yield "task", content["task"]
    else:
        yield "dataset", "TFRecords without a manifest of recordmill"
    for name, split in content["splits"].items():
        count = "" if split["records"] is None else f"{split['records']:,} records, "
        compression = f", {split['compression']}" if split["compression"] else ""
        shards = f"{split['shards']:,} shard{'s' * (split['shards'] != 1)}"
        yield name, f"{count}{shards}, {readable_bytes(split['bytes'])}{compression}"
    if schema.sequence:
        parts = {
            part: ", ".join(f.name for f in schema.features if f.sequence == sequence) or "none"
            for part, sequence in (("context", False), ("steps", True))
        }
        yield "records", f"SequenceExamples; context: {parts['context']}; steps: {parts['steps']}"
    for line in records.problems:
        yield "PROBLEM", line
    for line in records.empty:
        yield "empty", f"{line}, so no records"
    if manifest:
        yield from _origin(manifest)


def _origin(manifest: Manifest) -> Iterator[tuple[str, str]]:
    config = manifest.config
    inputs = config.get("input")
    if isinstance(inputs, list) and inputs:
        limit = config.get("limit")
        first = f"; the first {limit:,} alone (--limit)" if isinstance(limit, int) else ""
        yield "input", ", ".join(map(str, inputs[:3])) + (", …" if len(inputs) > 3 else "") + first
    size = config.get("vocabulary_size")
    if isinstance(size, int):
        kinds = {"bpe": "BPE", "unigram": "Unigram"}
        kind = kinds.get(str(config.get("tokenizer")), "WordPiece")
        yield "tokenizer", f"{kind}, {size:,} tokens"
    yield "seed", str(config.get("seed"))
    yield "made with", ", ".join(f"{k} {v}" for k, v in sorted(manifest.versions.items()))
    rejected = manifest.counts.get("rejected") or {}
    yield "rejected", ", ".join(f"{k} {v:,}" for k, v in rejected.items()) or "nothing"
    dropped = manifest.counts.get("dropped") or {}
    if dropped:
        yield "dropped", ", ".join(f"{k} {v:,}" for k, v in dropped.items())
