"""Batches for PyTorch: an IterableDataset. PyTorch is no dependency; it is imported when asked for.

TensorFlow reads in the process that iterates. A DataLoader with workers must start them afresh
(`multiprocessing_context="spawn"`), because TensorFlow does not survive a fork.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator
from importlib import import_module
from typing import Any

from recordmill.reader.arrays import RaggedArray
from recordmill.reader.loading import Reader
from recordmill.reader.options import ReaderOptions
from recordmill.records.errors import UsageError
from recordmill.records.spec import takes


@takes(ReaderOptions)
def torch_dataset(path: str | os.PathLike[str], split: str, **options: Any) -> Any:
    """Returns a `torch.utils.data.IterableDataset` of batches, for `DataLoader(batch_size=None)`.

    Numbers become tensors, strings stay arrays of `bytes`. n processes of a DataLoader count as n
    workers each, so that every record comes once: a global batch is then `batch_size` times
    workers times n.

    Args:
      path, split, options: as `load` takes them.

    Raises:
      UsageError: PyTorch is not installed; as `load` does.
    """
    try:
        data: Any = import_module("torch.utils.data")
    except ImportError as error:
        raise UsageError("torch_dataset needs PyTorch: pip install torch") from error
    worker = ReaderOptions(**options).find_worker()
    options |= {"num_workers": worker.count, "worker_index": worker.index, "input_context": None}

    class Batches(data.IterableDataset):
        """The batches of one worker."""

        def __iter__(self) -> Iterator[dict[str, Any]]:
            process = data.get_worker_info()
            processes, index = (process.num_workers, process.id) if process else (1, 0)
            workers = {
                "num_workers": worker.count * processes,
                "worker_index": worker.index * processes + index,
            }
            for batch in Reader(path, split, **options | workers).as_numpy():
                yield {name: _tensor(value) for name, value in batch.items()}

        def __reduce__(self) -> Any:
            """Travels to another process as the arguments that it was made of."""
            return functools.partial(torch_dataset, path, split, **options), ()

    return Batches()


def _tensor(value: Any) -> Any:
    if isinstance(value, RaggedArray):
        return RaggedArray(_tensor(value.values), _tensor(value.row_splits))
    return value if value.dtype == object else import_module("torch").from_numpy(value)
