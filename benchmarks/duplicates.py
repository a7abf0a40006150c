"""Deduplication: what is found, how fast documents are hashed, and how memory grows.

    python benchmarks/duplicates.py [--parts=found,speed,phases,memory] [--sizes=500MB,5GB]

Parts: found (pairs of known similarity, which of them are dropped), speed (hashing beside reading
and tokenizing, on one core), phases (finding duplicates alone, in one process), memory (the job).
Corpora of the last two are of two sizes, with each tenth document planted: an earlier one, the same
or with a line exchanged, which leaves a similarity of 85 % and more.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import resource
import shutil
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
sys.path.insert(0, str(Path(__file__).parent))

import numpy as np
import psutil
from corpus import pydoc_text
from text import show
from timing import best_seconds

from recordmill.pipelines.cores import usable_cores
from recordmill.pipelines.job_request import parse_bytes
from recordmill.pipelines.progress import resident_bytes
from recordmill.transforms.dataset.workspace import Workspace
from recordmill.transforms.sources.document_batch import BatchMaker, DocumentBatch
from recordmill.transforms.sources.document_spec import READ_LIMITS, DocumentSpec
from recordmill.transforms.sources.documents import read_documents
from recordmill.transforms.sources.item_cutting import cut_work_items
from recordmill.transforms.sources.lines import Lines
from recordmill.transforms.sources.work_item_files import write_work_items
from recordmill.transforms.sources.work_items import SourceRange, list_sources
from recordmill.transforms.text.cleaning.comparison import similar_documents
from recordmill.transforms.text.cleaning.duplicates import DuplicateFiles
from recordmill.transforms.text.cleaning.exact_hashes import ExactHasher
from recordmill.transforms.text.cleaning.find_duplicates import (
    CollectDuplicates,
    Compare,
    Fingerprint,
)
from recordmill.transforms.text.cleaning.minhash import MinHasher, most_differing
from recordmill.transforms.text.text_job import TextJob
from recordmill.transforms.text.text_spec import CleanSpec, Mlm
from recordmill.transforms.text.tokenization import Vocabulary, WordPieceTokenizer

FILE_BYTES = 20_000_000


def find_duplicates(job: TextJob, work_items: int) -> dict[str, float]:
    """Does the stages that find duplicates, one after the other; returns seconds of each half."""
    stages = Fingerprint(job, READ_LIMITS), Compare(job)
    times = [time.process_time()]
    for stage in (*stages, CollectDuplicates(job)):
        for item in range(stage.items()):
            stage.do(item)
        times.append(time.process_time())
    return {"hash_seconds": times[1] - times[0], "compare_seconds": times[-1] - times[1]}


def similarity(one: list[str], other: list[str]) -> float:
    """Jaccard's, of word 5-grams."""
    first = {tuple(one[i : i + 5]) for i in range(len(one) - 4)}
    second = {tuple(other[i : i + 5]) for i in range(len(other) - 4)}
    return len(first & second) / len(first | second)


def exchanged(words: list[str], share: float, rng: random.Random) -> list[str]:
    """The words with a run of others instead of so many of them."""
    count = round(len(words) * share)
    at = rng.randrange(len(words) - count + 1)
    return [*words[:at], *(f"w{rng.randrange(10**7)}" for _ in range(count)), *words[at + count :]]


