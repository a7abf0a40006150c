"""google-research/bert: its reader over our records, and its writer on our text."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from .conftest import Count, ForeignCalls, ForeignError, promised
from .rows import our_columns, row_keys, same_rows

LENGTH, PREDICTIONS = 64, 10
MASK = 4  # the id of [MASK] in the vocabulary of the tests
NAMES = [
    "input_ids", "input_mask", "segment_ids", "masked_lm_positions", "masked_lm_ids",
    "masked_lm_weights", "next_sentence_labels",
]  # fmt: skip


def shards(dataset: Path, split: str = "train") -> list[str]:
    return sorted(str(path) for path in (dataset / split).iterdir())


class TestRunPretraining:
    def test_evaluation_reads_every_record_in_order(
        self, bert_checkout: Path, foreign: ForeignCalls, bert_dataset: Path, count: Count
    ) -> None:
        for split in ("train", "validation"):
            number = promised(bert_dataset, split)
            call = {
                "action": "read", "files": shards(bert_dataset, split), "is_training": False,
                "lengths": [LENGTH, PREDICTIONS], "rows": 2 * number,
            }  # fmt: skip
            (found,) = foreign.run("google_bert", call, checkout=bert_checkout)
            ours = row_keys(our_columns(bert_dataset, split), NAMES)
            keys = row_keys(found, NAMES)
            # The reader repeats for ever, so the first record comes again when all were read.
            period = next(n for n in range(1, len(keys)) if keys[n : n + 5] == keys[:5])
            count("google-research/bert run_pretraining", bert_dataset, period, "text bert", split)
            assert keys == ours * 2

    def test_training_reads_nothing_else(
        self, bert_checkout: Path, foreign: ForeignCalls, bert_dataset: Path
    ) -> None:
        call = {
            "action": "read", "files": shards(bert_dataset), "is_training": True,
            "lengths": [LENGTH, PREDICTIONS], "rows": 400,
        }  # fmt: skip
        (found,) = foreign.run("google_bert", call, checkout=bert_checkout)
        ours = row_keys(our_columns(bert_dataset), NAMES)
        keys = row_keys(found, NAMES)
        assert len(keys) == 400
        assert set(keys) <= set(ours)
        assert keys != ours[:400]


class TestRunClassifier:
    """Its reader over our records, and its `convert_single_example` over the same rows."""

    @pytest.mark.parametrize("pair", ["", "other"])
    def test_the_same_examples(
        self,
        bert_checkout: Path,
        foreign: ForeignCalls,
        write_rows: Callable[..., Path],
        row_table: list[dict[str, Any]],
        vocab_file: str,
        count: Count,
        pair: str,
    ) -> None:
        flags = (f"--text_pair_field={pair}",) if pair else ()
        dataset = write_rows(*flags)
        number = promised(dataset)
        names = (dataset / "labels.txt").read_text().split()
        read = {
            "action": "classify", "files": shards(dataset), "length": LENGTH, "rows": number + 5,
        }  # fmt: skip
        fields = ("text", pair) if pair else ("text",)
        convert = {
            "action": "convert", "texts": [[row[name] for name in fields] for row in row_table],
            "labels": [row["label"] for row in row_table], "names": names, "length": LENGTH,
            "vocab_file": vocab_file,
        }  # fmt: skip
        found, theirs = foreign.run("google_bert", read, convert, checkout=bert_checkout)
        assert not isinstance(found, ForeignError), found
        assert not isinstance(theirs, ForeignError), theirs
        label = "text classify, pairs" if pair else "text classify"
        count("google-research/bert run_classifier", dataset, len(found["input_ids"]), label)
        features = ["input_ids", "input_mask", "segment_ids", "label_ids"]
        ours = our_columns(dataset)
        assert row_keys(found, [*features, "is_real_example"]) == (
            row_keys(ours, [*features, "is_real_example"])
        )
        assert same_rows(theirs, ours, features)


COPIES = 3


Both = tuple[dict[str, np.ndarray], dict[str, np.ndarray]]


@pytest.fixture(scope="module")
def both_writers(
    bert_checkout: Path,
    foreign: ForeignCalls,
    corpus: Path,
    vocab_file: str,
    write_dataset: Callable[..., Path],
) -> Both:
    """Returns the features of BERT's examples, and of ours."""
    output = foreign.folder / "bert.tfrecord"
    flags = [
        f"--input_file={corpus}/*.txt", f"--output_file={output}", f"--vocab_file={vocab_file}",
        f"--max_seq_length={LENGTH}", f"--max_predictions_per_seq={PREDICTIONS}",
        f"--dupe_factor={COPIES}",
    ]  # fmt: skip
    call = {"action": "write", "flags": flags}
    (answer,) = foreign.run("google_bert", call, checkout=bert_checkout)
    assert answer == {}, answer
    dataset = write_dataset("--task=bert", f"--dupe_factor={COPIES}")
    return columns_of([str(output)]), columns_of(shards(dataset))


class TestCreatePretrainingData:
    """The same text through both writers: other examples, drawn in the same way."""

    @pytest.mark.parametrize(
        ("measure", "within"),
        [
            ("examples", 0.04),
            ("tokens of an example", 0.03),
            ("tokens of the first segment", 0.06),
            ("share of short examples", 0.15),
            ("random next", 0.05),
            ("masked", 0.02),
            ("masked that became [MASK]", 0.02),
            ("masked that stayed", 0.08),
        ],
    )
    def test_the_same_distributions(self, both_writers: Both, measure: str, within: float) -> None:
        theirs, ours = (measures(columns)[measure] for columns in both_writers)
        assert ours == pytest.approx(theirs, rel=within)


def columns_of(paths: list[str]) -> dict[str, np.ndarray]:
    """Returns `[examples, ...]` of each feature, by plain protobuf."""
    columns: dict[str, list[list[float]]] = {name: [] for name in NAMES}
    for record in tf.data.TFRecordDataset(paths).as_numpy_iterator():
        features = tf.train.Example.FromString(record).features.feature
        for name in NAMES:
            kind = "float_list" if name == "masked_lm_weights" else "int64_list"
            columns[name].append(list(getattr(features[name], kind).value))
    return {name: np.array(values) for name, values in columns.items()}


def measures(columns: dict[str, np.ndarray]) -> dict[str, float]:
    """Returns what two datasets of one text must have in common."""
    lengths = columns["input_mask"].sum(axis=1)
    second = columns["segment_ids"].sum(axis=1)
    real = columns["masked_lm_weights"] == 1
    shown = np.take_along_axis(columns["input_ids"], columns["masked_lm_positions"], axis=1)[real]
    originals = columns["masked_lm_ids"][real]
    return {
        "examples": len(lengths),
        "tokens of an example": lengths.mean(),
        "tokens of the first segment": (lengths - second).mean(),
        "share of short examples": (lengths < LENGTH).mean(),
        "random next": columns["next_sentence_labels"].mean(),
        "masked": real.sum() / lengths.sum(),
        "masked that became [MASK]": (shown == MASK).mean(),
        "masked that stayed": (shown == originals).mean(),
    }
