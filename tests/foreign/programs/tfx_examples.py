"""TFX: the splits of an Examples artifact, as its components find and read them."""

from __future__ import annotations

import sys
from typing import Any

from exchange import serve, stack


def prepare(checkout: str) -> None:
    sys.path.append(checkout)


def read(folder: str, splits: list[str], split: str) -> dict[str, Any]:
    """Returns `[rows, longest]` of each feature of a split, 0 behind its values.

    Args:
      folder: the uri of the artifact.
      splits: of the artifact.
      split: to be read.
    """
    from tfx.components.util import examples_utils, tfxio_utils
    from tfx.proto import example_gen_pb2
    from tfx.types import artifact_utils, standard_artifacts
    from tfx.utils import io_utils
    from tfx_bsl.tfxio import dataset_options

    examples = standard_artifacts.Examples()
    examples.uri = folder
    examples.split_names = artifact_utils.encode_split_names(splits)
    examples_utils.set_payload_format(examples, example_gen_pb2.PayloadFormat.FORMAT_TF_EXAMPLE)
    uri = artifact_utils.get_split_uri([examples], split)
    factory = tfxio_utils.get_tfxio_factory_from_artifact([examples], ["recordmill", "test"])
    source = factory(io_utils.all_files_pattern(uri))
    options = dataset_options.RecordBatchesOptions(batch_size=7, num_epochs=1, shuffle=False)
    return stack(row for batch in source.RecordBatches(options) for row in batch.to_pylist())


if __name__ == "__main__":
    serve(prepare, read)
