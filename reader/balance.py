"""Classes in the proportions that a trainer wants, whatever those of the dataset are.

Two ways. *By label*: the labels of all records are known, and each epoch is drawn anew from the
index: exact counts, equal work for every worker, resumable, and what is not drawn is not read. *By
rejection*: records are read in the order of the dataset and kept, dropped or repeated by class, for
datasets too large to keep a number for each record: proportions in expectation.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from recordmill.reader import draws
from recordmill.reader.dataset import open_dataset
from recordmill.reader.loading import load
from recordmill.reader.mixing import largest_remainder
from recordmill.reader.order import FILLER, Order, Run, WindowPlan
from recordmill.reader.shards import Ints, Stretch
from recordmill.reader.token_rows import Features, Transform, in_graph
from recordmill.records.errors import UsageError
from recordmill.records.hashing import GOLDEN, mix64, seed_for
from recordmill.records.manifest import STATISTICS_PATH

if TYPE_CHECKING:
    import tensorflow as tf

Distribution = Mapping[int, float]

_RUN_RECORDS = 32
_GAP_RECORDS = 4  # reading so many in vain costs less than beginning anew
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

    batches = load(
        path, split, batch_size=_SCAN_RECORDS, shuffle=False, remainder="keep",
        num_workers=1, worker_index=0, transform=in_graph(label_alone),
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
    counts = json.loads(dataset.read(STATISTICS_PATH)).get(split, {}).get("classes", {})
    found = {i: counts[name] for i, name in enumerate(names) if counts.get(name)}
    if not found:
        raise UsageError(
            f"{dataset.path} must have a histogram of the classes of {feature!r} in "
            f"{STATISTICS_PATH}, and has none: count them with read_labels"
        )
    total = sum(found.values())
    return {label: count / total for label, count in found.items()}


def balance_by_label(
    labels: npt.ArrayLike, *, target: Distribution | None = None
) -> Callable[[Order], Order]:
    """Returns what `load(…, reorder=…)` needs to draw classes in given proportions.

        labels = read_labels("ds", "train")
        load("ds", "train", batch_size=64, reorder=balance_by_label(labels))

    An epoch has as many records as before, and of each class exactly its share of them, rounded:
    each of its records floor or ceil as often as the others, others each epoch. Copies of a record
    are spread over the epoch; in one epoch they share their draws. Memory: 32 bytes a record.

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
            found = "compressed shards" if order.whole_shards else "shuffle=False"
            raise UsageError(
                f"balance_by_label needs shuffling and an index, got {found}: use "
                "balance_by_rejection"
            )
        last = max(stretch.number + stretch.count for stretch in order.stretches)
        if last > len(table):
            raise UsageError(
                f"labels must be those of the whole split, and record {last - 1} is beyond the "
                f"{len(table)} given: read them with read_labels"
            )
        whole = Stretch(0, 0, order.records, 0)
        values = {name: getattr(order, name) for name in order.__dataclass_fields__}
        return BalancedOrder(
            **values | {"stretches": (whole,)}, source=order.stretches, labels=table, shares=shares
        )

    return reorder