def found(pairs: int) -> None:
    """Prints which share of pairs is found, by similarity."""
    rng = random.Random(0)
    vocabulary = list(dict.fromkeys(re.findall(r"[a-z]+", pydoc_text().lower())))
    maker = BatchMaker(SourceRange("a", "a", "text", "", 0), hashed_bytes=0)
    for wanted in (0.95, 0.9, 0.85, 0.8, 0.75, 0.7, 0.6, 0.5):
        texts, values = [], []
        for _ in range(pairs):
            words = [rng.choice(vocabulary) for _ in range(rng.randrange(100, 500))]
            # n-grams that a run of k changed words breaks: k + 4 of n - 4
            ngrams = len(words) - 4
            count = max(0, round(ngrams * (1 - wanted) / (1 + wanted)) - 4)
            other = exchanged(words, count / len(words), rng)
            values.append(similarity(words, other))
            texts += [" ".join(words), " ".join(other)]
        lines = Lines.from_list([text.encode() for text in texts])
        numbers = np.arange(len(texts), dtype=np.int64)
        hasher = MinHasher(0.8)
        chosen, hashes = hasher.add(maker.batch(lines, numbers, numbers), goes_on=False)
        rows = hasher.rows(chosen.astype(np.uint64), hashes)
        bands_alone = similar_documents(rows, 10**6)
        verified = similar_documents(rows, most_differing(0.8))
        wrong = [p for p in verified.tolist() if p[0] // 2 != p[1] // 2]
        print(
            f"similarity {np.mean(values):.3f}: {len(verified) / pairs:7.2%} found at 0.8, "
            f"{len(bands_alone) / pairs:7.2%} by bands alone; unrelated {len(wrong)}"
        )


def speed(scratch: Path, vocab_file: str) -> None:
    """Prints the speed of each pass over the text."""
    path = scratch / "speed.txt"
    path.write_text((pydoc_text() + "\n\n") * 16, encoding="utf-8")
    source = SourceRange(str(path), "speed.txt", "text", "", path.stat().st_size)
    megabytes = source.size / 1e6

    def batches() -> list[DocumentBatch]:
        return list(read_documents(source, DocumentSpec(sentence_splitter="none"), groups=False))

    held = batches()
    show("read", megabytes / best_seconds(batches), "MB/s/core")
    tokenizer = WordPieceTokenizer(
        Vocabulary.from_bytes(Path(vocab_file).read_bytes(), vocab_file), lower_case=True
    )
    show(
        "tokenize",
        megabytes / best_seconds(lambda: [tokenizer.tokenize(b.lines) for b in held]),
        "MB/s/core",
    )
    for name, hasher in (("exact", ExactHasher(keeps_lines=False)), ("near", MinHasher(0.8))):
        passed = best_seconds(lambda h=hasher: [h.add(b, goes_on=False) for b in held])  # type: ignore[misc]
        show(f"hash: {name}", megabytes / passed, "MB/s/core")


def make_planted(folder: Path, size_bytes: int) -> tuple[Path, Counter[str]]:
    """Fills a folder up to a size; returns it, and how many documents were planted of each kind."""
    folder.mkdir(parents=True, exist_ok=True)
    words = list(dict.fromkeys(re.findall(r"[a-z]+", pydoc_text().lower())))
    rng = random.Random(1)
    sentences = [" ".join(rng.choices(words, k=15)) for _ in range(50_000)]
    planted: Counter[str] = Counter()
    earlier: list[list[str]] = []
    done = number = 0
    while done < size_bytes:
        with (folder / f"part-{number:05d}.txt").open("w", encoding="utf-8") as out:
            written = 0
            while written < min(FILE_BYTES, size_bytes - done):
                draw, lines = rng.random(), []
                if draw < 0.1 and earlier:
                    lines = list(rng.choice(earlier))
                kind = "own" if not lines else "equal" if draw < 0.05 else "similar"
                if kind == "similar":
                    lines[rng.randrange(len(lines))] = rng.choice(sentences)
                if kind == "own":
                    lines = rng.choices(sentences, k=rng.randrange(5, 60))
                    if len(lines) > 30 and len(earlier) < 5000:
                        earlier.append(lines)
                    elif len(lines) > 30:
                        earlier[rng.randrange(5000)] = lines
                planted[kind] += 1
                written += out.write("\n".join(lines) + "\n\n")
            done += written
        number += 1
    return folder, planted


def run(
    corpus: Path, vocab_file: str, output: Path, workers: int, *flags: str
) -> tuple[float, float, str]:
    """Returns seconds, the peak bytes of all processes, and what became of the documents."""
    shutil.rmtree(output, ignore_errors=True)
    began = time.perf_counter()
    process = subprocess.Popen(
        [
            sys.executable, "-m", "recordmill.pipelines.text", f"--input={corpus}/*.txt",
            f"--output={output}", f"--vocab_file={vocab_file}", "--task=mlm", "--dupe_factor=1",
            f"--direct_num_workers={workers}", *flags,
        ],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    peak = 0
    while process.poll() is None:
        peak = max(peak, (resident_bytes() or 0) - (resident_bytes_of_self()))
        time.sleep(0.2)
    seconds = time.perf_counter() - began
    shown = process.communicate()[0]
    if process.returncode:
        sys.exit(shown)
    shutil.rmtree(output)
    return seconds, peak, next(line for line in shown.splitlines() if "documents:" in line)


def resident_bytes_of_self() -> int:
    return int(psutil.Process().memory_info().rss)


def memory(
    scratch: Path, vocab_file: str, sizes: list[int], kinds: list[str], workers: int
) -> None:
    """Prints the peak memory of the job, and what it dropped, on each size of corpus."""
    peaks: dict[str, list[float]] = {}
    for size in sizes:
        folder, planted = make_planted(scratch / f"planted-{size}", size)
        print(f"{size / 1e6:,.0f} MB made: {dict(planted)}", flush=True)
        for how in kinds:
            flags = [f"--deduplicate={how}", "--list_dropped"] if how != "none" else []
            seconds, peak, documents = run(folder, vocab_file, scratch / "dataset", workers, *flags)
            peaks.setdefault(how, []).append(peak)
            rate = f"{size / 1e6 / seconds:.1f} MB/s"
            show(f"{size / 1e6:,.0f} MB, --deduplicate={how}", peak / 1e6, "MB", speed=rate)
            print(f"  {documents}", flush=True)
        shutil.rmtree(folder)
    for how, found in peaks.items():
        ratio = found[-1] / found[0]
        print(f"memory of --deduplicate={how}, largest / smallest corpus: {ratio:.2f}")


def phases(scratch: Path, sizes: list[int], kinds: list[str]) -> None:
    """Prints the peak memory of the phases that find duplicates, each in a process of its own."""
    for how in kinds:
        peaks = []
        for size in sizes:
            folder = scratch / f"planted-{size}"
            planted = make_planted(folder, size)[1] if not folder.exists() else None
            arguments = [
                sys.executable,
                __file__,
                "--parts=one",
                f"--sizes={size}",
                f"--kinds={how}",
            ]
            arguments += [f"--scratch={scratch}", "--vocab_file=none"]
            shown = subprocess.run(arguments, capture_output=True, text=True, check=True).stdout
            found = json.loads(shown.splitlines()[-1])
            peaks.append(found["peak_bytes"])
            show(
                f"{size / 1e6:,.0f} MB, {how}, phases alone", peaks[-1] / 1e6, "MB",
                hash=f"{size / 1e6 / found['hash_seconds']:.0f} MB/s",
                compare=f"{size / 1e6 / found['compare_seconds']:.0f} MB/s",
                dropped=found["dropped"], planted=planted and dict(planted),
            )  # fmt: skip
        print(f"memory of {how}, largest / smallest corpus: {peaks[-1] / peaks[0]:.2f}", flush=True)


def one(scratch: Path, size: int, how: str) -> None:
    """Finds the duplicates of a corpus in this process, work item by work item."""
    work = str(scratch / "work")
    shutil.rmtree(work, ignore_errors=True)
    objective = Mlm()
    workspace = Workspace(output=work, work=work, staging=work)
    job = TextJob(workspace=workspace, objective=objective, clean=CleanSpec(deduplicate=how))
    sources = list_sources([f"{scratch}/planted-{size}/*.txt"])
    items = cut_work_items(sources, 1 << 24)
    work_items = write_work_items(workspace.inputs_folder, items)
    cost = find_duplicates(job, work_items)
    dropped = sum(DuplicateFiles(job).rows_state(DuplicateFiles(job).dropped_path) or [])
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps({"peak_bytes": peak, "dropped": dropped, **cost}))
    shutil.rmtree(work)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--scratch", default="build/benchmark-duplicates", help="6 GB for memory")
    parser.add_argument("--vocab_file", required=True)
    parser.add_argument("--parts", default="found,speed,phases,memory")
    parser.add_argument("--sizes", default="500MB,5GB")
    parser.add_argument("--kinds", default="none,exact,near", help="of --deduplicate, for memory")
    parser.add_argument(
        "--workers", type=int, default=usable_cores(), help="of the job, for memory"
    )
    options = parser.parse_args()
    scratch = Path(options.scratch).resolve()
    scratch.mkdir(parents=True, exist_ok=True)
    parts = options.parts.split(",")
    if "found" in parts:
        found(2000)
    if "speed" in parts:
        speed(scratch, options.vocab_file)
    sizes = [parse_bytes("--sizes", size) for size in options.sizes.split(",")]
    kinds = options.kinds.split(",")
    if "one" in parts:
        one(scratch, sizes[0], kinds[0])
    if "phases" in parts:
        phases(scratch, sizes, [how for how in kinds if how != "none"])
    if "memory" in parts:
        memory(scratch, options.vocab_file, sizes, kinds, options.workers)


if __name__ == "__main__":
    main()
