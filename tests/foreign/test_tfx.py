"""TFX: an Examples artifact under `--naming=tfx`, by its own utilities."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from recordmill.reader import load

from ..conftest import run_text
from .conftest import Count, ForeignCalls, ForeignError

SPLITS = ["train", "eval"]


def test_components_find_and_read_every_split(
    tfx_folder: Path, foreign: ForeignCalls, corpus: Path, vocab_file: str, tmp_path: Path,
    count: Count,
) -> None:  # fmt: skip
    dataset = tmp_path / "examples"
    status = run_text(
        f"--input={corpus}/*.txt", f"--output={dataset}", f"--vocab_file={vocab_file}",
        "--naming=tfx", "--task=t5", "--dupe_factor=1", "--splits=train:0.8,eval:0.2",
        "--max_seq_length=64", "--num_shards=3",
    )  # fmt: skip
    assert status == 0
    calls = [{"folder": str(dataset), "splits": SPLITS, "split": split} for split in SPLITS]
    answers = foreign.run("tfx_examples", *calls, checkout=tfx_folder)
    for split, answer in zip(SPLITS, answers, strict=True):
        assert not isinstance(answer, ForeignError), answer
        count("TFX, Examples artifact", dataset, len(answer["targets"]), "text t5", split)
        rows = list(load(dataset, split, batch_size=1, shuffle=False, remainder="keep"))
        for name in ("inputs", "targets"):
            ours = sorted(row[name][0].numpy().tolist() for row in rows)
            found = sorted(np.trim_zeros(row, "b").tolist() for row in answer[name])
            assert found == ours
