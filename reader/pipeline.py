"""Make a tf.data pipeline of an `Order`.

    groups of windows, numbered -> plan -> [rows] strings -> chunks of batches, parsed -> batches
    -> transforms -> prefetch

Records travel as vectors of strings and are parsed some thousand at once: handing them on, or
parsing them, one by one costs several times as much.
"""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from recordmill.reader.decoding import undecodable_message
from recordmill.reader.features import Transform, in_graph
from recordmill.reader.one_line_errors import checked_message, raise_one_line
from recordmill.reader.order import Order
from recordmill.reader.pairs import Pair, pair_maker
from recordmill.reader.row_parsing import RowParser
from recordmill.reader.source import RecordSource
from recordmill.reader.window_reading import read_windows


def read_only(source: RecordSource, order: Order) -> tf.data.Dataset:
    """Returns the windows of an epoch, read and not parsed: for measuring."""
    return read_windows(source, order, start_step=0, epochs=1, parallel_calls=tf.data.AUTOTUNE)


def build_dataset(
    source: RecordSource,
    order: Order,
    *,
    epochs: int | None,
    start_step: int,
    transforms: Sequence[Transform],
    parallel_calls: int | None,
    as_pair: Pair | None = None,
) -> tf.data.Dataset:
    """Returns the batches of one worker, from a step on."""
    calls = tf.data.AUTOTUNE if parallel_calls is None else parallel_calls
    windows = read_windows(
        source, order, start_step=start_step, epochs=epochs, parallel_calls=calls
    )
    dataset = RowParser(source, order, transforms, calls).batches(windows)
    if as_pair is not None:
        dataset = dataset.map(in_graph(pair_maker(as_pair)), calls, deterministic=True)
    if epochs is None:
        count = tf.data.INFINITE_CARDINALITY
    else:
        count = epochs * order.steps_per_epoch - start_step
    options = tf.data.Options()
    options.deterministic = True
    # The element that a range of records makes is called stateful, and has no state to save.
    options.experimental_external_state_policy = tf.data.experimental.ExternalStatePolicy.IGNORE
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    dataset = dataset.apply(tf.data.experimental.assert_cardinality(count))

    def describe(error: tf.errors.OpError | UnicodeDecodeError, given: int) -> str | None:
        message = checked_message(error, source.guard.folder)
        if message is None and isinstance(error, tf.errors.InvalidArgumentError):
            message = undecodable_message(source, order, transforms, start_step + given)
        return message

    return raise_one_line(dataset.prefetch(tf.data.AUTOTUNE).with_options(options), describe)
