"""Datasets of other tokenizers than vocab.txt: what they hold, and what shows them."""

from __future__ import annotations

from pathlib import Path

import pytest

from recordmill.pipelines.command_line import main
from recordmill.transforms.dataset.workspace import read_manifest

from ..transforms.subwords import trained


@pytest.mark.parametrize(
    ("name", "stored", "kind"),
    [("bpe.json", "tokenizer.json", "BPE"), ("unigram.model", "spiece.model", "Unigram")],
)
def test_a_dataset_holds_its_tokenizer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, stored: str, kind: str
) -> None:
    special = {"user_defined_symbols": ["[CLS]", "[SEP]"]}
    data = trained.byte_pairs() if name == "bpe.json" else trained.pieces(**special)
    (tmp_path / name).write_bytes(data)
    (tmp_path / "corpus.txt").write_text("the water of the sea\n" * 20, encoding="utf-8")
    output = str(tmp_path / "ds")
    arguments = ["text", f"--input={tmp_path}/corpus.txt", f"--output={output}"]
    flags = ["--task=mlm_tokens", "--max_seq_length=32", "--direct_num_workers=1"]
    assert main([*arguments, f"--tokenizer={tmp_path}/{name}", *flags]) == 0
    assert (tmp_path / "ds/_meta" / stored).read_bytes() == data
    manifest = read_manifest(output)
    assert manifest is not None
    assert f"_meta/{stored}" in manifest.files
    assert manifest.config["tokenizer"] == kind.lower()
    assert ("sentencepiece" in manifest.versions) is (kind == "Unigram")
    capsys.readouterr()
    assert main(["inspect", output]) == 0
    shown = capsys.readouterr().out
    assert f"{kind}, " in shown
    (tmp_path / "other.json").write_bytes(trained.byte_pairs(size=400))
    assert main(["inspect", output, f"--tokenizer={tmp_path}/other.json"]) == 2
    assert "is another one" in capsys.readouterr().err
