"""`recordmill report`: what the page says, of whole datasets and of planted faults."""

from __future__ import annotations

import html
import json
import re
import shutil
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from recordmill.pipelines.command_line import main
from recordmill.records.codec.encoding import Ragged, Strings
from recordmill.records.schema import Feature, Schema

from ...reader.small_datasets import write_dataset as write_records
from ..conftest import Written
from . import report_faults


def page(folder: Path, dataset: Path, *flags: str) -> str:
    out = folder / "report.html"
    assert main(["report", str(dataset), f"--html={out}", *flags]) == 0
    content = out.read_text(encoding="utf-8")
    assert len(content) < 5_000_000
    _Closed().feed(content)
    return content


class _Closed(HTMLParser):
    """Checks that nothing is loaded from anywhere, and that no script is there."""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag not in ("script", "link", "iframe")
        for name, value in attrs:
            if name in ("src", "href", "xlink:href"):
                assert (value or "").startswith(("#", "data:image/jpeg;base64,")), value


def plain(content: str) -> str:
    return html.unescape(re.sub(r"<[^>]+>", " ", content))


def test_text(bert_dataset: Path, tmp_path: Path) -> None:
    content = page(tmp_path, bert_dataset)  # which holds its vocabulary
    text = plain(content)
    for title in ("Lengths of examples", "Masks", "Most frequent tokens of train", "Shards"):
        assert title in text
    assert content.count("<article>") == 24
    assert 'class="hidden"' in content
    masked = re.search(r"train, sampled records: \[MASK\]\s+(\d+\.\d)%", text)
    assert masked
    assert 70 < float(masked[1]) < 90
    assert "positions and tokens" not in text


def test_images(written: Callable[[str, str], Written], tmp_path: Path) -> None:
    content = page(tmp_path, written("images", "small").dataset)
    examples = content[content.index('<section id="examples"') :]
    assert examples.count("data:image/jpeg;base64,") == 22  # 12 of train, all 10 of validation
    assert "Share of examples of each class, by split" in content
    assert "(dog)" in content


def test_cards_have_all_features(tmp_path: Path) -> None:
    """Labels and kept fields beside rows of tokens, and labels of images of another tool."""
    schema = Schema(
        (
            Feature("input_ids", "int64", (20,), "tokens"),
            Feature("label_ids", "int64", (), "class", kind="classes", classes=("bad", "good")),
            Feature("source", "bytes", (), "kept", kind="text"),
        )
    )
    columns = {
        "input_ids": np.ones((3, 20), np.int32),
        "label_ids": np.array([1, 0, 1]),
        "source": Strings.from_list([b"book %d" % i for i in range(3)]),
    }
    write_records(tmp_path / "ds", {"train": [columns]}, schema)
    text = plain(page(tmp_path, tmp_path / "ds"))
    assert re.search(r"label_ids\s+1 \(good\)", text)
    assert re.search(r'source\s+"book 2"', text)
    write_records(
        tmp_path / "images", {"train": [report_faults.photos(0, 30)]}, report_faults.PHOTOS
    )
    shutil.rmtree(tmp_path / "images/_meta")
    content = page(tmp_path, tmp_path / "images")
    assert re.search(
        r"train:1\s+image\s+JPEG [^:]*bytes\s+label\s+1",
        plain(content[content.index('id="examples"') :]),
    )


def test_records_without_pictures_and_tokens(tmp_path: Path) -> None:
    """Of another tool: nothing is known of them but their values."""
    schema = Schema(
        (
            Feature("score", "float32", (), ""),
            Feature("clicks", "int64", (None,), ""),
            Feature("name", "bytes", (), ""),
        )
    )
    columns = {
        "score": np.array([0.5, np.nan, 1.5, np.inf] * 10, np.float32),
        "clicks": Ragged(np.arange(60), np.append(0, np.tile([0, 1, 2, 3], 10).cumsum())),
        "name": Strings.from_list([b"row %d" % i for i in range(40)]),
    }
    write_records(tmp_path / "ds", {"train": [columns]}, schema)
    shutil.copy(tmp_path / "ds/train/train-00000-of-00001.tfrecords", tmp_path / "x.record")
    content = page(tmp_path, tmp_path / "x.record")
    text = " ".join(plain(content).split())
    assert content.count("<article>") == 24
    assert 'name "row 38"' in text
    assert "score 40 of 40 1 numbers 0.5 1 1.5 10 10" in text
    assert "clicks 40 of 40 0 to 3, mean 1.5 numbers 0 29.5 59" in text
    assert "name 40 of 40 1 bytes of a value 5" in text
    assert re.search(r"Splits Split Records Shards Size Compression \w+ 40 1 ", text)


