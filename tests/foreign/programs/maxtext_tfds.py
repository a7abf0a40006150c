"""MaxText's TFDS pipeline, on a dataset of ours that is tokenized already."""

from __future__ import annotations

import sys
from typing import Any

from exchange import serve, stack


def prepare(checkout: str) -> None:
    sys.path.insert(0, checkout)


def read(
    folder: str, name: str, split: str, tokenizer: str, length: int, pack: bool
) -> dict[str, Any]:
    """Returns `[rows, length]` of each feature that MaxText trains on.

    Args:
      folder: MaxText's `dataset_path`.
      name: its `dataset_name`.
      split: its `train_split`.
      tokenizer: a SentencePiece model, of which the pipeline takes the id of padding.
      length: its `max_target_length`.
      pack: whether it packs.
    """
    from maxtext.input_pipeline import tfds_data_processing

    dataset = tfds_data_processing.get_datasets(
        dataset_name=name, data_split=split, shuffle_files=False, shuffle_seed=0,
        dataloading_host_index=0, dataloading_host_count=1, dataset_path=folder,
    )  # fmt: skip
    made = tfds_data_processing.preprocessing_pipeline(
        dataset, tokenizer_path=tokenizer, tokenizer_type="sentencepiece", global_batch_size=1,
        max_target_length=length, data_column_names=("targets",), tokenize=False,
        pack_examples=pack,
    )  # fmt: skip
    return stack({n: v[0] for n, v in row.items()} for row in made.as_numpy_iterator())


if __name__ == "__main__":
    serve(prepare, read)
