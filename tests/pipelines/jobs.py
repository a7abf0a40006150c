"""The jobs that the tests of planning, restart, faults and bytes are run with."""

from __future__ import annotations

import itertools
import json
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recordmill.pipelines.command_line import main
from recordmill.pipelines.engines.local import LocalEngine
from recordmill.records.codec.encoding import Ragged, Strings, encode_batch
from recordmill.records.codec.framing import scan_records
from recordmill.records.errors import RunError
from recordmill.records.schema import Feature, Schema
from recordmill.transforms.storage import files

from ..conftest import bert_text, make_documents, make_vocabulary
from ..pictures import jpeg
from ..transforms.subwords import trained

LENGTHS = ("--max_seq_length=64", "--max_predictions_per_seq=10")


@dataclass(frozen=True)
class JobCase:
    """A job on a small input made by code, and the same on one that takes some seconds.

    Attributes:
      name: of the case.
      command: of the command line.
      fill: writes the input to a folder, with as many times the usual amount as asked for.
      pattern: of the input, below that folder.
      flags: for 5 shards of train and some of validation.
      fewer: another configuration, of 2 shards.
      big: for 12 shards of the big input.
    """

    name: str
    command: str
    fill: Callable[[Path, int], None]
    pattern: str
    flags: tuple[str, ...]
    fewer: tuple[str, ...]
    big: tuple[str, ...]

    def arguments(self, source: Path, output: Path, *flags: str, workers: int = 1) -> list[str]:
        own = [f.format(folder=source) for f in flags or self.flags]
        return [
            f"--input={source}/{self.pattern}", f"--output={output}",
            f"--direct_num_workers={workers}", *own,
        ]  # fmt: skip

    def run(self, source: Path, output: Path, *flags: str, workers: int = 1) -> int:
        return main([self.command, *self.arguments(source, output, *flags, workers=workers)])

    def line(self, source: Path, output: Path, *flags: str, workers: int) -> list[str]:
        """The same for a process of its own."""
        module = f"recordmill.pipelines.{self.command}"
        arguments = self.arguments(source, output, *flags, workers=workers)
        return [sys.executable, "-m", module, *arguments]


@contextmanager
def unpublished() -> Iterator[None]:
    """Runs in it end with exit status 1 when all shards are finished: the storage renames none of
    them to its final name."""
    rename = files.rename

    def failing(sources: list[str], targets: list[str]) -> None:
        if "/_tmp/" in sources[0] and "/_tmp/" not in targets[0]:
            raise RunError(f"cannot rename {sources[0]}")
        rename(sources, targets)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(files, "rename", failing)
        yield


@contextmanager
def twice() -> Iterator[None]:
    """Each job in it runs once more when it is done, as one does that an engine still has."""
    run, failed = LocalEngine.run, list[Exception]()

    def again(self: LocalEngine, *args: Any, **named: Any) -> dict[str, int]:
        counters = run(self, *args, **named)
        try:
            run(self, *args, **named)
        except Exception as error:  # which a launcher would not see behind a finished dataset
            failed.append(error)
        return counters

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(LocalEngine, "run", again)
        yield
    assert not failed


