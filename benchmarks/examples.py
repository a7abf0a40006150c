"""Shuffling existing records: beside plain Beam's steps, beside copying the bytes, and its memory.

    python benchmarks/examples.py [--parts=speed,memory] [--size=1GB] [--sizes=500MB,5GB]

speed: `recordmill examples`, the steps of DeepVariant's `shuffle_tfrecords_beam.py` (read, key by a
hash, GroupByKey, WriteToTFRecord) on Beam's own local runner, and a copy of all bytes that is made
twice, each time with a checksum of what is read and written, by as many processes; once more with
the second copy synced, as shards are. Each is a process of its own, and is timed without being
looked at; the peak is that of its largest process. The share of copying's speed is given whole, and
without the start of each, which a megabyte tells.
memory: the peak of all processes of recordmill together for two sizes, looked at once a second.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import pairwise
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import google_crc32c
import numpy as np
from memory import memory_of_all

from recordmill.pipelines.job_request import parse_bytes
from recordmill.records.codec.encoding import Strings, encode_batch
from recordmill.records.codec.framing import scan_records
from recordmill.records.schema import Feature, Schema

FILE_BYTES = 64_000_000
BLOCK_BYTES = 1 << 22
START_BYTES = 1_000_000  # what is timed for it is the start
WORKERS = 2
processor_seconds = 0.0  # of the last run and of those of its processes that it waited for
SCHEMA = Schema(
    (
        Feature("id", "int64", (), "number"),
        Feature("ids", "int64", (128,), "tokens"),
        Feature("image/encoded", "bytes", (), "bytes that cannot be compressed"),
    )
)


def make_records(folder: Path, size_bytes: int) -> Path:
    """Fills a folder with files of records of 700 to 3,700 bytes."""
    if folder.exists():
        return folder
    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    done = number = first = 0
    while done < size_bytes:
        with open(folder / f"part-{number:04d}.tfrecord", "wb") as out:
            while out.tell() < FILE_BYTES and done < size_bytes:
                count = 2000
                images = [rng.bytes(int(n)) for n in rng.integers(400, 3400, count)]
                columns = {
                    "id": np.arange(first, first + count),
                    "ids": rng.integers(0, 30_000, (count, 128)),
                    "image/encoded": Strings.from_list(images),
                }
                buffer = encode_batch(SCHEMA, columns).buffer
                out.write(buffer.data)
                done += len(buffer)
                first += count
        number += 1
    return folder


def digest_of(paths: list[Path]) -> tuple[int, int]:
    """The number of records and the sum of their hashes, which no order changes."""
    count = total = 0
    for path in paths:
        data = path.read_bytes()
        offsets, used, defect = scan_records(np.frombuffer(data, np.uint8))
        assert used == len(data), defect
        count += len(offsets) - 1
        bounds = offsets.tolist()
        for begin, end in pairwise(bounds):
            found = hashlib.blake2b(data[begin:end], digest_size=8).digest()
            total += int.from_bytes(found, "big")
    return count, total % (1 << 64)


def copy_one(source: str, target: str, sync: bool) -> int:
    """Copies a file; returns its checksum, of what was read, and of what lies there then."""
    crc = 0
    with open(source, "rb") as read, open(target, "wb") as out:
        while block := read.read(BLOCK_BYTES):
            crc = google_crc32c.extend(crc, block)
            out.write(block)
        if sync:
            out.flush()
            os.fsync(out.fileno())
    return crc


def copy_twice(source: str, output: str, sync: bool = False) -> None:
    """Copies all files, and the copies."""
    names = sorted(os.listdir(source))
    with ProcessPoolExecutor(WORKERS) as pool:
        for before, after in ((source, f"{output}/once"), (f"{output}/once", f"{output}/twice")):
            os.makedirs(after)
            list(
                pool.map(
                    copy_one,
                    [f"{before}/{n}" for n in names],
                    [f"{after}/{n}" for n in names],
                    [sync and after.endswith("twice")] * len(names),
                )
            )


def plain_beam(source: str, output: str) -> None:
    """The steps of DeepVariant's script."""
    import apache_beam as beam
    from apache_beam.options.pipeline_options import PipelineOptions

    options = PipelineOptions(
        runner="DirectRunner", direct_num_workers=WORKERS, direct_running_mode="multi_processing"
    )
    with beam.Pipeline(options=options) as pipeline:
        _ = (
            pipeline
            | "Read" >> beam.io.ReadFromTFRecord(f"{source}/*", coder=beam.coders.BytesCoder())
            | "Key" >> beam.Map(lambda record: (hashlib.sha1(record).hexdigest(), record))
            | "Group" >> beam.GroupByKey()
            | "DropKey" >> beam.FlatMap(lambda pair: pair[1])
            | "Write" >> beam.io.WriteToTFRecord(f"{output}/part", coder=beam.coders.BytesCoder())
        )


