"""How long `recordmill inspect` and `report` take, and `diff`, and their peak memory.

The dataset has 1,000 shards and 100 million records of 16 tokens: 10 different shards, each of them
100 times by hard links, with an index of each. It takes 0.1 GB.

    python benchmarks/inspection.py
    python benchmarks/inspection.py --shards=100 --records=1000000 --diff
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import google_crc32c
import numpy as np

from recordmill.records.codec.encoding import encode_batch
from recordmill.records.codec.framing import index_lines
from recordmill.records.manifest import MANIFEST_PATH, Manifest, ShardInfo, success_bytes
from recordmill.records.schema import Feature, Schema
from recordmill.records.shards import ShardName

SCHEMA = Schema(
    (
        Feature("input_ids", "int64", (16,), "token ids"),
        Feature("label", "int64", (), "the class", kind="classes", classes=("no", "yes")),
    )
)
_DIFFERENT = 10
_RUN = (
    "import sys; from recordmill.pipelines.command_line import main; sys.exit(main(sys.argv[1:]))"
)


def write_linked_dataset(folder: Path, shards: int, records: int, seed: int = 0) -> Path:
    """Writes a dataset whose shards are links to a few different ones.

    Args:
      folder: of the dataset; it must not exist.
      shards: their number; one in twenty is of validation.
      records: in all.
      seed: of the records.
    """
    of_splits = {"train": shards - shards // 20, "validation": shards // 20}
    contents = [
        _shard(number, records // shards, seed) for number in range(min(_DIFFERENT, shards))
    ]
    first: dict[int, ShardName] = {}
    infos, files, position = [], {}, 0
    for split, count in of_splits.items():
        for index in range(count):
            name, kind = ShardName(split, index, count), position % len(contents)
            data, lines, crc, index_crc = contents[kind]
            for path, content in (("path", data), ("index_path", lines)):
                target = folder / getattr(name, path)
                target.parent.mkdir(parents=True, exist_ok=True)
                if kind in first:
                    os.link(folder / getattr(first[kind], path), target)
                else:
                    target.write_bytes(content)
            first.setdefault(kind, name)
            files[name.index_path] = index_crc
            size = len(data)
            infos.append(ShardInfo(split, index, count, records // shards, size, size, crc))
            position += 1
    manifest = Manifest(
        name="linked", config={}, fingerprint="", features=SCHEMA.to_json(), compression="",
        versions={}, sources={}, counts={}, files=files, shards=infos,
    ).to_bytes()  # fmt: skip
    (folder / MANIFEST_PATH).write_bytes(manifest)
    (folder / "_SUCCESS").write_bytes(success_bytes(manifest))
    return folder


def _shard(number: int, records: int, seed: int) -> tuple[bytes, bytes, int, int]:
    draws = np.random.default_rng([number, seed])
    ids = draws.integers(1000, 30000, (records, 16))
    batch = encode_batch(SCHEMA, {"input_ids": ids, "label": ids[:, 0] % 2})
    data, lines = batch.buffer.tobytes(), index_lines(batch.offsets)
    return data, lines, google_crc32c.value(data), google_crc32c.value(lines)


def measure(*arguments: str) -> tuple[float, float, float]:
    """Returns seconds, seconds of processors, and peak memory in MB of a command."""
    began = time.perf_counter()
    process = subprocess.Popen([sys.executable, "-c", _RUN, *arguments], stdout=subprocess.DEVNULL)
    _, _, used = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - began
    return seconds, used.ru_utime + used.ru_stime, used.ru_maxrss / 1e3


def main() -> None:
    """Prints a line for each command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shards", type=int, default=1000)
    parser.add_argument("--records", type=int, default=100_000_000)
    parser.add_argument("--diff", action="store_true", help="Compares with a second dataset.")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        dataset = write_linked_dataset(Path(folder, "a"), options.shards, options.records)
        page = f"--html={folder}/report.html"
        commands = {
            "inspect": ["inspect", str(dataset)],
            "report --sample=0": ["report", str(dataset), page, "--sample=0"],
            "report": ["report", str(dataset), page],
        }
        if options.diff:
            other = write_linked_dataset(Path(folder, "b"), options.shards, options.records, seed=1)
            commands["diff"] = ["diff", str(dataset), str(other)]
        for name, line in commands.items():
            seconds, processor, memory = measure(*line)
            print(f"{name}: {seconds:.1f} s ({processor:.1f} s of processors), {memory:.0f} MB")


if __name__ == "__main__":
    main()
