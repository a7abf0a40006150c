"""Datasets of numbers that several tests read."""

from __future__ import annotations

from pathlib import Path

import pytest

from .small_datasets import UNEVEN, write_numbers


@pytest.fixture(scope="session")
def uneven(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Seven shards of 107 records, and a split of 20."""
    return write_numbers(tmp_path_factory.mktemp("uneven"), UNEVEN, validation=[20])


@pytest.fixture(scope="session")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five shards of 5,000 records."""
    return write_numbers(tmp_path_factory.mktemp("many"), [1000, 1500, 1200, 300, 1000])
