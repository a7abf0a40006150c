"""Every reason that is given is one that is explained; lists of rejects end runs."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from recordmill.records.state import decode
from recordmill.transforms.dataset.error_budget import OverBudgetError, RejectList, most_rejects
from recordmill.transforms.dataset.rejects import REASONS, Reject
from recordmill.transforms.dataset.workspace import Workspace

from .small_job import SmallJob, small_job

ROOT = Path(__file__).parents[3]
# Which argument is the reason.
PLACES = {"ImageRejectedError": 0, "ListedReject": 1, "Reject": 3, "reject": 2}


def modules() -> Iterator[ast.Module]:
    for folder in ("transforms", "pipelines"):
        for path in (ROOT / folder).rglob("*.py"):
            if path.name != "rejects.py":
                yield ast.parse(path.read_text(encoding="utf-8"))


def given() -> set[str]:
    """The reasons that stand in calls as they are."""
    found = set()
    for module in modules():
        for node in ast.walk(module):
            if not isinstance(node, ast.Call):
                continue
            name = getattr(node.func, "id", getattr(node.func, "attr", ""))
            for argument in node.args[PLACES.get(name, len(node.args)) :][:1]:
                if isinstance(argument, ast.Constant):
                    found.add(argument.value)
    return found


def test_reasons_given_are_explained() -> None:
    assert len(given()) > 20
    assert given() <= REASONS.keys()


def test_reasons_explained_are_given() -> None:
    constants = {
        node.value.partition(":")[0]  # "reason: detail", as a parser returns them
        for module in modules()
        for node in ast.walk(module)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    assert REASONS.keys() <= constants


NULL = Reject("a.parquet", 0, "parse", "field_not_text", "'text' is null")


@pytest.fixture
def job(tmp_path: Path) -> SmallJob:
    return replace(small_job(tmp_path), max_rejected=1.0)


def at(*positions: int) -> list[Reject]:
    return [replace(NULL, position=position) for position in positions]


def listed(workspace: Workspace, number: int = 3) -> list[Reject]:
    lines = Path(workspace.rejected_path(number)).read_bytes().splitlines()
    return [decode(line, Reject) for line in lines]


def test_equal_rejects_have_a_line_each(job: SmallJob) -> None:
    with RejectList(job, 3) as rejects:
        rejects.add(at(4, 5))
        rejects.add(at(6))
        rejects.write()
    assert listed(job.workspace) == at(4, 5, 6)


def test_a_work_item_over_the_budget_stops(job: SmallJob) -> None:
    job = replace(job, max_rejected=0.0)
    with RejectList(job, 3) as rejects:
        rejects.add(at(*range(10_000)))
        with pytest.raises(OverBudgetError) as caught:
            rejects.add(at(*range(10_000, 20_000)))
    message = str(caught.value)
    assert message.startswith(
        "10001 inputs of a part of the input rejected (field_not_text 10001), which alone are more "
        "than --max_rejected allows, 0.000% of all; it is not read on; the first is a.parquet at "
        "position 0: the field is no string ('text' is null); these are listed in "
    )
    assert "\n" not in message
    assert listed(job.workspace) == at(*range(10_001))


def test_a_part_may_have_what_the_rest_may_make_up_for() -> None:
    assert most_rejects(0.0, 10**9) == 10_000
    assert most_rejects(0.5, 10**9) == 10**9
    assert most_rejects(0.5, 10) == 10_000
    assert most_rejects(0.5) > 10**12
    assert most_rejects(1.0, 10) > 10**12
