"""`recordmill text --task=gpt` beside Megatron-LM's and datatrove's preprocessing, on one text.

    python benchmarks/gpt.py --gpt2=encoder.json --input='part*.jsonl' \\
        --megatron=CHECKOUT --megatron_python=PYTHON --datatrove_python=PYTHON

The input has a document's text in "text". Each tool reads JSONL, makes GPT-2's ids with as many
workers as `--workers`, and writes its own format: Megatron's tools/preprocess_data.py (and, with
gigatoken installed, preprocess_data_fast.py, of as many threads as it likes) .bin and .idx,
datatrove's DocumentTokenizer .ds, ours shuffled and packed rows in TFRecords. Tools whose flag is
not given are left out. The slow ones take `--slice` of the input.

Printed are MB of JSONL a second of wall time, and of the processor time of all processes, with the
start of the tool and without: a run over a few documents says what the start takes. On a machine
that does other work, only ratios of processor time count. `tokenizer alone` is a process that does
nothing but make ids of the same documents, again and again: one for itself, times the workers, and
as many of them at once as there are workers.
"""

from __future__ import annotations

import argparse
import glob
import multiprocessing
import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import orjson
import psutil
from timing import best_seconds

from recordmill.pipelines.job_request import parse_bytes
from recordmill.transforms.sources.lines import Lines
from recordmill.transforms.text.tokenizer_files import load_tokenizer, read_tokenizer

OFFLINE = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
DATATROVE = """
import sys
from datatrove.executor import LocalPipelineExecutor
from datatrove.pipeline.readers import JsonlReader
from datatrove.pipeline.tokens import DocumentTokenizer

if __name__ == "__main__":
    folder, output, tokenizer, workers = sys.argv[1:]
    LocalPipelineExecutor(
        pipeline=[
            JsonlReader(folder),
            DocumentTokenizer(output, tokenizer_name_or_path=tokenizer, eos_token="<|endoftext|>"),
        ],
        tasks=int(workers), workers=int(workers), logging_dir=output + "-logs",
    ).run()
"""


@dataclass(frozen=True, slots=True)
class Cost:
    """Seconds of one run, and those of them that are the processor's, of all its processes."""

    wall: float
    processor: float

    def without(self, start: Cost) -> Cost:
        return Cost(self.wall - start.wall, self.processor - start.processor)


def run(command: list[str], folder: Path) -> Cost:
    """Runs a command to its end; a process counts up to a tenth of a second before its end."""
    seconds: dict[tuple[int, float], float] = {}
    log = folder / "log"
    began = time.perf_counter()
    with log.open("wb") as out:
        process = subprocess.Popen(
            command, stdout=out, stderr=subprocess.STDOUT, env=os.environ | OFFLINE
        )
        parent = psutil.Process(process.pid)
        while process.poll() is None:
            try:
                for one in (parent, *parent.children(recursive=True)):
                    times = one.cpu_times()
                    seconds[one.pid, one.create_time()] = times.user + times.system
            except psutil.Error:
                pass  # it ended meanwhile
            time.sleep(0.05)
    if process.returncode:
        sys.exit(f"{' '.join(command)}:\n{log.read_text(errors='replace')[-3000:]}")
    return Cost(time.perf_counter() - began, sum(seconds.values()))


