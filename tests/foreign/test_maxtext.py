"""MaxText: its TFDS pipeline over what `--preset=maxtext` writes."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from recordmill.reader import load

from ..conftest import SharedFolder, run_text
from ..transforms.subwords import trained
from .conftest import Count, ForeignCalls, ForeignError

LENGTH = 64
END = 3  # [SEP] of the vocabulary


@pytest.fixture(scope="module")
def folder(shared_folder: SharedFolder, corpus: Path, vocab_file: str) -> Path:
    """A folder of TFDS with one dataset, and a model of SentencePiece whose padding is 0."""

    def fill(folder: Path) -> None:
        (folder / "pad.model").write_bytes(trained.pieces(pad_id=0, unk_id=1, bos_id=2, eos_id=3))
        flags = (f"--vocab_file={vocab_file}", "--preset=maxtext", f"--max_seq_length={LENGTH + 1}")
        output = f"--output={folder}/corpus/1.0.0"
        assert run_text(f"--input={corpus}/*.txt", output, *flags, "--num_shards=3") == 0

    return shared_folder("maxtext", fill)


def test_every_record_is_read_shifted_and_packed(
    folder: Path, maxtext_folder: Path, foreign: ForeignCalls, count: Count
) -> None:
    dataset = folder / "corpus/1.0.0"
    call = {
        "folder": str(folder), "name": "corpus:1.0.0", "split": "train",
        "tokenizer": str(folder / "pad.model"), "length": LENGTH,
    }  # fmt: skip
    padded, packed = foreign.run(
        "maxtext_tfds", {**call, "pack": False}, {**call, "pack": True}, checkout=maxtext_folder
    )
    for answer in (padded, packed):
        assert not isinstance(answer, ForeignError), answer
        names = [f"{side}{part}" for side in ("inputs", "targets") for part in
                 ("", "_segmentation", "_position")]  # fmt: skip
        assert {name: array.shape[1:] for name, array in answer.items()} == dict.fromkeys(
            names, (LENGTH,)
        )
    count("MaxText, TFDS pipeline", dataset, len(padded["inputs"]), "text gpt")
    written = [
        row["targets"][0].numpy().tolist()
        for row in load(dataset, "train", batch_size=1, shuffle=False, remainder="keep")
    ]
    assert max(map(len, written)) == LENGTH + 1
    found = Counter(
        (tuple(inputs[:size]), tuple(targets[:size]))
        for inputs, targets, size in zip(
            padded["inputs"].tolist(), padded["targets"].tolist(),
            (padded["targets"] != 0).sum(axis=1).tolist(), strict=True,
        )
    )  # fmt: skip
    assert found == Counter((tuple(row[:-1]), tuple(row[1:])) for row in written)
    # Packed, each record is a segment of a row, and none is lost.
    segments = Counter(
        tuple(targets[own == number].tolist())
        for targets, own in zip(packed["targets"], packed["targets_segmentation"], strict=True)
        for number in range(1, own.max() + 1)
    )
    assert segments == Counter(tuple(row[1:]) for row in written if len(row) > 1)
    assert len(packed["inputs"]) < len(padded["inputs"])
    assert np.count_nonzero(packed["targets"] == END) > 0
