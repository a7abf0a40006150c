from __future__ import annotations

import json

import pytest
from msgspec.structs import replace

from recordmill.records import text_formats as formats
from recordmill.records.manifest import (
    IN_PLACE_VERSION,
    Manifest,
    ShardInfo,
    check_success,
    success_bytes,
)
from recordmill.records.schema import Feature, Schema
from recordmill.records.state import encode
from recordmill.records.tfds_metadata import name_and_version, supervised_keys, tfds_files

SCHEMA = formats.mlm(max_seq_length=8, max_predictions_per_seq=2)


def make_manifest(**changes) -> Manifest:
    manifest = Manifest(
        name="books",
        config={"seed": 1, "text": "é"},
        fingerprint="f",
        features=SCHEMA.to_json(),
        compression="",
        versions={"recordmill": "0.1"},
        sources={"files": 2},
        counts={"read": 5},
        files={"features.json": 7},
        shards=[
            ShardInfo("train", 1, 2, 7, 900, 900, 4),
            ShardInfo("validation", 0, 1, 3, 400, 400, 5),
            ShardInfo("train", 0, 2, 6, 800, 800, 3),
        ],
    )
    return replace(manifest, **changes)


def test_round_trip():
    manifest = make_manifest()
    assert Manifest.from_bytes(manifest.to_bytes()) == manifest


def test_bytes_do_not_depend_on_the_order_of_keys():
    assert make_manifest(config={"text": "é", "seed": 1}).to_bytes() == make_manifest().to_bytes()
    assert encode({"b": 1, "a": "é"}) == '{\n "a": "é",\n "b": 1\n}\n'.encode()


def test_splits_hold_their_shards_in_order():
    splits = make_manifest().split_shards()
    assert {split: [s.index for s in shards] for split, shards in splits.items()} == {
        "train": [0, 1],
        "validation": [0],
    }


@pytest.mark.parametrize("data", [b"[]", b"{}", b'"x"'])
def test_other_json_is_no_manifest(data):
    with pytest.raises(ValueError, match="not a recordmill manifest"):
        Manifest.from_bytes(data)


def test_a_later_format_is_refused():
    content = json.loads(make_manifest().to_bytes()) | {"format_version": IN_PLACE_VERSION + 1}
    with pytest.raises(ValueError, match=r"written by a later recordmill \(format 3, .*upgrade"):
        Manifest.from_bytes(encode(content))


def test_success_vouches_for_the_bytes():
    data = make_manifest().to_bytes()
    success = success_bytes(data)
    assert check_success(success, data)
    assert not check_success(success, data.replace(b"900", b"901"))
    assert not check_success(b"", data)


class TestNaming:
    FLAT = "{SPLIT}-{SHARD_X_OF_Y}.tfrecord"

    def test_usual_names_are_not_written(self):
        content = json.loads(make_manifest().to_bytes())
        assert not {"version", "shard_template"} & content.keys()
        assert all("template" not in shard for shard in content["shards"])

    def test_round_trip(self):
        shards = [replace(shard, template=self.FLAT) for shard in make_manifest().shards]
        manifest = make_manifest(shards=shards, shard_template=self.FLAT, version="1.2.3")
        assert Manifest.from_bytes(manifest.to_bytes()) == manifest
        assert "train-00000-of-00002.tfrecord" in manifest.paths
        found = json.loads(tfds_files(manifest, description="")["dataset_info.json"])
        assert found["version"] == "1.2.3"
        assert {split["filepathTemplate"] for split in found["splits"]} == {self.FLAT}


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/data/cats", ("cats", "1.0.0")),
        ("/data/cats/2.0.1", ("cats", "2.0.1")),
        ("gs://bucket/cats/2.0.1", ("cats", "2.0.1")),
        ("/data/3-cats/1.2.3/", ("d_3_cats", "1.2.3")),
        ("/data/cats/1.2", ("d_1_2", "1.0.0")),
        ("/1.2.3", ("d_1_2_3", "1.0.0")),
        ("/", ("dataset", "1.0.0")),
    ],
)
def test_name_and_version(path, expected):
    assert name_and_version(path) == expected


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (("image", "label", "image/filename"), ("image", "label")),
        (("image/encoded", "image/class/label"), ("image/encoded", "image/class/label")),
        (("image", "segmentation_mask"), ("image", "segmentation_mask")),
        (("image", "objects/label"), None),
        (("image", "label", "mask"), None),
        (("input_ids", "input_mask"), None),
    ],
)
def test_supervised_keys_are_one_input_and_one_target(names, expected):
    schema = Schema(tuple(Feature(name, "int64", (), "") for name in names))
    assert supervised_keys(schema) == expected


class TestTfds:
    def test_files(self):
        found = tfds_files(make_manifest(), description="words")
        assert sorted(found) == ["dataset_info.json", "features.json"]
        assert json.loads(found["features.json"]) == SCHEMA.tfds_features()
        template = "{SPLIT}/{SPLIT}-{SHARD_X_OF_Y}.tfrecords"
        assert json.loads(found["dataset_info.json"]) == {
            "name": "books",
            "version": "1.0.0",
            "description": "words",
            "fileFormat": "tfrecord",
            "splits": [
                {
                    "name": "train",
                    "filepathTemplate": template,
                    "numBytes": str(1700 - 16 * 13),
                    "shardLengths": ["6", "7"],
                },
                {
                    "name": "validation",
                    "filepathTemplate": template,
                    "numBytes": str(400 - 16 * 3),
                    "shardLengths": ["3"],
                },
            ],
        }

    def test_names_of_classes_lie_where_tfds_looks(self):
        names = {"classes": ("cat", "é"), "kind": "classes"}
        features = Schema(
            (
                Feature("image/class/label", "int64", (), "", **names),
                Feature("objects/label", "int64", (None,), "", **names),
                Feature("label", "int64", (), "", **names),
            )
        )
        found = tfds_files(make_manifest(features=features.to_json()), description="")
        labels = {n: content.decode() for n, content in found.items() if n.endswith(".txt")}
        assert labels == dict.fromkeys(
            ("image.class.label.labels.txt", "objects-label.labels.txt", "label.labels.txt"),
            "cat\né\n",
        )

    def test_none_where_tfds_could_not_read(self):
        assert tfds_files(make_manifest(compression="GZIP"), description="") == {}
        tokens = formats.mlm_tokens().to_json()
        assert tfds_files(make_manifest(features=tokens), description="") == {}
