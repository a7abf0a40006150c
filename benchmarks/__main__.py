"""Our jobs beside what else there is, on the same generated input: one table of ratios.

    python benchmarks [--megabytes=20] [--rounds=3] [--parts=text,gpt,images,records,reader]

`make benchmark` runs it, and installs the other tools into an environment of their own before. The
usual size takes some ten minutes on two cores, most of them starts; --megabytes=400 shows more.

Each way is a process of its own, on so many cores. In a round each of them runs twice, on the input
and on next to nothing of it, which says what its start takes; the order of the ways turns from
round to round. A ratio is our speed divided by theirs in the same round, and the table has the
medians: with starts, without them, and without them by the processor time of all processes, which
other work on the machine changes least. Slow ways get a share of the input, from which follows what
all of it would take. What a way leaves out is in its name.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")

import psutil
from corpus import make_corpus, pydoc_text
from images import make_images
from tqdm import tqdm

from examples import make_records
from recordmill.pipelines.cores import usable_cores

HERE = Path(__file__).parent
ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
}  # fmt: skip
_LEAST_SECONDS = 0.1  # of work, beside a start of some seconds
_MOST_RECORDS = 1 << 21  # of a dataset that is read
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


class FailedError(Exception):
    """A command failed; the message has what it printed last."""


class Cost(NamedTuple):
    """Seconds of one run, and those of them that are the processor's, of all its processes."""

    wall: float
    processor: float


class Input(NamedTuple):
    """Where an input is, and how much it is: bytes, images or records."""

    path: Path
    size: int


@dataclass(frozen=True, slots=True)
class Way:
    """A way to do a work.

    Attributes:
      name: with what it leaves out.
      command: (input, output, a folder that is there) -> the command line.
      share: the part of the input that it is given.
    """

    name: str
    command: Callable[[Path, Path], Sequence[str]]
    share: float = 1.0


@dataclass(frozen=True, slots=True)
class Work:
    """What is compared.

    Attributes:
      ours: our way.
      others: the ways that it is compared with.
      make: size -> an input of it.
      size: of the input.
      start: of next to nothing of it.
    """

    ours: Way
    others: list[Way]
    make: Callable[[int], Input]
    size: int
    start: int


def run(command: Sequence[str], log: Path) -> Cost:
    """Runs a command to its end.

    Its processor time is that which the system counts, or that which its processes had when they
    were last looked at: some tools leave processes to end by themselves.
    """
    seen: dict[tuple[int, float], float] = {}
    status = 0
    began = time.perf_counter()
    with log.open("wb") as out:
        process = subprocess.Popen(
            command, stdout=out, stderr=subprocess.STDOUT, env=os.environ | ENVIRONMENT
        )
        parent = psutil.Process(process.pid)
        while True:
            ended, status, used = os.wait4(process.pid, os.WNOHANG)
            if ended:
                break
            try:
                for one in (parent, *parent.children(recursive=True)):
                    times = one.cpu_times()
                    seen[one.pid, one.create_time()] = times.user + times.system
            except psutil.Error:
                pass  # it ended meanwhile
            time.sleep(0.05)
    wall = time.perf_counter() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise FailedError(f"{' '.join(command)}:\n{log.read_text(errors='replace')[-3000:]}")
    return Cost(wall, max(sum(seen.values()), used.ru_utime + used.ru_stime))


