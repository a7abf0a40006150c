"""TensorFlow Model Garden's loaders with their own parsers, as its trainer calls them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from .conftest import Count, ForeignCalls, ForeignError
from .rows import our_columns, same_rows
from .trees import COUNT, SIZE, mask_of, objects_of

pytest.importorskip("official", reason="tf-models-official is not installed")
LENGTH, PREDICTIONS = 64, 10
MASKED = ["masked_lm_positions", "masked_lm_ids", "masked_lm_weights", "next_sentence_labels"]
V1 = {"input_ids": "input_word_ids", "segment_ids": "input_type_ids"}
V2_FLAGS = ("--task=bert", "--dupe_factor=1", "--use_v2_feature_names", "--use_position_id")
GZIP_FLAGS = ("--task=bert", "--dupe_factor=1", "--num_shards=2", "--compression=GZIP")
Write = Callable[..., Path]


def pretrain(dataset: Path, **config: Any) -> dict[str, Any]:
    common = {"seq_length": LENGTH, "max_predictions_per_seq": PREDICTIONS}
    return {"action": "pretrain", "input_path": f"{dataset}/train/*", **common, **config}


class TestPretrainDataloader:
    def test_v1_v2_and_gzip(
        self, foreign: ForeignCalls, bert_dataset: Path, write_dataset: Write, count: Count
    ) -> None:
        v2, packed = write_dataset(*V2_FLAGS), write_dataset(*GZIP_FLAGS)
        answers = foreign.run(
            "model_garden",
            pretrain(bert_dataset),
            pretrain(v2, use_v2_feature_names=True, use_position_id=True),
            pretrain(packed, file_type="tfrecord_compressed"),
        )
        labels = ("text bert", "text bert, v2 names", "text bert, GZIP")
        for dataset, found, label in zip((bert_dataset, v2, packed), answers, labels, strict=True):
            assert not isinstance(found, ForeignError), found
            rows = len(found["input_word_ids"])
            count("Model Garden BertPretrainDataLoader", dataset, rows, label)
            ours = {V1.get(name, name): column for name, column in our_columns(dataset).items()}
            names = ["input_word_ids", "input_type_ids", "input_mask", *MASKED]
            names += ["position_ids"] if dataset == v2 else []
            assert same_rows(found, ours, names)

    def test_dynamic_lengths(self, foreign: ForeignCalls, bert_dataset: Path, count: Count) -> None:
        """It cuts padding off, and fills up to the bucket's length again."""
        call = {
            "action": "dynamic", "input_path": f"{bert_dataset}/train/*",
            "seq_bucket_lengths": [LENGTH],
        }  # fmt: skip
        (found,) = foreign.run("model_garden", call)
        assert not isinstance(found, ForeignError), found
        rows = len(found["input_word_ids"])
        count("Model Garden PretrainingDynamicDataLoader", bert_dataset, rows, "text bert")
        ours = {V1.get(name, name): column for name, column in our_columns(bert_dataset).items()}
        assert same_rows(found, ours, ["input_word_ids", "input_mask", "next_sentence_labels"])

    @pytest.mark.parametrize("v2", [False, True])
    def test_masks_without_pairs(
        self, foreign: ForeignCalls, write_dataset: Write, count: Count, v2: bool
    ) -> None:
        """Without next sentences the loader still demands segments."""
        names = ["--use_v2_feature_names"] if v2 else []
        dataset = write_dataset("--task=mlm", "--dupe_factor=1", "--use_segment_ids", *names)
        options = {"use_next_sentence_label": False, "use_v2_feature_names": v2}
        dynamic = {
            "action": "dynamic", "input_path": f"{dataset}/train/*",
            "seq_bucket_lengths": [LENGTH], **options,
        }  # fmt: skip
        both = foreign.run("model_garden", pretrain(dataset, **options), dynamic)
        ours = {V1.get(name, name): column for name, column in our_columns(dataset).items()}
        label = "text mlm, v2 names" if v2 else "text mlm, segments"
        loaders = ("BertPretrainDataLoader", "PretrainingDynamicDataLoader")
        for loader, found in zip(loaders, both, strict=True):
            assert not isinstance(found, ForeignError), found
            count(f"Model Garden {loader}", dataset, len(found["input_word_ids"]), label)
            assert same_rows(found, ours, ["input_word_ids", "input_type_ids", "input_mask"])
            assert not found["input_type_ids"].any()


