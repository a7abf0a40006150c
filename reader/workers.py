"""Find the index of this worker and the number of workers.

They come from arguments, an InputContext, TF_CONFIG, Slurm or torchrun; the first that is set
decides. One that contradicts itself is an error, because a silent default would train every worker
on the same records.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from recordmill.records.errors import UsageError


@dataclass(frozen=True, slots=True)
class Worker:
    """Worker `index` of `count`.

    Raises:
      UsageError: the index is not in [0, count).
    """

    count: int = 1
    index: int = 0
    source: str = "the default"

    def __post_init__(self) -> None:
        if self.count < 1 or not 0 <= self.index < self.count:
            raise UsageError(
                f"worker_index must be in [0, num_workers), got {self.index} of {self.count} from "
                f"{self.source}"
            )


def _number(text: str, name: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise UsageError(f"{name} must be a whole number, got {text!r}; correct or unset it") from (
            None
        )


def _from_tf_config(text: str) -> Worker:
    try:
        config = json.loads(text)
        cluster = config.get("cluster", {})
        task = config.get("task", {})
        kind = str(task.get("type", "worker"))
        index = int(task.get("index", 0))
        sizes = {name: len(members) for name, members in cluster.items()}
    except (ValueError, TypeError, AttributeError) as error:
        raise UsageError(
            f"TF_CONFIG must be JSON with 'cluster' and 'task', and is not ({error}); correct or "
            "unset it"
        ) from error
    trainers = {name: sizes.get(name, 0) for name in ("chief", "master", "worker")}
    if kind == "evaluator" or not sizes:
        return Worker(source="TF_CONFIG")
    if not trainers.get(kind):
        raise UsageError(
            f"TF_CONFIG's task must be one of its cluster's chief or workers, got {kind!r} in a "
            f"cluster of {sizes}; give num_workers and worker_index"
        )
    if index >= trainers[kind]:
        raise UsageError(
            f"TF_CONFIG's task index must be below the {trainers[kind]} of type {kind!r}, got "
            f"{index}"
        )
    before = 0 if kind != "worker" else trainers["chief"] + trainers["master"]
    return Worker(sum(trainers.values()), before + index, "TF_CONFIG")


def _from_pair(environ: Mapping[str, str], count: str, index: str) -> Worker:
    if count not in environ or index not in environ:
        there, absent = (count, index) if count in environ else (index, count)
        raise UsageError(
            f"{count} and {index} must be set together, and {there} is set without {absent}; set "
            "both, or give num_workers and worker_index"
        )
    return Worker(
        _number(environ[count], count), _number(environ[index], index), f"{count} and {index}"
    )


def find_worker(
    num_workers: int | None = None,
    worker_index: int | None = None,
    input_context: Any = None,
    environ: Mapping[str, str] | None = None,
) -> Worker:
    """Returns which worker this process is.

    Args:
      num_workers, worker_index: given together, they decide.
      input_context: a `tf.distribute.InputContext`.
      environ: `os.environ`. TF_CONFIG; SLURM_STEP_NUM_TASKS and SLURM_PROCID, which srun sets;
        WORLD_SIZE and RANK, which torchrun sets.

    Raises:
      UsageError: a pair is incomplete, or the index is not one of that many workers.
    """
    environ = os.environ if environ is None else environ
    if num_workers is not None or worker_index is not None:
        if num_workers is None or worker_index is None:
            raise UsageError(
                "num_workers and worker_index must be given together, got num_workers="
                f"{num_workers}, worker_index={worker_index}"
            )
        return Worker(num_workers, worker_index, "the arguments")
    if input_context is not None:
        return Worker(
            int(input_context.num_input_pipelines), int(input_context.input_pipeline_id),
            "the InputContext",
        )  # fmt: skip
    if environ.get("TF_CONFIG"):
        return _from_tf_config(environ["TF_CONFIG"])
    if "SLURM_STEP_NUM_TASKS" in environ:  # absent from a batch script that runs without srun
        return _from_pair(environ, "SLURM_STEP_NUM_TASKS", "SLURM_PROCID")
    if "WORLD_SIZE" in environ or "RANK" in environ:
        return _from_pair(environ, "WORLD_SIZE", "RANK")
    return Worker()
