"""Each job once on a small and once on a big input, to compare other runs with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from .clusters import build_ahead, flink, prism
from .jobs import CASES, JobCase, shard_bytes

__all__ = ["big", "flink", "prism", "small", "written"]


def _cluster(item: pytest.Item) -> str:
    names = ("flink", "prism")
    return next((name for name in names if item.get_closest_marker(name)), "")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Jobs on clusters come last: what they need is built meanwhile."""
    items.sort(key=lambda item: bool(_cluster(item)))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Begins to build what the chosen tests need."""
    if not session.config.option.collectonly:
        build_ahead(filter(None, {_cluster(item) for item in session.items}))


@dataclass(frozen=True)
class Written:
    """A job, its input, and the shards that an undisturbed run makes of it."""

    case: JobCase
    source: Path
    flags: tuple[str, ...]
    shards: dict[str, bytes]


@pytest.fixture(scope="session")
def written(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], Written]:
    """Returns a job by name and size ("small" or "big"), written once a session."""

    @cache
    def write(name: str, size: str) -> Written:
        case, folder = CASES[name], tmp_path_factory.mktemp(f"{name}_{size}")
        source = folder / "input"
        case.fill(source, 1 if size == "small" else 30)
        flags = case.flags if size == "small" else case.big
        assert case.run(source, folder / "ds", *flags) == 0
        return Written(case, source, flags, shard_bytes(folder / "ds"))

    return write


@pytest.fixture(scope="session", params=["text", "images"])
def small(request: pytest.FixtureRequest, written: Callable[[str, str], Written]) -> Written:
    return written(request.param, "small")


@pytest.fixture(scope="session", params=["text", "images"])
def big(request: pytest.FixtureRequest, written: Callable[[str, str], Written]) -> Written:
    return written(request.param, "big")
