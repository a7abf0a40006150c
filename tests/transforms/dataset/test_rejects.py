"""Every reason that is given is one that is explained; lists of rejects are short, and end runs."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from recordmill.records.state import decode
from recordmill.transforms.dataset import error_budget
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


def at(*positions: int, like: Reject = NULL) -> list[Reject]:
    return [replace(like, position=position) for position in positions]


def listed(workspace: Workspace, number: int = 3) -> list[Reject]:
    lines = Path(workspace.rejected_path(number)).read_bytes().splitlines()
    return [decode(line, Reject) for line in lines]


def write(job: SmallJob, *batches: tuple[Sequence[Reject], Sequence[int]]) -> list[Reject]:
    with RejectList(job, 3) as rejects:
        for batch, used in batches:
            rejects.add(batch, np.array(used, np.int64))
        rejects.write()
    return listed(job.workspace)


def test_equal_rejects_in_a_row_are_one_line(job: SmallJob) -> None:
    other = replace(NULL, position=7, detail="'text' is int64")
    found = write(job, ([*at(4, 5, 6), other, *at(8, 9)], ()), (at(10), ()))
    assert found == [replace(NULL, position=4, count=3), other, replace(NULL, position=8, count=3)]


@pytest.mark.parametrize("used", [[5], [9, 5], [1, 5, 9]])
def test_an_input_that_is_used_stands_between_two(job: SmallJob, used: list[int]) -> None:
    assert write(job, (at(4, 6), used)) == at(4, 6)


def test_an_input_of_another_batch_stands_between_two(job: SmallJob) -> None:
    assert write(job, (at(4), [5]), (at(6), [7])) == at(4, 6)
    assert write(job, (at(4), [3]), ((), [5]), (at(6), ())) == at(4, 6)
    assert write(job, (at(4), ()), (at(6), [5])) == at(4, 6)
    assert write(job, (at(4), [3]), (at(6), [7])) == [replace(NULL, position=4, count=2)]


def test_other_files_are_other_lines(job: SmallJob) -> None:
    other = replace(NULL, source="b.parquet")
    assert write(job, (at(4), ()), ([other], ())) == [*at(4), other]


def test_rejects_without_an_order_have_a_line_each(job: SmallJob) -> None:
    with RejectList(job, 3) as rejects:
        rejects.add(at(4, 5))
        rejects.add(at(6))
        rejects.write()
    assert listed(job.workspace) == at(4, 5, 6)


def test_a_full_list_counts_the_rest(job: SmallJob, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(error_budget, "_MOST_LIST_BYTES", 500)
    numbers = [replace(NULL, position=i, detail=str(i)) for i in range(100)]
    found = write(job, (numbers, ()))
    assert found[:-1] == numbers[: len(found) - 1]
    last = found[-1]
    assert (last.position, last.reason) == (len(found) - 1, "field_not_text")
    assert last.detail == f"the first of {last.count} that are not listed: the list is full"
    assert sum(reject.count for reject in found) == 100
    assert Path(job.workspace.rejected_path(3)).stat().st_size < 1000


def test_a_work_item_over_the_budget_stops(job: SmallJob) -> None:
    job = replace(job, max_rejected=0.0)
    with RejectList(job, 3) as rejects:
        rejects.add(at(*range(10_000)), np.zeros(0, np.int64))
        with pytest.raises(OverBudgetError) as caught:
            rejects.add(at(*range(10_000, 20_000)), np.zeros(0, np.int64))
    message = str(caught.value)
    assert message.startswith(
        "10001 inputs of a part of the input rejected (field_not_text 10001), which alone are more "
        "than --max_rejected allows, 0.000% of all; it is not read on; the first is a.parquet at "
        "position 0: the field is no string ('text' is null); these are listed in "
    )
    assert "\n" not in message
    assert listed(job.workspace) == [replace(NULL, count=10_001)]


def test_a_part_may_have_what_the_rest_may_make_up_for() -> None:
    assert most_rejects(0.0, 10**9) == 10_000
    assert most_rejects(0.5, 10**9) == 10**9
    assert most_rejects(0.5, 10) == 10_000
    assert most_rejects(0.5) > 10**12
    assert most_rejects(1.0, 10) > 10**12
