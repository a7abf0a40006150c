"""Contents that splits share, by a sample of bounded size."""

from __future__ import annotations

import numpy as np
import pytest

from recordmill.records.hashing import mix64
from recordmill.records.state import decode, encode
from recordmill.transforms.dataset.content_sample import ContentSample, shared_contents


def sample(contents: dict[str, bytes], of_images: int = 10) -> ContentSample:
    made = ContentSample()
    for name, data in contents.items():
        made.add(name, data, of_images=of_images)
    return made


def test_shared_contents() -> None:
    train = sample({"a": b"1", "b": b"2", "c": b"3", "d": b"3"})
    test = sample({"x": b"2", "y": b"3", "z": b"3"})
    other = sample({"o": b"9"})
    assert shared_contents({"train": train, "test": test, "other": other}) == [
        {"splits": ["test", "train"], "images": 3, "of_sampled": 3, "first": ["x", "b"]}
    ]


def test_order_and_parts_do_not_matter() -> None:
    contents = {f"{n}": str(n % 7).encode() for n in range(40)}
    whole = sample(contents)
    parts = ContentSample()
    for name in reversed(contents):
        parts.merge(decode(encode(sample({name: contents[name]})), ContentSample))
    parts.merge(ContentSample())
    assert parts == whole
    assert whole.items == whole.sampled() == 40


def test_a_large_dataset_is_sampled_alike_in_all_splits() -> None:
    train = sample({f"a{n}": str(n).encode() for n in range(4000)}, of_images=200_000)
    test = sample({f"b{n}": str(n).encode() for n in range(4000)}, of_images=200_000)
    assert 300 < train.sampled() < 500  # a tenth
    (shared,) = shared_contents({"train": train, "test": test})
    assert shared["images"] == shared["of_sampled"] == train.sampled()


def documents(numbers: range, *, parts: int = 1, file: str = "f") -> ContentSample:
    hashes = mix64(np.array(numbers, np.uint64))
    whole = ContentSample()
    for part in range(parts):
        made = ContentSample()
        for block in np.array_split(np.arange(len(numbers))[part::parts], 5):
            made.add_documents(hashes[block], file, block)
        made.keep_least()
        whole.merge(decode(encode(made), ContentSample))
        whole.keep_least()
    return whole


class TestDocuments:
    def test_the_least_hashes_are_kept_however_the_input_is_cut(self) -> None:
        whole = documents(range(30_000))
        assert len(whole.names) == 8192
        assert whole.limit == max(whole.names)
        every = {f"{value:016x}" for value in mix64(np.arange(30_000, dtype=np.uint64)).tolist()}
        assert set(whole.names) == set(sorted(every)[:8192])
        assert documents(range(30_000), parts=7) == whole

    def test_memory_is_bounded(self) -> None:
        made = ContentSample()
        for begin in range(0, 200_000, 1000):
            numbers = np.arange(begin, begin + 1000)
            made.add_documents(mix64(numbers.astype(np.uint64)), "f", numbers)
            assert len(made.names) <= 2 * 8192 + 1000
        assert made.items == 200_000

    def test_a_small_split_is_compared_where_the_large_one_was_sampled(self) -> None:
        train = documents(range(100_000), file="train")
        test = documents(range(99_000, 101_000), file="test")  # half of it is in train
        (shared,) = shared_contents({"train": train, "test": test}, "documents")
        assert shared["splits"] == ["test", "train"]
        assert 100 < shared["of_sampled"] < 230  # a twelfth of 2,000
        assert 0.35 < shared["documents"] / shared["of_sampled"] < 0.65
        assert shared["first"][0].startswith("test at position ")
        assert shared["first"][1].startswith("train at position 99")

    def test_equal_documents_of_a_split_are_counted(self) -> None:
        one = documents(range(3), parts=1)
        two = documents(range(2, 4))
        two.merge(documents(range(2, 4), file="a"))
        (shared,) = shared_contents({"a": one, "b": two}, "documents")
        assert (shared["documents"], shared["of_sampled"]) == (1, 3)


@pytest.mark.parametrize("of_images", [3, 10**9])
def test_images_that_are_all_alike(of_images: int) -> None:
    assert sample({"a": b"1", "b": b"1"}, of_images).all_alike
    assert not sample({"a": b"1", "b": b"2"}, of_images).all_alike
    assert not sample({"a": b"1"}, of_images).all_alike