def measured(name: str, source: Path, output: Path, *, together: bool) -> tuple[float, float]:
    """Runs a way of shuffling in a process of its own; returns seconds and its peak in bytes.

    Adding up the memory of all processes costs them time, so speed is measured without.
    """
    shutil.rmtree(output, ignore_errors=True)
    line = [sys.executable, __file__, f"--run={name}", f"--source={source}", f"--output={output}"]
    if name == "recordmill":
        line = [
            sys.executable, "-m", "recordmill.pipelines.examples", f"--input={source}/*",
            f"--output={output}", f"--direct_num_workers={WORKERS}", "--progress=none",
        ]  # fmt: skip
    else:
        output.mkdir(parents=True)
    global processor_seconds
    began, peak = time.perf_counter(), 0
    process = subprocess.Popen(line, stdout=subprocess.DEVNULL)
    if not together:
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        peak = used.ru_maxrss << 10
        processor_seconds = used.ru_utime + used.ru_stime
    while together and process.poll() is None:
        peak = max(peak, memory_of_all(process.pid))
        time.sleep(1)
    assert process.returncode == 0, f"{name} failed"
    return time.perf_counter() - began, peak


def speed(scratch: Path, size_bytes: int, beam_bytes: int) -> None:
    """Prints the time and the memory of each way; plain Beam gets as much as its memory bears."""
    source = make_records(scratch / f"in-{size_bytes}", size_bytes)
    smaller = make_records(scratch / f"in-{beam_bytes}", beam_bytes)
    least = make_records(scratch / f"in-{START_BYTES}", START_BYTES)
    rates = {}
    for name, folder, size in (
        ("recordmill", least, START_BYTES),
        ("copy twice", least, START_BYTES),
        ("copy synced", least, START_BYTES),
        ("recordmill", source, size_bytes),
        ("copy twice", source, size_bytes),
        ("copy synced", source, size_bytes),
        ("recordmill", smaller, beam_bytes),
        ("plain Beam", smaller, beam_bytes),
    ):
        output = scratch / "out"
        seconds, peak = measured(name, folder, output, together=False)
        rates[name, size] = size / 1e6 / seconds
        print(
            f"{name:<11} {size / 1e6:6.0f} MB {seconds:7.1f} s {size / 1e6 / seconds:7.1f} MB/s "
            f"processor {processor_seconds:6.1f} s, peak {peak / 1e6:6.0f} MB",
            flush=True,
        )
        if not name.startswith("copy"):
            found = sorted(
                p for p in output.rglob("*") if ".tfrecords" in p.name or "part-" in p.name
            )
            same = digest_of(found) == digest_of(sorted(folder.iterdir()))
            print(f"{'':<11} {'a permutation, record by record' if same else 'NOT A PERMUTATION'}")
        shutil.rmtree(output)
    ours = rates["recordmill", beam_bytes] / rates["plain Beam", beam_bytes]
    print(f"{ours:.1f} x plain Beam's speed")
    for name in ("copy twice", "copy synced"):
        share = rates["recordmill", size_bytes] / rates[name, size_bytes]
        seconds = [
            size_bytes / 1e6 / rates[each, size_bytes]
            - START_BYTES / 1e6 / rates[each, START_BYTES]
            for each in ("recordmill", name)
        ]
        print(f"{share:.2f} of the speed of {name}, {seconds[1] / seconds[0]:.2f} without starts")


def memory(scratch: Path, sizes: list[int]) -> None:
    """Prints the peak for each size."""
    peaks = {}
    for size in sizes:
        source = make_records(scratch / f"in-{size}", size)
        seconds, peaks[size] = measured("recordmill", source, scratch / "out", together=True)
        print(f"{size / 1e6:6.0f} MB: {seconds:.1f} s, peak {peaks[size] / 1e6:.0f} MB", flush=True)
        shutil.rmtree(scratch / "out")
    print(json.dumps({f"{size / 1e6:.0f} MB": round(p / 1e6) for size, p in peaks.items()}))


def main() -> None:
    """Runs the parts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--parts", default="speed,memory")
    parser.add_argument("--scratch", type=Path, default=Path("build/benchmark-examples"))
    parser.add_argument("--size", default="1GB")
    parser.add_argument("--beam_size", default="200MB")
    parser.add_argument("--sizes", default="500MB,5GB")
    parser.add_argument("--run", help=argparse.SUPPRESS)
    parser.add_argument("--source", help=argparse.SUPPRESS)
    parser.add_argument("--output", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run:
        ways = {
            "copy twice": copy_twice,
            "copy synced": partial(copy_twice, sync=True),
            "plain Beam": plain_beam,
        }
        ways[options.run](options.source, options.output)
        return
    parts = options.parts.split(",")
    if "speed" in parts:
        sizes = (parse_bytes("--size", options.size), parse_bytes("--beam_size", options.beam_size))
        speed(options.scratch, *sizes)
    if "memory" in parts:
        memory(options.scratch, [parse_bytes("--sizes", s) for s in options.sizes.split(",")])


if __name__ == "__main__":
    main()
