"""Cerebras Model Zoo's own processors of text, on their default parameters."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import sentencepiece
import tensorflow as tf

from ..conftest import make_documents, run_text
from ..transforms.subwords import trained
from .conftest import Count, ForeignCalls, ForeignError
from .rows import our_columns, row_keys, same_rows

LENGTH, PREDICTIONS = 64, 10
STATIC, DYNAMIC = (
    "BertMlmOnlyTfRecordsStaticMaskProcessor",
    "BertMlmOnlyTfRecordsDynamicMaskProcessor",
)
MASKED = ["input_ids", "input_mask", "masked_lm_positions", "masked_lm_ids", "masked_lm_weights"]
MLM_FLAGS = ("--preset=cerebras-mlm", "--dupe_factor=2", "--num_shards=3")
TOKENS_FLAGS = ("--task=mlm_tokens", "--dupe_factor=1", "--num_shards=2")
Write = Callable[..., Path]


def params(folder: Path, **others: Any) -> dict[str, Any]:
    """Returns what a processor requires; it has defaults for the rest."""
    return {
        "data_dir": str(folder), "batch_size": 1, "max_sequence_length": LENGTH,
        "max_predictions_per_seq": PREDICTIONS, **others,
    }  # fmt: skip


def call(processor: str, folder: Path, **others: Any) -> dict[str, Any]:
    return {"processor": processor, "params": params(folder), **others}


def in_memory(ours: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Cerebras' readers turn the mask around: 1 is padding in memory, and 0 on disk."""
    return {**ours, "input_mask": 1 - ours["input_mask"]}


class TestBertTfRecordsProcessor:
    NAME = "BertTfRecordsProcessor"

    def test_reads_its_preset(
        self, cerebras_text: Path, foreign: ForeignCalls, write_dataset: Write, count: Count
    ) -> None:
        dataset = write_dataset("--preset=cerebras-bert", "--dupe_factor=1")
        (answer,) = foreign.run(
            "cerebras_text", call(self.NAME, dataset / "train"), checkout=cerebras_text
        )
        count(f"Cerebras {self.NAME}", dataset, len(answer["label"]), "text bert, preset")
        found = {**answer, "next_sentence_labels": answer["label"]}
        names = [*MASKED, "segment_ids", "next_sentence_labels"]
        assert same_rows(found, in_memory(our_columns(dataset)), names)

    def test_reads_every_record(
        self, cerebras_text: Path, foreign: ForeignCalls, bert_dataset: Path, count: Count
    ) -> None:
        splits = ("train", "validation")
        calls = [call(self.NAME, bert_dataset / split) for split in splits]
        answers = foreign.run("cerebras_text", *calls, checkout=cerebras_text)
        for split, answer in zip(splits, answers, strict=True):
            count(f"Cerebras {self.NAME}", bert_dataset, len(answer["label"]), "text bert", split)
            ours = in_memory(our_columns(bert_dataset, split))
            found = {**answer, "next_sentence_labels": answer["label"]}
            assert same_rows(found, ours, [*MASKED, "segment_ids", "next_sentence_labels"])

    def test_training_repeats_shuffles_and_fills_buckets(
        self, cerebras_text: Path, foreign: ForeignCalls, bert_dataset: Path
    ) -> None:
        """Also with every option that changes batches: nothing is read that we did not write."""
        folder = bert_dataset / "train"
        buckets = params(folder, batch_size=4, buckets=4, mixed_precision=True, shuffle_seed=7)
        scaled = params(folder, batch_size=8, scale_mlm_weights=True, sort_within_batch=True)
        plain, in_buckets, in_order = foreign.run(
            "cerebras_text",
            call(self.NAME, folder, is_training=True, batches=40),
            {"processor": self.NAME, "params": buckets, "is_training": True, "batches": 10},
            {"processor": self.NAME, "params": scaled, "is_training": True, "batches": 5},
            checkout=cerebras_text,
        )
        names = ["input_ids", "masked_lm_positions", "masked_lm_ids"]
        written = set(row_keys(our_columns(bert_dataset), names))
        assert len(plain["label"]) == 40
        for answer in (plain, in_buckets, in_order):
            assert set(row_keys(answer, names)) <= written
        assert in_buckets["masked_lm_weights"].dtype == np.float16
        lengths = LENGTH - in_order["input_mask"].sum(axis=1).reshape(5, 8)
        assert (np.diff(lengths) >= 0).all()
        weights = in_order["masked_lm_weights"].reshape(5, -1).sum(axis=1)
        np.testing.assert_allclose(weights, 8, rtol=1e-4)

    def test_workers_of_tf_config_share_the_files(
        self, cerebras_text: Path, foreign: ForeignCalls, bert_dataset: Path
    ) -> None:
        """`use_multiple_workers` is its default: each of three workers gets one of three shards."""
        workers = ["a", "b", "c"]
        calls = []
        for index in range(3):
            config = {"cluster": {"worker": workers}, "task": {"type": "worker", "index": index}}
            request = params(bert_dataset / "train", shuffle=False)
            calls.append(
                {"processor": self.NAME, "params": request, "tf_config": json.dumps(config)}
            )
        parts = foreign.run("cerebras_text", *calls, checkout=cerebras_text)
        assert all(len(part["label"]) for part in parts)
        found = {name: np.concatenate([part[name] for part in parts]) for name in MASKED}
        assert same_rows(found, in_memory(our_columns(bert_dataset)), MASKED)


