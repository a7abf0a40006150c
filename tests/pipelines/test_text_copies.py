"""`--dupe_factor` and `--dupe_splits`: which splits get copies of the text."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from recordmill.pipelines.command_line import main

from .jobs import LENGTHS, records_by_split, shard_bytes

SPLITS = ("--splits=train:0.7,validation:0.3", "--num_shards=2")

Write = Callable[..., Path]


def statistics(output: Path) -> dict[str, Any]:
    return dict(json.loads((output / "_meta/statistics.json").read_bytes()))


def test_only_train_gets_copies(write_dataset: Write) -> None:
    one = records_by_split(write_dataset(*SPLITS, "--task=mlm", "--dupe_factor=1"))
    four = records_by_split(write_dataset(*SPLITS, "--task=mlm", "--dupe_factor=4"))
    assert four["validation"] == one["validation"]
    assert four["train"] == pytest.approx(4 * one["train"], rel=0.05)


def test_all_gives_every_split_its_copies(write_dataset: Write) -> None:
    flags = (*SPLITS, "--task=mlm", "--dupe_factor=4")
    one = records_by_split(write_dataset(*SPLITS, "--task=mlm", "--dupe_factor=1"))
    written = write_dataset(*flags, "--dupe_splits=all")
    assert records_by_split(written)["validation"] == pytest.approx(4 * one["validation"], rel=0.1)
    assert statistics(written)["validation"]["copies"] == 4


def test_without_a_split_called_train_the_first_gets_copies(write_dataset: Write) -> None:
    flags = ("--splits=pretraining:0.7,dev:0.3", "--num_shards=2", "--dupe_factor=3")
    found = statistics(write_dataset(*flags))
    assert [found[name]["copies"] for name in ("pretraining", "dev")] == [3, 1]


def test_named_splits_get_copies(write_dataset: Write) -> None:
    flags = (*SPLITS, "--task=mlm", "--dupe_factor=4")
    found = statistics(write_dataset(*flags, "--dupe_splits=validation"))
    assert [found[name]["copies"] for name in ("train", "validation")] == [1, 4]


def test_train_is_what_it_was_with_copies_everywhere(write_dataset: Write) -> None:
    flags = (*SPLITS, "--task=mlm", "--dupe_factor=4")
    now, before = write_dataset(*flags), write_dataset(*flags, "--dupe_splits=all")
    for name, data in shard_bytes(now).items():
        if name.startswith("train/"):
            assert data == shard_bytes(before)[name]


def test_statistics_have_unknown_tokens_and_padding(write_dataset: Write) -> None:
    found = statistics(write_dataset("--num_shards=1", "--task=mlm", "--dupe_factor=1"))["train"]
    assert found["unknown_rate"] == pytest.approx(
        found["unknown_tokens"] / found["tokens"], abs=1e-6
    )
    padding = 1 - found["tokens"] / (64 * found["examples"])
    assert found["padding_rate"] == pytest.approx(padding, abs=1e-6)


def test_unknown_tokens_are_counted_before_masks(tmp_path: Path, vocab_file: str) -> None:
    (tmp_path / "a.txt").write_text("the é☃ ☃ of\n" * 30, encoding="utf-8")
    flags = ("--task=mlm", "--dupe_factor=1", *LENGTHS, "--masked_lm_prob=0.5")
    status = main(
        [
            "text", f"--input={tmp_path}/a.txt", f"--output={tmp_path}/ds", *flags,
            f"--vocab_file={vocab_file}", "--overlap_size=0", "--direct_num_workers=1",
        ]
    )  # fmt: skip
    assert status == 0
    assert statistics(tmp_path / "ds")["train"]["unknown_tokens"] == 60


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--dupe_splits=train"], "--dupe_splits has no effect where there is one split, train"),
        ([*SPLITS, "--dupe_factor=1", "--dupe_splits=all"], "no effect where there is one copy"),
        ([*SPLITS, "--dupe_splits=test"], "--dupe_splits must be one of train, validation"),
        ([*SPLITS, "--task=mlm_tokens", "--dupe_splits=all"], "no effect with --task=mlm_tokens"),
    ],
)
def test_dupe_splits_without_effect_is_refused(
    corpus: Path,
    vocab_file: str,
    tmp_path: Path,
    flags: list[str],
    message: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    source = (f"--input={corpus}/*.txt", f"--vocab_file={vocab_file}", f"--output={tmp_path}/ds")
    assert main(["text", *source, *flags]) == 2
    assert message in capsys.readouterr().err
