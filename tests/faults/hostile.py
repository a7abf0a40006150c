"""What a stranger hands over: datasets with odd files and signed lies, tokenizers, configurations.

And a poor place to run in: limits of the machine, settings of Python.
"""

from __future__ import annotations

import json
import os
import random
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import google_crc32c

from recordmill.records.manifest import success_bytes

from ..odd_files import KINDS, places, put
from .cases import Case, Shown, hold, is_clean, run_forked, run_main
from .mutations import mutated, mutated_json
from .stored import read_all
from .workshop import IN_PLACE, Workshop, accounts

_WRITTEN = ("text", "images")
_ODD_FILES = 90  # of each job


def _commands(folder: Path, output: Path, whole: Path) -> Iterator[tuple[str, Shown]]:
    """Yields what each command that opens a dataset says of one."""
    for name, more in (
        ("verify", ("--workers=1",)), ("inspect", ()), ("report", (f"--report={folder}/r.html",)),
    ):  # fmt: skip
        yield name, run_main(folder, [name, str(output), *more])
    yield "diff", run_main(folder, ["diff", str(output), str(whole)])
    yield "diff", run_main(folder, ["diff", str(whole), str(output)])
    yield "reader", run_forked(folder, lambda: read_all(output))


def _odd_file(workshop: Workshop, job: str, name: str, kind: str) -> Callable[[Path], None]:
    """What is no regular file, or no folder, in a place of a dataset."""

    def check(folder: Path) -> None:
        output = workshop.copy(job, folder)
        put(output / name, kind)
        for command, shown in _commands(folder, output, workshop.dataset(job)):
            is_clean(shown, reports=command in ("verify", "diff"))
        is_clean(run_forked(folder, lambda: workshop.run(job, output)))
        over = run_forked(folder, lambda: workshop.run(job, output, "--overwrite"))
        is_clean(over)
        if over.status == 0 and name not in workshop.kept.get(output, {}):
            workshop.is_there(job, output)

    return check


def _lie(workshop: Workshop, job: str, place: str, seed: int) -> Callable[[Path], None]:
    """Metadata with one hostile value, and the right checksums around it."""

    def check(folder: Path) -> None:
        rng = random.Random(f"lie{job}{place}{seed}")
        output = workshop.copy(job, folder)
        path, manifest = output / place, output / "_meta" / "manifest.json"
        path.write_bytes(mutated_json(json.loads(path.read_bytes()), rng))
        if path != manifest:
            content = json.loads(manifest.read_bytes())
            if place in content["files"]:
                content["files"][place] = google_crc32c.value(path.read_bytes())
            manifest.write_bytes(json.dumps(content).encode())
        (output / "_SUCCESS").write_bytes(success_bytes(manifest.read_bytes()))
        for name, shown in _commands(folder, output, workshop.dataset(job)):
            is_clean(shown, reports=name in ("verify", "diff"))
            hold("\x1b" not in shown.text, f"{name} prints an escape sequence")

    return check


_LETTERS = [chr(code) for code in range(97, 123)]
_TOKENIZER: dict[str, Any] = {
    "version": "1.0", "truncation": None, "padding": None,
    "added_tokens": [
        {"id": 0, "content": "<|endoftext|>", "single_word": False, "lstrip": False,
         "rstrip": False, "normalized": False, "special": True}
    ],
    "normalizer": {"type": "Sequence", "normalizers": [
        {"type": "NFC"}, {"type": "Replace", "pattern": {"Regex": "x+"}, "content": "x"}
    ]},
    "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
        {"type": "Split", "pattern": {"Regex": " ?[a-z]+|[^a-z]+"}, "behavior": "Isolated",
         "invert": False},
        {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False},
    ]},
    "post_processor": None,
    "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True,
                "use_regex": True},
    "model": {
        "type": "BPE", "dropout": None, "unk_token": None, "fuse_unk": False,
        "vocab": {name: at for at, name in enumerate(["<|endoftext|>", *_LETTERS, "Ġ", "th"])},
        "merges": [["t", "h"]],
    },
}  # fmt: skip
_PATTERNS = (
    "(a+)+$", "(" * 3000, "(?=" * 300, "[", "\\p{No_such}", "((((a*)*)*)*)*b", "a{1000}{1000}",
    "(?<=a{0,100000})b", "", "\x00", "(?i)" * 1000, "\\1",
)  # fmt: skip


