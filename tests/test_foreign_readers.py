"""The readers that people already have, on what the pipeline wrote, without a change to either.

Each reads whole splits; counts agree with the manifest, contents with the bytes on disk.
"""

from __future__ import annotations

import fnmatch
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from recordmill.reader import load, mask_tokens
from recordmill.records.manifest import Manifest

LENGTH, PREDICTIONS = 64, 10

# Cerebras Model Zoo R_1.6.1, bert/input/utils.py; google-research/bert, run_pretraining.py.
BERT_SPEC = {
    "input_ids": tf.io.FixedLenFeature([LENGTH], tf.int64),
    "input_mask": tf.io.FixedLenFeature([LENGTH], tf.int64),
    "segment_ids": tf.io.FixedLenFeature([LENGTH], tf.int64),
    "masked_lm_positions": tf.io.FixedLenFeature([PREDICTIONS], tf.int64),
    "masked_lm_ids": tf.io.FixedLenFeature([PREDICTIONS], tf.int64),
    "masked_lm_weights": tf.io.FixedLenFeature([PREDICTIONS], tf.float32),
    "next_sentence_labels": tf.io.FixedLenFeature([1], tf.int64),
}
TOKENS_FLAGS = ("--task=mlm_tokens", "--dupe_factor=1", "--num_shards=2")
V2_FLAGS = ("--task=bert", "--dupe_factor=1", "--use_v2_feature_names", "--use_position_id")
GZIP_FLAGS = ("--task=bert", "--dupe_factor=1", "--num_shards=2", "--compression=GZIP")


def records(dataset: Path, split: str = "train") -> int:
    """The number of examples that the manifest promises."""
    manifest = Manifest.from_bytes((dataset / "_meta/manifest.json").read_bytes())
    return sum(shard.records for shard in manifest.split_shards()[split])


def cerebras_files(folder: Path) -> list[str]:
    """All files of a folder that Cerebras' reader takes for shards: `*.tfrecord*`."""
    names = sorted(os.listdir(folder))
    return [str(folder / name) for name in names if fnmatch.fnmatch(name, "*.tfrecord*")]


@pytest.fixture(scope="module")
def input_ids(bert_dataset: Path) -> np.ndarray:
    """`[records, 64] int64`, in written order, by plain protobuf."""
    paths = sorted(str(path) for path in (bert_dataset / "train").iterdir())
    return np.array(
        [
            tf.train.Example.FromString(record).features.feature["input_ids"].int64_list.value
            for record in tf.data.TFRecordDataset(paths).as_numpy_iterator()
        ]
    )


class TestCerebras:
    @pytest.mark.parametrize("split", ["train", "validation"])
    def test_bert_processor_s_features(self, bert_dataset: Path, split: str) -> None:
        paths = cerebras_files(bert_dataset / split)
        dataset = tf.data.TFRecordDataset(paths).map(
            lambda record: tf.io.parse_single_example(record, BERT_SPEC)
        )
        rows = list(dataset.as_numpy_iterator())
        assert len(rows) == records(bert_dataset, split)
        for row in rows:
            tokens = int(row["input_mask"].sum())
            assert row["input_mask"].tolist() == [1] * tokens + [0] * (LENGTH - tokens)
            assert not row["input_ids"][tokens:].any()
            assert not row["segment_ids"][tokens:].any()
            masked = int(row["masked_lm_weights"].sum())
            assert 1 <= masked <= PREDICTIONS
            assert row["masked_lm_weights"].tolist() == [1.0] * masked + [0.0] * (
                PREDICTIONS - masked
            )
            assert np.all(np.diff(row["masked_lm_positions"][:masked]) > 0)
            assert row["next_sentence_labels"].tolist() in ([0], [1])

    def test_only_shards_match_the_glob(self, bert_dataset: Path) -> None:
        for split in ("train", "validation"):
            inside = sorted(path.name for path in (bert_dataset / split).iterdir())
            assert [Path(path).name for path in cerebras_files(bert_dataset / split)] == inside
        found = {path.parent.name for path in bert_dataset.rglob("*.tfrecord*")}
        assert found == {"train", "validation"}

    def test_dynamic_mask_processor_s_tokens(self, write_dataset: Callable[..., Path]) -> None:
        dataset = write_dataset(*TOKENS_FLAGS)

        def parse(record: tf.Tensor) -> tf.Tensor:
            spec = {"tokens": tf.io.FixedLenSequenceFeature((), tf.string)}
            _, features = tf.io.parse_single_sequence_example(record, sequence_features=spec)
            return features["tokens"]

        shards = tf.data.TFRecordDataset(cerebras_files(dataset / "train"))
        rows = [row.tolist() for row in shards.map(parse).as_numpy_iterator()]
        assert len(rows) == records(dataset)
        assert all(row[0] == b"[CLS]" and row[-1] == b"[SEP]" for row in rows)
        assert max(map(len, rows)) <= LENGTH
        assert any(token.startswith(b"##") for row in rows for token in row)


