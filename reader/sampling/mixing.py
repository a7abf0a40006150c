"""Several datasets as one, by weights, with exact counts, from any step on.

Which dataset a step takes its batch from is a fixed, periodic schedule: after n steps each has had
floor or ceil of its share of n. So a position in it is a number, and restarting costs nothing.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from recordmill.records.errors import UsageError

if TYPE_CHECKING:
    import tensorflow as tf

PERIOD = 10_000


def mix(
    sources: Mapping[str, Callable[..., tf.data.Dataset]],
    *,
    weights: Mapping[str, float],
    steps: int | None = None,
    start_step: int = 0,
) -> tf.data.Dataset:
    """Returns batches of several datasets, one dataset a step.

        sources = {
            name: functools.partial(load, path, "train", batch_size=32, epochs=None)
            for name, path in paths.items()
        }
        mix(sources, weights={"books": 2, "web": 5}, start_step=reader_step)

    After n steps each dataset has given floor or ceil of n x its share of the weights. Shares are
    exact where weights are whole numbers of at most 10,000 in all, and else rounded to 10,000ths.

    Args:
      sources: name -> function of `start_step` that returns a dataset; all of one element_spec.
      weights: name -> weight, above 0; only their ratios count. `temperature_weights` makes them
        of sizes.
      steps: to give in all, those before `start_step` counted; None goes on for ever.
      start_step: steps to pass over; nothing that lies before is read.

    Raises:
      UsageError: names or element specs differ, a weight is not above 0, or a dataset has fewer
        batches than `steps` take from it.
    """
    import tensorflow as tf

    from recordmill.reader.one_line_errors import describe_error, raise_one_line

    names = sorted(sources)
    if names != sorted(weights) or not names:
        raise UsageError(
            f"every source must have a weight, got sources {', '.join(names) or 'none'} and "
            f"weights {', '.join(sorted(weights)) or 'none'}"
        )
    if start_step < 0 or (steps is not None and start_step > steps):
        raise UsageError(f"start_step must be in [0, steps={steps}], got {start_step}")
    plan = schedule(shares([weights[name] for name in names]))
    taken = _counts(plan, len(names), start_step)
    datasets = [
        sources[name](start_step=int(count)) for name, count in zip(names, taken, strict=True)
    ]
    _check_specs(names, datasets)
    if steps is not None:
        taken = _counts(plan, len(names), steps) - taken
    _check_cardinality(names, datasets, None if steps is None else taken)
    turned = np.roll(plan, -(start_step % len(plan)))
    choices = tf.data.Dataset.from_tensor_slices(turned).repeat()
    left = tf.data.INFINITE_CARDINALITY
    if steps is not None:
        left = steps - start_step
        choices = choices.take(left)
    mixed = tf.data.Dataset.choose_from_datasets(datasets, choices, stop_on_empty_dataset=True)

    def describe(error: Any, given: int) -> str | None:
        """Has the source that the failed step is of say it."""
        source = int(turned[given % len(turned)])
        return describe_error(
            datasets[source], error, int(_counts(turned, len(names), given)[source])
        )

    return raise_one_line(mixed.apply(tf.data.experimental.assert_cardinality(left)), describe)


def temperature_weights(sizes: Mapping[str, int], *, temperature: float) -> dict[str, float]:
    """Returns weights size ** (1 / temperature), as multilingual models use.

    1 is in proportion to the sizes, and the higher the temperature the more equal the weights
    (Arivazhagan et al. 2019, arXiv:1907.05019).

    Raises:
      UsageError: a temperature or a size is not above 0.
    """
    if temperature <= 0 or not sizes or min(sizes.values()) <= 0:
        raise UsageError(f"temperature and sizes must be above 0, got {temperature} and {sizes}")
    most = max(sizes.values())
    return {name: (size / most) ** (1 / temperature) for name, size in sizes.items()}


def shares(weights: Sequence[float]) -> list[int]:
    """Returns whole numbers in the ratios of the weights, at most 10,000 in all, each 1 or more.

    Raises:
      UsageError: a weight is not above 0, or there are more than 10,000.
    """
    if not all(0 < weight < float("inf") for weight in weights) or len(weights) > PERIOD:
        raise UsageError(f"weights must be above 0, and at most {PERIOD} of them, got {weights}")
    if all(float(weight).is_integer() for weight in weights) and sum(weights) <= PERIOD:
        return [int(weight) for weight in weights]
    exact = np.asarray(weights, np.float64) / sum(weights)
    return [int(part) for part in 1 + largest_remainder(exact, PERIOD - len(weights))]


def largest_remainder(distribution: npt.ArrayLike, total: int) -> npt.NDArray[np.int64]:
    """Returns `[num_parts] int64` of sum `total`, each floor or ceil of its share (Hamilton).

    Args:
      distribution: `[num_parts]`, shares that add up to 1.
      total: the sum.
    """
    exact = np.asarray(distribution, np.float64) * total
    parts = np.floor(exact).astype(np.int64)
    order = np.argsort(parts - exact, kind="stable")
    parts[order[: total - parts.sum()]] += 1
    return parts


def schedule(parts: Sequence[int]) -> npt.NDArray[np.int64]:
    """Returns `[sum(parts)] int64`: the order in which to take turns.

    Turn j of a part p of A may come from step floor(j A / p) on and must come before step
    ceil((j + 1) A / p); the earliest deadline first meets all of these, so that after n steps each
    part has had floor or ceil of n p / A turns (Baruah et al. 1996, doi:10.1007/BF01940883).
    """
    period = sum(parts)
    waiting = [(0, i, 0) for i in range(len(parts))]  # release, part, turn
    ready: list[tuple[int, int, int]] = []  # deadline, part, turn
    order = np.zeros(period, np.int64)
    heapq.heapify(waiting)
    for step in range(period):
        while waiting and waiting[0][0] <= step:
            _, part, turn = heapq.heappop(waiting)
            heapq.heappush(ready, (-(-(turn + 1) * period // parts[part]), part, turn))
        _, part, turn = heapq.heappop(ready)
        order[step] = part
        heapq.heappush(waiting, ((turn + 1) * period // parts[part], part, turn + 1))
    return order


def _counts(plan: npt.NDArray[np.int64], parts: int, steps: int) -> npt.NDArray[np.int64]:
    """Returns the turns of each part in the first `steps` steps."""
    periods, rest = divmod(steps, len(plan))
    whole = np.bincount(plan, minlength=parts)
    return periods * whole + np.bincount(plan[:rest], minlength=parts)


def _check_specs(names: Sequence[str], datasets: Sequence[Any]) -> None:
    first = datasets[0].element_spec
    for name, dataset in zip(names, datasets, strict=True):
        if dataset.element_spec != first:
            here, there = _first_difference(dataset.element_spec, first)
            raise UsageError(
                f"mixed datasets must have one element_spec, and {name!r} has {here} where "
                f"{names[0]!r} has {there}: use the same batch_size and a transform that gives the "
                "same features"
            )


def _first_difference(spec: Any, other: Any) -> tuple[str, str]:
    """Returns the first feature that two element specs do not share, as each has it."""
    if not (isinstance(spec, dict) and isinstance(other, dict)):
        return str(spec), str(other)
    feature = next(f for f in sorted({*spec, *other}) if spec.get(f) != other.get(f))
    here, there = (
        f"{feature}: {features[feature]}" if feature in features else f"no {feature!r}"
        for features in (spec, other)
    )
    return here, there


def _check_cardinality(
    names: Sequence[str], datasets: Sequence[Any], needed: npt.NDArray[np.int64] | None
) -> None:
    for i, (name, dataset) in enumerate(zip(names, datasets, strict=True)):
        batches = int(dataset.cardinality())
        if batches >= 0 and (needed is None or batches < needed[i]):
            rule = "go on for ever" if needed is None else f"have {needed[i]} batches"
            raise UsageError(
                f"a mixed dataset must {rule}, and {name!r} has {batches}: load it with "
                "epochs=None, or give fewer steps"
            )
