from __future__ import annotations

import json
from typing import ClassVar

import pytest

from recordmill.records import text_formats as formats
from recordmill.records.schema import Feature, Schema

SCHEMA = Schema(
    (
        Feature("b", "float32", (3, 2), "two columns"),
        Feature("a", "int64", (), "one number"),
        Feature("é", "bytes", (None,), "any strings"),
        Feature("Z", "int64", (None, 4), "rows of four"),
    )
)
TOKENS = formats.mlm_tokens()
PICTURES = Schema(
    (
        Feature("image", "bytes", (), "", kind="image", image_shape=(None, None, 3)),
        Feature("pixels", "bytes", (), "", kind="pixels", image_shape=(8, 9, 1)),
        Feature("any_pixels", "bytes", (), "", kind="pixels", image_shape=(None, 9, 1)),
        Feature("masks", "bytes", (None,), "", kind="image", image_shape=(None, None, 1)),
        Feature("name", "bytes", (), "", kind="text"),
        Feature("names", "bytes", (None,), "", kind="text"),
        Feature("a/label", "int64", (), "", kind="classes", classes=("cat", "dog")),
        Feature("labels", "int64", (None,), "", kind="classes", classes=("cat",)),
        Feature("objects/bbox", "float32", (None, 4), "", kind="boxes"),
        Feature("objects/label", "int64", (None,), "", kind="classes", classes=("é",)),
        Feature("objects/area", "float32", (None,), ""),
    )
)


def test_features_are_in_order_of_their_bytes():
    assert [feature.name for feature in SCHEMA.features] == ["Z", "a", "b", "é"]
    assert Schema(SCHEMA.features[::-1]) == SCHEMA


def test_values_in_a_record():
    assert [feature.values for feature in SCHEMA.features] == [None, 1, 6, None]


def test_look_up():
    assert SCHEMA["b"].shape == (3, 2)
    with pytest.raises(KeyError, match=r"no feature 'c'; there are \['Z', 'a', 'b', 'é'\]"):
        SCHEMA["c"]


@pytest.mark.parametrize(
    "schema", [SCHEMA, TOKENS, PICTURES, formats.mlm(max_seq_length=8, max_predictions_per_seq=2)]
)
def test_json_round_trip(schema):
    assert Schema.from_json(json.loads(json.dumps(schema.to_json()))) == schema


def test_errors():
    with pytest.raises(
        ValueError, match=r"x: only the first dimension may be None, got \(2, None\)"
    ):
        Feature("x", "int64", (2, None), "")
    with pytest.raises(ValueError, match=r"feature names must differ, got \['x', 'x'\]"):
        Schema((Feature("x", "int64", (), ""), Feature("x", "bytes", (), "")))
    with pytest.raises(ValueError, match=r"x: images and pixels, and they alone, .* 'image' and"):
        Feature("x", "bytes", (), "", kind="image")
    with pytest.raises(ValueError, match=r"x: images and pixels, and they alone, .* 'values' and"):
        Feature("x", "bytes", (), "", image_shape=(2, 3, 1))


def test_json_leaves_out_what_is_as_by_default():
    assert set(SCHEMA.to_json()[0]) == {"name", "dtype", "shape", "meaning"}
    assert PICTURES.to_json()[0] == {
        "name": "a/label", "dtype": "int64", "shape": [], "meaning": "", "kind": "classes",
        "classes": ["cat", "dog"],
    }  # fmt: skip


def test_only_lists_of_steps_make_a_sequence():
    assert TOKENS.sequence
    assert not SCHEMA.sequence


def test_tfds_features():
    content = SCHEMA.tfds_features()
    assert content["pythonClassName"].endswith("features_dict.FeaturesDict")
    tensors = {
        name: (f["tensor"]["shape"]["dimensions"], f["tensor"]["dtype"], f["description"])
        for name, f in content["featuresDict"]["features"].items()
    }
    assert tensors == {
        "Z": (["-1", "4"], "int64", "rows of four"),
        "a": ([], "int64", "one number"),
        "b": (["3", "2"], "float32", "two columns"),
        "é": (["-1"], "object", "any strings"),
    }