class Comparison:
    """Makes inputs, and runs ways, in a folder of their own."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.workers: int = options.workers
        self.versions: dict[str, str] = {}
        self.size = int(options.megabytes * 1e6)
        self.scratch = Path(options.scratch).resolve()
        self.scratch.mkdir(parents=True, exist_ok=True)
        self.prose = Path(options.text).read_text("utf-8") if options.text else pydoc_text()

    # Inputs

    def text(self, size: int) -> Input:
        """Makes prose in files, some for each worker."""
        folder = self.scratch / f"text-{size}"
        make_corpus(folder, self.prose, size, file_bytes=max(1, size // (2 * self.workers)))
        return Input(folder, sum(path.stat().st_size for path in folder.glob("*.txt")))

    def json_lines(self, size: int) -> Input:
        """Makes one file of the documents of such prose."""
        path = self.scratch / f"{size}.jsonl" / "documents.jsonl"
        if not path.exists():
            path.parent.mkdir(exist_ok=True)
            partial = path.with_suffix(".partial")
            with partial.open("w", encoding="utf-8") as out:
                for file in sorted(self.text(size).path.glob("*.txt")):
                    for text in filter(str.strip, file.read_text("utf-8").split("\n\n")):
                        out.write(json.dumps({"text": text}) + "\n")
            partial.rename(path)
        return Input(path, path.stat().st_size)

    def images(self, count: int) -> Input:
        """Makes drawn photos, and a list of them beside."""
        folder = self.scratch / f"images-{count}"
        paths = make_images(folder, [], count)
        folder.with_suffix(".txt").write_text("\n".join(paths))
        return Input(folder, count)

    def records(self, size: int) -> Input:
        """Makes files of records."""
        folder = make_records(self.scratch / f"records-{size}", size)
        return Input(folder, sum(path.stat().st_size for path in folder.iterdir()))

    def dataset(self, records: int) -> Input:
        """Makes a dataset as of BERT."""
        from reader import bert_dataset

        return Input(bert_dataset(records), records)

    def vocabulary(self, kind: str, name: str) -> str:
        """Learns a vocabulary from the prose."""
        path, text = self.scratch / name, self.scratch / "prose.txt"
        if not path.exists():
            text.write_text(self.prose, encoding="utf-8")
            flags = (f"--input={text}", f"--output={path}", f"--kind={kind}", "--vocab_size=8000")
            run(self.recordmill("vocab", *flags), self.scratch / "log")
        return str(path)

    # Ways

    def recordmill(self, command: str, *flags: str) -> list[str]:
        return [sys.executable, "-m", f"recordmill.pipelines.{command}", *flags]

    def ours(self, name: str, command: str, *flags: str, pattern: str = "") -> Way:
        """Returns a job of ours, by its command line."""

        def line(source: Path, output: Path) -> list[str]:
            own = (f"--input={source}{pattern}", f"--output={output}/dataset")
            how = (f"--direct_num_workers={self.workers}", "--progress=none")
            return self.recordmill(command, *own, *how, *flags)

        return Way(name, line)

    def way(
        self, name: str, function: str, tokenizer: str = "", *, python: str = sys.executable,
        share: float = 1.0,
    ) -> Way:  # fmt: skip
        """Returns a way of `ways.py`."""

        def line(source: Path, output: Path) -> list[str]:
            arguments = (str(source), str(output), str(self.workers), tokenizer)
            return [python, str(HERE / "ways.py"), function, *arguments]

        return Way(name, line, share)

    def has(self, python: str, distribution: str) -> bool:
        """Returns whether an interpreter has a package, of which the version is told at the end."""
        code = f"from importlib.metadata import version; print(version({distribution!r}))"
        try:
            found = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True)
        except (OSError, subprocess.CalledProcessError):
            print(f"left out: {distribution}, which {python} does not have; see make benchmark")
            return False
        self.versions[distribution] = found.stdout.strip()
        return True

    # Works

    def of_text(self) -> Work:
        vocabulary = self.vocabulary("wordpiece", "vocab.txt")
        peers = self.options.peers
        others = [
            self.way("its kernels in a loop; no shuffle, no shards", "own_kernels", vocabulary)
        ]
        if self.has(sys.executable, "tensorflow-text"):
            others.append(
                self.way("tensorflow_text FastBertTokenizer; ids alone, dropped",
                         "tensorflow_text", vocabulary)
            )  # fmt: skip
        if self.has(peers, "datasets"):
            others.append(
                self.way("datasets.map + tokenizers; ids alone", "datasets_map", vocabulary,
                         python=peers)
            )  # fmt: skip
        if self.has(sys.executable, "tf-models-official"):

            def garden(source: Path, output: Path) -> list[str]:
                return [
                    sys.executable, "-m", "official.nlp.data.create_pretraining_data",
                    f"--input_file={','.join(map(str, sorted(source.glob('*.txt'))))}",
                    f"--output_file={output}/records", f"--vocab_file={vocabulary}",
                    "--do_lower_case", "--max_seq_length=128", "--max_predictions_per_seq=20",
                    "--masked_lm_prob=0.15", "--dupe_factor=1", "--random_seed=12345",
                ]  # fmt: skip

            name = "Model Garden's create_pretraining_data; one process"
            others.append(Way(name, garden, share=0.1))
        flags = ("--task=bert", "--dupe_factor=1", "--max_seq_length=128")
        ours = self.ours("recordmill text --task=bert", "text", f"--vocab_file={vocabulary}",
                         *flags, pattern="/*.txt")  # fmt: skip
        return Work(ours, others, self.text, self.size, 20_000)

    def of_language_models(self) -> Work:
        tokenizer = self.options.tokenizer or self.vocabulary("bpe", "tokenizer.json")
        peers, workers = self.options.peers, str(self.workers)
        others = [self.way("its tokenizer in a loop; ids dropped", "tokenizer_alone", tokenizer)]
        if self.has(peers, "tokenizers"):
            others.append(
                self.way("Megatron-LM's way: a pool and tokenizers; no shuffle, no packing",
                         "pool_of_lines", tokenizer, python=peers, share=0.25)
            )  # fmt: skip
        if self.has(peers, "gigatoken"):
            others.append(
                self.way("Megatron-LM's fast way: gigatoken; no shuffle, no packing",
                         "whole_file", tokenizer, python=peers)
            )  # fmt: skip
        if self.options.megatron:
            folder = self.scratch / "tokenizer"
            folder.mkdir(exist_ok=True)
            shutil.copyfile(tokenizer, folder / "tokenizer.json")
            (folder / "tokenizer_config.json").write_text(
                '{"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|endoftext|>"}'
            )

            def megatron(source: Path, output: Path) -> list[str]:
                script = Path(self.options.megatron).resolve() / "tools" / "preprocess_data.py"
                return [
                    self.options.megatron_python, str(script), "--input", str(source),
                    "--output-prefix", f"{output}/ids", "--append-eod", "--workers", workers,
                    "--tokenizer-type", "HuggingFaceTokenizer", "--tokenizer-model", str(folder),
                ]  # fmt: skip

            name = "Megatron-LM's preprocess_data; no shuffle, no packing"
            others.append(Way(name, megatron, share=0.25))
        if self.options.datatrove_python:
            script = self.scratch / "by_datatrove.py"
            script.write_text(DATATROVE, encoding="utf-8")

            def datatrove(source: Path, output: Path) -> list[str]:
                python = self.options.datatrove_python
                names = (str(source.parent), f"{output}/ids", tokenizer, workers)
                return [python, str(script), *names]

            others.append(Way("datatrove's DocumentTokenizer; one file", datatrove, share=0.25))
        ours = self.ours("recordmill text --task=gpt", "text", "--task=gpt",
                         f"--tokenizer={tokenizer}", "--max_seq_length=1024")  # fmt: skip
        return Work(ours, others, self.json_lines, self.size, 20_000)

    def tfds(self, name: str, *flags: str) -> list[Way]:
        def line(source: Path, output: Path) -> list[str]:
            listing = str(source.with_suffix(".txt"))
            script = str(HERE / "tfds_build.py")
            return [sys.executable, script, listing, str(output), str(self.workers), *flags]

        return [Way(name, line)] if self.has(sys.executable, "tensorflow-datasets") else []

    def of_images(self) -> Work:
        others = [
            self.way("Pillow in a loop; no records", "pillow"),
            self.way("a pool with TFRecordWriter; no shuffle", "pool_of_writers"),
            *self.tfds("TFDS's build by Beam"),
        ]
        flags = ("--image_size=224x224", "--augmentations=flip", "--encoding=JPEG")
        ours = self.ours("recordmill images, resized", "images", *flags)
        return Work(ours, others, self.images, self.size // 50_000, 8)

    def of_copied_images(self) -> Work:
        others = self.tfds("TFDS's build by Beam; images not checked", "copy")
        ours = self.ours("recordmill images, as they are", "images")
        return Work(ours, others, self.images, self.size // 12_500, 8)

    def of_records(self) -> Work:
        others = [
            self.way("copying twice with checksums; no shuffle", "copy_twice"),
            self.way("the same, synced to the disk", "copy_synced"),
            self.way("Beam's read, GroupByKey, WriteToTFRecord", "plain_beam", share=0.25),
        ]
        ours = self.ours("recordmill examples", "examples", pattern="/*")
        return Work(ours, others, self.records, self.size * 16, 1_000_000)

    def of_reading(self) -> Work:
        others = [self.way("TFRecordDataset, batch, parse; no shuffle", "bare_reader")]
        ours = self.way("recordmill.reader.load, shuffled", "our_reader")
        records = min(self.size // 64, _MOST_RECORDS) // 2048 * 2048
        return Work(ours, others, self.dataset, records, 4096)

    # Runs

    def measure(self, way: Way, source: Path) -> Cost:
        output = self.scratch / "output"
        shutil.rmtree(output, ignore_errors=True)
        output.mkdir()
        try:
            return run(way.command(source, output), self.scratch / "log")
        finally:
            shutil.rmtree(output, ignore_errors=True)

    def compare(self, work: Work, title: str) -> list[tuple[str, str, list[float]]]:
        """Returns a row of the table for each other way: both names, and the ratios."""
        start = work.make(work.start)
        ways = []
        for way in tqdm([work.ours, *work.others], desc=f"{title}, first runs", unit="run"):
            try:
                self.measure(way, start.path)  # whatever is compiled or cached at the first run
                ways.append(way)
            except FailedError as error:
                if way is work.ours:
                    raise
                print(f"left out: {way.name}, which failed: {error}")
        inputs = [work.make(max(int(work.size * way.share), work.start)) for way in ways]
        starts: list[list[Cost]] = [[] for _ in ways]
        wholes: list[list[Cost]] = [[] for _ in ways]
        steps = tqdm(total=len(ways) * 2 * self.options.rounds, desc=title, unit="run")
        for number in range(self.options.rounds):
            order = list(range(len(ways)))
            for i in order if number % 2 == 0 else order[::-1]:
                starts[i].append(self.measure(ways[i], start.path))
                wholes[i].append(self.measure(ways[i], inputs[i].path))
                steps.update(2)
        steps.close()
        ours, *others = (
            _speeds(inputs[0].size, inputs[i].size - start.size, starts[i], wholes[i])
            for i in range(len(ways))
        )
        return [
            (work.ours.name, way.name, _medians(ours, theirs))
            for way, theirs in zip(ways[1:], others, strict=True)
        ]


def _speeds(size: int, more: int, starts: list[Cost], wholes: list[Cost]) -> list[list[float]]:
    """Returns the speeds of each round: with starts, without, and by processor time.

    Args:
      size: of the whole input. What a way with a share of it would take is its start and, for all
        of the rest, as long as for its share.
      more: what the input of the way has more than that of the start.
      starts: what next to nothing costs, in each round; the median counts.
      wholes: what the input of the way costs.
    """
    wall, processor = (statistics.median(each) for each in zip(*starts, strict=True))
    found = []
    for cost in wholes:
        rest = _speed(more, cost.wall - wall)
        has_all = more >= 0.9 * size
        whole = size / cost.wall if has_all else size / (wall + size / rest)
        found.append([whole, rest, _speed(more, cost.processor - processor)])
    return found


def _speed(size: int, seconds: float) -> float:
    """Returns a speed, NaN where a time is too short to tell it."""
    return size / seconds if seconds > _LEAST_SECONDS and size > 0 else math.nan


def _medians(ours: list[list[float]], theirs: list[list[float]]) -> list[float]:
    """Returns the medians of the ratios of all rounds in which there are any."""
    found = []
    for mine, other in zip(zip(*ours, strict=True), zip(*theirs, strict=True), strict=True):
        ratios = [a / b for a, b in zip(mine, other, strict=True) if not math.isnan(a / b)]
        found.append(statistics.median(ratios) if ratios else math.nan)
    return found


PARTS: dict[str, list[Callable[[Comparison], Work]]] = {
    "text": [Comparison.of_text],
    "gpt": [Comparison.of_language_models],
    "images": [Comparison.of_images, Comparison.of_copied_images],
    "records": [Comparison.of_records],
    "reader": [Comparison.of_reading],
}


def show(rows: list[tuple[str, str, list[float]]]) -> None:
    """Prints the table, as Markdown."""
    print("\n| ours | compared with | starts included | without starts | by processor time |")
    print("|---|---|---:|---:|---:|")
    for ours, other, ratios in rows:
        cells = ("too short" if math.isnan(each) else f"{each:.2g}" for each in ratios)
        print(f"| {ours} | {other} | {' | '.join(cells)} |")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python benchmarks", description=__doc__.split("\n")[0])
    parser.add_argument("--megabytes", type=float, default=20, help="of text; others in proportion")
    parser.add_argument("--rounds", type=int, default=3, help="of which the medians are shown")
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--workers", type=int, default=usable_cores())
    parser.add_argument("--text", help="real text in BERT's form; Python's help topics by default")
    parser.add_argument("--tokenizer", help="a tokenizer.json for gpt; learned by default")
    parser.add_argument("--peers", default="build/peers/bin/python",
                        help="a Python with datasets, tokenizers and gigatoken")  # fmt: skip
    parser.add_argument("--megatron", help="a checkout of Megatron-LM, to run its own script too")
    parser.add_argument("--megatron_python", default=sys.executable)
    parser.add_argument("--datatrove_python", help="a Python with datatrove, to run that too")
    parser.add_argument("--scratch", default="build/benchmark")
    options = parser.parse_args()
    parts = options.parts.split(",")
    if unknown := set(parts) - set(PARTS):
        sys.exit(f"--parts must be some of {','.join(PARTS)}, got {','.join(sorted(unknown))}")
    comparison = Comparison(options)
    rows = []
    try:
        for part in parts:
            for work in PARTS[part]:
                rows += comparison.compare(work(comparison), part)
    except FailedError as error:
        sys.exit(str(error))
    show(rows)
    versions = ", ".join(" ".join(each) for each in sorted(comparison.versions.items()))
    print(
        f"\nOur speed divided by theirs: medians of {options.rounds} rounds on "
        f"{options.megabytes:g} MB, {options.workers} processes, {os.cpu_count()} cores.\n"
        f"Beside {versions}."
    )


if __name__ == "__main__":
    main()
