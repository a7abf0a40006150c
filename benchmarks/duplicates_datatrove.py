"""Near duplicates found by recordmill and by datatrove's MinHash in the same text, on one core.

    python benchmarks/duplicates_datatrove.py --datatrove=OTHER/bin/python [--size=20MB]

OTHER is an environment with `datatrove[processing]` and `spacy`. The text is random words of
Python's documentation, a document a JSON line. Of ten documents one repeats an earlier one: the
same, or with a run of words exchanged, by a similarity of 90 % (of word 5-grams). Two of a hundred
are alike by 60 %, which is below both thresholds. Times are processor time: of ours hashes, their
comparison and clusters (`find_duplicates`), of datatrove its signature, buckets and cluster steps.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import shutil
import struct
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import numpy as np
from corpus import pydoc_text
from duplicates import find_duplicates, similarity
from text import show

from recordmill.pipelines.job_request import parse_bytes
from recordmill.transforms.dataset.workspace import Workspace
from recordmill.transforms.sources.document_spec import DocumentSpec
from recordmill.transforms.sources.item_cutting import cut_work_items
from recordmill.transforms.sources.work_item_files import write_work_items
from recordmill.transforms.sources.work_items import list_sources
from recordmill.transforms.text.cleaning.duplicates import read_repeats
from recordmill.transforms.text.text_job import TextJob
from recordmill.transforms.text.text_spec import CleanSpec, Gpt

KINDS = ("own", "equal", "90 % alike", "60 % alike")

# The other environment's program: its arguments are the folder of the text and one for its files.
_DATATROVE = """
import sys, time
from datatrove.pipeline.dedup import MinhashDedupSignature
from datatrove.pipeline.dedup.minhash import (
    MinhashConfig, MinhashDedupBuckets, MinhashDedupCluster)
from datatrove.pipeline.readers import JsonlReader
from datatrove.utils.word_tokenizers import load_word_tokenizer
text, work = sys.argv[1:]
load_word_tokenizer("eng").word_tokenize("warm up")
config = MinhashConfig()
began = time.process_time()
documents = JsonlReader(text).run(None, rank=0, world_size=1)
MinhashDedupSignature(f"{work}/signatures", config).run(documents, rank=0, world_size=1)
buckets = MinhashDedupBuckets(f"{work}/signatures", f"{work}/buckets", config=config)
for rank in range(config.num_buckets):
    buckets.run(rank=rank, world_size=config.num_buckets)
MinhashDedupCluster(f"{work}/buckets", f"{work}/remove", config).run()
print(time.process_time() - began)
"""


def exchanged(text: list[str], count: int, words: list[str], rng: random.Random) -> list[str]:
    """The words of a text with a run of others: real ones, as datatrove takes digits for alike."""
    at = rng.randrange(len(text) - count + 1)
    return [*text[:at], *rng.choices(words, k=count), *text[at + count :]]


def make(path: Path, size_bytes: int) -> list[str]:
    """Writes the text; returns the kind of each document."""
    words = list(dict.fromkeys(re.findall(r"[a-z]+", pydoc_text().lower())))
    rng = random.Random(3)
    earlier: list[list[str]] = []
    kinds, alike, written = [], [], 0
    with path.open("w", encoding="utf-8") as out:
        while written < size_bytes:
            draw = rng.random() if len(earlier) > 100 else 1.0
            kind = KINDS[1 if draw < 0.05 else 2 if draw < 0.1 else 3 if draw < 0.12 else 0]
            if kind == "own":
                text = rng.choices(words, k=rng.randrange(100, 600))
                earlier.append(text)
            else:
                first = earlier[rng.randrange(len(earlier))]
                wanted = {"equal": 1.0, "90 % alike": 0.9, "60 % alike": 0.6}[kind]
                # n-grams that a run of k changed words breaks: k + 4 of n - 4
                changed = round((len(first) - 4) * (1 - wanted) / (1 + wanted)) - 4
                text = exchanged(first, max(0, changed), words, rng)
                if kind == "90 % alike":
                    alike.append(similarity(first, text))
            kinds.append(kind)
            written += out.write(json.dumps({"text": " ".join(text), "id": str(len(kinds))}) + "\n")
    print(f"{len(kinds):,} documents; 90 % alike: {np.mean(alike):.3f}, at least {min(alike):.3f}")
    return kinds


def ours(scratch: Path) -> tuple[float, set[int]]:
    """Returns seconds, and the documents that are dropped."""
    work = str(scratch / "work")
    workspace = Workspace(output=work, work=work, staging=work)
    job = TextJob(
        workspace=workspace,
        objective=Gpt(),
        documents=DocumentSpec(sentence_splitter="none"),
        clean=CleanSpec(deduplicate="near"),
    )
    sources = list_sources([f"{scratch}/text/*.jsonl"])
    items = cut_work_items(sources, 1 << 40)
    assert write_work_items(workspace.inputs_folder, items) == 1
    find_duplicates(job, 1)  # compiles
    shutil.rmtree(f"{work}/fingerprints")
    shutil.rmtree(f"{work}/duplicates")
    cost = find_duplicates(job, 1)
    repeats = read_repeats(job, 0, (1 << 63) - 1)
    return sum(cost.values()), set(repeats[:, 0].tolist())


def datatrove(scratch: Path, python: str) -> tuple[float, set[int]]:
    """The same of datatrove: 5-grams, 14 buckets of 8 hashes, its defaults."""
    line = [python, "-c", _DATATROVE, str(scratch / "text"), str(scratch / "datatrove")]
    ran = subprocess.run(line, capture_output=True, text=True)
    if ran.returncode:
        sys.exit(ran.stderr)
    removed: set[int] = set()
    for path in (scratch / "datatrove/remove").glob("*.remove"):
        removed |= {number for (number,) in struct.iter_unpack("<I", path.read_bytes())}
    return float(ran.stdout.splitlines()[-1]), removed


def main() -> None:
    """Prints a table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--datatrove", required=True, help="the Python of datatrove's environment")
    parser.add_argument("--size", default="20MB")
    parser.add_argument("--scratch", default="build/benchmark-datatrove")
    options = parser.parse_args()
    scratch = Path(options.scratch).resolve()
    shutil.rmtree(scratch, ignore_errors=True)
    (scratch / "text").mkdir(parents=True)
    path = scratch / "text/text.jsonl"
    kinds = make(path, parse_bytes("--size", options.size))
    megabytes = path.stat().st_size / 1e6
    seconds = {}
    for name, (taken, dropped) in (
        ("recordmill", ours(scratch)),
        ("datatrove", datatrove(scratch, options.datatrove)),
    ):
        seconds[name] = taken
        shares = {
            kind: sum(kinds[i] == kind for i in dropped) / max(kinds.count(kind), 1)
            for kind in KINDS
        }
        right = sum(kinds[i] in KINDS[1:3] for i in dropped) / max(len(dropped), 1)
        found = {kind: f"{share:.2%}" for kind, share in shares.items()}
        show(name, megabytes / taken, "MB/s/core", dropped=found, precision=f"{right:.2%}")
    print(f"recordmill is {seconds['datatrove'] / seconds['recordmill']:.1f} times as fast")
    shutil.rmtree(scratch)


if __name__ == "__main__":
    main()