def test_tokens_of_language_models_are_int32_to_tfds():
    """MaxText's TFDS pipeline pads with int32, and fails on int64."""
    schema = formats.causal(max_seq_length=8, form="maxtext")
    features = schema.tfds_features()["featuresDict"]["features"]
    assert {feature["tensor"]["dtype"] for feature in features.values()} == {"int32"}
    schema = formats.causal(max_seq_length=8, form="seqio")
    targets = schema.tfds_features()["featuresDict"]["features"]["targets"]["tensor"]
    assert targets == {"shape": {"dimensions": ["-1"]}, "dtype": "int32", "encoding": "none"}
    masked = formats.mlm(max_seq_length=8, max_predictions_per_seq=2)
    ids = masked.tfds_features()["featuresDict"]["features"]["input_ids"]["tensor"]
    assert ids["dtype"] == "int64"


def test_tfds_features_of_pictures():
    def shown(feature):
        kind = feature["pythonClassName"].rpartition(".")[2]
        if kind == "Sequence":
            return [shown(feature["sequence"]["feature"])]
        if kind == "FeaturesDict":
            return {n: shown(f) for n, f in feature["featuresDict"]["features"].items()}
        if kind == "ClassLabel":
            return kind, feature["classLabel"]["numClasses"]
        content = next(feature[key] for key in ("image", "tensor", "boundingBox", "text")
                       if key in feature)  # fmt: skip
        shape = content["shape"]["dimensions"] if "shape" in content else None
        return (kind, shape, *([content["encoding"]] if kind == "Tensor" else []))

    assert shown(PICTURES.tfds_features()) == {
        "image": ("Image", ["-1", "-1", "3"]),
        "pixels": ("Tensor", ["8", "9", "1"], "bytes"),
        "any_pixels": ("Tensor", [], "none"),
        "masks": [("Image", ["-1", "-1", "1"])],
        "name": ("Text", None),
        "names": [("Text", None)],
        "a/label": ("ClassLabel", "2"),
        "labels": [("ClassLabel", "1")],
        "objects": [
            {
                "bbox": ("BBoxFeature", ["4"]),
                "label": ("ClassLabel", "1"),
                "area": ("Tensor", [], "none"),
            }
        ],
    }


def test_description_is_a_table():
    assert SCHEMA.describe().splitlines() == [
        "Z  int64 [None, 4]  rows of four",
        "a  int64 []         one number",
        "b  float32 [3, 2]   two columns",
        "é  bytes [None]     any strings",
    ]


class TestFormats:
    """Names and shapes that Cerebras, google-research/bert and Model Garden read."""

    MASKED: ClassVar = {
        "input_ids": ("int64", (128,)),
        "input_mask": ("int64", (128,)),
        "masked_lm_positions": ("int64", (20,)),
        "masked_lm_ids": ("int64", (20,)),
        "masked_lm_weights": ("float32", (20,)),
    }
    PAIR: ClassVar = MASKED | {
        "segment_ids": ("int64", (128,)),
        "next_sentence_labels": ("int64", (1,)),
    }

    @staticmethod
    def shapes(schema: Schema):
        return {f.name: (f.dtype, f.shape) for f in schema.features}

    def test_bert(self):
        sizes = {"max_seq_length": 128, "max_predictions_per_seq": 20}
        assert self.shapes(formats.bert(**sizes)) == self.PAIR
        v2 = self.shapes(formats.bert(**sizes, use_v2_feature_names=True, use_position_id=True))
        expected = dict(self.PAIR)
        expected["input_word_ids"] = expected.pop("input_ids")
        expected["input_type_ids"] = expected.pop("segment_ids")
        assert v2 == expected | {"position_ids": ("int64", (128,))}

    def test_mlm(self):
        schema = formats.mlm(max_seq_length=128, max_predictions_per_seq=20)
        assert self.shapes(schema) == self.MASKED

    def test_mlm_tokens(self):
        assert self.shapes(TOKENS) == {"tokens": ("bytes", (None,))}
