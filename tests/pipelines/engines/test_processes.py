"""How many processes an input is worth, told from its files alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from recordmill.pipelines.command_table import COMMANDS, Call
from recordmill.pipelines.engines.preloading import is_preloading
from recordmill.pipelines.engines.processes import is_surely_small, processes_for
from recordmill.pipelines.faces import Given


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "in/deep").mkdir(parents=True)
    (tmp_path / "in/a,b.txt").write_text("small\n")
    (tmp_path / "in/deep/c.txt").write_text("small\n")
    with open(tmp_path / "large.txt", "wb") as handle:
        handle.truncate(16_000_000)
    return tmp_path


def test_a_large_input_is_worth_all_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("recordmill.pipelines.engines.processes.usable_cores", lambda: 7)
    assert processes_for(15_999_999) == 1
    assert processes_for(16_000_000) == 7


@pytest.mark.parametrize(
    ("pattern", "small"),
    [
        ("in", True),
        ("in/", True),
        ("in/*", True),
        ("in/a,b.txt", True),
        ("in/**/c.txt", True),
        ("train=in,validation=in/deep", True),
        ("in/deep/c.txt,large.txt", False),
        ("all=large.txt", False),
        ("large.txt", False),
        ("*.txt", False),
        (".", False),
        ("gs://bucket/in", False),
        ("none/*.txt", True),  # planning says that it is not there
    ],
)
def test_what_is_large_is_never_taken_for_small(
    folder: Path, monkeypatch: pytest.MonkeyPatch, pattern: str, small: bool
) -> None:
    monkeypatch.setattr("recordmill.pipelines.engines.processes.usable_cores", lambda: 2)
    monkeypatch.chdir(folder)
    assert is_surely_small([pattern]) is small
    assert is_surely_small(["in", pattern]) is small


def test_many_files_are_not_looked_at(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("recordmill.pipelines.engines.processes._MOST_FILES", 1)
    assert is_surely_small([str(folder / "in/deep")])
    assert not is_surely_small([str(folder / "in")])


@pytest.mark.parametrize(
    ("values", "begins"),
    [
        ({"input": "in"}, False),
        ({"input": [["in/deep", "in"], ["in"]]}, False),
        ({"input": "in", "direct_num_workers": 1}, False),
        ({"input": "in", "direct_num_workers": 2}, True),
        ({"input": "large.txt"}, True),
        ({"input": "in", "map": "module:function"}, True),
        ({"input": "large.txt", "runner": "flink"}, False),
    ],
)
def test_another_process_is_begun_where_it_may_be_needed(
    folder: Path, monkeypatch: pytest.MonkeyPatch, values: dict[str, object], begins: bool
) -> None:
    monkeypatch.chdir(folder)
    for module in ("command_table", "engines.processes"):
        monkeypatch.setattr(f"recordmill.pipelines.{module}.usable_cores", lambda: 2)
    begun: list[object] = []

    def preloading(modules: object) -> object:
        begun.append(modules)
        raise InterruptedError

    monkeypatch.setattr("recordmill.pipelines.command_table.preloading", preloading)
    call = Call(command=COMMANDS["examples"], given=Given(values))
    try:
        with call.preloading():
            assert not is_preloading()
    except InterruptedError:
        assert begins
    assert bool(begun) == begins