class TestSentencePrediction:
    """The loader of its fine-tuning, with its own defaults but for the length."""

    def test_single_texts_pairs_and_numbers(
        self, foreign: ForeignCalls, write_rows: Write, count: Count
    ) -> None:
        forms = {
            "text classify": write_rows(),
            "text classify, pairs": write_rows("--text_pair_field=other"),
            "text classify, number": write_rows("--label_field=score", "--labels=number"),
        }
        calls = [
            {
                "action": "sentence", "input_path": f"{dataset}/train/*", "seq_length": LENGTH,
                "label_type": "float" if label.endswith("number") else "int",
            }
            for label, dataset in forms.items()
        ]  # fmt: skip
        answers = foreign.run("model_garden", *calls)
        for (label, dataset), found in zip(forms.items(), answers, strict=True):
            assert not isinstance(found, ForeignError), found
            rows = len(found["input_word_ids"])
            count("Model Garden SentencePredictionDataLoader", dataset, rows, label)
            ours = {V1.get(name, name): column for name, column in our_columns(dataset).items()}
            names = ["input_word_ids", "input_type_ids", "input_mask", "label_ids"]
            assert same_rows(found, ours, names)
            assert found["input_type_ids"].any() == label.endswith("pairs")


def vision(dataset: Path, module: str, **others: Any) -> dict[str, Any]:
    call = {"action": "vision", "files": f"{dataset}/train/*", "module": module}
    return {**call, "decoder": {}, "parser": {}, "decode_only": False, **others}


class TestVision:
    def test_detection(self, foreign: ForeignCalls, write_images: Write, count: Count) -> None:
        dataset = write_images("detection", "--format=model_garden", "--include_masks")
        size = {"output_size": SIZE}
        calls = [
            vision(dataset, "retinanet_input", parser=size),
            vision(
                dataset, "maskrcnn_input", decoder={"include_mask": True},
                parser={**size, "include_mask": True},
            ),
            vision(dataset, "retinanet_input", decoder={"include_mask": True}, decode_only=True),
        ]  # fmt: skip
        retinanet, maskrcnn, decoded = foreign.run("model_garden", *calls)
        for name, found, images in [
            ("RetinaNet parser", retinanet, "0"),
            ("Mask R-CNN parser", maskrcnn, "0"),
            ("TfExampleDecoder", decoded, "image"),
        ]:
            assert not isinstance(found, ForeignError), found
            count(f"Model Garden {name}", dataset, len(found[images]), "COCO, model_garden, masks")
        wanted = Counter(len(objects_of(number)) for number in range(COUNT))
        for found in (retinanet, maskrcnn):
            detections = found["1/groundtruths/num_detections"].reshape(-1)
            assert Counter(detections.tolist()) == wanted
            boxes = [
                tuple(np.round(box).tolist())
                for row, number in enumerate(detections)
                for box in found["1/groundtruths/boxes"][row, :number]
            ]
            assert Counter(boxes) == Counter(
                (y0, x0, y1, x1)
                for number in range(COUNT)
                for (x0, y0, x1, y1), _ in objects_of(number)
            )
        sizes = decoded["groundtruth_instance_masks"].sum(axis=(2, 3))
        np.testing.assert_allclose(sizes, decoded["groundtruth_area"], rtol=0.07)

    def test_classification(self, foreign: ForeignCalls, write_images: Write, count: Count) -> None:
        parser = {"output_size": SIZE, "num_classes": 3}
        datasets = [
            write_images("classification", f"--format={name}")
            for name in ("model_garden", "imagenet")
        ]
        calls = [vision(dataset, "classification_input", parser=parser) for dataset in datasets]
        garden, imagenet = foreign.run("model_garden", *calls)
        for dataset, found, label in [
            (datasets[0], garden, "classes, model_garden"),
            (datasets[1], imagenet, "classes, imagenet"),
        ]:
            assert not isinstance(found, ForeignError), found
            rows = len(found["0"])
            count("Model Garden classification parser", dataset, rows, label)
            assert found["0"].shape == (COUNT, *SIZE, 3)
        assert sorted(garden["1"].tolist()) == [0, 0, 0, 1, 1, 1, 2, 2, 2]
        assert sorted(imagenet["1"].tolist()) == [1, 1, 1, 2, 2, 2, 3, 3, 3]

    def test_segmentation(self, foreign: ForeignCalls, write_images: Write, count: Count) -> None:
        dataset = write_images("segmentation", "--format=model_garden")
        call = vision(dataset, "segmentation_input", parser={"output_size": SIZE})
        (found,) = foreign.run("model_garden", call)
        assert not isinstance(found, ForeignError), found
        count("Model Garden segmentation parser", dataset, len(found["0"]), "pairs, model_garden")
        # The parser writes 255, "no class", wherever it says that a pixel is not valid.
        masks = [mask_of(number) for number in range(COUNT)]
        assert same_rows({"m": found["1/masks"]}, {"m": np.stack(masks)}, ["m"])
        valid = {"m": found["1/valid_masks"]}
        assert same_rows(valid, {"m": np.stack([mask != 255 for mask in masks])}, ["m"])