def cut(paths: list[str], size: int, parts: int, folder: Path) -> list[Path]:
    """Writes the first documents of the input, of `size` bytes in all, to `parts` files."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    files = [folder / f"part{i}.jsonl" for i in range(parts)]
    streams = [file.open("wb") for file in files]
    written = number = 0
    for path in paths:
        with open(path, "rb") as source:
            for line in source:
                if written < size:
                    streams[number % parts].write(line)
                    written += len(line)
                    number += 1
    for stream in streams:
        stream.close()
    return files


def total_bytes(paths: list[Path]) -> int:
    return sum(path.stat().st_size for path in paths)


class Comparison:
    """Runs the tools in a folder of their own."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.scratch = Path(options.scratch).resolve()
        shutil.rmtree(self.scratch, ignore_errors=True)
        self.scratch.mkdir(parents=True)
        data, _ = read_tokenizer(options.gpt2, lambda path: Path(path).read_bytes())
        self.data = data
        self.tokenizer = self.scratch / "gpt2"
        self.tokenizer.mkdir()
        (self.tokenizer / "tokenizer.json").write_bytes(data)
        (self.tokenizer / "tokenizer_config.json").write_text(
            '{"tokenizer_class": "GPT2TokenizerFast", "eos_token": "<|endoftext|>"}'
        )
        self.paths = sorted(glob.glob(options.input))
        if not self.paths:
            sys.exit(f"--input={options.input} matches no file")

    def output(self) -> Path:
        """Returns a path where nothing is."""
        shutil.rmtree(self.scratch / "output", ignore_errors=True)
        (self.scratch / "output").mkdir()
        return self.scratch / "output" / "dataset"

    def ours(self, files: list[Path]) -> Cost:
        command = [
            sys.executable, "-m", "recordmill.pipelines.text", "--task=gpt", "--progress=none",
            f"--input={files[0].parent}/*.jsonl", f"--output={self.output()}",
            f"--tokenizer={self.options.gpt2}", f"--max_seq_length={self.options.max_seq_length}",
            f"--direct_num_workers={self.options.workers}",
        ]  # fmt: skip
        return run(command, self.scratch)

    def megatron(self, files: list[Path], *, fast: bool = False) -> Cost:
        checkout = Path(self.options.megatron).resolve()
        script = checkout / "tools" / f"preprocess_data{'_fast' if fast else ''}.py"
        command = [
            self.options.megatron_python, str(script), "--input", str(files[0]),
            "--output-prefix", str(self.output()), "--append-eod",
            "--tokenizer-type", "HuggingFaceTokenizer", "--tokenizer-model", str(self.tokenizer),
        ]  # fmt: skip
        command += ["--use-gigatoken"] if fast else ["--workers", str(self.options.workers)]
        return run(command, self.scratch)

    def datatrove(self, files: list[Path]) -> Cost:
        script = self.scratch / "by_datatrove.py"
        script.write_text(DATATROVE, encoding="utf-8")
        tokenizer = str(self.tokenizer / "tokenizer.json")
        workers = str(self.options.workers)
        command = [
            self.options.datatrove_python, str(script), str(files[0].parent), str(self.output()),
            tokenizer, workers,
        ]  # fmt: skip
        return run(command, self.scratch)

    def alone(self, size: int, processes: int) -> float:
        """Returns the seconds of a core that only the ids of the documents take.

        Args:
          size: of the documents, in bytes of JSONL.
          processes: so many do the same at once, and their mean is taken: cores share caches.
        """
        (file,) = cut(self.paths, size, 1, self.scratch / "alone")
        context = multiprocessing.get_context("spawn")
        with context.Pool(processes) as pool:
            started = [
                pool.apply_async(tokenize_alone, (self.data, str(file))) for _ in range(processes)
            ]
            return sum(one.get() for one in started) / processes


def tokenize_alone(data: bytes, path: str) -> float:
    """Returns the best processor time of some runs over the documents of a file."""
    tokenizer = load_tokenizer(data, "gpt2").start(lower_case=False)
    texts: list[Lines] = []
    block: list[bytes] = []
    for line in Path(path).read_bytes().splitlines():
        block.append(orjson.loads(line)["text"].encode())
        if sum(map(len, block)) > 1 << 20:
            texts.append(Lines.from_list(block))
            block = []
    texts.append(Lines.from_list(block))

    def work() -> None:
        for lines in texts:
            tokenizer.tokenize(lines)

    return best_seconds(work)


