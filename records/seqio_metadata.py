"""`info.SPLIT.json`, `stats.SPLIT.json` and `COMPLETED`: the cache that a seqio task reads.

Written without seqio, as its `beam_utils.py` writes them. A task looks for `COMPLETED`, and then
reads a split by its two files: with `use_cached=True` nothing else of the task's own is run before
the place of its `CacheDatasetPlaceholder`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from recordmill.records.manifest import Manifest
from recordmill.records.schema import Feature, Schema
from recordmill.records.shards import NAMINGS
from recordmill.records.state import encode

COMPLETED_PATH = "COMPLETED"
# Of the form: from 0.0.0 on, seqio casts to the types that the file names, and to no others.
_FORM = "0.0.20"
_TYPES = {"int64": "int64", "float32": "float32", "bytes": "string"}


def is_seqio_cache(shard_template: str) -> bool:
    """Tells whether shards are named as seqio expects it."""
    return shard_template == NAMINGS["seqio"]


def seqio_names(splits: Iterable[str]) -> list[str]:
    """Returns the names of the files of a cache that are no shards."""
    files = [f"{kind}.{split}.json" for split in splits for kind in ("info", "stats")]
    return [*files, COMPLETED_PATH]


def seqio_files(manifest: Manifest, statistics: Mapping[str, Any]) -> dict[str, bytes]:
    """Returns file name -> content for seqio, relative to the dataset, {} under other names.

    `COMPLETED`, which is empty, must be written when all other files are there.

    Args:
      manifest: of the dataset.
      statistics: the content of `statistics.json`, which has the tokens of features.
    """
    if not is_seqio_cache(manifest.shard_template):
        return {}
    features = {f.name: _feature(f) for f in Schema.from_json(manifest.features).features}
    written = {COMPLETED_PATH: b""}
    for split, shards in manifest.split_shards().items():
        info = {"features": features, "num_shards": len(shards), "seqio_version": _FORM}
        written[f"info.{split}.json"] = encode(info)
        sums = statistics.get(split, {})
        names = (name for feature in features for name in token_statistics(feature))
        tokens = {name: sums[name] for name in names if name in sums}
        examples = {"examples": sum(s.records for s in shards)}
        written[f"stats.{split}.json"] = encode(examples | tokens)
    return written


def token_statistics(feature: str) -> tuple[str, str]:
    """Returns the names under which seqio has the tokens of a feature: of all records, and the most
    of one. Neither padding nor the end of text is a token there.
    """
    return f"{feature}_tokens", f"{feature}_max_tokens"


def _feature(feature: Feature) -> dict[str, Any]:
    """Returns the type and shape that a task is given.

    Lists of integers are tokens, or flags and classes beside them: int32, as tasks expect it. A
    single one may be a field of the document (--keep_fields), which may need 64 bits.
    """
    shape: list[int | None] = [None, *feature.shape[1:]] if feature.shape else []
    return {
        "dtype": "int32" if shape and feature.dtype == "int64" else _TYPES[feature.dtype],
        "shape": shape,
    }
