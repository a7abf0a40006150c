from __future__ import annotations

import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import google_crc32c
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from llvmlite import binding

from recordmill.records.codec import framing
from recordmill.records.codec.framing import (
    FOOTER_BYTES,
    HEADER_BYTES,
    OVERHEAD_BYTES,
    checksums_between,
    frame_in_place,
    index_lines,
    scan_records,
)

from ...kernels import entrance

crc32c, masked_crc32c = entrance(framing.crc32c), entrance(framing.masked_crc32c)
RECORDS = [b"one", b"", b"three and some", b"\x00" * 40, b"z"]


def frame(records: list[bytes]) -> tuple[np.ndarray, np.ndarray]:
    sizes = [len(record) + OVERHEAD_BYTES for record in records]
    offsets = np.cumsum([0, *sizes]).astype(np.int64)
    buffer = np.zeros(int(offsets[-1]), np.uint8)
    for begin, record in zip(offsets.tolist(), records, strict=False):
        at = begin + HEADER_BYTES
        buffer[at : at + len(record)] = np.frombuffer(record, np.uint8)
    frame_in_place(buffer, offsets)
    return buffer, offsets


def write_with_tensorflow(path: Path, records: list[bytes]) -> bytes:
    with tf.io.TFRecordWriter(str(path)) as writer:
        for record in records:
            writer.write(record)
    return path.read_bytes()


def whole_records(data: bytes) -> list[bytes]:
    offsets, used, problem = scan_records(np.frombuffer(data, np.uint8))
    assert (used, problem) == (offsets[-1], "")
    return [
        data[a + HEADER_BYTES : b - FOOTER_BYTES]
        for a, b in zip(offsets.tolist(), offsets[1:].tolist(), strict=False)
    ]


@pytest.mark.parametrize("size", range(65))
def test_crc32c_of_every_short_length(size):
    data = np.random.default_rng(size).integers(0, 256, size + 9).astype(np.uint8)
    for start in (0, 1, 7, 9):
        part = data[start : start + size]
        assert crc32c(data, start, start + len(part)) == google_crc32c.value(part.tobytes())


@settings(deadline=None)
@given(data=st.binary(max_size=5000))
def test_crc32c(data):
    array = np.frombuffer(data, np.uint8)
    assert crc32c(array, 0, len(data)) == google_crc32c.value(data)


@pytest.mark.parametrize("features", ["", "+sse4.2,+crc32"])
def test_crc32c_by_tables_where_the_processor_has_no_instruction(features):
    has_it = bool(features) and binding.get_host_cpu_features().get("sse4.2", False)
    program = (
        "import numba, numpy as np, google_crc32c;"
        "from recordmill.records.codec import framing;"
        "data = np.arange(5000) % 251; data = data.astype(np.uint8);"
        f"assert framing._INSTRUCTION is {has_it};"
        "crc32c = numba.njit(lambda *given: framing.crc32c(*given));"
        "assert crc32c(data, 3, 4999) == google_crc32c.value(data[3:4999].tobytes())"
    )
    chosen = {"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": features}
    environment = {**os.environ, **chosen}
    subprocess.run([sys.executable, "-c", program], env=environment, check=True)


def test_known_checksums():
    digits = np.frombuffer(b"123456789", np.uint8)
    assert int(crc32c(digits, 0, 9)) == 0xE3069283  # the check value of CRC-32C
    crc = 0xE3069283
    assert int(masked_crc32c(digits, 0, 9)) == ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


@settings(deadline=None, max_examples=50)
@given(records=st.lists(st.binary(max_size=300), max_size=8))
def test_framing_is_tensorflows(tmp_path_factory, records):
    path = tmp_path_factory.getbasetemp() / "framing.tfrecord"
    buffer, _ = frame(records)
    assert buffer.tobytes() == write_with_tensorflow(path, records)
    assert whole_records(buffer.tobytes()) == records


def test_every_flipped_byte_is_found():
    buffer, offsets = frame(RECORDS)
    for at in range(len(buffer)):
        for flip in (1, 128):
            damaged = buffer.copy()
            damaged[at] ^= flip
            found, used, problem = scan_records(damaged)
            broken = int(np.searchsorted(offsets, at, side="right")) - 1
            assert used == offsets[broken]
            assert found.tolist() == offsets[: broken + 1].tolist()
            in_header = at - offsets[broken] < HEADER_BYTES
            which = "length" if in_header else "data"
            assert problem == f"checksum of the {which} does not match"


def test_every_cut_is_found():
    buffer, offsets = frame(RECORDS)
    for size in range(len(buffer)):
        found, used, problem = scan_records(buffer[:size])
        whole = int(np.searchsorted(offsets, size, side="right")) - 1
        assert (used, problem) == (offsets[whole], "")
        assert found.tolist() == offsets[: whole + 1].tolist()


def test_a_length_beyond_all_bounds_is_a_cut_record():
    header = np.zeros(HEADER_BYTES + 100, np.uint8)
    header[:8] = 255
    crc = int(masked_crc32c(header, 0, 8))
    header[8:12] = np.frombuffer(crc.to_bytes(4, "little"), np.uint8)
    found, used, problem = scan_records(header)
    assert (found.tolist(), used, problem) == ([0], 0, "")


def test_index_lines_are_those_of_dali():
    _, offsets = frame([b"abc", b"", b"12345"])
    assert index_lines(offsets) == b"0 19\n19 16\n35 21\n"
    assert index_lines(offsets, 1000) == b"1000 19\n1019 16\n1035 21\n"
    assert index_lines(np.zeros(1, np.int64)) == b""


def test_checksums_between_bounds() -> None:
    data = np.random.default_rng(0).integers(0, 256, 1000).astype(np.uint8)
    bounds = np.array([3, 3, 10, 26, 999])
    expected = [google_crc32c.value(data[a:b].tobytes()) for a, b in pairwise(bounds.tolist())]
    assert checksums_between(data, bounds).tolist() == expected
    assert checksums_between(data, bounds[:1]).tolist() == []
