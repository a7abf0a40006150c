"""Jobs as functions of a program or notebook."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest

from recordmill.pipelines import (
    JobError,
    learn_vocabulary,
    write_examples_dataset,
    write_image_dataset,
    write_text_dataset,
)
from recordmill.pipelines.command_line import main
from recordmill.transforms import Document

from ..conftest import bert_text, make_documents, make_vocabulary
from ..pictures import jpeg
from .jobs import shard_bytes


def test_notebooks_see_names_and_defaults() -> None:
    parameters = inspect.signature(write_text_dataset).parameters
    assert parameters["masked_lm_prob"].default == 0.15
    assert parameters["masked_lm_prob"].annotation is float
    assert not {"wait", "config", "beam_flags"} - {"wait"} - parameters.keys()
    assert "wait" not in parameters, "the dataset is what is returned"
    assert parameters["output"].kind is inspect.Parameter.KEYWORD_ONLY


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("programs")
    (folder / "a.txt").write_text(bert_text(make_documents(30, seed=3)))
    (folder / "vocab.txt").write_text("\n".join(make_vocabulary()) + "\n")
    return folder


def settings(folder: Path, name: str, **more: Any) -> dict[str, Any]:
    return {
        "input": str(folder / "a.txt"), "output": str(folder / name), "task": "mlm",
        "vocab_file": str(folder / "vocab.txt"), "dupe_factor": 1, "max_seq_length": 64,
        "direct_num_workers": 1, **more,
    }  # fmt: skip


@pytest.mark.slow
def test_text_is_that_of_the_command(folder: Path) -> None:
    splits = {"train": 0.8, "test": 0.2}
    written = write_text_dataset(**settings(folder, "text", splits=splits))
    flags = [f"--{name}={value}" for name, value in settings(folder, "command").items()]
    assert main(["text", *flags, "--splits=train:0.8,test:0.2"]) == 0
    assert shard_bytes(Path(written.path)) == shard_bytes(folder / "command")
    assert set(written.splits) == {"train", "test"}
    assert sum(written.splits.values()) == written.counts["examples"]
    assert written.rejects == {}
    batch = next(iter(written.load("train", batch_size=2)))
    assert batch["input_ids"].shape == (2, 64)
    config = folder / "text/_meta/config.yaml"
    again = write_text_dataset(config=str(config), output=str(folder / "again"))
    assert shard_bytes(Path(again.path)) == shard_bytes(folder / "text")


def test_functions_of_a_notebook(folder: Path) -> None:
    least = 60

    def long_ones(document: Document) -> Document | None:
        if "the" not in document.text:
            raise ValueError("no the")
        return document if len(document.text) > least else None

    given = settings(folder, "mapped", map=long_ones, max_rejected=1.0)
    written = write_text_dataset(**given)
    assert written.counts["documents_written"] < 31
    assert list(written.rejects) in ([], ["map_error"])
    assert len(list(written.rejected())) == sum(written.rejects.values())
    assert write_text_dataset(**given) == written, "nothing to do"
    config = {"config": str(folder / "mapped/_meta/config.yaml"), "output": str(folder / "same")}
    with pytest.raises(JobError, match="a program gave functions to the job that wrote it"):
        write_text_dataset(**config)
    again = write_text_dataset(**config, map=long_ones)
    assert shard_bytes(Path(again.path)) == shard_bytes(folder / "mapped")
    least = 70
    with pytest.raises(JobError, match="holds a dataset of another configuration"):
        write_text_dataset(**given)


def test_images_and_existing_records(tmp_path: Path) -> None:
    for i in range(4):
        path = tmp_path / "photos" / ("cat", "dog")[i % 2] / f"{i}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(jpeg(40, 30, seed=i))
    written = write_image_dataset(
        input=str(tmp_path / "photos"), output=str(tmp_path / "images"), direct_num_workers=1
    )
    assert written.splits == {"train": 4}
    again = write_examples_dataset(
        input=str(tmp_path / "images/train"), output=str(tmp_path / "again"),
        weights=[2], num_shards=3, direct_num_workers=1,
    )  # fmt: skip
    assert again.splits == {"train": 8}
    assert len(shard_bytes(Path(again.path))) == 3
    with pytest.raises(JobError, match=r"weights must be in \(0, 1000\]"):
        write_examples_dataset(input=str(tmp_path / "images"), output="x", weights=[0])


@pytest.mark.slow
def test_a_vocabulary(folder: Path) -> None:
    path = learn_vocabulary(
        input=str(folder / "a.txt"), output=str(folder / "learned.txt"), vocab_size=200,
        direct_num_workers=1,
    )  # fmt: skip
    assert Path(path).read_text().startswith("[PAD]\n")


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"taks": "mlm"}, "arguments: there is no flag named taks; did you mean task?"),
        ({"task": "mln"}, "task must be one of bert, classify, "),
        ({"masked_lm_prob": 1.5}, "masked_lm_prob must be in (0, 1), got 1.5"),
        ({"fim_rate": 1.5}, "fim_rate has no effect with task='mlm'; leave it out"),
        ({"task": "gpt", "fim_rate": 1.5}, "fim_rate must be in [0, 1], got 1.5"),
        ({"dupe_factor": "1e3"}, "dupe_factor must be a whole number, got '1e3'"),
        ({"dupe_factor": True}, "dupe_factor must be a word or number, got true"),
        ({"do_whole_word_mask": 1}, "do_whole_word_mask must be true or false, got 1"),
        ({"dupe_factor": [1, [2]]}, "arguments: dupe_factor must be a list of words or numbers"),
        ({"map": 3}, "map must be a function, its name as FILE.py:FUNCTION"),
        ({"map": lambda: None}, "must take one argument"),
        ({"vocab_file": "/no/such"}, "vocab_file /no/such cannot be read"),
    ],
)
def test_errors_are_exceptions_of_one_line(
    folder: Path, wrong: dict[str, Any], message: str
) -> None:
    with pytest.raises(JobError) as error:
        write_text_dataset(**settings(folder, "never", **wrong))
    assert message in str(error.value)
    assert "\n" not in str(error.value)
    assert not (folder / "never").exists()
