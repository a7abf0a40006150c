"""Model Garden's own loader reads `--task=mlm`, which has no next-sentence labels."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from recordmill.records.manifest import Manifest

LENGTH, PREDICTIONS = 64, 10
FLAGS = ("--task=mlm", "--dupe_factor=1", "--use_segment_ids")
V2_FLAGS = (*FLAGS, "--use_v2_feature_names")

_LOADER = """
import json, sys
from official.nlp.data import pretrain_dataloader
for config in json.loads(sys.argv[1]):
    config = pretrain_dataloader.BertPretrainDataConfig(
        global_batch_size=16, is_training=False, drop_remainder=False,
        use_next_sentence_label=False, **config)
    batches = list(pretrain_dataloader.BertPretrainDataLoader(config).load())
    print(json.dumps({
        "rows": sum(int(batch["input_word_ids"].shape[0]) for batch in batches),
        "ids": sum(int(batch["input_word_ids"].numpy().sum()) for batch in batches),
        "types": sum(int(batch["input_type_ids"].numpy().sum()) for batch in batches),
        "shapes": {name: tensor.shape[1:].as_list() for name, tensor in batches[0].items()},
    }))
"""


def manifest(dataset: Path) -> Manifest:
    return Manifest.from_bytes((dataset / "_meta/manifest.json").read_bytes())


@pytest.mark.slow
def test_model_garden_without_next_sentence_labels(write_dataset: Callable[..., Path]) -> None:
    pytest.importorskip("official.nlp", reason="tf-models-official is not installed")
    v1, v2 = write_dataset(*FLAGS), write_dataset(*V2_FLAGS)
    common = {"seq_length": LENGTH, "max_predictions_per_seq": PREDICTIONS}
    configs = [
        {"input_path": f"{v1}/train/*.tfrecords", **common},
        {"input_path": f"{v2}/train/*.tfrecords", "use_v2_feature_names": True, **common},
    ]
    done = subprocess.run(
        [sys.executable, "-c", _LOADER, json.dumps(configs)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    rows = sum(shard.records for shard in manifest(v1).shards)
    assert rows
    rows_of_tokens = ("input_word_ids", "input_type_ids", "input_mask")
    predictions = ("masked_lm_positions", "masked_lm_ids", "masked_lm_weights")
    shapes = {name: [LENGTH] for name in rows_of_tokens}
    shapes |= {name: [PREDICTIONS] for name in predictions}
    for one in found:
        assert one["rows"] == rows
        assert one["types"] == 0
        assert one["shapes"] == shapes
    assert found[0]["ids"] == found[1]["ids"] > 0


def test_the_same_records_but_for_names(write_dataset: Callable[..., Path]) -> None:
    plain = write_dataset("--task=mlm", "--dupe_factor=1")
    sizes = [
        sum(shard.record_bytes for shard in manifest(path).shards)
        for path in (plain, write_dataset(*FLAGS))
    ]
    rows = sum(shard.records for shard in manifest(plain).shards)
    assert sizes[1] - sizes[0] > LENGTH * rows  # a value 0 takes a byte
