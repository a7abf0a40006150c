"""How many tokens the features of records have, as seqio counts them for its caches.

Its `beam_utils.GetStats` counts what is neither padding nor the end of text, of each feature that a
task has a vocabulary for: here `inputs` and `targets` of language models.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import numpy as np

from recordmill.records.arrays import Int32s, Int64s
from recordmill.records.codec.encoding import Column, Ragged
from recordmill.transforms.text.objective import Objective
from recordmill.transforms.text.packed_rows import RowObjective

_FEATURES = ("inputs", "targets")


class FeatureTokens:
    """Adds up the tokens of the features of a shard.

    Args:
      objective: of the shard.
      counts: they are wanted.

    Attributes:
      sums, most: feature -> the tokens of all records, and the most of one.
    """

    def __init__(self, objective: Objective, *, counts: bool) -> None:
        self.sums: Counter[str] = Counter()
        self.most: dict[str, int] = {}
        self._other_ids = np.zeros(0, np.int32)
        self._features: tuple[str, ...] = ()
        if counts and isinstance(objective, RowObjective):
            self._features = _FEATURES
            self._other_ids = np.array(objective.special_ids, np.int32)

    def add(self, columns: Mapping[str, Column]) -> None:
        """Counts the tokens of some records."""
        for name in self._features:
            if name in columns:
                tokens = _count(columns[name], self._other_ids)
                self.sums[name] += int(tokens.sum())
                self.most = larger(self.most, {name: int(tokens.max(initial=0))})


def larger(some: Mapping[str, int], others: Mapping[str, int]) -> dict[str, int]:
    """Returns the larger number of each name."""
    return {name: max(some.get(name, 0), others.get(name, 0)) for name in {**some, **others}}


def _count(column: Column, other_ids: Int32s) -> Int64s:
    """Returns `[num_records] int64`: the values of each record that are none of some ids."""
    if not isinstance(column, Ragged):
        return np.count_nonzero(~np.isin(np.asarray(column), other_ids), axis=1)
    counted = np.concatenate([[0], np.cumsum(~np.isin(column.values, other_ids))])
    return np.asarray(np.diff(counted[column.row_splits]), np.int64)
