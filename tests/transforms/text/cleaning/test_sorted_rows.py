from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from recordmill.records.errors import RunError
from recordmill.transforms.text.cleaning.sorted_rows import file_bytes, read_rows, write_rows


@pytest.fixture
def rows() -> np.ndarray:
    drawn = np.random.default_rng(0).integers(0, 1 << 63, (5000, 3)).astype(np.uint64) * np.uint64(
        2
    )
    drawn[100:1400, 0] = drawn[100, 0]  # longer than a step of the index
    return drawn[np.argsort(drawn[:, 0], kind="stable")]


def test_a_range_is_what_lies_in_it(tmp_path: Path, rows: np.ndarray) -> None:
    path = str(tmp_path / "some.rows")
    write_rows(path, rows)
    assert (tmp_path / "some.rows").stat().st_size == file_bytes(5000, 3)
    values = rows[:, 0]
    bounds = [0, 1, int(values[0]), int(values[100]), int(values[2500]), int(values[-1]), 2**64 - 1]
    bounds += [int(np.median(values)), int(np.unique(values, return_counts=True)[0][7])]
    for low in bounds:
        for high in bounds:
            inside = (values >= np.uint64(low)) & (values <= np.uint64(high))
            assert read_rows(path, 5000, 3, low, high).tolist() == rows[inside].tolist()


def test_no_rows_need_no_file(tmp_path: Path) -> None:
    assert read_rows(str(tmp_path / "none"), 0, 3, 0, 9).shape == (0, 3)


def test_a_cut_file_is_named(tmp_path: Path, rows: np.ndarray) -> None:
    path = tmp_path / "some.rows"
    write_rows(str(path), rows)
    path.write_bytes(path.read_bytes()[:-8])
    with pytest.raises(RunError, match=r"some\.rows is missing or cut; run the same command again"):
        read_rows(str(path), 5000, 3, 0, 9)