def _tokenizer(workshop: Workshop, seed: int) -> Callable[[Path], None]:
    def check(folder: Path) -> None:
        rng = random.Random(f"tokenizer{seed}")
        content = json.loads(json.dumps(_TOKENIZER))
        data = json.dumps(content).encode()
        if 0 <= seed < len(_PATTERNS):
            content["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = _PATTERNS[seed]
            data = json.dumps(content).encode()
        elif len(_PATTERNS) <= seed < 2 * len(_PATTERNS):
            replace = content["normalizer"]["normalizers"][1]
            replace["pattern"]["Regex"] = _PATTERNS[seed - len(_PATTERNS)]
            replace["content"] = "x" * 1_000_000
            data = json.dumps(content).encode()
        elif seed >= 0:
            data = mutated(data, rng) if seed % 3 == 0 else mutated_json(content, rng)
        path = folder / "tokenizer.json"
        path.write_bytes(data)
        line = [
            "text", f"--input={workshop.input('text')}/*.txt", f"--output={folder}/ds",
            "--task=gpt", f"--tokenizer={path}", "--max_seq_length=64", "--warnings=none",
            "--direct_num_workers=1", "--num_shards=1",
        ]  # fmt: skip
        shown = run_main(folder, line)
        accounts(folder, shown, folder / "ds")
        hold(seed >= 0 or shown.status == 0, f"the honest tokenizer: {shown.last_line}")
        named = "--tokenizer" in shown.last_line or str(path) in shown.last_line
        hold(shown.status == 0 or named, f"the file is not named: {shown.last_line}")

    return check


_LEVELS = 3000
_CONFIGS = (
    "a: &a [x, x, x]\n" + "".join(
        f"{chr(98 + n)}: &{chr(98 + n)} [{', '.join([f'*{chr(97 + n)}'] * 9)}]\n" for n in range(9)
    ),
    "[" * _LEVELS + "]" * _LEVELS,
    "- " * _LEVELS + "x",
    "a: &a\n  b: *a\n",
    "? [a, b]\n: c\n",
    "!!python/object/apply:os.system ['touch hacked']\n",
    "num_shards: 1\nnum_shards: 2\n",
    "num_shards: " + "9" * 5000 + "\n",
    "\ufefftask: gpt\n",
    "task: !!binary aGVsbG8=\n",
    "2001-01-01: 2\n",
    "'\\x1b[31mred': 1\n",
)  # fmt: skip


def _config(workshop: Workshop, seed: int) -> Callable[[Path], None]:
    def check(folder: Path) -> None:
        path = folder / "config.yaml"
        honest = "max_seq_length: 64\nnum_shards: 2\nsplits: train:0.9,validation:0.1\n"
        if seed < 0:
            path.write_text(honest)
        elif seed < len(_CONFIGS):
            path.write_text(_CONFIGS[seed], encoding="utf-8")
        else:
            path.write_bytes(mutated(honest.encode(), random.Random(f"config{seed}")))
        line = [
            "text", f"--input={workshop.input('text')}/*.txt", f"--output={folder}/ds",
            f"--vocab_file={workshop.input('text')}/vocab", "--max_predictions_per_seq=10",
            "--warnings=none", f"--config={path}", "--direct_num_workers=1",
        ]  # fmt: skip
        shown = run_main(folder, line)
        accounts(folder, shown, folder / "ds")
        hold(seed >= 0 or shown.status == 0, f"the honest configuration: {shown.last_line}")
        hold("\x1b" not in shown.text, "an escape sequence is printed")
        hold(not (folder / "hacked").exists(), "the configuration was run")

    return check


_MEGABYTE = 1 << 20
_LIMITS = {
    "ulimit -n 20": (resource.RLIMIT_NOFILE, 20),
    "ulimit -n 40": (resource.RLIMIT_NOFILE, 40),
    "ulimit -n 64": (resource.RLIMIT_NOFILE, 64),
    "ulimit -n 256": (resource.RLIMIT_NOFILE, 256),
    "ulimit -v 0.5 GB": (resource.RLIMIT_AS, 500 * _MEGABYTE),
    "ulimit -v 1 GB": (resource.RLIMIT_AS, 1000 * _MEGABYTE),
    "ulimit -v 2 GB": (resource.RLIMIT_AS, 2000 * _MEGABYTE),
    "ulimit -v 3 GB": (resource.RLIMIT_AS, 3000 * _MEGABYTE),
    "ulimit -f 1 MB": (resource.RLIMIT_FSIZE, _MEGABYTE),
    "ulimit -f 4 KB": (resource.RLIMIT_FSIZE, 4096),
}
_SETTINGS = {
    "PYTHONOPTIMIZE=2": {"PYTHONOPTIMIZE": "2"},
    "NUMBA_DISABLE_JIT=1": {"NUMBA_DISABLE_JIT": "1"},
    "PYTHONIOENCODING=ascii": {"PYTHONIOENCODING": "ascii"},
    "LC_ALL=C": {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    "HOME=/nonexistent": {"HOME": "/nonexistent"},
    "TMPDIR=/nonexistent": {"TMPDIR": "/nonexistent"},
    "PYTHONWARNINGS=error": {"PYTHONWARNINGS": "error"},
    "PYTHONDEVMODE=1": {"PYTHONDEVMODE": "1"},
    "PYTHONHASHSEED=7": {"PYTHONHASHSEED": "7"},
    "PATH=": {"PATH": ""},
    "TZ=Nowhere/Land": {"TZ": "Nowhere/Land"},
}


def _poor(workshop: Workshop, job: str, what: str) -> Callable[[Path], None]:
    def check(folder: Path) -> None:
        def limit() -> None:
            if what in _LIMITS:
                kind, value = _LIMITS[what]
                resource.setrlimit(kind, (value, value))

        output = folder / "ds"
        line = [sys.executable, "-m", "recordmill.pipelines", *workshop.arguments(job, output)]
        done = subprocess.run(
            line, capture_output=True, preexec_fn=limit, env=os.environ | _SETTINGS.get(what, {}),
        )  # fmt: skip
        text = (done.stdout + done.stderr).decode(errors="replace")
        is_clean(Shown(done.returncode, text))
        if done.returncode == 0:
            workshop.is_whole(job, output)
        else:
            workshop.finishes(job, folder, output)

    return check


def hostile(workshop: Workshop, seed: int) -> Iterator[Case]:
    """Yields all cases of this module."""
    rng = random.Random(seed)
    for job in (*_WRITTEN, IN_PLACE):
        odd = [(name, kind) for name in places(workshop.dataset(job)) for kind in KINDS]
        for name, kind in rng.sample(odd, min(len(odd), _ODD_FILES)):
            label = f"{job}, {name}, {kind}"
            yield Case("odd files in a dataset", label, _odd_file(workshop, job, name, kind), 300)
    for job in _WRITTEN:
        for place, count in (
            ("_meta/manifest.json", 60), ("_meta/statistics.json", 60), ("features.json", 20),
            ("dataset_info.json", 10), ("_meta/run.json", 20),
        ):  # fmt: skip
            for n in range(count):
                label = f"{job}-{place.replace('/', '.')}-{n}"
                yield Case("signed lies", label, _lie(workshop, job, place, seed + n))
        for what in (*_LIMITS, *_SETTINGS):
            label = f"{job}-{what.replace('/', '.')}"
            yield Case("poor environments", label, _poor(workshop, job, what), 300)
    for n in range(-1, 200):
        yield Case("hostile tokenizers", str(n), _tokenizer(workshop, n))
    for n in range(-1, 60):
        yield Case("hostile configurations", str(n), _config(workshop, n))
