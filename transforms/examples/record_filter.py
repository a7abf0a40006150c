"""`--where`: which records fulfil a condition, told for a batch of them feature by feature."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby

import numpy as np

from recordmill.records.arrays import Bools, Bytes, Int64s
from recordmill.records.codec.encoding import Ragged
from recordmill.records.codec.feature_values import OTHER_FORM, find_feature
from recordmill.records.codec.framing import FOOTER_BYTES, HEADER_BYTES
from recordmill.records.conditions import Comparison
from recordmill.records.example_values import parse_any


def fulfilling(
    parts: Iterable[Comparison], data: Bytes, begins: Int64s, ends: Int64s
) -> tuple[Bools, Int64s]:
    """Tells which records fulfil all parts of a condition.

    Args:
      parts: of the condition.
      data: `[bytes] uint8`.
      begins, ends: `[num_records] int64`: of each record with its frame.

    Returns:
      `[num_records] bool`, and `[n] int64`: the records that have no features.

    Raises:
      UsageError: a feature has numbers, and they are compared with text.
    """
    count = len(begins)
    holds = np.ones(count, np.bool_)
    odd = np.zeros(count, np.bool_)
    named = sorted(parts, key=lambda part: part.name)
    for name, of_name in groupby(named, key=lambda part: part.name):
        found = find_feature(data, begins, ends, name)
        odd |= found.kinds == OTHER_FORM
        for part in of_name:
            if part.of_length and part.sign != "~":
                holds &= part.holds_for_numbers(found.counts)
                continue
            one = np.zeros(count, np.bool_)
            for rows, numbers in (found.ints(), found.floats()):
                if len(rows):
                    one[rows] = _any(part.holds_for_numbers(numbers.values), numbers)
            rows, strings = found.strings()
            if len(rows):
                ends_of = strings.starts + strings.lengths
                each = [
                    part.holds_for_text(data[begin:end].tobytes())
                    for begin, end in zip(strings.starts.tolist(), ends_of.tolist(), strict=True)
                ]
                values = Ragged(np.array(each, np.bool_), strings.row_splits)
                one[rows] = _any(values.values, values)
            holds &= one
    featureless = []
    for row in np.flatnonzero(odd).tolist():
        record = data[begins[row] + HEADER_BYTES : ends[row] - FOOTER_BYTES].tobytes()
        try:
            features = parse_any(record)
        except ValueError:
            featureless.append(row)
            continue
        holds[row] = all(part.holds(features) for part in named)
    return holds, np.array(featureless, np.int64)


def _any(holds: Bools, values: Ragged) -> Bools:
    """Returns for each record whether it holds for one of its values."""
    before = np.concatenate([[0], np.cumsum(holds)])
    return before[values.row_splits[1:]] > before[values.row_splits[:-1]]
