from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from recordmill.reader.workers import find_worker
from recordmill.records.errors import UsageError

CLUSTER = {"chief": ["a:1"], "worker": ["b:1", "c:1"], "ps": ["d:1"], "evaluator": ["e:1"]}


def tf_config(kind: str, index: int, **cluster) -> dict[str, str]:
    task = {"type": kind, "index": index}
    return {"TF_CONFIG": json.dumps({"cluster": cluster or CLUSTER, "task": task})}


SLURM = {"SLURM_STEP_NUM_TASKS": "4", "SLURM_PROCID": "3"}
TORCH = {"WORLD_SIZE": "8", "RANK": "5"}


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, (1, 0)),
        (tf_config("chief", 0), (3, 0)),
        (tf_config("worker", 1), (3, 2)),
        (tf_config("worker", 1, worker=["a:1", "b:1"]), (2, 1)),
        (tf_config("evaluator", 0), (1, 0)),
        ({"TF_CONFIG": "{}"}, (1, 0)),
        (SLURM, (4, 3)),
        ({"SLURM_NTASKS": "4", "SLURM_PROCID": "0"}, (1, 0)),
        (TORCH, (8, 5)),
        ({**TORCH, **SLURM}, (4, 3)),
        ({**TORCH, **SLURM, **tf_config("worker", 0)}, (3, 1)),
    ],
)
def test_environment(environ, expected) -> None:
    worker = find_worker(environ=environ)
    assert (worker.count, worker.index) == expected


def test_arguments_come_first_then_the_context() -> None:
    context = SimpleNamespace(num_input_pipelines=6, input_pipeline_id=2)
    assert find_worker(2, 1, context, environ=TORCH).index == 1
    assert find_worker(None, None, context, environ=TORCH).count == 6


@pytest.mark.parametrize(
    ("arguments", "environ", "message"),
    [
        ((2, None), {}, "must be given together, got num_workers=2, worker_index=None"),
        ((None, 0), {}, "must be given together"),
        ((2, 2), {}, r"worker_index must be in \[0, num_workers\), got 2 of 2 from the arguments"),
        ((0, 0), {}, "got 0 of 0"),
        ((), {"WORLD_SIZE": "2"}, "WORLD_SIZE and RANK must be set together, and WORLD_SIZE is"),
        ((), {"RANK": "2"}, "RANK is set without WORLD_SIZE"),
        ((), {"WORLD_SIZE": "2", "RANK": "two"}, "RANK must be a whole number, got 'two'"),
        ((), {"WORLD_SIZE": "2", "RANK": "2"}, "got 2 of 2 from WORLD_SIZE and RANK"),
        ((), {"SLURM_STEP_NUM_TASKS": "2"}, "SLURM_STEP_NUM_TASKS is set without SLURM_PROCID"),
        ((), {"TF_CONFIG": "worker 1"}, "TF_CONFIG must be JSON"),
        ((), {"TF_CONFIG": "[1]"}, "TF_CONFIG must be JSON"),
        ((), tf_config("ps", 0), "must be one of its cluster's chief or workers, got 'ps'"),
        ((), tf_config("worker", 2), "index must be below the 2 of type 'worker', got 2"),
    ],
)
def test_wrong_combinations_are_refused(arguments, environ, message) -> None:
    with pytest.raises(UsageError, match=message) as info:
        find_worker(*arguments, environ=environ)
    assert "\n" not in str(info.value)