def show(name: str, size: int, cost: Cost, start: Cost) -> None:
    rest = cost.without(start)
    rates = (size / 1e6 / seconds for seconds in (cost.wall, rest.wall, rest.processor))
    print(f"{name:<34}" + "".join(f"{rate:>12.2f}" for rate in rates), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--gpt2", required=True, help="encoder.json, with vocab.bpe beside it")
    parser.add_argument("--input", required=True, help="a glob of JSONL")
    parser.add_argument("--size", default="400MB", help="of the input, for us")
    parser.add_argument("--slice", default="16MB", help="of the input, for the others")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--max_seq_length", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=1, help="of all tools; the best counts")
    parser.add_argument("--megatron", help="a checkout of Megatron-LM")
    parser.add_argument("--megatron_python", default=sys.executable)
    parser.add_argument("--gigatoken", action="store_true", help="Megatron's fast script as well")
    parser.add_argument("--datatrove_python")
    parser.add_argument("--scratch", default="build/benchmark-gpt")
    options = parser.parse_args()
    compare(Comparison(options), options)


def compare(tools: Comparison, options: argparse.Namespace) -> None:
    """Runs all tools in turn, and prints what each does, and ours beside each."""
    workers = options.workers
    size, small = (parse_bytes(flag, getattr(options, flag)) for flag in ("size", "slice"))
    bare_bytes = min(size, 50_000_000)
    few = cut(tools.paths, 100_000, workers, tools.scratch / "few")
    few_one = cut(tools.paths, 100_000, 1, tools.scratch / "few-one")
    ours = cut(tools.paths, size, workers, tools.scratch / "ours")
    parts = cut(tools.paths, small, workers, tools.scratch / "parts")
    one = cut(tools.paths, small, 1, tools.scratch / "one")
    works = {"recordmill text --task=gpt": (tools.ours, few, ours)}
    if options.megatron:
        works["Megatron preprocess_data"] = (tools.megatron, few_one, one)
        if options.gigatoken:
            fast = cut(tools.paths, size, 1, tools.scratch / "fast")
            works["Megatron preprocess_data_fast"] = (
                lambda files: tools.megatron(files, fast=True), few_one, fast,
            )  # fmt: skip
    if options.datatrove_python:
        works["datatrove DocumentTokenizer"] = (tools.datatrove, few, parts)
    best: dict[str, tuple[int, Cost, Cost]] = {}
    alone = {1: float("inf"), workers: float("inf")}
    for work, little, _ in works.values():
        work(little)  # whatever is compiled or cached at the first run
    for _ in range(options.rounds):
        for processes, seconds in alone.items():
            alone[processes] = min(seconds, tools.alone(bare_bytes, processes))
        for name, (work, little, files) in works.items():
            start, cost = work(little), work(files)
            before = best.get(name)
            if before is None or cost.without(start).wall < before[1].without(before[2]).wall:
                best[name] = (total_bytes(files), cost, start)
    print(f"{'MB of JSONL a second':<34}{'wall':>12}{'start less':>12}{'a core':>12}")
    for name, (bytes_read, cost, start) in best.items():
        show(name, bytes_read, cost, start)
    (read, cost, start), *others = best.values()
    rest = cost.without(start)
    for processes, seconds in alone.items():
        rate = bare_bytes / 1e6 / seconds
        bare = read / 1e6 / rate  # seconds of one core
        name = f"tokenizer alone, {processes} at once"
        print(f"{name:<34}{rate * workers:>12.2f}{rate * workers:>12.2f}{rate:>12.2f}")
        print(
            f"recordmill / {name}: wall {bare / workers / cost.wall:.2f}, "
            f"start less {bare / workers / rest.wall:.2f}, "
            f"processor time {bare / rest.processor:.2f}"
        )
    for name, (theirs, their_cost, their_start) in zip(list(best)[1:], others, strict=True):
        their_rest = their_cost.without(their_start)
        print(
            f"recordmill / {name}: wall {read / cost.wall / theirs * their_cost.wall:.1f}, "
            f"start less {read / rest.wall / theirs * their_rest.wall:.1f}, "
            f"processor time {read / rest.processor / theirs * their_rest.processor:.1f}"
        )


if __name__ == "__main__":
    main()