@pytest.mark.filterwarnings(
    # tensorflow_datasets asks protobuf for the label of a field, which protobuf 6 deprecates.
    r"ignore:label\(\) is deprecated:DeprecationWarning"
)
class TestTfds:
    def test_builder_from_directory(self, bert_dataset: Path, input_ids: np.ndarray) -> None:
        import tensorflow_datasets as tfds

        builder = tfds.builder_from_directory(str(bert_dataset))
        assert set(builder.info.splits) == {"train", "validation"}
        for split, info in builder.info.splits.items():
            assert info.num_examples == records(bert_dataset, split)
        train = builder.as_dataset(split="train", shuffle_files=False)
        assert int(train.cardinality()) == records(bert_dataset)
        ids = np.stack([row["input_ids"] for row in train.as_numpy_iterator()])
        # TFDS reads 16 records from each shard in turn: the same rows, in its own order.
        assert sorted(ids.tolist()) == sorted(input_ids.tolist())
        assert {name: spec.shape.as_list() for name, spec in train.element_spec.items()} == {
            name: list(feature.shape) for name, feature in BERT_SPEC.items()
        }

    def test_slices_and_even_splits(self, bert_dataset: Path) -> None:
        import tensorflow_datasets as tfds

        builder = tfds.builder_from_directory(str(bert_dataset))
        total = records(bert_dataset)
        parts = tfds.even_splits("train", n=3)
        sizes = [sum(1 for _ in builder.as_dataset(split=part)) for part in parts]
        assert sum(sizes) == total
        assert max(sizes) - min(sizes) <= 1
        assert len(builder.as_dataset(split="train[:10%]")) == round(total / 10)

    def test_the_published_size_is_that_of_the_records(self, bert_dataset: Path) -> None:
        import tensorflow_datasets as tfds

        builder = tfds.builder_from_directory(str(bert_dataset))
        shards = bert_dataset.glob("train/*")
        size = sum(path.stat().st_size for path in shards) - 16 * records(bert_dataset)
        assert builder.info.splits["train"].num_bytes == size

    def test_word_pieces_are_a_sequence_of_text(self, write_dataset: Callable[..., Path]) -> None:
        import tensorflow_datasets as tfds

        plain = write_dataset(*TOKENS_FLAGS)
        dataset = write_dataset(*TOKENS_FLAGS, "--record_type=example")
        builder = tfds.builder_from_directory(str(dataset))
        assert isinstance(builder.info.features["tokens"], tfds.features.Sequence)
        assert isinstance(builder.info.features["tokens"].feature, tfds.features.Text)
        rows = [
            row["tokens"].tolist() for row in builder.as_dataset(split="train").as_numpy_iterator()
        ]
        assert len(rows) == records(dataset) == records(plain)
        ours = [
            tokens
            for batch in load(plain, "train", batch_size=16, remainder="keep")
            for tokens in batch["tokens"].to_list()
        ]
        assert sorted(rows) == sorted(ours)

    def test_our_masks_of_either_form(
        self, write_dataset: Callable[..., Path], vocab_file: str
    ) -> None:
        masks = mask_tokens(
            vocab_file=vocab_file, max_seq_length=LENGTH, max_predictions_per_seq=PREDICTIONS
        )
        dataset = write_dataset(*TOKENS_FLAGS, "--record_type=example")
        count = 0
        for batch in load(dataset, "train", batch_size=16, remainder="keep", transform=masks):
            count += len(batch["input_ids"])
            assert (batch["masked_lm_weights"].numpy().sum(axis=1) > 0).all()
        assert count == records(dataset)

    @pytest.mark.parametrize("flags", [GZIP_FLAGS, TOKENS_FLAGS])
    def test_what_tfds_cannot_read_does_not_claim_its_name(
        self, write_dataset: Callable[..., Path], flags: tuple[str, ...]
    ) -> None:
        import tensorflow_datasets as tfds
        from tensorflow_datasets.core.dataset_info import DatasetInfoFileError

        with pytest.raises(DatasetInfoFileError, match="Could not read dataset info"):
            tfds.builder_from_directory(str(write_dataset(*flags)))