def shuffle_listings(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Makes the file system give the names in a folder in another order; returns what is listed."""
    listed: list[str] = []
    scandir = os.scandir

    class Shuffled:
        def __init__(self, folder: Any = ".") -> None:
            listed.append(str(folder))
            with scandir(folder) as entries:
                by_name = sorted(entries, key=lambda entry: entry.name, reverse=True)
            self._entries = iter(by_name)

        def __iter__(self) -> Iterator[os.DirEntry[str]]:
            return self._entries

        def __next__(self) -> os.DirEntry[str]:
            return next(self._entries)

        def __enter__(self) -> Shuffled:
            return self

        def __exit__(self, *error: object) -> None:
            self.close()

        def close(self) -> None:
            self._entries = iter(())

    monkeypatch.setattr(os, "scandir", Shuffled)
    return listed


def _fill_text(folder: Path, times: int) -> None:
    folder.mkdir(exist_ok=True)
    (folder / "vocab").write_text("\n".join(make_vocabulary()) + "\n", encoding="utf-8")
    for i in range(3):
        documents = make_documents(134 * times, seed=i, sentences=20 if times == 1 else 60)
        (folder / f"part-{i}.txt").write_text(bert_text(documents), encoding="utf-8")


def _fill_language(folder: Path, times: int) -> None:
    """Documents of which some are longer than several rows, and a byte-level BPE."""
    folder.mkdir(exist_ok=True)
    (folder / "tokenizer.json").write_bytes(trained.byte_pairs())
    for i in range(3):
        documents = make_documents(134 * times, seed=i, sentences=20 if times == 1 else 60)
        lines = [json.dumps({"text": "\n".join(document)}) + "\n" for document in documents]
        (folder / f"part-{i}.jsonl").write_text("".join(lines), encoding="utf-8")


def _fill_images(folder: Path, times: int) -> None:
    for i in range(60 * times):
        path = folder / ("cat", "dog", "eel")[i % 3] / f"{i:05d}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(jpeg(40 + i % 7, 32 + i % 5, seed=i))


_VOCABULARY = "--vocab_file={folder}/vocab"
_SPLITS = "--splits=train:0.8,validation:0.2"

TEXT = JobCase(
    "text",
    "text",
    _fill_text,
    "*.txt",
    (_VOCABULARY, *LENGTHS, "--dupe_factor=2", "--num_shards=5", _SPLITS),
    (_VOCABULARY, *LENGTHS, "--dupe_factor=1", "--num_shards=2"),
    (_VOCABULARY, *LENGTHS, "--dupe_factor=1", "--num_shards=12"),
)
IMAGES = JobCase(
    "images",
    "images",
    _fill_images,
    "*/*.jpg",
    (
        "--image_size=24x32", "--augmentations=flip,rotate,color", "--copies=2", "--num_shards=5",
        _SPLITS,
    ),
    ("--image_size=24x32", "--num_shards=2"),
    (
        "--image_size=96x96", "--augmentations=flip,rotate,color", "--copies=2", "--num_shards=12",
    ),
)  # fmt: skip


def _fill_examples(folder: Path, times: int) -> None:
    folder.mkdir(exist_ok=True)
    rng = np.random.default_rng(7)
    for i in range(3):
        count = 300 * times
        schema = Schema((
            Feature("id", "int64", (), "number"), Feature("ids", "int64", (16,), "tokens"),
            Feature("weights", "float32", (None,), "any number of them"),
            Feature("text", "bytes", (), "a string"),
        ))  # fmt: skip
        splits = np.cumsum([0, *(k % 3 for k in range(count))]).astype(np.int64)
        batch = encode_batch(schema, {
            "id": np.arange(i * count, (i + 1) * count),
            "ids": rng.integers(0, 30_000, (count, 16)),
            "weights": Ragged(np.ones(splits[-1], np.float32), splits),
            "text": Strings.from_list([b"word " * int(n) for n in rng.integers(1, 90, count)]),
        })  # fmt: skip
        (folder / f"part-{i}.tfrecord").write_bytes(batch.buffer.tobytes())


EXAMPLES = JobCase(
    "examples",
    "examples",
    _fill_examples,
    "*.tfrecord",
    ("--num_shards=5", _SPLITS),
    ("--num_shards=2",),
    ("--num_shards=12",),
)


def _language_case(name: str, *flags: str, copies: bool) -> JobCase:
    own = ("--tokenizer={folder}/tokenizer.json", "--max_seq_length=64", *flags)
    return JobCase(
        name, "text", _fill_language, "*.jsonl",
        (*own, *(("--dupe_factor=2",) if copies else ()), "--num_shards=5", _SPLITS),
        (*own, *(("--dupe_factor=1",) if copies else ()), "--num_shards=2"),
        (*own, *(("--dupe_factor=1",) if copies else ()), "--num_shards=12"),
    )  # fmt: skip


GPT = _language_case("gpt", "--task=gpt", "--packing=best_fit", copies=False)
LANGUAGE = (
    GPT,
    _language_case("t5", "--task=t5", "--packing=concat", copies=True),
    _language_case("t5_tokens", "--task=t5_tokens", "--packing=best_fit", copies=False),
    _language_case("ul2", "--task=ul2", copies=True),
    _language_case(
        "packed_mlm", "--task=mlm", "--packing=best_fit", "--max_predictions_per_seq=10",
        "--use_segment_ids", "--use_position_id", copies=True,
    ),
)  # fmt: skip
CASES = {case.name: case for case in (TEXT, IMAGES, EXAMPLES, *LANGUAGE)}
# For fixtures: what holds for text holds for language models too; `make slow` looks.
EVERY_CASE = [
    pytest.param(name, marks=[pytest.mark.slow] if case in LANGUAGE else [])
    for name, case in CASES.items()
]


def shard_bytes(output: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(output)): path.read_bytes()
        for path in sorted(output.glob("*/*.tfrecords"))
    }


def manifest(output: Path) -> dict[str, Any]:
    return dict(json.loads((output / "_meta/manifest.json").read_bytes()))


def records_by_split(output: Path) -> dict[str, int]:
    counts: Counter[str] = Counter()
    for shard in manifest(output)["shards"]:
        counts[shard["split"]] += shard["records"]
    return dict(counts)


def records(output: Path) -> list[bytes]:
    found = []
    for data in shard_bytes(output).values():
        offsets, used, problem = scan_records(np.frombuffer(data, np.uint8))
        assert used == len(data), problem
        found += [data[a + 12 : b - 4] for a, b in itertools.pairwise(offsets)]
    return found
