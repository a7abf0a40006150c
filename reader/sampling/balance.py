"""Balance classes: give them the proportions that a trainer wants.

There are two ways. *By label*: the labels of all records are known, and each epoch is drawn anew
from the index. Counts are exact, workers have equal work, training can be resumed, and only the
drawn records are read. *By rejection*: records are read in the order of the dataset and kept,
dropped or repeated by class. Proportions hold in expectation; this is for datasets that are too
large to keep a number for each record.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from recordmill.reader import draws
from recordmill.reader.dataset import open_dataset
from recordmill.reader.features import Features, Transform, in_graph
from recordmill.reader.loading import load
from recordmill.reader.order import Order
from recordmill.reader.record_ranges import Ints, RecordRange
from recordmill.reader.sampling.balanced_order import BalancedOrder
from recordmill.records.errors import UsageError
from recordmill.records.manifest import STATISTICS_PATH
from recordmill.records.statistics_file import read_split_statistics

if TYPE_CHECKING:
    import tensorflow as tf

Distribution = Mapping[int, float]

_SCAN_RECORDS = 256


def read_labels(path: str | os.PathLike[str], split: str, *, feature: str = "label") -> Ints:
    """Returns the label of every record of a split as written, by reading all of them once.

    `[records] int64`; keep it with `numpy.save` where that takes long.

    Raises:
      UsageError: `load` cannot read the split, or the feature is no single number.
    """

    def label_alone(features: Features, _: tf.Tensor) -> Features:
        if feature not in features or len(features[feature].shape) != 1:
            raise UsageError(
                f"labels must be one number a record, and {feature!r} is not: name one of "
                f"{', '.join(sorted(features))}"
            )
        return {"label": features[feature]}

    names = [f.name for f in open_dataset(path).schema.features if f.dtype == "int64"]
    batches = load(
        path, split, batch_size=_SCAN_RECORDS, shuffle=False, remainder="keep",
        num_workers=1, worker_index=0, transform=in_graph(label_alone), int64=names,
    )  # fmt: skip
    return np.concatenate([batch["label"] for batch in batches.as_numpy_iterator()]).astype(
        np.int64
    )


def class_distribution(
    path: str | os.PathLike[str], split: str, *, feature: str = "label"
) -> dict[int, float]:
    """Returns class -> share of the records, from the dataset's stored class histogram.

    Raises:
      UsageError: the dataset has no histogram, or none of this feature's classes.
    """
    dataset = open_dataset(path)
    dataset.split(split)
    names = {f.name: f.classes for f in dataset.schema.features}.get(feature, ())
    content = dataset.read(STATISTICS_PATH)
    counts = read_split_statistics(content, split, dataset.path).classes
    present = {i: counts[name] for i, name in enumerate(names) if counts.get(name)}
    if not present:
        raise UsageError(
            f"{dataset.path} must have a histogram of the classes of {feature!r} in "
            f"{STATISTICS_PATH}, and has none: count them with read_labels"
        )
    total = sum(present.values())
    return {label: count / total for label, count in present.items()}


def balance_by_label(
    labels: npt.ArrayLike, *, target: Distribution | None = None
) -> Callable[[Order], Order]:
    """Returns what `load(…, reorder=…)` needs to draw classes in given proportions.

        labels = read_labels("ds", "train")
        load("ds", "train", batch_size=64, reorder=balance_by_label(labels))

    An epoch has as many records as before, and of each class exactly its share of them, rounded:
    each of its records floor or ceil as often as the others, and other ones more often in each
    epoch. Copies of a record are spread over the epoch; in one epoch they share their draws.
    Memory: 32 bytes a record.

    Args:
      labels: `[records]` of the whole split as written.
      target: class -> weight; a class that is absent is left out. None is equal for all there are.

    Raises:
      UsageError: a class of the target has no record, or, from `load`: the labels are those of
        another split, the shards are compressed, or the order is not shuffled.
    """
    table = np.asarray(labels, np.int64)
    classes, counts = np.unique(table, return_counts=True)
    shares = _normalised(target or dict.fromkeys(classes.tolist(), 1.0))
    _check_classes(shares, dict(zip(classes.tolist(), counts.tolist(), strict=True)))

    def reorder(order: Order) -> Order:
        if order.seed is None or order.whole_shards:
            obstacle = "compressed shards" if order.whole_shards else "shuffle=False"
            raise UsageError(
                f"balance_by_label needs shuffling and an index, got {obstacle}: use "
                "balance_by_rejection"
            )
        last = max(record_range.number + record_range.count for record_range in order.record_ranges)
        if last > len(table):
            raise UsageError(
                f"labels must be those of the whole split, and record {last - 1} is beyond the "
                f"{len(table)} given: read them with read_labels"
            )
        whole = RecordRange(0, 0, order.records, 0)
        values = {name: getattr(order, name) for name in order.__dataclass_fields__}
        return BalancedOrder(
            **values | {"record_ranges": (whole,)},
            source=order.record_ranges,
            labels=table,
            shares=shares,
        )

    return reorder


def balance_by_rejection(
    *,
    initial_dist: Distribution,
    target: Distribution | None = None,
    feature: str = "label",
    keep_size: bool = False,
    seed: int = 0,
) -> Transform:
    """Returns a transform that drops records until classes have given proportions.

        shares = class_distribution("ds", "train")
        batches = load("ds", "train", batch_size=512, epochs=None,
                       transform=balance_by_rejection(initial_dist=shares))
        batches = batches.rebatch(64, drop_remainder=True)

    Batches come out smaller, and of different sizes: `rebatch` makes them equal. What becomes of a
    record depends on seed, epoch and the record alone. Memory does not grow with the dataset.

    Args:
      initial_dist: class -> share of the dataset; from `class_distribution`, or counted.
      target: class -> weight; a class that is absent is dropped. None is equal for all.
      feature: `[batch]` integers, the class.
      keep_size: repeats records of rare classes too, so that an epoch keeps its size.
      seed: of the draws.

    Raises:
      UsageError: a class of the target is not in `initial_dist`.
    """
    before = _normalised(initial_dist)
    shares = _normalised(target or dict.fromkeys(before, 1.0))
    _check_classes(shares, before)
    rates = np.zeros(max(before) + 1, np.float64)
    for label, share in shares.items():
        rates[label] = share / before[label] if share else 0.0
    if not keep_size:
        rates /= rates.max()

    def transform(features: Features, keys: tf.Tensor) -> Features:
        import tensorflow as tf

        state = draws.start(keys, seed=seed, purpose="balance")
        unit = draws.unit(state, tf.zeros([1], tf.int64))[:, 0]
        rate = tf.gather(tf.constant(rates, tf.float32), features[feature])
        copies = tf.cast(tf.floor(rate + unit), tf.int32)
        rows = tf.repeat(tf.range(tf.size(copies)), copies)
        return {name: tf.gather(values, rows) for name, values in features.items()}

    return in_graph(transform)


def _normalised(weights: Distribution) -> dict[int, float]:
    total = sum(weights.values())
    if not weights or total <= 0 or min(weights.values()) < 0 or min(weights) < 0:
        raise UsageError(
            f"a distribution must be class -> weight of 0 or more, got {dict(weights)}"
        )
    return {int(label): weight / total for label, weight in weights.items()}


def _check_classes(shares: Mapping[int, float], present: Mapping[int, Any]) -> None:
    absent = sorted(label for label, share in shares.items() if share and not present.get(label))
    if absent:
        raise UsageError(
            f"every class of the target must have records, and {', '.join(map(str, absent))} has "
            f"none; the classes are {', '.join(map(str, sorted(present)))}"
        )
