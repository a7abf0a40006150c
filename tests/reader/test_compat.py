"""What the reader uses of TensorFlow beyond its documented interface is still as it was.

One that fails names what a release has changed: adapt `reader/tensorflow_internals.py`.
"""

from __future__ import annotations

import pytest
import tensorflow as tf

from recordmill.reader.tensorflow_internals import (
    DatasetOfVariant,
    OwnedIterator,
    assertion_message,
    first_line,
)


def test_a_dataset_can_be_made_of_a_variant_and_keeps_the_options_of_its_inputs() -> None:
    options = tf.data.Options()
    options.deterministic = False
    numbers = tf.data.Dataset.range(3).with_options(options)
    variant = tf.data.experimental.to_variant(numbers)
    dataset = DatasetOfVariant(variant, [numbers], numbers.element_spec)
    assert [int(number) for number in dataset.map(lambda x: x + 1)] == [1, 2, 3]
    assert dataset.options().deterministic is False
    assert int(dataset.cardinality()) == 3


def test_a_dataset_is_iterated_by_an_owned_iterator_that_can_be_subclassed() -> None:
    class Counting(OwnedIterator):  # type: ignore[misc]
        count = 0

        def __next__(self) -> tf.Tensor:
            self.count += 1
            return super().__next__()

    dataset = tf.data.Dataset.range(3)
    assert type(iter(dataset)) is OwnedIterator
    iterator = Counting(dataset)
    assert [int(number) for number in iterator] == [0, 1, 2]
    assert iterator.count == 4
    traced = tf.function(lambda numbers: next(numbers))
    assert int(traced(Counting(dataset))) == 0


@pytest.mark.parametrize("message", ["plain", 'it\'s "quoted" \\ [x] é…', "train[:10%]"])
def test_an_assertion_in_a_dataset_holds_its_message(message: str) -> None:
    def check(number: tf.Tensor) -> tf.Tensor:
        with tf.control_dependencies([tf.debugging.Assert(number < 1, [tf.constant(message)])]):
            return tf.identity(number)

    dataset = tf.data.Dataset.range(2).map(check)
    with pytest.raises(tf.errors.OpError) as info:
        list(dataset)
    assert assertion_message(info.value) == message
    assert assertion_message(tf.errors.NotFoundError(None, None, "no such file")) is None


def test_a_decoders_error_in_a_dataset_has_its_own_words_and_the_next_element_follows() -> None:
    images = tf.data.Dataset.from_tensor_slices(
        [b"none", tf.io.encode_png(tf.zeros([1, 1, 1], tf.uint8)).numpy()]
    )
    decoded = iter(images.map(tf.io.decode_png, tf.data.AUTOTUNE, deterministic=True))
    with pytest.raises(tf.errors.InvalidArgumentError) as info:
        next(decoded)
    assert "function" in info.value.message
    assert not first_line(info.value).startswith(("{", "Error"))
    assert "\n" not in first_line(info.value)
    assert next(decoded).shape == (1, 1, 1)
    assert first_line(tf.errors.NotFoundError(None, None, "")) == "NotFoundError"
