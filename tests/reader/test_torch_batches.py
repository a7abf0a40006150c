"""The IterableDataset, on a stand-in for the few names of PyTorch that it uses, and on PyTorch
where that is installed."""

from __future__ import annotations

import pickle
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from recordmill.reader import torch_dataset

from .small_datasets import write_numbers


class Tensor:
    def __init__(self, array: np.ndarray) -> None:
        self.array = array


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> Any:
    data = ModuleType("torch.utils.data")
    data.IterableDataset = type("IterableDataset", (), {})  # type: ignore[attr-defined]
    data.get_worker_info = lambda: None  # type: ignore[attr-defined]
    utils = ModuleType("torch.utils")
    utils.data = data  # type: ignore[attr-defined]
    torch = ModuleType("torch")
    torch.utils = utils  # type: ignore[attr-defined]
    torch.from_numpy = Tensor  # type: ignore[attr-defined]
    for module in (torch, utils, data):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    return torch


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_numbers(tmp_path_factory.mktemp("ds"), [25, 15])


def test_batches_of_tensors(torch: Any, path: Path) -> None:
    dataset = torch_dataset(path, "train", batch_size=8, shuffle=False)
    assert isinstance(dataset, torch.utils.data.IterableDataset)
    batches = list(dataset)
    assert [i for batch in batches for i in batch["id"].array.tolist()] == list(range(40))
    assert isinstance(batches[0]["row"], Tensor)
    assert batches[0]["text"].tolist()[0] == b"record 0"
    assert len(list(pickle.loads(pickle.dumps(dataset)))) == 5


def test_processes_of_a_loader_share_the_records(
    torch: Any, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = torch_dataset(path, "train", batch_size=5, num_workers=2, worker_index=1)
    found = []
    for process in range(4):
        info = SimpleNamespace(num_workers=4, id=process)
        monkeypatch.setattr(torch.utils.data, "get_worker_info", lambda info=info: info)
        found += [i for batch in dataset for i in batch["id"].array.tolist()]
    assert len(found) == len(set(found)) == 20


def test_with_torch_itself(path: Path) -> None:
    torch = pytest.importorskip("torch", reason="some gigabytes, which the tests do not install")
    dataset = torch_dataset(path, "train", batch_size=5)
    loader = torch.utils.data.DataLoader(
        dataset, batch_size=None, num_workers=2, multiprocessing_context="spawn"
    )
    batches = list(loader)
    assert batches[0]["id"].dtype == torch.int32
    assert sorted(i for batch in batches for i in batch["id"].tolist()) == list(range(40))