def test_what_masks_hold(tmp_path: Path) -> None:
    """Images that hold a class are no share of pixels, which counts where objects are small."""
    write_records(tmp_path / "ds", {"train": [report_faults.photos(0, 4)]}, report_faults.PHOTOS)
    statistics = {
        "train": {
            "classes": {"background": 4, "crack": 3},
            "class_pixels": {"background": 9900, "crack": 100},
            "masks": 4,
            "masks_without_object": 1,
        },
        "warnings": [],
    }
    (tmp_path / "ds/_meta/statistics.json").write_text(json.dumps(statistics))
    text = " ".join(plain(page(tmp_path, tmp_path / "ds")).split())
    assert "Share of pixels Class train background 99.00% crack 1.00%" in text
    assert "Images that hold the class Class train background 4 crack 3" in text
    assert "Masks without an object Split Masks Without an object Share train 4 1 25.0%" in text
    assert "Share of examples" not in text


def test_the_same_page_again(bert_dataset: Path, tmp_path: Path) -> None:
    assert page(tmp_path, bert_dataset) == page(tmp_path, bert_dataset)


def test_names_are_escaped(tmp_path: Path) -> None:
    schema = Schema((Feature("<script>alert(1)</script>", "int64", (), "</style>&"),))
    columns = {"<script>alert(1)</script>": np.arange(3)}
    write_records(tmp_path / "ds", {"train": [columns]}, schema)
    assert "&lt;script&gt;" in page(tmp_path, tmp_path / "ds")


def test_labels_of_tokens_are_no_classes(tmp_path: Path) -> None:
    """Causal labels would make a class of every token."""
    ids = np.arange(200, dtype=np.int32).reshape(5, 40)
    schema = Schema(tuple(Feature(name, "int64", (40,), "") for name in ("input_ids", "labels")))
    write_records(tmp_path / "ds", {"train": [{"input_ids": ids, "labels": ids + 1}]}, schema)
    content = page(tmp_path, tmp_path / "ds")
    assert 'id="classes"' not in content


def test_files_of_another_tool(tmp_path: Path) -> None:
    write_records(tmp_path / "ds", {"train": [report_faults.photos(0, 30)]}, report_faults.PHOTOS)
    shutil.copy(tmp_path / "ds/train/train-00000-of-00001.tfrecords", tmp_path / "x.record")
    content = page(tmp_path, tmp_path / "x.record")
    examples = content[content.index('<section id="examples"') :]
    assert examples.count("data:image/jpeg;base64,") == 24
    assert "TFRecords without a manifest of recordmill" in content


def test_the_page_is_where_the_run_writes_it(
    bert_dataset: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    shutil.copytree(bert_dataset, tmp_path / "ds")
    monkeypatch.chdir(tmp_path)
    assert main(["report", "ds/", "--sample=10"]) == 0
    assert capsys.readouterr().out.startswith("ds/_meta/report.html: ")
    assert {path.name for path in tmp_path.iterdir()} == {"ds"}
    assert main(["report", "ds/train", "--sample=10"]) == 0  # TFRecords of any tool
    assert (tmp_path / "report.html").is_file()


def test_the_place_that_nobody_gave_cannot_be_written(
    bert_dataset: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir("/proc")
    assert main(["report", str(bert_dataset / "train"), "--sample=10"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("recordmill: report.html cannot be written: ")
    assert error.endswith("; give --html=FILE\n")


def test_wrong_usage(
    bert_dataset: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", str(tmp_path / "nothing")]) == 2
    assert "there is no file" in capsys.readouterr().err
    assert main(["report", str(bert_dataset), "--html=/proc/report.html"]) == 2
    assert "--html=/proc/report.html cannot be written" in capsys.readouterr().err
    assert main(["report", str(bert_dataset), "--sample=-1"]) == 2
