"""A run says what its statistics mean, and what to do: on the terminal and in statistics.json."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from recordmill.pipelines.command_line import main

from ..conftest import make_vocabulary
from ..pictures import encoded, jpeg, turned_jpeg
from .jobs import TEXT, manifest, shard_bytes


def statistics(dataset: Path) -> dict[str, Any]:
    return dict(json.loads((dataset / "_meta/statistics.json").read_bytes()))


def rules(dataset: Path) -> list[tuple[str, str]]:
    return [(found["rule"], found["split"]) for found in statistics(dataset)["warnings"]]


def images(source: Path, output: Path, *flags: str) -> int:
    return main(
        ["images", f"--input={source}", f"--output={output}", "--direct_num_workers=1", *flags]
    )


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """20 photos in train and 4 in test, of two kinds."""
    folder = tmp_path / "photos"
    for i in range(24):
        path = folder / ("train" if i < 20 else "test") / ("cat", "dog")[i % 2] / f"{i:02d}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(jpeg(40 + i, 30, seed=i))
    return folder


@pytest.fixture
def source(tmp_path: Path) -> Path:
    TEXT.fill(tmp_path / "text", 1)
    return tmp_path / "text"


class TestText:
    FLAGS = ("--vocab_file={folder}/vocab", "--max_seq_length=64", "--max_predictions_per_seq=10")
    LINES = (*FLAGS, "--dupe_factor=1", "--documents=line")

    def test_lines_as_documents(
        self, source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert TEXT.run(source, tmp_path / "ds", *self.LINES) == 0
        out, err = capsys.readouterr()
        assert "random second segments" in out
        assert ("random_next", "train") in rules(tmp_path / "ds")
        (warning,) = [line for line in err.splitlines() if "second segments" in line]
        assert warning.startswith("recordmill: warning: ")
        assert "--documents=file" in warning
        assert main(["verify", str(tmp_path / "ds")]) == 0

    def test_unknown_tokens_are_counted(self, source: Path, tmp_path: Path) -> None:
        few = make_vocabulary()[:40]
        (source / "vocab").write_text("\n".join(few) + "\n", encoding="utf-8")
        kept = [flag for flag in self.FLAGS if "max_predictions" not in flag]
        flags = (*kept, "--dupe_factor=1", "--task=mlm_tokens")
        assert TEXT.run(source, tmp_path / "ds", *flags) == 0
        sums = statistics(tmp_path / "ds")["train"]
        assert "padding_rate" not in sums
        rows = _tokens(tmp_path / "ds")
        assert sums["unknown_tokens"] == rows.count(b"[UNK]")
        assert sums["unknown_rate"] == pytest.approx(rows.count(b"[UNK]") / len(rows), abs=1e-6)
        assert ("unknown_tokens", "train") in rules(tmp_path / "ds")

    @pytest.mark.parametrize("task", ["bert", "mlm"])
    def test_padding_and_unknown_tokens_of_masked_records(
        self, source: Path, tmp_path: Path, task: str
    ) -> None:
        import recordmill.reader as reader

        with (source / "part-0.txt").open("a", encoding="utf-8") as out:
            out.write("\n" + "naïve 日本 words here\n" * 9)
        flags = (*self.FLAGS, "--dupe_factor=1", f"--task={task}")
        assert TEXT.run(source, tmp_path / "ds", *flags) == 0
        sums = statistics(tmp_path / "ds")["train"]
        batches = list(
            reader.load(tmp_path / "ds", "train", batch_size=1, shuffle=False).as_numpy_iterator()
        )
        columns = {name: np.concatenate([b[name] for b in batches]) for name in batches[0]}
        ids, real = columns["input_ids"], columns["input_mask"]
        rows, predictions = np.nonzero(columns["masked_lm_weights"])
        positions = columns["masked_lm_positions"][rows, predictions]
        ids[rows, positions] = columns["masked_lm_ids"][rows, predictions]  # before the masks
        assert sums["padding_rate"] == pytest.approx(1 - real.mean(), abs=1e-6)
        unknown = int((ids == make_vocabulary().index("[UNK]")).sum())
        assert sums["unknown_tokens"] == unknown > 0

    def test_errors_leave_no_success_and_the_next_run_finishes(
        self, source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        output = tmp_path / "ds"
        assert TEXT.run(source, output, *self.LINES, "--warnings=error") == 1
        error = capsys.readouterr().err.splitlines()[-1]
        assert error.startswith("recordmill: --warnings=error: ")
        assert "same command with --warnings=print" in error
        assert not (output / "_SUCCESS").exists()
        assert not list(output.glob("train*"))
        assert TEXT.run(source, output, *self.LINES, "--warnings=print") == 0
        assert "resuming" in capsys.readouterr().err
        assert TEXT.run(source, tmp_path / "other", *self.LINES, "--warnings=none") == 0
        assert "warning" not in capsys.readouterr().err
        assert shard_bytes(tmp_path / "other") == shard_bytes(output)
        assert rules(tmp_path / "other") == rules(output) != []

    def test_the_plan_warns_too(
        self, source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        arguments = TEXT.arguments(source, tmp_path / "ds", *self.LINES)
        assert main(["plan", "text", *arguments]) == 0
        out, err = capsys.readouterr()
        assert "tokens of the sample" in out
        assert "of the second segments of the sample are random" in err
        assert main(["plan", "text", *arguments, "--warnings=error"]) == 1
        capsys.readouterr()
        assert main(["plan", "text", *arguments, "--warnings=none"]) == 0
        assert capsys.readouterr().err == ""


def _tokens(dataset: Path) -> list[bytes]:
    import recordmill.reader as reader

    tokens: list[bytes] = []
    data = reader.load(dataset, "train", batch_size=1, shuffle=False)
    for row in data.as_numpy_iterator():
        tokens += [token for token in np.asarray(row["tokens"]).ravel() if token]
    return tokens


class TestImages:
    def test_the_same_content_in_two_splits(
        self, photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert images(photos, tmp_path / "good", "--split_from=folder") == 0
        assert rules(tmp_path / "good") == []
        assert "warning" not in capsys.readouterr().err
        shutil.copy(photos / "train/dog/05.jpg", photos / "test/dog/copy.jpg")
        flags = ("--split_from=folder", "--augmentations=flip", "--copies=3")
        assert images(photos, tmp_path / "ds", *flags) == 0
        (warning,) = statistics(tmp_path / "ds")["warnings"]
        assert (warning["rule"], warning["split"], warning["value"]) == (
            "shared_content",
            "test",
            1,
        )
        assert (
            "1 images of test are also in train (of 5 sampled; test/dog/copy.jpg has the bytes of "
            "train/dog/05.jpg)"
        ) in capsys.readouterr().err  # fmt: skip

    def test_images_that_are_all_alike(self, photos: Path, tmp_path: Path) -> None:
        for path in photos.rglob("*.jpg"):
            path.write_bytes(jpeg(40, 30))
        assert images(photos / "train", tmp_path / "ds") == 0
        assert rules(tmp_path / "ds") == [("images_all_alike", "train")]

    def test_a_class_with_one_example(self, photos: Path, tmp_path: Path) -> None:
        (photos / "train/eel").mkdir()
        (photos / "train/eel/a.jpg").write_bytes(jpeg(40, 30, seed=99))
        flags = ("--augmentations=flip", "--copies=4")
        assert images(photos / "train", tmp_path / "ds", *flags) == 0
        assert rules(tmp_path / "ds") == [("class_with_one_example", "")]

    def test_one_class(self, photos: Path, tmp_path: Path) -> None:
        shutil.rmtree(photos / "train/dog")
        assert images(photos / "train", tmp_path / "ds", "--label_folder=1") == 0
        assert rules(tmp_path / "ds") == [("one_class", "")]

    def test_masks_without_any_object(self, tmp_path: Path) -> None:
        for i in range(4):
            for folder, values in (("photos", i * 30), ("masks", 0)):
                path = tmp_path / folder / f"{i}.png"
                picture = Image.fromarray(np.full((8, 9), values, np.uint8))
                path.parent.mkdir(exist_ok=True)
                path.write_bytes(encoded(picture, "PNG"))
        flags = ("--task=segmentation", f"--masks={tmp_path}/masks/*.png", "--binary_masks")
        assert images(tmp_path / "photos", tmp_path / "ds", *flags) == 0
        assert rules(tmp_path / "ds") == [("masks_without_object", "train")]

    def test_names_of_rejects_and_of_files_passed_over(
        self, photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        folder = photos / "train"
        (folder / "cat/b.txt").write_text("")
        (folder / "cat/a.txt").write_text("")
        (folder / "dog/Thumbs.db").write_text("")
        (folder / "cat/00.jpg").write_bytes(b"<html>")
        (folder / "dog/01.jpg").write_bytes(b"")
        assert images(folder, tmp_path / "ds", "--max_rejected=0.5") == 0
        assert statistics(tmp_path / "ds")["inputs"] == {
            "passed_over": {
                ".txt": {"files": 2, "first": "cat/a.txt"},
                "hidden": {"files": 1, "first": "Thumbs.db"},
            },
            "rejected": {
                "empty_image": {"inputs": 1, "first": "dog/01.jpg"},
                "not_an_image": {"inputs": 1, "first": "cat/00.jpg"},
            },
            "shared_contents": [],
        }
        out = capsys.readouterr().out
        assert "passed over: .txt 2 (such as cat/a.txt), hidden 1 (such as Thumbs.db)" in out
        assert "rejected: empty_image 1 (such as dog/01.jpg)" in out

    def test_the_plan_names_rejects_and_files_passed_over(
        self, photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        (photos / "train/cat/notes.txt").write_text("")
        (photos / "train/dog/none.jpg").symlink_to("nothing.jpg")
        arguments = [f"--input={photos}/train", f"--output={tmp_path}/ds", "--max_rejected=0.5"]
        assert main(["plan", "images", *arguments]) == 0
        printed = capsys.readouterr().out.splitlines()
        lines = dict(re.split(r"  +", line, maxsplit=1) for line in printed)
        assert lines["classes of the sample"] == "2: cat 10, dog 10"
        assert lines["passed over"] == ".txt 1 (such as cat/notes.txt)"
        assert lines["rejected"] == "no_image 1 (such as dog/none.jpg)"

    def test_a_split_cannot_be_called_warnings(
        self, photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert images(photos, tmp_path / "ds", "--splits=warnings:1") == 2
        assert "warnings cannot be the name of a split" in capsys.readouterr().err


def test_all_large_images_are_rejected(
    photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("big", "bigger"):
        (photos / f"train/cat/{name}.jpg").write_bytes(jpeg(200, 200))
    flags = ("--split_from=folder", "--max_pixels=10000", "--max_rejected=0.2")
    assert images(photos, tmp_path / "ds", *flags) == 0
    assert (
        "recordmill: warning: all 2 images of more pixels than --max_pixels, or that unpack to far "
        "too much, were rejected (decompression_bomb, such as train/cat/big.jpg), so the dataset "
        "lacks large images: raise --max_pixels" in capsys.readouterr().err
    )
    assert ("rejected_decompression_bomb", "") in rules(tmp_path / "ds")


def test_boxes_of_another_form_are_clipped(tmp_path: Path) -> None:
    """The width and height of the image, taken for those of the box, reach beyond the image."""
    rows = ["filename,width,height,class,xmin,ymin,xmax,ymax"]
    for i in range(4):
        (tmp_path / f"{i}.jpg").write_bytes(jpeg(40, 30, seed=i))
        rows.append(f"{i}.jpg,40,30,cat,20,10,39,29")
    (tmp_path / "boxes.csv").write_text("\n".join(rows))
    task = ("--task=detection", "--num_shards=1")
    assert images(tmp_path / "boxes.csv", tmp_path / "ds", *task) == 0
    assert rules(tmp_path / "ds") == []
    assert images(tmp_path / "boxes.csv", tmp_path / "other", *task, "--box_format=xywh") == 0
    assert rules(tmp_path / "other") == [("boxes_clipped", "train")]


def test_images_that_exif_turns_are_counted_and_their_boxes_asked_about(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = ["filename,class,xmin,ymin,xmax,ymax"]
    for i in range(4):
        (tmp_path / f"{i}.jpg").write_bytes(turned_jpeg(6 if i else 1))
        rows.append(f"{i}.jpg,cat,20,10,29,19")
    (tmp_path / "boxes.csv").write_text("\n".join(rows))
    for name, flags, warned, said in (
        ("turned", (), ["drawn_on"], "3 of 4 turned upright"),
        ("kept", ("--orientation=keep",), ["drawn_on"], "3 of 4 left as stored"),
        ("shown", ("--drawn_on=shown",), [], "3 of 4 turned upright"),
        ("stored", ("--drawn_on=stored",), [], "3 of 4 turned upright"),
    ):
        task = ("--task=detection", "--num_shards=1", *flags)
        assert images(tmp_path / "boxes.csv", tmp_path / "out" / name, *task) == 0
        assert [rule for rule, _ in rules(tmp_path / "out" / name)] == warned
        assert f"examples of train: {said}" in capsys.readouterr().out
    # The stored picture is the default, so to say so later builds nothing anew.
    shards = manifest(tmp_path / "out/turned")["shards"]
    for flag, status in (("--drawn_on=stored", 0), ("--drawn_on=shown", 2)):
        task = ("--task=detection", "--num_shards=1", flag)
        assert images(tmp_path / "boxes.csv", tmp_path / "out/turned", *task) == status
        captured = capsys.readouterr()
        assert ("is complete" in captured.out + captured.err) == (status == 0), captured
    assert manifest(tmp_path / "out/turned")["shards"] == shards


def test_an_input_without_any_image_that_can_be_used_names_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "t.csv").write_text("path,label\nb.jpg,cat\na.jpg,dog\n")
    assert images(tmp_path / "t.csv", tmp_path / "ds") == 2
    error = capsys.readouterr().err
    assert "no image that can be used: no_image 2 (such as t.csv#1: there is no " in error
