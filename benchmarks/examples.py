"""The memory of shuffling existing records: the peak of all processes together for two sizes.

    python benchmarks/examples.py [--sizes=500MB,5GB]

Its speed beside others is in the table of `python benchmarks`.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
from memory import peak_of_all

from recordmill.pipelines.job_request import parse_bytes
from recordmill.records.codec.encoding import Strings, encode_batch
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
                count = 200
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


def memory(scratch: Path, sizes: list[int]) -> None:
    """Prints the peak for each size."""
    peaks = {}
    for size in sizes:
        source, output = make_records(scratch / f"in-{size}", size), scratch / "out"
        shutil.rmtree(output, ignore_errors=True)
        line = [
            sys.executable, "-m", "recordmill.pipelines.examples", f"--input={source}/*",
            f"--output={output}", f"--direct_num_workers={WORKERS}", "--progress=none",
        ]  # fmt: skip
        seconds, peaks[size] = peak_of_all(line)
        print(f"{size / 1e6:6.0f} MB: {seconds:.1f} s, peak {peaks[size] / 1e6:.0f} MB", flush=True)
        shutil.rmtree(output)
    print(json.dumps({f"{size / 1e6:.0f} MB": round(p / 1e6) for size, p in peaks.items()}))


def main() -> None:
    """Measures the memory."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scratch", type=Path, default=Path("build/benchmark-examples"))
    parser.add_argument("--sizes", default="500MB,5GB")
    options = parser.parse_args()
    memory(options.scratch, [parse_bytes("--sizes", s) for s in options.sizes.split(",")])


if __name__ == "__main__":
    main()
