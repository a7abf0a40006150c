"""Datasets of other tokenizers than vocab.txt: what they hold, and what shows them."""

from __future__ import annotations

from pathlib import Path

import pytest

from recordmill.pipelines.command_line import main
from recordmill.transforms.dataset.workspace import read_manifest

from ..transforms.subwords import trained


@pytest.mark.parametrize("flag", ["--do_lower_case", "--no-do_lower_case"])
def test_case_is_said_by_the_tokenizer_itself(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], flag: str
) -> None:
    (tmp_path / "a.model").write_bytes(trained.pieces())
    (tmp_path / "a.txt").write_text("the water of the sea\n", encoding="utf-8")
    line = ["text", "--task=gpt", f"--input={tmp_path}/a.txt", f"--output={tmp_path}/ds"]
    assert main([*line, f"--tokenizer={tmp_path}/a.model", flag]) == 2
    assert capsys.readouterr().err == (
        f"recordmill: {flag} has no effect with --tokenizer {tmp_path}/a.model, which says that "
        "itself; leave it out\n"
    )


@pytest.mark.parametrize("pad_id", [0, 3])
def test_padding_of_another_id_than_the_tokenizers_is_noticed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], pad_id: int
) -> None:
    tokens = ["[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "water"]
    tokens.insert(pad_id, "[PAD]")
    (tmp_path / "vocab.txt").write_text("\n".join(tokens) + "\n")
    (tmp_path / "a.txt").write_text("the water\n")
    line = ["text", f"--input={tmp_path}/a.txt", f"--vocab_file={tmp_path}/vocab.txt"]
    for task, is_padded in (("mlm", True), ("gpt", False)):
        flags = [f"--task={task}", f"--output={tmp_path}/{task}", "--direct_num_workers=1"]
        assert main([*line, *flags, *(["--eos_id=2"] if task == "gpt" else [])]) == 0
        shown = capsys.readouterr().err
        assert ("has the padding token as id 3" in shown) is (pad_id == 3 and is_padded)
        assert ("pads with id 0, as BERT does" in shown) is (pad_id == 3 and is_padded)


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
