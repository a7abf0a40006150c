"""`dataset_info.json`, `features.json` and `*.labels.txt`, as `tfds.builder_from_directory` reads
them.

Written without TFDS. Integers are JSON strings, as protobuf's JSON form has them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Any

from recordmill.records.manifest import DEFAULT_VERSION, Manifest, ShardInfo
from recordmill.records.schema import OBJECTS, Schema
from recordmill.records.state import encode

_VERSION = re.compile(r"\d+\.\d+\.\d+")
_INPUTS = ("image", "image/encoded", "text")
_TEXT_INPUTS = ("input_ids", "input_word_ids", "input_mask", "segment_ids", "input_type_ids")
_TEXT_TARGET = "label_ids"
_TARGETS = (
    "label",
    "labels",
    "image/class/label",
    "segmentation_mask",
    "image/segmentation/class/encoded",
    "mask",
)


def name_and_version(path: str) -> tuple[str, str]:
    """Returns what TFDS calls the dataset in a folder: `…/NAME/VERSION`, or `…/NAME`.

    >>> name_and_version("/data/cats/2.0.1")
    ('cats', '2.0.1')
    >>> name_and_version("/data/3-cats")
    ('d_3_cats', '1.0.0')

    Args:
      path: of the folder, from the root on.
    """
    parts = [part for part in PurePosixPath(path).parts if part != "/"]
    version = DEFAULT_VERSION
    if len(parts) > 1 and _VERSION.fullmatch(parts[-1]):
        version = parts.pop()
    folder = parts[-1] if parts else ""
    name = "".join(c if c.isalnum() else "_" for c in folder) or "dataset"
    return (name if name[0].isalpha() else f"d_{name}"), version


def supervised_keys(schema: Schema) -> tuple[str | tuple[str, ...], str] | None:
    """Returns the input and the target of records that have one of each, else None.

    The input of text classification is what BERT reads: several features, which TFDS gives as a
    dict.
    """
    names = [feature.name for feature in schema.features]
    if _TEXT_TARGET in names:
        return tuple(name for name in _TEXT_INPUTS if name in names), _TEXT_TARGET
    inputs = [name for name in _INPUTS if name in names]
    targets = [name for name in _TARGETS if name in names]
    if len(inputs) != 1 or len(targets) != 1:
        return None
    return inputs[0], targets[0]


def tfds_files(manifest: Manifest, *, description: str) -> dict[str, bytes]:
    """Returns file name -> content for TFDS, relative to the dataset.

    TFDS gives SequenceExamples and records without a schema no meaning, and fails on compressed
    shards and on names without a template; none of them gets the files.
    """
    schema = Schema.from_json(manifest.features)
    shards_of = manifest.split_shards()
    templates = {split: _template(manifest, shards) for split, shards in shards_of.items()}
    if schema.sequence or manifest.compression or not schema.features or "" in templates.values():
        return {}
    splits: list[dict[str, Any]] = [
        {
            "name": split,
            "filepathTemplate": templates[split],
            "numBytes": str(sum(shard.record_bytes - 16 * shard.records for shard in shards)),
            "shardLengths": [str(shard.records) for shard in shards],
        }
        for split, shards in shards_of.items()
    ]
    info: dict[str, Any] = {
        "name": manifest.name,
        "version": manifest.version,
        "description": description,
        "fileFormat": "tfrecord",
        "splits": splits,
    }
    pair = supervised_keys(schema)
    if pair:
        info["supervisedKeys"] = {"tuple": {"items": [_nest(keys) for keys in pair]}}
    labels = {
        labels_file(feature.name): "".join(f"{name}\n" for name in feature.classes).encode()
        for feature in schema.features
        if feature.classes
    }
    return {
        "dataset_info.json": encode(info),
        "features.json": encode(schema.tfds_features()),
        **labels,
    }


def _template(manifest: Manifest, shards: list[ShardInfo]) -> str:
    if not any(shard.file for shard in shards):
        return manifest.shard_template
    return template_of_names([shard.name.path for shard in shards])


def template_of_names(paths: Sequence[str]) -> str:
    """Returns the template by which TFDS finds the shards of a split, "" where there is none.

    >>> template_of_names(["a/cats-train.tfrecord-00000-of-00002",
    ...                    "a/cats-train.tfrecord-00001-of-00002"])
    'a/cats-train.tfrecord-{SHARD_X_OF_Y}'
    >>> template_of_names(["cats.tfrecord", "dogs.tfrecord"])
    ''

    Args:
      paths: of all shards of the split, in order, relative to the dataset.
    """
    if any(brace in path for path in paths for brace in "{}"):
        return ""
    if len(paths) == 1:
        return paths[0]
    digits = max(5, len(str(len(paths))))
    count = f"{len(paths):0{digits}d}"
    forms = ((f"-of-{count}", "{SHARD_X_OF_Y}"), ("", "{SHARD_INDEX}"))
    for behind, variable in forms:
        begin, first, end = paths[0].rpartition(f"{0:0{digits}d}{behind}")
        numbers = (f"{i:0{digits}d}{behind}" for i in range(len(paths)))
        if first and list(paths) == [f"{begin}{number}{end}" for number in numbers]:
            return f"{begin}{variable}{end}"
    return ""


def _nest(keys: str | tuple[str, ...]) -> dict[str, Any]:
    """Returns a feature, or several as a dict by their own names, as TFDS' SupervisedKeys.Nest."""
    if isinstance(keys, str):
        return {"featureKey": keys}
    return {"dict": {"dict": {key: _nest(key) for key in keys}}}


def labels_file(name: str) -> str:
    """Returns the file name that TFDS looks for: "-" below a nested feature, else "." for "/"."""
    prefix, _, part = name.partition("/")
    nested = prefix == OBJECTS and part
    return (
        (f"{prefix}-" if nested else "")
        + (part if nested else name).replace("/", ".")
        + (".labels.txt")
    )
