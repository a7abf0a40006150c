"""Each job once on a small and once on a big input, to compare other runs with."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from ..browser import axe, browser
from ..conftest import SharedFolder, cluster_of
from .clusters import build_ahead, flink, prism
from .jobs import CASES, EVERY_CASE, JobCase, shard_bytes

__all__ = ["axe", "big", "browser", "flink", "prism", "small", "written"]


def pytest_collection_finish(session: pytest.Session) -> None:
    """Begins to build what the chosen tests need."""
    if not session.config.option.collectonly:
        build_ahead(filter(None, {cluster_of(item) for item in session.items}))


@dataclass(frozen=True)
class Written:
    """A job, its input, and the dataset that an undisturbed run makes of it."""

    case: JobCase
    source: Path
    flags: tuple[str, ...]
    dataset: Path
    shards: dict[str, bytes]

    def copy_dataset(self, output: Path) -> None:
        """Puts the finished dataset where a run would have written it, without that run."""
        shutil.copytree(self.dataset, output)


@pytest.fixture(scope="session")
def written(shared_folder: SharedFolder) -> Callable[[str, str], Written]:
    """Returns a job by name and size ("small" or "big"), written once a session."""

    @cache
    def write(name: str, size: str) -> Written:
        case = CASES[name]
        flags = case.flags if size == "small" else case.big

        def fill(folder: Path) -> None:
            case.fill(folder / "input", 1 if size == "small" else 30)
            assert case.run(folder / "input", folder / "ds", *flags) == 0

        folder = shared_folder(f"{name}-{size}", fill)
        dataset = folder / "ds"
        return Written(case, folder / "input", flags, dataset, shard_bytes(dataset))

    return write


@pytest.fixture(scope="session", params=EVERY_CASE)
def small(request: pytest.FixtureRequest, written: Callable[[str, str], Written]) -> Written:
    return written(request.param, "small")


@pytest.fixture(scope="session", params=["text", "images", "examples"])
def big(request: pytest.FixtureRequest, written: Callable[[str, str], Written]) -> Written:
    return written(request.param, "big")


@pytest.fixture
def temporary() -> Iterator[Path]:
    """A folder whose path is short, as sockets need it."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)
