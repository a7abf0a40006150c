"""How fast an input pipeline is, measured and printed as Cerebras' perf_input_fn does."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from recordmill.records.errors import UsageError

if TYPE_CHECKING:
    import tensorflow as tf


_PAIR = ("features", "labels", "weights")


def perf_input_fn(
    input_fn: Callable[[Any], tf.data.Dataset], params: Any, time_stop: float = math.inf
) -> tuple[int, float, float]:
    """Takes batches as fast as they come and prints how fast that is.

    Args:
      input_fn: returns a dataset for `params`.
      params: its argument.
      time_stop: seconds after which to stop; else at the end of the dataset.

    Returns:
      steps taken, seconds that they took, seconds that the first one took, with what is done once:
      opening files, filling buffers.

    Raises:
      UsageError: the dataset has no batch.
    """
    import tensorflow  # noqa: F401 - takes seconds, which are no step's

    began = time.perf_counter()
    steps = 0
    first = elapsed = 0.0
    shapes: dict[str, tuple[int | None, ...]] = {}
    for batch in input_fn(params):
        steps += 1
        elapsed = time.perf_counter() - began
        if steps == 1:
            first = elapsed
            shapes = _shapes(batch)
        if elapsed >= time_stop:
            break
    if not steps:
        raise UsageError("an input_fn must give at least one batch, and this one gives none")
    rest = elapsed - first
    print(f"total steps: {steps}, time: {elapsed}, perf: {steps / elapsed} steps/sec/worker")
    print(
        f"Without counting first step, total steps: {steps - 1}, time: {rest}, "
        f"perf: {(steps - 1) / rest if rest else 0.0} steps/sec/worker"
    )
    print(f"total number of inputs: {len(shapes)}")
    print(f"Shapes: {{{', '.join(f'{name}: {shape}' for name, shape in shapes.items())}}}")
    return steps, elapsed, first


def _named(batch: Any) -> dict[str, Any]:
    """Returns the parts of a batch by name: those of a dict, features and labels, or positions."""
    if isinstance(batch, dict):
        return {str(name): value for name, value in batch.items()}
    if not isinstance(batch, (tuple, list)):
        return {"input": batch}
    names = _PAIR if len(batch) in (2, 3) else [str(i) for i in range(len(batch))]
    return dict(zip(names, batch, strict=False))


def _shapes(batch: Any) -> dict[str, tuple[int | None, ...]]:
    """Returns the shape of each tensor of a batch, by its name."""
    flat: dict[str, tuple[int | None, ...]] = {}
    for name, value in _named(batch).items():
        if isinstance(value, (dict, tuple, list)):
            parts = value if isinstance(value, dict) else dict(enumerate(value))
            flat |= {f"{name}/{inner}": shape for inner, shape in _shapes(parts).items()}
        else:
            flat[name] = tuple(value.shape)
    return flat
