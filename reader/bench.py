"""`recordmill bench`: measure how fast a dataset is read and where the time goes; give advice."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from recordmill.reader.dataset import open_dataset
from recordmill.reader.features import Transform
from recordmill.reader.loading import Reader
from recordmill.reader.options import BenchSpec
from recordmill.reader.performance import perf_input_fn
from recordmill.records.errors import UsageError

if TYPE_CHECKING:
    import tensorflow as tf

_IMAGES = ("image", "image/encoded")
_USUAL_SIDE = 224


@dataclass(frozen=True, slots=True)
class _Decoding:
    """How the images of a dataset are decoded while it is measured."""

    height: int
    width: int
    channels: int

    def transform(self) -> Transform:
        from recordmill.reader.transforms.image_decoding import decode_images

        return decode_images(size=(self.height, self.width), channels=self.channels)

    def describe(self) -> str:
        shape = f"{self.height}x{self.width}x{self.channels}"
        return f"images are decoded to {shape}, as part of transform; --no-decode leaves that out"


def _decoding(options: BenchSpec) -> _Decoding | None:
    """Returns how to decode images; None if there are none, or if they are to stay encoded.

    Raises:
      UsageError: a flag that has no effect.
    """
    features = open_dataset(options.path).schema.features
    shapes = [f.image_shape for f in features if f.name in _IMAGES and f.image_shape]
    if not shapes:
        flag = "--image_size" if options.size else "--decode" if options.decode else ""
        if flag:
            raise UsageError(
                f"{flag} has no effect on {options.path}, which has no images; leave it out"
            )
    if not shapes or options.decode is False:
        return None
    height, width, channels = shapes[0]
    if options.size:
        height, width = options.size
    return _Decoding(height or _USUAL_SIDE, width or _USUAL_SIDE, channels or 3)


@dataclass(frozen=True, slots=True)
class Costs:
    """Milliseconds a batch, of each stage as if it ran alone.

    Attributes:
      read: opening, reading and checking records.
      parse: from strings to tensors, shuffling with it.
      transform: the caller's function of batches.
      wait: from one batch to the next, all stages working at once.
    """

    read: float
    parse: float
    transform: float
    wait: float

    def stall(self, step_msec: float) -> float:
        """Returns the part of the time, in [0, 1), that a trainer of this step time would wait."""
        return max(0.0, 1 - step_msec / self.wait) if self.wait else 0.0

    def advice(self) -> str:
        """Returns the first change to make if a trainer waits."""
        stage = max(("read", "parse", "transform"), key=lambda name: getattr(self, name))
        return {
            "read": "reading is the largest part: keep the shards on a local disk (cache_dir), "
            "uncompressed, and store less in each record",
            "parse": "parsing is the largest part: give the process more cores, or write fewer "
            "features: parse time grows with the numbers in a record",
            "transform": "transforms are the largest part: do in the pipeline what is the same "
            "each epoch, or give the process more cores",
        }[stage]


def _msec_per_step(dataset: tf.data.Dataset, steps_each: int, seconds: float) -> float:
    """Returns milliseconds a step, from the first element to the last."""
    elements = iter(dataset)
    next(elements)
    began = time.perf_counter()
    count = 0
    for _ in elements:
        count += 1
        if time.perf_counter() - began >= seconds:
            break
    return 1000 * (time.perf_counter() - began) / max(1, count) / steps_each


def measure(path: str, split: str, *, seconds: float, transform: Any = (), **options: Any) -> Costs:
    """Measures a reader stage by stage, and prints the lines of `perf_input_fn` for all of it.

    Args:
      path, split: as `load` takes them.
      seconds: to spend, about.
      transform: as `load` takes it.
      options: the other arguments of `load`.
    """
    plain = Reader(path, split, epochs=None, **options)
    whole = Reader(path, split, epochs=None, transform=transform, **options)
    steps, elapsed, first = perf_input_fn(lambda reader: reader.dataset(), whole, seconds / 2)
    wait = 1000 * (elapsed - first) / (steps - 1) if steps > 1 else 1000 * elapsed
    windows, steps_each = plain.read_only()
    read = _msec_per_step(windows.repeat(), steps_each, seconds / 4)
    parsed = wait if not whole.has_transforms else _msec_per_step(plain.dataset(), 1, seconds / 4)
    return Costs(read, max(0.0, parsed - read), max(0.0, wait - parsed), wait)


def report(costs: Costs, batch_size: int, step_msec: Sequence[float]) -> str:
    """Returns the lines for people."""
    lines = [
        f"{batch_size * 1000 / costs.wait:,.0f} records/s; a batch every {costs.wait:.2f} ms",
        "where the time of a batch goes: "
        + ", ".join(f"{name} {getattr(costs, name):.2f} ms" for name in ("read", "parse"))
        + f", transform {costs.transform:.2f} ms",
    ]
    for step in step_msec:
        stall = costs.stall(step)
        lines.append(f"a step of {step:g} ms would wait {stall:.0%} of the time")
    lines.append(f"no stalls for steps of {costs.wait:.1f} ms or more; else: {costs.advice()}")
    return "\n".join(lines)


def run(options: BenchSpec) -> int:
    """Runs `recordmill bench` and returns the exit status.

    Raises:
      UsageError: see `load`.
    """
    decoding = _decoding(options)
    print("steps of the whole reader, as perf_input_fn of Cerebras' Model Zoo prints them:")
    costs = measure(
        options.path, options.split, seconds=options.time, batch_size=options.batch_size,
        shuffle=options.shuffle, seed=options.seed, int64=options.int64,
        transform=decoding.transform() if decoding else (),
    )  # fmt: skip
    if decoding:
        print(decoding.describe())
    print(report(costs, options.batch_size, options.step_msec))
    return 0
