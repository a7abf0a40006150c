"""`dataset_info.json`, `features.json` and `*.labels.txt`, as `tfds.builder_from_directory` reads
them.

Written without TFDS. Integers are JSON strings, as protobuf's JSON form has them.
"""

from __future__ import annotations

from typing import Any

from recordmill.records.manifest import Manifest, to_json
from recordmill.records.schema import OBJECTS, Schema
from recordmill.records.shards import TFDS_TEMPLATE


def tfds_files(manifest: Manifest, *, description: str) -> dict[str, bytes]:
    """Returns file name -> content for TFDS, relative to the dataset.

    TFDS gives SequenceExamples no meaning and fails on compressed shards; neither gets the files.
    """
    schema = Schema.from_json(manifest.features)
    if schema.sequence or manifest.compression:
        return {}
    splits: list[dict[str, Any]] = [
        {
            "name": split,
            "filepathTemplate": TFDS_TEMPLATE,
            "numBytes": str(sum(shard.record_bytes - 16 * shard.records for shard in shards)),
            "shardLengths": [str(shard.records) for shard in shards],
        }
        for split, shards in manifest.split_shards().items()
    ]
    info = {
        "name": manifest.name,
        "version": "1.0.0",
        "description": description,
        "fileFormat": "tfrecord",
        "splits": splits,
    }
    labels = {
        _labels_file(feature.name): "".join(f"{name}\n" for name in feature.classes).encode()
        for feature in schema.features
        if feature.classes
    }
    return {
        "dataset_info.json": to_json(info),
        "features.json": to_json(schema.tfds_features()),
        **labels,
    }


def _labels_file(name: str) -> str:
    """Returns the file name that TFDS looks for: "-" below a nested feature, else "." for "/"."""
    prefix, _, part = name.partition("/")
    nested = prefix == OBJECTS and part
    return (
        (f"{prefix}-" if nested else "")
        + (part if nested else name).replace("/", ".")
        + (".labels.txt")
    )