# In a process of its own: it brings the second Keras and registers hundreds of things with gin.
_MODEL_GARDEN = """
import json, sys
from official.nlp.data import pretrain_dataloader
datasets = json.loads(sys.argv[1])
for config in datasets:
    config = pretrain_dataloader.BertPretrainDataConfig(
        global_batch_size=16, is_training=False, drop_remainder=False, **config)
    batches = list(pretrain_dataloader.BertPretrainDataLoader(config).load())
    shapes = {name: tensor.shape[1:].as_list() + [tensor.dtype.name]
              for name, tensor in batches[0].items()}
    rows = sum(int(batch["input_word_ids"].shape[0]) for batch in batches)
    ids = sum(int(batch["input_word_ids"].numpy().sum()) for batch in batches)
    print(json.dumps({"rows": rows, "ids": ids, "shapes": shapes}))
"""


class TestModelGarden:
    """`official.nlp.data.pretrain_dataloader` of tf-models-official."""

    @pytest.mark.slow
    def test_v1_v2_and_gzip(
        self, bert_dataset: Path, write_dataset: Callable[..., Path], input_ids: np.ndarray
    ) -> None:
        pytest.importorskip("official.nlp", reason="tf-models-official is not installed")
        v2, packed = write_dataset(*V2_FLAGS), write_dataset(*GZIP_FLAGS)
        common = {"seq_length": LENGTH, "max_predictions_per_seq": PREDICTIONS}
        configs = [
            {"input_path": f"{bert_dataset}/train/train-*.tfrecords", **common},
            {
                "input_path": f"{v2}/train/*", "use_v2_feature_names": True,
                "use_position_id": True, **common,
            },
            {"input_path": f"{packed}/train/*", "file_type": "tfrecord_compressed", **common},
        ]  # fmt: skip
        done = subprocess.run(
            [sys.executable, "-c", _MODEL_GARDEN, json.dumps(configs)],
            capture_output=True, text=True,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        v1_found, v2_found, gzip_found = map(json.loads, done.stdout.splitlines())
        shapes = {
            "input_word_ids": [LENGTH, "int32"],
            "input_type_ids": [LENGTH, "int32"],
            "input_mask": [LENGTH, "int32"],
            "masked_lm_positions": [PREDICTIONS, "int32"],
            "masked_lm_ids": [PREDICTIONS, "int32"],
            "masked_lm_weights": [PREDICTIONS, "float32"],
            "next_sentence_labels": [1, "int32"],
        }
        assert v1_found == {
            "rows": records(bert_dataset), "ids": int(input_ids.sum()), "shapes": shapes,
        }  # fmt: skip
        assert v2_found["shapes"] == {**shapes, "position_ids": [LENGTH, "int32"]}
        assert v2_found["rows"] == records(v2)
        assert gzip_found["rows"] == records(packed)
        # The same flags but for names and compression: the same examples.
        assert gzip_found["ids"] == v2_found["ids"]


_WITHOUT_TENSORFLOW = """
import json, sys
from tfrecord import reader
path, index = sys.argv[1:3]
description = {"input_ids": "int", "masked_lm_weights": "float", "next_sentence_labels": "int"}
rows = [[row["input_ids"].tolist(), len(row["masked_lm_weights"])]
        for part in range(2)
        for row in reader.tfrecord_loader(path, index, description, shard=(part, 2))]
assert "tensorflow" not in sys.modules
print(json.dumps(rows))
"""


class TestTfrecordPackage:
    """PyPI's `tfrecord` (vahidk): DALI's index files let it split a shard between workers."""

    def test_with_our_index_files(self, bert_dataset: Path, input_ids: np.ndarray) -> None:
        shard = sorted((bert_dataset / "train").iterdir())[0]
        index = bert_dataset / f"_meta/index/train/{shard.stem}.idx"
        done = subprocess.run(
            [sys.executable, "-c", _WITHOUT_TENSORFLOW, str(shard), str(index)],
            capture_output=True, text=True,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        rows = json.loads(done.stdout)
        manifest = Manifest.from_bytes((bert_dataset / "_meta/manifest.json").read_bytes())
        assert len(rows) == manifest.split_shards()["train"][0].records
        assert [ids for ids, _ in rows] == input_ids[: len(rows)].tolist()
        assert {weights for _, weights in rows} == {PREDICTIONS}

    def test_the_index_gives_random_access(self, bert_dataset: Path) -> None:
        for path in (bert_dataset / "train").iterdir():
            index = (bert_dataset / f"_meta/index/train/{path.stem}.idx").read_text()
            lines = [tuple(map(int, line.split())) for line in index.splitlines()]
            assert lines[0][0] == 0
            assert sum(size for _, size in lines) == path.stat().st_size
            data = path.read_bytes()
            for offset, size in lines[::50]:
                example = tf.train.Example.FromString(data[offset + 12 : offset + size - 4])
                assert len(example.features.feature) == len(BERT_SPEC)