@dataclass(frozen=True, kw_only=True)
class BalancedOrder(Order):
    """An order of the entries of a table that is drawn anew each epoch.

    Attributes:
      source: where the records are; `stretches` are those of the table.
      labels: `[records of the split] int64`.
      shares: class -> share.
    """

    source: tuple[Stretch, ...]
    labels: Ints = field(compare=False)
    shares: dict[int, float]

    @property
    def run_records(self) -> int:
        """The most records of a run."""
        return _RUN_RECORDS

    def window(self, epoch: int, window: int, from_step: int = 0) -> WindowPlan:
        """Returns what to read for a window and how to arrange it, from one of its steps on."""
        plan = super().window(epoch, window, from_step)
        positions = np.array([run.position for run in plan.runs], np.int64)
        entries = np.array([run.number for run in plan.runs], np.int64)
        which = np.maximum(np.searchsorted(positions, plan.rows, side="right") - 1, 0)
        real = plan.rows != FILLER
        entry = np.where(real, entries[which] + plan.rows - positions[which], entries[0])
        needed, place = np.unique(self._tables(epoch)[entry], return_inverse=True)
        runs, places = self._real_runs(needed)
        return WindowPlan(runs, np.where(real, places[place], FILLER))

    def _real_runs(self, needed: Ints) -> tuple[list[Run], Ints]:
        """Returns runs that hold some records, counted in `source`, and the place of each."""
        table = self._places
        stretch = np.searchsorted(table[:, 0], needed, side="right") - 1
        shard = table[stretch, 1]
        within = needed - table[stretch, 0]
        breaks = (np.diff(stretch, prepend=-1) != 0) | (np.diff(needed, prepend=-1) > _GAP_RECORDS)
        # A group of near records is cut every _RUN_RECORDS.
        group_first = needed[np.maximum.accumulate(np.where(breaks, np.arange(len(needed)), 0))]
        part = (needed - group_first) // _RUN_RECORDS
        breaks |= np.diff(part, prepend=-1) != 0
        begins = np.flatnonzero(breaks)
        ends = np.append(begins[1:], len(needed)) - 1
        counts = needed[ends] - needed[begins] + 1
        positions = np.cumsum(counts) - counts
        run = np.cumsum(breaks) - 1
        columns = (
            positions,
            shard[begins],
            table[stretch[begins], 2] + within[begins],
            counts,
            table[stretch[begins], 3] + within[begins],
        )
        runs = [Run(*row) for row in np.stack(columns, axis=1).tolist()]
        return runs, positions[run] + needed - needed[begins][run]

    @cached_property
    def _places(self) -> Ints:
        """`[stretches, 4]`: first record in `source`, shard, first in it, number in the split."""
        counts = np.array([s.count for s in self.source], np.int64)
        rows = [(0, s.shard, s.first, s.number) for s in self.source]
        table = np.array(rows, np.int64)
        table[:, 0] = np.cumsum(counts) - counts
        return table

    @cached_property
    def _own_labels(self) -> Ints:
        return np.concatenate([self.labels[s.number : s.number + s.count] for s in self.source])

    @cached_property
    def _tables(self) -> Callable[[int], Ints]:
        return lru_cache(2)(self._draw)

    def _draw(self, epoch: int) -> Ints:
        """Returns `[records] int64`: the records of an epoch, near their place in the dataset.

        Copy j of C of record r stands at r + j records / C, so that an epoch is the same mixture
        throughout, and one pass over the dataset reads neighbours together.
        """
        labels = self._own_labels
        base = np.uint64(seed_for(self.seed or 0, f"reader/balance/{epoch}"))
        keys = mix64(mix64(np.arange(len(labels), dtype=np.uint64) + GOLDEN) ^ base)
        classes = list(self.shares)
        totals = largest_remainder([self.shares[label] for label in classes], len(labels))
        copies = np.zeros(len(labels), np.int64)
        for label, total in zip(classes, totals.tolist(), strict=True):
            members = np.flatnonzero(labels == label)
            if total and not len(members):
                raise UsageError(
                    f"class {label} must have a record in the part that is read, and has none: "
                    "leave it out of the target"
                )
            if total:
                each, more = divmod(total, len(members))
                copies[members] = each
                copies[members[np.argsort(keys[members])[:more]]] += 1
        records = np.repeat(np.arange(len(labels)), copies)
        copy = np.arange(len(records)) - np.repeat(np.cumsum(copies) - copies, copies)
        places = (records + copy * len(labels) / copies[records]) % len(labels)
        return records[np.argsort(places, kind="stable")]


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
      feature: `[batch] int32`, the class.
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


def _check_classes(shares: Mapping[int, float], found: Mapping[int, Any]) -> None:
    absent = sorted(label for label, share in shares.items() if share and not found.get(label))
    if absent:
        raise UsageError(
            f"every class of the target must have records, and {', '.join(map(str, absent))} has "
            f"none; the classes are {', '.join(map(str, sorted(found)))}"
        )
