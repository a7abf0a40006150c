"""`recordmill plan text | images`: what a job would do, take and cost, before anything is written.

The input is listed and planned as the job would; a sample of it goes through the job's own code, in
this process, and tells how fast that is and how much comes out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from recordmill.records.arguments import Parser
from recordmill.records.errors import RunError, UsageError, one_of

JOBS = ("text", "images")


@dataclass(frozen=True, slots=True)
class Step:
    """A phase of a job.

    Attributes:
      name: of the phase.
      tasks: that may be done at once.
      worker_seconds: of all of them, one after the other.
    """

    name: str
    tasks: int
    worker_seconds: float

    def seconds(self, workers: int) -> float:
        """Returns how long so many workers take, each with one task at a time."""
        return -(-self.tasks // workers) * self.worker_seconds / max(self.tasks, 1)


@dataclass(frozen=True, slots=True)
class Forecast:
    """What a job would do.

    Attributes:
      inputs: what was found.
      sample: what was measured.
      splits: name, shards and bytes of each.
      records: of all.
      steps: in order.
      regroups: how often runs are gathered into fewer.
      range_reads: of parts of files.
      temporary_bytes: at most, at any time.
      worker_bytes: the memory of a worker with one task.
    """

    inputs: str
    sample: str
    splits: tuple[tuple[str, int, float], ...]
    records: float
    steps: tuple[Step, ...]
    regroups: int
    range_reads: int
    temporary_bytes: float
    worker_bytes: float

    def lines(self, workers: int, price: float | None) -> Iterator[tuple[str, str]]:
        """Yields names and values, for people.

        Args:
          workers: with one task at a time each.
          price: of a worker and hour, in any currency; None: no cost is told.
        """
        yield "input", self.inputs
        for name, shards, size in self.splits:
            yield f"shards of {name}", f"{shards:,} of {show_bytes(size / shards)}"
        output = sum(size for _, _, size in self.splits)
        yield "output", f"{self.records:,.0f} records, {show_bytes(output)}"
        yield "tasks", ", ".join(f"{step.name} {step.tasks:,}" for step in self.steps)
        yield "regroups", str(self.regroups)
        yield "temporary files", show_bytes(self.temporary_bytes)
        yield "range reads", f"{self.range_reads:,}"
        yield "memory a worker", show_bytes(self.worker_bytes)
        yield "sample", self.sample
        took = [(step.name, step.seconds(workers)) for step in self.steps]
        total = sum(seconds for _, seconds in took)
        parts = ", ".join(f"{name} {show_seconds(seconds)}" for name, seconds in took)
        yield f"time of {workers:,} workers", f"{show_seconds(total)} ({parts})"
        hours = workers * total / 3600
        if price is not None:
            yield "cost", f"{hours * price:,.2f} for {hours:,.1f} worker hours"


def show_bytes(size: float) -> str:
    """Returns a size as people write it."""
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if size < 999.5:
            return f"{size:.0f} {unit}" if unit == "B" or size >= 99.95 else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:,.1f} PB"


def show_seconds(seconds: float) -> str:
    """Returns a time as people write it."""
    if seconds < 120:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:,.1f} h"


def _forecast(kind: str, options: Any) -> Forecast:
    if kind == "text":
        from recordmill.pipelines.text_forecast import forecast_text
        from recordmill.pipelines.text_options import text_request

        return forecast_text(text_request(options), workers=options.plan_workers)
    from recordmill.pipelines.image_forecast import forecast_images
    from recordmill.pipelines.image_options import image_request

    return forecast_images(image_request(options), workers=options.plan_workers)


def _add_arguments(parser: Parser, kind: str) -> None:
    from recordmill.pipelines.image_options import add_image_arguments
    from recordmill.pipelines.local import default_workers
    from recordmill.pipelines.text_options import add_text_arguments

    group = parser.add_argument_group("plan")
    group.add_argument(
        "--plan_workers", type=int, default=default_workers(),
        help="For how many workers the input is cut and time is told; this machine's cores.",
    )  # fmt: skip
    group.add_argument(
        "--price_per_worker_hour", type=float,
        help="What a worker costs an hour, in any currency; else no cost is told.",
    )  # fmt: skip
    {"text": add_text_arguments, "images": add_image_arguments}[kind](parser)


def main(arguments: list[str]) -> int:
    """Runs `recordmill plan`; returns 0.

    Raises:
      UsageError: wrong flags, or an input that cannot be used.
      RunError: the sample cannot be processed.
    """
    from apache_beam.io.filesystem import BeamIOError

    from recordmill.pipelines.engines import parse_arguments
    from recordmill.pipelines.launch import one_line

    kind = one_of("recordmill plan: the job", (arguments or [""])[0], JOBS)
    parser = Parser(
        prog=f"recordmill plan {kind}", allow_abbrev=False,
        description=f"What `recordmill {kind}` would do with these flags; nothing is written.",
    )  # fmt: skip
    _add_arguments(parser, kind)
    options, _ = parse_arguments(parser, arguments[1:])
    if options.plan_workers < 1:
        raise UsageError(f"--plan_workers must be at least 1, got {options.plan_workers}")
    price = options.price_per_worker_hour
    if price is not None and not 0 <= price < float("inf"):
        raise UsageError(f"--price_per_worker_hour must be a price, got {price}")
    try:
        forecast = _forecast(kind, options)
    except (UsageError, RunError):
        raise
    except (OSError, ValueError, BeamIOError) as error:
        raise UsageError(f"the job cannot be planned: {one_line(error)}") from error
    lines = list(forecast.lines(options.plan_workers, price))
    width = max(len(name) for name, _ in lines)
    for name, value in lines:
        print(f"{name:<{width}}  {value}")
    return 0
