"""When the tasks of a run have nothing left to do."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from recordmill.transforms.dataset.run_task import is_over
from recordmill.transforms.dataset.workspace import Workspace


def test_a_run_is_over_when_its_plan_is_gone_and_a_dataset_is_there(tmp_path: Path) -> None:
    folder = str(tmp_path / "_tmp")
    workspace = Workspace(output=str(tmp_path), work=folder, staging=folder, token="0" * 16)
    assert not is_over(workspace)
    (tmp_path / "_SUCCESS").touch()
    assert is_over(workspace)
    # Nobody else finishes the run of a user's own pipeline: the dataset is of another one.
    assert not is_over(replace(workspace, resumable=False))
    (tmp_path / "_tmp").mkdir()
    (tmp_path / "_tmp/plan.json").touch()
    assert not is_over(workspace)
