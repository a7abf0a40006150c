"""TensorFlow Datasets: builders of a folder that it did not write."""

from __future__ import annotations

from typing import Any

from exchange import flatten, serve, stack


def prepare(_: str) -> None:
    pass


def read(
    folder: str, split: str, as_supervised: bool = False, name: str = "", **config: Any
) -> dict[str, Any]:
    """Returns the rows of a split, nested features by path; a supervised pair as "0" and "1".

    Args:
      folder: of the dataset, or with a `name` the `data_dir` of `tfds.load`.
      config: of `tfds.ReadConfig`.
    """
    import tensorflow_datasets as tfds

    options = {"read_config": tfds.ReadConfig(**config), "as_supervised": as_supervised}
    if name:
        dataset = tfds.load(name, split=split, data_dir=folder, **options)
    else:
        dataset = tfds.builder_from_directory(folder).as_dataset(split=split, **options)
    return stack(flatten(row) for row in dataset.as_numpy_iterator())


if __name__ == "__main__":
    serve(prepare, read)
