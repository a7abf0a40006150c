"""Contents that splits share, by a sample of bounded size."""

from __future__ import annotations

import json

import pytest

from recordmill.transforms.images.content_sample import ContentSample, shared_contents


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
        parts.merge(ContentSample.from_json(json.loads(json.dumps(
            sample({name: contents[name]}).to_json()
        ))))  # fmt: skip
    parts.merge(ContentSample())
    assert parts == whole
    assert whole.images == whole.sampled == 40


def test_a_large_dataset_is_sampled_alike_in_all_splits() -> None:
    train = sample({f"a{n}": str(n).encode() for n in range(4000)}, of_images=200_000)
    test = sample({f"b{n}": str(n).encode() for n in range(4000)}, of_images=200_000)
    assert 300 < train.sampled < 500  # a tenth
    (shared,) = shared_contents({"train": train, "test": test})
    assert shared["images"] == shared["of_sampled"] == train.sampled


@pytest.mark.parametrize("of_images", [3, 10**9])
def test_images_that_are_all_alike(of_images: int) -> None:
    assert sample({"a": b"1", "b": b"1"}, of_images).all_alike
    assert not sample({"a": b"1", "b": b"2"}, of_images).all_alike
    assert not sample({"a": b"1"}, of_images).all_alike
