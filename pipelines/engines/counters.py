"""Beam's counters of a run, as the engine reports them at its end."""

from __future__ import annotations

from collections import Counter
from typing import Any

from apache_beam.metrics.metric import MetricsFilter

from recordmill.pipelines.beam_internals import job_metrics
from recordmill.transforms.dataset.counters import NAMESPACE

_SECONDS = 30.0  # the dataset is complete: counters are worth no longer wait


def read_counters(result: Any) -> dict[str, int]:
    """Returns counter -> value over all stages; {} where an engine reports none.

    Values are those of attempts: what an engine repeats, it counts again.
    """
    try:
        return sum_counters(job_metrics(result, _SECONDS))
    except Exception:  # an engine that cannot count, or is gone: the dataset is complete
        return {}


def sum_counters(metrics: Any) -> dict[str, int]:
    """Returns counter -> value over all stages, of the metrics of a job."""
    sums: Counter[str] = Counter()
    for each in metrics.query(MetricsFilter().with_namespace(NAMESPACE))["counters"]:
        value = each.committed if each.attempted is None else each.attempted
        sums[each.key.metric.name] += int(value or 0)
    return dict(sorted(sums.items()))
