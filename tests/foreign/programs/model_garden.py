"""TensorFlow Model Garden (tf-models-official): its loaders, with their parsers where it has some.

`official.vision` is replaced by an empty package of the same folder: its own `__init__` imports all
models, and with them packages that no reader needs. `tensorflow_hub`, which one module of loaders
imports for raw text, is replaced by an empty module where it is not installed.
"""

from __future__ import annotations

import importlib
import sys
import types
from importlib.util import find_spec
from typing import Any

from exchange import flatten, serve, stack

PYRAMID = {
    "min_level": 3, "max_level": 5, "num_scales": 1, "aspect_ratios": [1.0], "anchor_size": 4.0,
}  # fmt: skip


def prepare(_: str) -> None:
    spec = find_spec("official")
    vision = types.ModuleType("official.vision")
    vision.__path__ = [f"{spec.submodule_search_locations[0]}/vision"]
    sys.modules["official.vision"] = vision
    if find_spec("tensorflow_hub") is None:
        sys.modules["tensorflow_hub"] = types.ModuleType("tensorflow_hub")


def read(action: str, **arguments: Any) -> dict[str, Any]:
    actions = {
        "pretrain": pretrain, "dynamic": dynamic, "sentence": sentence, "vision": vision,
    }  # fmt: skip
    return actions[action](**arguments)


def _rows(dataset: Any) -> dict[str, Any]:
    return stack(
        {name: value[i] for name, value in batch.items()}
        for batch in dataset.as_numpy_iterator()
        for i in range(len(next(iter(batch.values()))))
    )


def pretrain(**config: Any) -> dict[str, Any]:
    """Returns the rows of `BertPretrainDataLoader`."""
    from official.nlp.data import pretrain_dataloader as loaders

    options = {"global_batch_size": 16, "is_training": False, "drop_remainder": False, **config}
    return _rows(loaders.BertPretrainDataLoader(loaders.BertPretrainDataConfig(**options)).load())


def dynamic(**config: Any) -> dict[str, Any]:
    """Returns the rows of `PretrainingDynamicDataLoader`, which cuts padding off by buckets."""
    from official.nlp.data import pretrain_dynamic_dataloader as loaders

    options = {"global_batch_size": 1, "is_training": False, "drop_remainder": False, **config}
    loader = loaders.PretrainingDynamicDataLoader(loaders.BertPretrainDataConfig(**options))
    return _rows(loader.load())


def sentence(**config: Any) -> dict[str, Any]:
    """Returns the rows of `SentencePredictionDataLoader`."""
    from official.nlp.data import sentence_prediction_dataloader as loaders

    options = {"global_batch_size": 16, "is_training": False, "drop_remainder": False, **config}
    config_class = loaders.SentencePredictionDataConfig
    return _rows(loaders.SentencePredictionDataLoader(config_class(**options)).load())


def vision(
    files: str, decoder: dict[str, Any], parser: dict[str, Any], module: str, decode_only: bool
) -> dict[str, Any]:
    """Returns what `InputReader` gives with the decoder and, but for `decode_only`, the parser.

    Args:
      module: of the parser, such as retinanet_input.
      decoder, parser: arguments of their constructors.
    """
    from official.core import config_definitions
    from official.vision.dataloaders import input_reader, tf_example_decoder

    code = importlib.import_module(f"official.vision.dataloaders.{module}")
    make = getattr(code, "Decoder", tf_example_decoder.TfExampleDecoder)
    decode = make(**decoder).decode
    if module in ("retinanet_input", "maskrcnn_input"):
        parser = {**PYRAMID, **parser}
    config = config_definitions.DataConfig(
        input_path=files, global_batch_size=1, is_training=False, drop_remainder=False
    )
    parse = None if decode_only else code.Parser(**parser).parse_fn(False)
    reader = input_reader.InputReader(config, decoder_fn=decode, parser_fn=parse)
    rows = []
    for row in reader.read().as_numpy_iterator():
        flat = flatten(row)
        rows.append({name: value[0] for name, value in flat.items()})
    return stack(rows)


if __name__ == "__main__":
    serve(prepare, read)
