"""When the tasks of a run have nothing left to do."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from pathlib import Path

import pytest

from recordmill.records.errors import UsageError
from recordmill.transforms.dataset.run_errors import is_over, one_line_first
from recordmill.transforms.dataset.workspace import Workspace


def test_a_run_is_over_when_its_plan_is_gone_and_a_dataset_is_there(tmp_path: Path) -> None:
    folder = str(tmp_path / "_tmp")
    workspace = Workspace(output=str(tmp_path), work=folder, staging=folder, token="0" * 16)
    assert not is_over(workspace)
    (tmp_path / "_SUCCESS").touch()
    assert is_over(workspace)
    # Nobody else finishes the run of a user's own pipeline: the dataset is of another one.
    of_pipeline = replace(workspace, of_pipeline=True)
    assert not is_over(of_pipeline)
    (tmp_path / "_meta").mkdir()
    for run, expected in [("1" * 16, False), ("0" * 16, True)]:
        (tmp_path / "_meta/run.json").write_text(json.dumps({"run": run}))
        assert is_over(of_pipeline) == expected
    (tmp_path / "_tmp").mkdir()
    (tmp_path / "_tmp/plan.json").touch()
    assert not is_over(workspace)


def test_a_logged_line_has_no_password_and_is_one(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR, "recordmill"), pytest.raises(UsageError), one_line_first():
        raise UsageError("--input postgresql://me:secret@host/db has\na line")
    assert caplog.messages == ["--input postgresql://me:***@host/db has\\na line"]
