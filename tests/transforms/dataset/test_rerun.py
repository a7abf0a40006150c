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
from recordmill.transforms.dataset.pipeline_run import begin_run
from recordmill.transforms.dataset.run_state import pipeline_name
from recordmill.transforms.dataset.stages import do_item
from recordmill.transforms.dataset.workspace import Workspace

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


def test_no_stage_of_images_works_behind_the_commit(vocab_file: str, tmp_path: Path) -> None:
    """An engine may run some stages again alone, with what those before them gave."""
    transform, elements = write_images(str(tmp_path / "ds"), vocab_file)
    write_elements(transform, elements, bundles=1, workers=1)
    for stage in transform._sink.stages():  # type: ignore[attr-defined]
        assert do_item(stage, 0) is None


def test_a_claim_that_was_killed_before_its_plan(tmp_path: Path) -> None:
    job = WriteExamples(str(tmp_path / "ds"))._sink.job
    begin_run(job, "WriteExamples")
    (tmp_path / "ds/_tmp/plan.json").unlink()
    begin_run(job, "WriteExamples")
    assert pipeline_name(job.workspace.plan_path) == "WriteExamples"


def write_lists(output: str, vocabulary: str) -> tuple[beam.PTransform, list[object]]:
    writing = WriteText(
        output, objective=Bert(max_seq_length=64), tokenizer=vocabulary, deduplicate="exact",
        list_dropped=True,
    )  # fmt: skip
    return writing, [*documents(20), *documents(20)]


def write_statistics(output: str, vocabulary: str) -> tuple[beam.PTransform, list[object]]:
    del vocabulary
    return WriteImages(output, statistics="sample"), [*images(20)]


@pytest.mark.parametrize("writing", [write_examples, write_text, write_lists, write_statistics])
def test_folders_that_a_late_task_makes_again_are_removed(
    writing: Writing, vocab_file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output, made = tmp_path / "ds", set()
    clean_up = Workspace.clean_up

    def late(workspace: Workspace) -> None:
        made.update(path.name for path in (output / "_tmp").iterdir() if path.is_dir())
        clean_up(workspace)
        for name in made:
            (output / "_tmp" / name).mkdir(parents=True)

    monkeypatch.setattr(Workspace, "clean_up", late)
    transform, elements = writing(str(output), vocab_file)
    write_elements(transform, elements, bundles=2, workers=1)
    assert "elements" in made
    assert {"runs-0", "lists", "transform"} & made
    assert not (output / "_tmp").exists()
