"""The counters of a job, under the names that Flink's and Dataflow's consoles show.

docs/guides/progress.md has a table of them. A work item that an engine repeats is counted again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

NAMESPACE = "recordmill"
STARTED, FINISHED = "work_items_started", "work_items_finished"


def count(name: str, amount: int = 1) -> None:
    """Adds to a counter of Beam's, within a pipeline of Beam's."""
    from apache_beam.metrics import Metrics  # late: jobs of this machine load no Beam

    Metrics.counter(NAMESPACE, name).inc(amount)


def of_rejects(rejected: Mapping[str, int]) -> dict[str, int]:
    """Returns the counter of each reason -> how many inputs were rejected."""
    return {f"rejected_{reason}": amount for reason, amount in rejected.items()}


def count_rejects(rejected: Mapping[str, int]) -> None:
    """Adds rejected inputs to the counter of each reason."""
    for name, amount in of_rejects(rejected).items():
        count(name, amount)


@contextmanager
def work_item() -> Iterator[None]:
    """Counts a work item when it begins, and when it has ended without an error."""
    count(STARTED)
    yield
    count(FINISHED)
