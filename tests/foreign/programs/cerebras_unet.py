"""Cerebras Model Zoo, R_1.6.1: the datasets of UNet, with the parameters of its own YAML files."""

from __future__ import annotations

import importlib
import itertools
import sys
from pathlib import Path
from typing import Any

import yaml
from exchange import serve, stack

CONFIGS = "modelzoo/unet/tf/configs"


def prepare(checkout: str) -> None:
    sys.path.insert(0, checkout)


def read(
    dataset: str,
    config: str,
    train_input: dict[str, Any],
    model: dict[str, Any],
    rows: int | None = None,
    **arguments: Any,
) -> dict[str, Any]:
    """Returns "image" and "mask" of so many rows, batches of one.

    Args:
      dataset: the name of the class.
      config: the YAML file of its parameters, in which `train_input` and `model` replace some.
      arguments: of `dataset_fn`.
    """
    params = yaml.safe_load((Path(sys.path[0]) / CONFIGS / config).read_text())
    params["train_input"].update(train_input)
    params["model"].update(model)
    module = importlib.import_module("modelzoo.unet.tf.input")
    found = getattr(module, dataset)(params).dataset_fn(batch_size=1, **arguments)
    return stack(
        {"image": image[0], "mask": mask[0]}
        for image, mask in itertools.islice(found.as_numpy_iterator(), rows)
    )


if __name__ == "__main__":
    serve(prepare, read)
