"""Pipelines of users' own that an engine runs once more behind their commit."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import apache_beam as beam
import pytest

from recordmill.pipelines.command_line import main
from recordmill.transforms import Bert, WriteExamples, WriteImages, WriteText
from recordmill.transforms.dataset import commit as committing

from ..images.test_write_images import images
from ..text.test_write_text import documents
from ..user_pipelines import write_elements

Writing = Callable[[str, str], tuple[beam.PTransform, list[object]]]


def write_examples(output: str, vocabulary: str) -> tuple[beam.PTransform, list[object]]:
    del vocabulary
    elements: list[object] = [{"id": number} for number in range(50)]
    return WriteExamples(output, num_shards=2, deduplicate=True), elements


def write_text(output: str, vocabulary: str) -> tuple[beam.PTransform, list[object]]:
    writing = WriteText(
        output, objective=Bert(max_seq_length=64), tokenizer=vocabulary, deduplicate="near"
    )
    return writing, [*documents(20), *documents(5)]


def write_images(output: str, vocabulary: str) -> tuple[beam.PTransform, list[object]]:
    del vocabulary
    return WriteImages(output, splits={"a": 0.5, "b": 0.5}), [*images(20)]


def seen(output: Path) -> dict[str, tuple[int, int]]:
    """Each file below a folder, with its time and its number in the file system."""
    files = [path for path in output.rglob("*") if path.is_file()]
    return {str(path): (path.stat().st_mtime_ns, path.stat().st_ino) for path in files}


@pytest.mark.parametrize("writing", [write_examples, write_text, write_images])
def test_a_pipeline_that_runs_again_behind_its_commit_does_nothing(
    writing: Writing, vocab_file: str, tmp_path: Path
) -> None:
    output = tmp_path / "ds"
    transform, elements = writing(str(output), vocab_file)
    write_elements(transform, elements, bundles=4, workers=1)
    before = seen(output)
    write_elements(transform, elements, bundles=3, workers=1)
    assert seen(output) == before
    assert main(["verify", str(output)]) == 0


def test_another_pipeline_finds_the_dataset_of_the_first(vocab_file: str, tmp_path: Path) -> None:
    output = tmp_path / "ds"
    first, elements = write_examples(str(output), vocab_file)
    second, _ = write_examples(str(output), vocab_file)  # before there is a dataset
    write_elements(first, elements, bundles=1, workers=1)
    before = seen(output)
    with pytest.raises(Exception, match="holds a dataset; choose another output"):
        write_elements(second, elements, bundles=1, workers=1)
    assert seen(output) == before


def test_the_run_of_a_dataset_has_no_part_in_its_bytes(vocab_file: str, tmp_path: Path) -> None:
    for name in "ab":
        transform, elements = write_examples(str(tmp_path / name / "ds"), vocab_file)
        write_elements(transform, elements, bundles=1, workers=1)
    runs = [json.loads((tmp_path / name / "ds/_meta/run.json").read_text()) for name in "ab"]
    assert runs[0] != runs[1]
    for path in (tmp_path / "a/ds").rglob("*"):
        if path.is_file() and path.name != "run.json":
            other = tmp_path / "b" / path.relative_to(tmp_path / "a")
            assert path.read_bytes() == other.read_bytes()


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_pipeline_that_was_killed_before_its_success_mark_is_begun_anew(
    vocab_file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, overwrite: bool
) -> None:
    output = tmp_path / "ds"
    if overwrite:  # the killed one replaces a dataset
        first, elements = write_text(str(output), vocab_file)
        write_elements(first, elements, bundles=1, workers=1)
    with monkeypatch.context() as patch:

        def killed(_: bytes) -> bytes:
            raise OSError("killed before the success mark")

        patch.setattr(committing.m, "success_bytes", killed)
        transform = WriteExamples(
            str(output), num_shards=3, splits={"a": 0.5, "b": 0.5}, overwrite=overwrite
        )
        with pytest.raises(Exception, match="killed before the success mark"):
            write_elements(transform, [{"id": n} for n in range(50)], bundles=1, workers=1)
    assert (output / "_meta/manifest.json").exists()
    assert not (output / "_SUCCESS").exists()
    transform, elements = write_examples(str(output), vocab_file)
    write_elements(transform, elements, bundles=1, workers=1)
    assert main(["verify", str(output)]) == 0
    transform, elements = write_examples(str(tmp_path / "other/ds"), vocab_file)
    write_elements(transform, elements, bundles=1, workers=1)
    expected = {p.relative_to(tmp_path / "other/ds") for p in (tmp_path / "other/ds").rglob("*")}
    assert {p.relative_to(output) for p in output.rglob("*")} == expected  # nothing of the killed
