"""Fails when a release of numba or llvmlite changes what `compat` uses of their private parts."""

from __future__ import annotations

from pathlib import Path

import google_crc32c
import numba
import numpy as np
import pytest

from recordmill.records.codec import numba_internals as compat


def add_one(value: int) -> int:
    return value + 1


def test_a_function_keeps_its_code_in_the_folder(tmp_path: Path) -> None:
    before = numba.config.CACHE_DIR
    with compat.cache_folder(str(tmp_path)):
        compiled = numba.njit(cache=True)(add_one)
    assert before == numba.config.CACHE_DIR
    assert compiled(1) == 2
    assert list(tmp_path.rglob("*.nbc"))


def test_load_compiler() -> None:
    target = numba.core.registry.cpu_target
    assert callable(target.typing_context.refresh)
    assert callable(target.target_context.refresh)
    compat.load_compiler()


def test_names_of_the_configuration() -> None:
    for name in ("CPU_NAME", "CPU_FEATURES", "DISABLE_JIT", "CACHE_DIR"):
        assert hasattr(numba.config, name)
    assert isinstance(compat.has_crc32c_instruction(), bool)


@pytest.mark.skipif(not compat.has_crc32c_instruction(), reason="no crc32c instruction here")
def test_crc32c_of_word() -> None:
    @numba.njit
    def crc(data: np.ndarray) -> np.uint32:
        word = compat.crc32c_of_word(np.uint64(0xFFFFFFFF), data, 0)
        return np.uint32(word) ^ np.uint32(0xFFFFFFFF)

    assert crc(np.arange(8, dtype=np.uint8)) == google_crc32c.value(bytes(range(8)))


def test_word_at() -> None:
    @numba.njit
    def word(data: np.ndarray, at: int) -> np.uint64:
        return compat.word_at(data, at)

    data = np.arange(1, 20, dtype=np.uint8)
    data.flags.writeable = False
    assert int(word(data, 3)) == int.from_bytes(bytes(range(4, 12)), "little")
