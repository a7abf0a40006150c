"""Copy batches from host memory to the devices that train.

The copy to a device comes last: a stage after it would run in host memory again. A single device
gets a buffer of its own; under `tf.distribute` the strategy copies, one batch ahead on each device.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from recordmill.reader.loading import load
from recordmill.records.errors import UsageError

if TYPE_CHECKING:
    import tensorflow as tf


def prefetch_to_device(
    dataset: tf.data.Dataset, device: str | None = None, *, batches: int = 2
) -> tf.data.Dataset:
    """Returns the batches in the memory of a device, some ahead of the step.

    Strings cannot leave the host; drop them by a transform before.

    Args:
      dataset: of batches; nothing may be added after this call.
      device: such as "/gpu:0"; None is the first GPU, or the CPU where there is none.
      batches: to keep there.
    """
    import tensorflow as tf

    if device is None:
        device = "/gpu:0" if tf.config.list_logical_devices("GPU") else "/cpu:0"
    return dataset.apply(tf.data.experimental.prefetch_to_device(device, batches))


def distribute(
    strategy: tf.distribute.Strategy,
    path: str | os.PathLike[str],
    split: str,
    *,
    global_batch_size: int,
    **options: Any,
) -> tf.distribute.DistributedDataset:
    """Returns the batches of a `tf.distribute` strategy, for any kind of it.

    Each replica gets `global_batch_size / num_replicas_in_sync` records a step, each record one
    replica.

    Args:
      strategy: MirroredStrategy, MultiWorkerMirroredStrategy, TPUStrategy, …
      path, split: as `load` takes them.
      global_batch_size: records a step, of all replicas.
      options: the other arguments of `load`, without workers. `start_step` counts batches of one
        replica.

    Raises:
      UsageError: the replicas cannot share a batch equally.
    """
    import tensorflow as tf

    replicas = strategy.num_replicas_in_sync
    if global_batch_size % replicas:
        raise UsageError(
            f"global_batch_size must be a multiple of the {replicas} replicas, got "
            f"{global_batch_size}"
        )

    def make(context: tf.distribute.InputContext) -> tf.data.Dataset:
        return load(
            path, split, batch_size=global_batch_size // replicas, input_context=context, **options
        )

    return strategy.distribute_datasets_from_function(
        make, tf.distribute.InputOptions(experimental_fetch_to_device=True)
    )
