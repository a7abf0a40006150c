from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recordmill.reader import Reader, load
from recordmill.records.errors import UsageError

from .small_datasets import write_numbers


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_numbers(tmp_path_factory.mktemp("ds"), [6, 5])


def test_features_and_labels(path: Path) -> None:
    pairs = load(path, "train", batch_size=4, as_pair=("row", "id"))
    assert [tuple(spec.shape) for spec in pairs.element_spec] == [(4, 3), (4,)]
    assert int(pairs.cardinality()) == 2
    for batch, (features, labels) in zip(load(path, "train", batch_size=4), pairs, strict=True):
        assert (features.numpy() == batch["row"].numpy()).all()
        assert (labels.numpy() == batch["id"].numpy()).all()


@pytest.mark.parametrize(
    ("as_pair", "features"),
    [
        ((("row", "text"), "id"), {"row", "text"}),
        ((["row"], "id"), {"row"}),
        ("id", {"row", "text"}),
    ],
)
def test_several_features(path: Path, as_pair: Any, features: set[str]) -> None:
    spec = load(path, "train", batch_size=4, as_pair=as_pair).element_spec
    assert set(spec[0]) == features
    assert tuple(spec[1].shape) == (4,)


def test_transforms_come_first(path: Path) -> None:
    pairs = load(
        path, "train", batch_size=4, as_pair=("twice", "id"),
        transform=lambda features, keys: {**features, "twice": features["id"] * 2},
    )  # fmt: skip
    for twice, ids in pairs.as_numpy_iterator():
        assert (twice == 2 * ids).all()


def test_padding_has_no_weight(path: Path) -> None:
    reader = Reader(path, "train", batch_size=4, remainder="pad", as_pair=("row", "id"))
    weights = np.concatenate([weights for _, _, weights in reader.as_numpy()])
    assert weights.tolist() == [1] * 11 + [0]
    assert len(weights) == 12


@pytest.mark.parametrize(
    "as_pair", [("row",), ("row", "id", "text"), (1, "id"), (("row", 1), "id")]
)
def test_other_forms_are_refused(path: Path, as_pair: Any) -> None:
    with pytest.raises((UsageError, TypeError), match="as_pair must be like"):
        load(path, "train", batch_size=4, as_pair=as_pair)


@pytest.mark.parametrize("as_pair", [("rows", "id"), ("row", "idd"), "idd", (("rows",), "id")])
def test_a_feature_that_is_not_there(path: Path, as_pair: Any) -> None:
    with pytest.raises(UsageError, match=r"as_pair: the feature must be one of .*id.*; did you"):
        load(path, "train", batch_size=4, as_pair=as_pair)