class TestStaticMaskProcessor:
    def test_reads_every_record(
        self, cerebras_text: Path, foreign: ForeignCalls, write_dataset: Write, count: Count
    ) -> None:
        dataset = write_dataset(*MLM_FLAGS)
        (answer,) = foreign.run(
            "cerebras_text", call(STATIC, dataset / "train"), checkout=cerebras_text
        )
        count(f"Cerebras {STATIC}", dataset, len(answer["input_ids"]), "text mlm")
        assert same_rows(answer, in_memory(our_columns(dataset)), MASKED)

    def test_bert_s_own_records_will_do(
        self, cerebras_text: Path, foreign: ForeignCalls, bert_dataset: Path, count: Count
    ) -> None:
        """It looks for fewer features, and the others do not disturb it."""
        (answer,) = foreign.run(
            "cerebras_text", call(STATIC, bert_dataset / "train"), checkout=cerebras_text
        )
        count(f"Cerebras {STATIC}", bert_dataset, len(answer["input_ids"]), "text bert")


class TestDynamicMaskProcessor:
    def test_reads_every_record_and_masks_it(
        self,
        cerebras_text: Path,
        foreign: ForeignCalls,
        write_dataset: Write,
        vocab_file: str,
        count: Count,
    ) -> None:
        dataset = write_dataset(*TOKENS_FLAGS)
        request = params(dataset / "train", vocab_file=vocab_file, do_lower=True)
        (answer,) = foreign.run(
            "cerebras_text", {"processor": DYNAMIC, "params": request}, checkout=cerebras_text
        )
        count(f"Cerebras {DYNAMIC}", dataset, len(answer["input_ids"]), "text mlm_tokens")
        unmasked = {"ids": with_originals(answer)}
        assert same_rows(unmasked, {"ids": token_ids(dataset, vocab_file)}, ["ids"])
        masked = answer["masked_lm_weights"].sum()
        tokens = (1 - answer["input_mask"]).sum() - 2 * len(answer["input_ids"])
        assert 0.12 < masked / tokens < 0.18


def with_originals(answer: dict[str, np.ndarray]) -> np.ndarray:
    """`[rows, 64]` with the tokens that were masked put back, and 0 as padding."""
    ids = answer["input_ids"].copy()
    for row in range(len(ids)):
        predictions = int(answer["masked_lm_weights"][row].sum())
        positions = answer["masked_lm_positions"][row, :predictions]
        ids[row, positions] = answer["masked_lm_ids"][row, :predictions]
    return ids


def token_ids(dataset: Path, vocab_file: str) -> np.ndarray:
    """`[rows, 64]`: the tokens on disk as line numbers of the vocabulary, by plain protobuf."""
    numbers = {t: i for i, t in enumerate(Path(vocab_file).read_text().split())}
    paths = sorted(str(path) for path in (dataset / "train").iterdir())
    rows = []
    for record in tf.data.TFRecordDataset(paths).as_numpy_iterator():
        example = tf.train.SequenceExample.FromString(record)
        tokens = example.feature_lists.feature_list["tokens"].feature
        ids = [numbers[token.bytes_list.value[0].decode()] for token in tokens]
        rows.append(ids + [0] * (LENGTH - len(ids)))
    return np.array(rows)


class TestGptTfRecordsProcessor:
    NAME = "GptTfRecordsProcessor"

    def test_reads_every_record(
        self, cerebras_text: Path, foreign: ForeignCalls, write_dataset: Write, count: Count
    ) -> None:
        dataset = write_dataset("--preset=cerebras-gpt", "--num_shards=2")
        (answer,) = foreign.run(
            "cerebras_text", call(self.NAME, dataset / "train"), checkout=cerebras_text
        )
        count(f"Cerebras {self.NAME}", dataset, len(answer["input_ids"]), "text gpt")
        found = {**answer, "labels": answer["label"]}
        ours = in_memory(our_columns(dataset))
        assert same_rows(found, ours, ["input_ids", "input_mask", "labels"])

    def test_other_records_are_refused(
        self, cerebras_text: Path, foreign: ForeignCalls, bert_dataset: Path
    ) -> None:
        """Records of bert have no labels: it says so, and does not train on something else."""
        (answer,) = foreign.run(
            "cerebras_text", call(self.NAME, bert_dataset / "train"), checkout=cerebras_text
        )
        assert isinstance(answer, ForeignError)
        assert "labels" in str(answer)


