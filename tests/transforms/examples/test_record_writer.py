"""Run files of records: what is held until they are written, and their kernels."""

from __future__ import annotations

import subprocess
import sys
import weakref
from pathlib import Path

import numpy as np
import pytest

from recordmill.transforms.examples.record_writer import RunWriter
from recordmill.transforms.examples.run_records import KeyedRecords, find_in_range
from recordmill.transforms.shuffle.run_files import MAX_HASH, RunFileReader, read_run_file

from .record_files import framed, unframed


def keyed(records: list[bytes]) -> KeyedRecords:
    data = np.frombuffer(bytearray(framed(records)), np.uint8)
    offsets = np.cumsum([0, *(len(record) + 16 for record in records)])
    keys = np.arange(len(records), dtype=np.uint64)
    return KeyedRecords(data, offsets[:-1], offsets[1:], keys, keys)


def test_a_few_records_do_not_hold_the_memory_of_many(tmp_path: Path) -> None:
    writer = RunWriter(lambda number: f"{tmp_path}/{number}.bin", 1, "token", 1 << 20)
    records = keyed([b"a" * 1000, b"b" * 10, b"c" * 1000])
    buffer = weakref.ref(records.data)
    writer.add(0, records.take(np.array([1])))
    del records
    assert buffer() is None
    writer.write()
    run = read_run_file(str(tmp_path), writer.runs[0], token="token")
    found = find_in_range(RunFileReader(run, 0).read(0, MAX_HASH), 0, MAX_HASH)
    assert unframed(found.data[16:].tobytes()) == [b"b" * 10]
    assert found.keys.tolist() == [1]


def test_run_files_follow_each_other_in_one_buffer(tmp_path: Path) -> None:
    writer = RunWriter(lambda number: f"{tmp_path}/{number}.bin", 2, "token", 2000)
    for number in range(6):
        record = bytes([number]) * 999
        writer.add(number % 2, keyed([record, record]))
    assert len(writer.runs) == 6
    for number, info in enumerate(writer.runs):
        run = read_run_file(str(tmp_path), info, token="token")
        part = RunFileReader(run, number % 2).read(0, MAX_HASH)
        found = find_in_range(part, 0, MAX_HASH)
        pairs = zip(found.begins.tolist(), found.ends.tolist(), strict=True)
        assert [unframed(part[a:b].tobytes()) for a, b in pairs] == [[bytes([number]) * 999]] * 2


_PROGRAM = """
import sys
from recordmill.records.codec import jit
kernels = []
def kernel(function, made=jit.kernel):
    kernels.append(made(function))
    return kernels[-1]
jit.kernel = kernel
from recordmill.transforms.examples.kernels import load_kernels
load_kernels()
before = {each.__name__: set(each.signatures) for each in kernels}
from recordmill.pipelines.command_line import main
assert main(["examples", *sys.argv[1:], "--direct_num_workers=1"]) == 0
after = {each.__name__: set(each.signatures) for each in kernels}
assert any(after.values())
late = sorted(name for name, found in after.items() if found - before.get(name, set()))
print("late:", *late)
"""


@pytest.mark.slow
@pytest.mark.parametrize("flags", [[], ["--splits=train:0.8,test:0.2"]])
def test_all_kernels_are_loaded_before_workers_are_forked(tmp_path: Path, flags: list[str]) -> None:
    (tmp_path / "in").write_bytes(framed([bytes([i]) * i for i in range(1, 100)]))
    line = [sys.executable, "-c", _PROGRAM, f"--input={tmp_path}/in", f"--output={tmp_path}/ds"]
    shown = subprocess.run([*line, *flags], capture_output=True, text=True, timeout=300, check=True)
    assert shown.stdout.splitlines()[-1] == "late:"
