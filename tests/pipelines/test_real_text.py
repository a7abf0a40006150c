"""The text job on real files: every form and every awkwardness, read back and accounted for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import recordmill.reader as reader
from recordmill.pipelines.command_line import main

pytestmark = pytest.mark.real

CASES: list[tuple[str, list[str], dict[str, Any]]] = [
    ("bert_sample_text.txt", [], {"documents_read": 3}),
    ("bench_gutenberg_bertfmt.txt", [], {"documents_read": 434}),
    ("books/*.txt", ["--documents=file"], {"documents_read": 4}),
    (
        "awkward/gutenberg_24675-8_latin1_crlf.txt",
        ["--documents=file", "--encoding=latin-1"],
        {"documents_read": 1},
    ),
    (
        "awkward/gutenberg_24675-8_latin1_crlf.txt",
        ["--documents=file", "--max_rejected=1"],
        {"documents_read": 1, "rejected": {"undecodable": ...}},
    ),
    (
        "awkward/gutenberg_24675-8_latin1_crlf.txt",
        ["--documents=file", "--encoding_errors=replace"],
        {"documents_read": 1, "rejected": {}},
    ),
    ("awkward/gutenberg_52834-0_utf8_bom_crlf.txt", ["--documents=file"], {"documents_read": 1}),
    ("awkward/wagahai_neko_ja_utf8.txt", ["--documents=line"], {}),
    ("awkward/debian_handbook_zh-CN.txt", ["--documents=blank_line"], {}),
    ("awkward/blns.txt", ["--documents=line"], {}),
    ("awkward/HumanEval.jsonl.gz", ["--text_field=prompt"], {"documents_read": 164}),
    ("awkward/prompts_quoted_newlines.csv", ["--text_field=prompt"], {"documents_read": 1014}),
]


@pytest.mark.slow
@pytest.mark.parametrize("task", ["bert", "mlm"])
@pytest.mark.parametrize(("name", "flags", "expected"), CASES)
def test_real_text(
    real_data: Path,
    tmp_path: Path,
    task: str,
    name: str,
    flags: list[str],
    expected: dict[str, Any],
) -> None:
    output = tmp_path / "ds"
    status = main(
        [
            "text", f"--input={real_data}/text/{name}", f"--output={output}", f"--task={task}",
            f"--vocab_file={real_data}/vocab/bert-base-uncased-vocab.txt", "--num_shards=2",
            "--dupe_factor=1", "--direct_num_workers=1", *flags,
        ]
    )  # fmt: skip
    assert status == 0
    counts = json.loads((output / "_meta/manifest.json").read_bytes())["counts"]
    assert counts["documents_read"] == (
        counts["documents_written"] + counts["documents_without_tokens"]
    )
    for key, value in expected.items():
        if isinstance(value, dict) and ... in value.values():
            assert counts[key].keys() == value.keys()
        else:
            assert counts[key] == value
    assert main(["verify", str(output)]) == 0
    examples = 0
    for batch in reader.load(
        output, "train", batch_size=64, shuffle=False, remainder="keep"
    ).as_numpy_iterator():
        examples += len(batch["input_ids"])
        lengths = batch["input_mask"].sum(axis=1)
        assert (batch["input_ids"][:, 0] == 101).all()
        assert (batch["input_ids"][np.arange(len(lengths)), lengths - 1] == 102).all()
        assert (batch["masked_lm_positions"] < lengths[:, None]).all()
    assert examples == counts["examples"]