class TestT5DynamicDataProcessor:
    """It reads pieces of text, and gives its model what `--preset=cerebras-t5` writes."""

    NAMES = (
        "encoder_input_ids", "encoder_mask", "encoder_input_length", "decoder_input_ids",
        "decoder_mask", "decoder_input_length", "loss_scale",
    )  # fmt: skip

    def rows(self, found: dict[str, np.ndarray], size: int) -> list[tuple[int, ...]]:
        """The tokens of each row, before spans of it were hidden behind sentinels."""
        made = []
        for i, inputs in enumerate(found["encoder_input_ids"].tolist()):
            hidden: dict[int, list[int]] = {}
            labels = found["label"][i][: found["decoder_input_length"][i] - 1].tolist()
            for token in labels:
                if token >= size:
                    hidden[token] = last = []
                else:
                    last.append(token)
            real = inputs[: found["encoder_input_length"][i]]
            made.append(tuple(token for t in real for token in hidden.get(t, [t])))
        return sorted(made)

    def test_gives_its_model_the_same_rows_and_features(
        self, cerebras_text: Path, foreign: ForeignCalls, tmp_path: Path
    ) -> None:
        model = tmp_path / "t5.model"
        model.write_bytes(trained.pieces(pad_id=0, eos_id=1, unk_id=2, bos_id=3))
        pieces = sentencepiece.SentencePieceProcessor(model_file=str(model))
        size = len(pieces)
        known = [pieces.id_to_piece(i) for i in range(size)]
        (tmp_path / "vocab.txt").write_text("\n".join(known) + "\n", encoding="utf-8")
        texts = [" ".join(document) for document in make_documents(60, seed=4)]
        lines = [json.dumps({"text": text}) + "\n" for text in texts]
        (tmp_path / "in.jsonl").write_text("".join(lines), encoding="utf-8")
        (tmp_path / "data").mkdir()
        pieced = [" ".join(pieces.encode(text, out_type=str)) + "\n" for text in texts]
        (tmp_path / "data/in.txt").write_text("".join(pieced), encoding="utf-8")
        status = run_text(
            f"--input={tmp_path}/in.jsonl", f"--output={tmp_path}/ds", f"--tokenizer={model}",
            "--preset=cerebras-t5", f"--max_seq_length={LENGTH}", "--dupe_factor=1",
        )  # fmt: skip
        assert status == 0
        ours = our_columns(tmp_path / "ds")
        ours["label"] = ours.pop("labels")
        request = {
            "data_dir": str(tmp_path / "data"), "vocab_file": str(tmp_path / "vocab.txt"),
            "vocab_size": size + 100, "batch_size": 1, "shuffle": False, "do_lower_case": False,
            "src_max_sequence_length": LENGTH, "use_vsl": False, "mixed_precision": False,
            "tgt_max_sequence_length": ours["label"].shape[1],
        }  # fmt: skip
        (answer,) = foreign.run(
            "cerebras_text", {"processor": "T5DynamicDataProcessor", "params": request},
            checkout=cerebras_text,
        )  # fmt: skip
        assert not isinstance(answer, ForeignError), answer
        assert answer.keys() == ours.keys() == {*self.NAMES, "label"}
        for name, values in answer.items():
            assert (ours[name].dtype, ours[name].shape) == (values.dtype, values.shape), name
        assert self.rows(ours, size) == self.rows(answer, size)
        for found in (ours, answer):  # what follows of a row's draws, whatever they are
            assert (found["decoder_input_ids"][:, 0] == 3).all()
            np.testing.assert_array_equal(
                found["decoder_mask"], np.where(found["label"] == 0, 1, 0)
            )
            np.testing.assert_array_equal(
                found["encoder_mask"], np.where(found["encoder_input_ids"] == 0, 1, 0)
            )
            lengths = found["decoder_input_length"]
            np.testing.assert_array_equal(lengths, (found["label"] != 0).sum(axis=1))
            np.testing.assert_allclose(found["loss_scale"][:, 0], 1 / lengths, rtol=1e-6)
            ends = found["label"][np.arange(len(lengths)), lengths - 1]
            assert (ends == 1).all()
