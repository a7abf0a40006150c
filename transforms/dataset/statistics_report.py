"""A dataset and its statistics in a few lines, for people."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from recordmill.records.manifest import STATISTICS_PATH, Manifest
from recordmill.transforms.dataset.job import Job
from recordmill.transforms.dataset.statistics_warnings import split_statistics
from recordmill.transforms.storage import files

_MOST_NAMED = 3
_MOST_KINDS = 5
_REJECTED = "rejected"
_RATES = {
    "unknown_rate": "unknown tokens",
    "padding_rate": "padding",
    "fill_rate": "of packed rows filled",
    "documents_cut_rate": "of documents cut",
    "repeated_rate": "repeated by --overlap_size",
    "noise_rate": "tokens of noise",
    "random_next_rate": "random second segments",
    "prediction_rate": "tokens to predict",
    "cut_rate": "of examples cut to --max_seq_length",
}
_OBJECTS = {
    "boxes_clipped": "clipped at the image's sides",
    "boxes_dropped_inverted": "dropped: xmin > xmax or ymin > ymax",
    "boxes_dropped_empty": "dropped: without an area",
    "boxes_dropped_outside": "dropped: outside of the image",
    "boxes_dropped_cut": "dropped: cut away by the transform",
}

_TURNED = {
    "images_turned": "turned upright, as their EXIF orientation says",
    "images_unturned": "left as stored, though their EXIF orientation turns them",
}


def read_statistics(output: str) -> dict[str, Any]:
    """Returns the content of `statistics.json` of a dataset."""
    found: dict[str, Any] = json.loads(files.read_bytes(files.join(output, STATISTICS_PATH)))
    return found


def summary_lines(job: Job, manifest: Manifest, statistics: Mapping[str, Any]) -> Iterator[str]:
    """Yields the lines by which a run ends: what it wrote of what, and what that is like.

    Args:
      job: that is done.
      manifest: of its dataset.
      statistics: the content of `statistics.json`.
    """
    written = "; ".join(
        f"{name}: {sum(each.records for each in shards)} examples in {len(shards)} shards"
        for name, shards in manifest.split_shards().items()
    )
    yield f"{job.workspace.output}  {written}"
    rejected = _first_ones(statistics["inputs"]["rejected"], "inputs") or "none"
    yield f"{job.describe_counts(manifest.counts)}; {_REJECTED}: {rejected}"
    for name, value in describe_statistics(statistics):
        if name != _REJECTED:
            yield f"{name}: {value}"


def describe_statistics(statistics: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yields names and values: of each split, and of the inputs.

    Args:
      statistics: the content of `statistics.json`.
    """
    for split, sums in split_statistics(statistics).items():
        if sums.get("classes"):
            yield f"classes of {split}", _classes(sums["classes"])
        rates = [f"{sums[key]:.1%} {word}" for key, word in _RATES.items() if key in sums]
        if sums.get("rows_too_short"):
            rates.append(f"{sums['rows_too_short']:,} rows of one token left out: no span fits")
        if rates:
            yield f"tokens of {split}", ", ".join(rates)
        objects = _objects(sums)
        if objects:
            yield f"objects of {split}", objects
        for key, word in _TURNED.items():
            if key in sums:
                yield f"examples of {split}", f"{sums[key]:,} of {sums['examples']:,} {word}"
        if sums.get("masks"):
            without = sums["masks_without_object"]
            yield f"masks of {split}", f"{sums['masks']:,}, {without:,} of them without an object"
    inputs = statistics.get("inputs", {})
    if inputs.get("passed_over"):
        yield "passed over", _first_ones(inputs["passed_over"], "files")
    if inputs.get("rejected"):
        yield _REJECTED, _first_ones(inputs["rejected"], "inputs")


def _classes(classes: Mapping[str, int]) -> str:
    """Returns the number of classes, the most frequent and the rarest."""
    order = sorted(classes.items(), key=lambda item: (-item[1], item[0]))
    shown = [f"{name} {count:,}" for name, count in order]
    if len(shown) <= 2 * _MOST_NAMED:
        return f"{len(shown)}: {', '.join(shown)}"
    most, least = ", ".join(shown[:_MOST_NAMED]), ", ".join(shown[-_MOST_NAMED:])
    return f"{len(shown)}; the most frequent: {most}; the rarest: {least}"


def _objects(sums: Mapping[str, Any]) -> str:
    lost = {
        name: sums[name]
        for name in sums
        if name.startswith(("objects_", "boxes_")) and sums[name] and isinstance(sums[name], int)
    }
    if "objects" not in sums and not lost:
        return ""
    parts = [f"{sums.get('objects', 0):,} written"]
    words = {name: _OBJECTS.get(name, name.replace("_", " ")) for name in lost}
    return ", ".join([*parts, *(f"{count:,} {words[name]}" for name, count in lost.items())])


def _first_ones(kinds: Mapping[str, Mapping[str, Any]], number: str) -> str:
    """Returns the kinds with their numbers and a name each; of many kinds the most frequent."""
    order = list(kinds)
    if len(order) > _MOST_KINDS:
        order.sort(key=lambda kind: (-kinds[kind][number], kind))
    shown = [
        f"{kind} {kinds[kind][number]:,}"
        + (f" (such as {first})" if (first := kinds[kind]["first"]) else "")
        for kind in order[:_MOST_KINDS]
    ]
    rest = sum(kinds[kind][number] for kind in order[_MOST_KINDS:])
    others = f"; {rest:,} of {len(order) - _MOST_KINDS} other kinds" if rest else ""
    return ", ".join(shown) + others
