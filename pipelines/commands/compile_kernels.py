"""`recordmill doctor --compile`: no later run on this machine, or of this image, waits for kernels.

Small jobs of every kind are done, in a folder that goes again: what they compile is kept.
"""

from __future__ import annotations

import csv
import io
import json
import os
import string
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from recordmill.pipelines.planning.text_warm_up import SMALLEST_UNIGRAM
from recordmill.records.codec import jit
from recordmill.records.errors import RunError

_ROWS = [
    {"text": f"Number {n} is a line. It has a sentence, and one more.", "label": str(n % 2)}
    for n in range(40)
]
_SMALL, _LARGE = 1_000, 70_000  # numbers of tokens; ids of the larger one need 32 bits


def _word_pieces() -> str:
    letters = string.ascii_lowercase + ".,"
    return "\n".join(
        ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters, *(f"##{c}" for c in letters)]
    )


def _byte_pairs(size: int) -> str:
    """Returns a tokenizer.json with a token for each letter, filled up with words."""
    letters = ["<|endoftext|>", *(chr(code) for code in range(33, 127)), "Ġ", "Ċ"]
    names = letters + [f"filler{n}" for n in range(size - len(letters))]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True,
                  "use_regex": True}  # fmt: skip
    return json.dumps(
        {
            "version": "1.0", "truncation": None, "padding": None, "normalizer": None,
            "added_tokens": [
                {"id": 0, "content": "<|endoftext|>", "single_word": False, "lstrip": False,
                 "rstrip": False, "normalized": False, "special": True}
            ],
            "pre_tokenizer": byte_level, "post_processor": None, "decoder": byte_level,
            "model": {
                "type": "BPE", "dropout": None, "unk_token": None, "fuse_unk": False,
                "vocab": {name: at for at, name in enumerate(names)}, "merges": [],
            },
        }
    )  # fmt: skip


def _write_inputs(folder: Path) -> None:
    from PIL import Image

    texts = [row["text"] for row in _ROWS]
    table = io.StringIO(newline="")
    rows = csv.DictWriter(table, ["text", "label"])
    rows.writeheader()
    rows.writerows(_ROWS)
    contents = {
        "lines.txt": "\n\n".join(texts),
        "rows.jsonl": "".join(json.dumps(row) + "\n" for row in _ROWS),
        "rows.csv": table.getvalue(),
        "vocab.txt": _word_pieces(),
        "small.json": _byte_pairs(_SMALL),
        "large.json": _byte_pairs(_LARGE),
        "unigram.json": json.dumps(SMALLEST_UNIGRAM),
    }
    for name, content in contents.items():
        (folder / name).write_text(content, encoding="utf-8")
    for label in ("cat", "dog"):
        (folder / "images" / label).mkdir(parents=True)
        Image.new("RGB", (32, 24), (label == "cat" and "red") or "blue").save(
            folder / "images" / label / f"{label}.png"
        )


def _jobs(folder: Path) -> Iterator[tuple[str, ...]]:
    """Yields the arguments of small jobs, without their output."""
    words, small, large = (
        f"--tokenizer={folder}/{name}" for name in ("vocab.txt", "small.json", "large.json")
    )
    lines, rows, table = (
        f"--input={folder}/{name}" for name in ("lines.txt", "rows.jsonl", "rows.csv")
    )
    for task in ("bert", "mlm"):
        for documents in ("blank_line", "file"):
            yield "text", lines, words, f"--task={task}", f"--documents={documents}"
        yield "text", rows, words, f"--task={task}"
    for source in (lines, rows, table):
        yield "text", source, small, "--task=gpt"
    yield "text", lines, small, "--task=gpt", "--documents=file"
    yield "text", rows, large, "--task=gpt"
    yield "text", rows, words, "--task=classify", "--label_field=label"
    yield "text", table, words, "--task=classify", "--label_field=label"
    yield "text", rows, words, "--task=mlm", "--deduplicate=near"
    yield "text", lines, small, "--task=t5"
    yield "text", lines, f"--tokenizer={folder}/unigram.json", "--task=t5", "--eos_id=1"
    yield "images", f"--input={folder}/images"


def compile_kernels() -> None:
    """Compiles what jobs of every kind need, and keeps it; prints what it does.

    Where $RECORDMILL_KERNELS names a folder, it becomes one that all users can read.

    Raises:
      RunError: a job failed.
    """
    with TemporaryDirectory(prefix="recordmill-") as name:
        folder = Path(name)
        _write_inputs(folder)
        jobs = list(_jobs(folder))
        for number, job in enumerate(jobs):
            print(f"compiling: {' '.join(job).replace(f'{folder}/', '')}", flush=True)
            _run(*job, f"--output={folder}/out/{number}", "--warnings=none", "--progress=none")
        print("compiling: examples, verify", flush=True)
        _run("examples", f"--input={folder}/out/0/**/*.tfrecord*", f"--output={folder}/out/all",
             "--progress=none")  # fmt: skip
        _run("verify", f"{folder}/out/all")
    if shared := os.environ.get("RECORDMILL_KERNELS"):
        for path, _, files in os.walk(shared):
            os.chmod(path, 0o755)
            for file in files:
                os.chmod(os.path.join(path, file), 0o644)
    print(f"kernels are kept in {jit.folder()}")


def _run(*arguments: str) -> None:
    line = [sys.executable, "-m", "recordmill.pipelines", *arguments]
    done = subprocess.run(line, capture_output=True, text=True)
    if done.returncode:
        said = done.stderr.strip().splitlines() or ["nothing said"]
        raise RunError(f"recordmill {' '.join(arguments)}: {said[-1]}")
