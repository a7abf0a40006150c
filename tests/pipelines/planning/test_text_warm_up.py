"""What workers of a text job need is loaded once, and nothing is left for them to load."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from recordmill.pipelines.commands import text
from recordmill.pipelines.faces import parse
from recordmill.pipelines.planning.text_planner import TextPlanner
from recordmill.transforms.text.text_spec import TextSpec

from ...transforms.subwords import trained

# The planner's process does the job itself: what is compiled then, workers would have to compile.
_PROGRAM = """
import gc, sys
from numba.core.registry import CPUDispatcher
from recordmill.pipelines.command_line import main
from recordmill.pipelines.commands.text import planner
from recordmill.pipelines.faces import parse
from recordmill.transforms.text.text_spec import TextSpec

own = [flag for flag in sys.argv[1:] if not flag.startswith(("--direct_num", "--progress"))]
planner(parse(TextSpec, own)).warm_up()()
kernels = [each for each in gc.get_objects() if isinstance(each, CPUDispatcher)]
before = {kernel: len(kernel.signatures) for kernel in kernels}
assert main(['text', *sys.argv[1:]]) == 0
for kernel in kernels:
    if len(kernel.signatures) > before[kernel]:
        print("compiled:", kernel.py_func.__name__, kernel.signatures)
"""


WORD_PIECES = "\n".join(
    ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "word", "##1", "##2", "and", "another", ".", ","]
).encode()


def planner(*arguments: str) -> TextPlanner:
    return text.planner(parse(TextSpec, ["--input=x.jsonl", "--output=y", *arguments]))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("flags", "tokenizer", "name"),
    [
        (["--task=gpt", "--max_seq_length=16"], trained.byte_pairs(), "a.jsonl"),
        (["--task=gpt", "--max_seq_length=16"], trained.byte_pairs(), "a.txt"),
        (["--task=t5", "--max_seq_length=16", "--eos_id=1"], trained.byte_pairs(), "a.jsonl"),
        (["--task=bert", "--max_seq_length=64"], WORD_PIECES, "a.txt"),
        (["--task=bert", "--documents=file", "--max_seq_length=64"], WORD_PIECES, "a.txt"),
        (["--task=mlm", "--max_seq_length=64"], WORD_PIECES, "a.jsonl"),
        (["--task=classify", "--label_field=label"], WORD_PIECES, "a.jsonl"),
        (["--task=classify", "--label_field=label"], WORD_PIECES, "a.csv"),
        (["--task=gpt", "--packing=none", "--keep_fields=label"], trained.byte_pairs(), "a.jsonl"),
        (["--task=gpt", "--prompt_field=label"], trained.byte_pairs(), "a.jsonl"),
    ],
    ids=range(10),
)
def test_a_job_compiles_nothing_more(
    tmp_path: Path, flags: list[str], tokenizer: bytes, name: str
) -> None:
    (tmp_path / "tokenizer").write_bytes(tokenizer)
    texts = [f"Word{i} and another one, {i}. It ends." for i in range(50)]
    lines = {
        "a.jsonl": [f'{{"text": "{text}", "label": "{text[:2]}"}}' for text in texts],
        "a.csv": ["label,text", *(f'{text[:2]},"{text}"' for text in texts)],
    }.get(name, texts)
    (tmp_path / name).write_text("\n".join(lines))
    given = [
        f"--input={tmp_path}/{name}", f"--output={tmp_path}/out", "--direct_num_workers=1",
        f"--tokenizer={tmp_path}/tokenizer", "--num_shards=1", "--progress=none", *flags,
    ]  # fmt: skip
    line = [sys.executable, "-c", _PROGRAM, *given]
    ended = subprocess.run(line, capture_output=True, text=True, timeout=300)
    assert ended.returncode == 0, ended.stderr
    assert "compiled:" not in ended.stdout


def test_errors_are_left_to_planning(tmp_path: Path) -> None:
    assert planner("--task=gpt", f"--tokenizer={tmp_path}/none.json").warm_up() is None
    (tmp_path / "tokenizer.json").write_bytes(trained.byte_pairs())
    flags = f"--tokenizer={tmp_path}/tokenizer.json", "--eos_id=999999"  # an id that there is not
    loads = planner("--task=gpt", *flags).warm_up()
    assert loads is not None
    loads()


def test_another_process_reads_no_remote_tokenizer() -> None:
    assert planner("--task=gpt", "--tokenizer=gs://bucket/tokenizer.json").warm_up() is None
