"""seqio: a task whose cache we wrote, with `use_cached=True`."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from exchange import serve


def prepare(checkout: str) -> None:
    sys.path.insert(0, checkout)


def _no_dataset(split: str, shuffle_files: bool) -> Any:
    raise AssertionError("a cached task must not ask for its source")


def read(
    folder: str,
    task: str,
    split: str,
    features: list[str],
    length: int,
    shard: list[int] | None = None,
    converter: str = "",
    counts: bool = False,
) -> dict[str, Any]:
    """Returns `[rows, length]` of each feature, 0 behind its values, and what the task knows.

    Args:
      folder: with the cache, under the name of the task.
      features: of the task.
      length: of the longest feature.
      shard: index and number of a part of the split.
      counts: also return what seqio itself would write to the cache's stats.
      converter: the name of a feature converter, whose features are returned instead.
    """
    import seqio

    if folder not in seqio.utils.get_global_cache_dirs():
        seqio.add_global_cache_dirs([folder])
    if task not in seqio.TaskRegistry.names():
        vocabulary = seqio.PassThroughVocabulary(1000, eos_id=3)
        seqio.TaskRegistry.add(
            task,
            source=seqio.FunctionDataSource(_no_dataset, splits=["train", "validation"]),
            preprocessors=[seqio.CacheDatasetPlaceholder(required=True)],
            output_features={
                name: seqio.Feature(vocabulary, add_eos=False, dtype=np.int32) for name in features
            },
        )
    lengths = dict.fromkeys(features, length)
    part = seqio.ShardInfo(*shard) if shard else None
    if converter:
        dataset = seqio.get_dataset(
            task, lengths, dataset_split=split, shuffle=False, use_cached=True, num_epochs=1,
            feature_converter=getattr(seqio, converter)(pack=False),
        )  # fmt: skip
    else:
        dataset = seqio.get_mixture_or_task(task).get_dataset(
            lengths, split=split, shuffle=False, use_cached=True, shard_info=part
        )
    rows = list(dataset.as_numpy_iterator())
    found: dict[str, Any] = {
        name: np.stack([np.pad(row[name], (0, length - len(row[name]))) for row in rows])
        for name in rows[0]
    }
    known = seqio.get_mixture_or_task(task)
    stats = known.get_cached_stats(split)
    found |= {f"stats/{name}": np.array(count) for name, count in stats.items()}
    if counts:
        own = _stats(rows, known.output_features)
        found |= {f"seqio/{name}": np.array(count) for name, count in own.items()}
    return found


def _stats(rows: list[dict[str, Any]], features: Any) -> dict[str, int]:
    """Returns what seqio writes of the rows to the stats of a cache."""
    import apache_beam as beam
    from apache_beam.runners.portability.fn_api_runner import FnApiRunner
    from seqio import beam_utils

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "stats.json"
        with beam.Pipeline(runner=FnApiRunner()) as pipeline:
            stats = pipeline | beam.Create(rows) | beam_utils.GetStats(features)
            _ = stats | beam_utils.WriteJson(str(path))
        return dict(json.loads(path.read_bytes()))


if __name__ == "__main__":
    serve(prepare, read)
