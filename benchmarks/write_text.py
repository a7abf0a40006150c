"""`WriteText` behind Beam's own sources beside `recordmill text` on the same text.

    python benchmarks/write_text.py --tokenizer=vocab.txt [--size=100MB]
    python benchmarks/write_text.py --tokenizer=vocab.txt --memory=50MB,500MB

Each run is a process of its own with one worker. Processor time counts, with that of all its
processes: other work on the machine does not. The goal is 0.6 of the command's speed. With --memory
two workers read texts of these sizes, and the peak of all processes together counts: that of the
largest size may be 1.2 of that of the smallest.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import apache_beam as beam
import pyarrow as pa
import pyarrow.parquet as pq
from apache_beam.options.pipeline_options import PipelineOptions

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
sys.path.insert(0, str(Path(__file__).parent))

from corpus import make_corpus, pydoc_text
from memory import peak_of_all

from recordmill.pipelines.command_line import main as command
from recordmill.pipelines.job_request import parse_bytes
from recordmill.transforms import Bert, Document, Gpt, WriteText

TASKS = {"bert": Bert(dupe_factor=1), "gpt": Gpt()}
SOURCES = ("parquet", "batches", "text")


def write_inputs(folder: Path, size: int) -> int:
    """Writes the same documents as Parquet and as lines of text; returns the bytes of text."""
    corpus = make_corpus(folder / "text", pydoc_text(), size)
    texts = [t for path in sorted(corpus.glob("*.txt")) for t in path.read_text().split("\n\n")]
    table = pa.table({"id": [f"{i}" for i in range(len(texts))], "text": texts})
    pq.write_table(table, folder / "in.parquet", row_group_size=10_000)
    lines = (" ".join(text.split()) for text in texts)
    (folder / "in.txt").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return sum(len(text.encode()) for text in texts)


def run_command(folder: Path, source: str, task: str, tokenizer: str) -> None:
    """Writes the dataset as the command does."""
    name, flags = ("in.txt", ["--documents=line"]) if source == "text" else ("in.parquet", [])
    status = command([
        "text", f"--input={folder}/{name}", f"--output={folder}/ds", f"--task={task}",
        "--dupe_factor=1", f"--vocab_file={tokenizer}", "--num_shards=8", "--direct_num_workers=1",
        *flags,
    ])  # fmt: skip
    if status:
        sys.exit(status)


def run_pipeline(
    folder: Path, source: str, task: str, tokenizer: str, *, workers: int = 1, **options: Any
) -> None:
    """Writes the dataset as a user's pipeline does."""
    write = WriteText(
        f"{folder}/ds", objective=TASKS[task], tokenizer=tokenizer, num_shards=8, **options
    )
    flags: dict[str, Any] = {}
    if workers > 1:
        flags = {"direct_num_workers": workers, "direct_running_mode": "multi_processing"}
    with beam.Pipeline(runner="FnApiRunner", options=PipelineOptions([], **flags)) as pipeline:
        if source == "text":
            elements = pipeline | beam.io.ReadFromText(f"{folder}/in*.txt")
        elif source == "batches":
            tables = pipeline | beam.io.ReadFromParquetBatched(f"{folder}/in.parquet")
            elements = tables | beam.Map(lambda table: table.rename_columns(["key", "text"]))
        else:
            rows = pipeline | beam.io.ReadFromParquet(f"{folder}/in.parquet")
            elements = rows | beam.Map(lambda row: Document(row["text"], key=row["id"]))
        _ = elements | write


def measure(kind: str, source: str, task: str, tokenizer: str, folder: Path) -> dict[str, float]:
    """Runs in a process of its own; returns its seconds of processor time and its peak memory."""
    subprocess.run(["rm", "-rf", f"{folder}/ds"], check=True)
    given = [f"--tokenizer={tokenizer}", f"--run={kind},{source},{task},{folder}"]
    line = [sys.executable, __file__, *given]
    found = subprocess.run(line, check=True, capture_output=True, text=True).stdout
    return dict(json.loads(found.splitlines()[-1]))


def memory(folder: Path, sizes: list[int], tokenizer: str, deduplicate: str) -> None:
    """Prints the peak for each size."""
    peaks = {}
    for size in sizes:
        place = folder / str(size)
        corpus = make_corpus(place / "text", pydoc_text(), size)
        for path in sorted(corpus.glob("*.txt")):
            texts = path.read_text(encoding="utf-8").split("\n\n")
            lines = "".join(f"{' '.join(text.split())}\n" for text in texts)
            (place / f"in-{path.stem}.txt").write_text(lines, encoding="utf-8")
            path.unlink()
        given = f"--run=workers,text,gpt,{place}"
        line = [sys.executable, __file__, f"--tokenizer={tokenizer}", given]
        seconds, peaks[size] = peak_of_all([*line, f"--deduplicate={deduplicate}"])
        subprocess.run(["rm", "-rf", str(place)], check=True)
        print(f"{size / 1e6:6.0f} MB: {seconds:.1f} s, peak {peaks[size] / 1e6:.0f} MB", flush=True)
    print(f"{peaks[sizes[-1]] / peaks[sizes[0]]:.2f} of the peak of the first")


def run(kind: str, source: str, task: str, folder: Path, tokenizer: str) -> None:
    """Does one run and prints what it took, without imports."""
    began = sum(os.times()[:4])
    wall = time.time()
    (run_command if kind == "command" else run_pipeline)(folder, source, task, tokenizer)
    status = Path("/proc/self/status").read_text()
    peak = int(status.partition("VmHWM:")[2].split()[0]) / 1024
    seconds = sum(os.times()[:4]) - began
    print(json.dumps({"cpu": seconds, "wall": time.time() - wall, "megabytes": peak}))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--tokenizer", required=True)
    parser.add_argument("--size", default="100MB")
    parser.add_argument("--memory", default="", help="sizes, such as 50MB,500MB")
    parser.add_argument("--deduplicate", default="none", help="of --memory")
    parser.add_argument("--run", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run:
        kind, source, task, place = options.run.split(",")
        if kind == "workers":
            run_pipeline(
                Path(place), source, task, options.tokenizer, workers=2,
                deduplicate=options.deduplicate,
            )  # fmt: skip
            return
        run(kind, source, task, Path(place), options.tokenizer)
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if options.memory:
            sizes = [parse_bytes("--memory", each) for each in options.memory.split(",")]
            memory(folder, sizes, options.tokenizer, options.deduplicate)
            return
        size = write_inputs(folder, parse_bytes("--size", options.size))
        for task in TASKS:
            for source in SOURCES:
                found = {
                    kind: measure(kind, source, task, options.tokenizer, folder)
                    for kind in ("command", "pipeline")
                }
                speeds = {kind: size / 1e6 / took["cpu"] for kind, took in found.items()}
                print(
                    f"{task} from {source}: "
                    + ", ".join(
                        f"{kind} {speeds[kind]:.1f} MB/s (peak {took['megabytes']:.0f} MB)"
                        for kind, took in found.items()
                    )
                    + f", {speeds['pipeline'] / speeds['command']:.2f} of the command",
                    flush=True,
                )


if __name__ == "__main__":
    main()
