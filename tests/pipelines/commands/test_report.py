"""`recordmill report`: what the page says, of whole datasets and of planted faults."""

from __future__ import annotations

import html
import re
import shutil
import subprocess
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from recordmill.pipelines.command_line import main
from recordmill.records.codec.encoding import Strings
from recordmill.records.schema import Feature, Schema
from recordmill.records.text_formats import bert

from ...pictures import jpeg
from ...reader.small_datasets import write_dataset as write_records
from ..conftest import Written


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


def test_text(bert_dataset: Path, vocab_file: str, tmp_path: Path) -> None:
    content = page(tmp_path, bert_dataset, f"--vocab_file={vocab_file}")
    text = plain(content)
    for title in ("Lengths of examples", "Masks", "Most frequent tokens of train", "Shards"):
        assert title in text
    assert content.count("<article>") == 24
    assert 'class="hidden"' in content
    masked = re.search(r"train, sampled records: masked\s+(\d+\.\d)%", text)
    assert masked
    assert 70 < float(masked[1]) < 90
    assert "do not fit each other" not in text


def test_images(written: Callable[[str, str], Written], tmp_path: Path) -> None:
    content = page(tmp_path, written("images", "small").dataset)
    assert content.count("data:image/jpeg;base64,") == 22  # 12 of train, all 10 of validation
    assert "Share of each class by split" in content
    assert "(dog)" in content


def test_the_same_page_again(bert_dataset: Path, tmp_path: Path) -> None:
    assert page(tmp_path, bert_dataset) == page(tmp_path, bert_dataset)


def test_names_are_escaped(tmp_path: Path) -> None:
    schema = Schema((Feature("<script>alert(1)</script>", "int64", (), "</style>&"),))
    columns = {"<script>alert(1)</script>": np.arange(3)}
    write_records(tmp_path / "ds", {"train": [columns]}, schema)
    assert "&lt;script&gt;" in page(tmp_path, tmp_path / "ds")


def masks(shift: int, padding: int = 0) -> dict[str, np.ndarray]:
    """Rows of tokens 10, 11, …, of which every fourth is hidden by [MASK], which is token 4."""
    rows, length = 50, 64
    ids = np.tile(np.arange(10, 10 + length), (rows, 1))
    positions = np.tile(np.arange(1, 60, 6), (rows, 1))
    hidden = np.take_along_axis(ids, positions, 1)
    np.put_along_axis(ids, positions, 4, 1)
    mask = np.ones_like(ids)
    if padding:
        mask[::2, length - padding :] = 0
        ids[::2, length - padding :] = 0
    return {
        "input_ids": ids + np.arange(rows)[:, None] * (ids > 9),
        "input_mask": mask,
        "segment_ids": np.zeros_like(ids),
        "masked_lm_positions": positions + shift,
        "masked_lm_ids": hidden,
        "masked_lm_weights": np.ones(hidden.shape, np.float32),
        "next_sentence_labels": np.zeros((rows, 1), np.int64),
    }


BERT = bert(max_seq_length=64, max_predictions_per_seq=10)


def test_shifted_masks_are_said(tmp_path: Path, vocab_file: str) -> None:
    write_records(tmp_path / "right", {"train": [masks(0)]}, BERT)
    write_records(tmp_path / "wrong", {"train": [masks(1)]}, BERT)
    said = "0.0% of the predicted positions of train hold [MASK]"
    flag = f"--vocab_file={vocab_file}"
    assert said not in plain(page(tmp_path, tmp_path / "right", flag))
    assert said in plain(page(tmp_path, tmp_path / "wrong", flag))


def test_padding_shows(tmp_path: Path) -> None:
    write_records(tmp_path / "ds", {"train": [masks(0, padding=60)]}, BERT)
    assert re.search(r"train\s+53\.1%\s+46\.9%", plain(page(tmp_path, tmp_path / "ds")))


def photos(first: int, count: int) -> dict[str, object]:
    images = [jpeg(seed=i, width=40 + i) for i in range(first, first + count)]
    return {"image": Strings.from_list(images), "label": np.arange(count) % 2}


PHOTOS = Schema(
    (
        Feature("image", "bytes", (), "the image", kind="image", image_shape=(None, None, 3)),
        Feature("label", "int64", (), "the class", kind="classes", classes=("cat", "dog")),
    )
)


def test_a_duplicated_shard_and_a_leak_are_said(tmp_path: Path) -> None:
    shards = {"train": [photos(0, 30), photos(30, 30)], "validation": [photos(60, 20)]}
    write_records(tmp_path / "right", shards, PHOTOS)
    text = plain(page(tmp_path, tmp_path / "right"))
    assert "the same bytes" not in text
    assert "contents" not in text
    twice = {"train": [photos(0, 30), photos(0, 30)], "validation": [photos(29, 20)]}
    write_records(tmp_path / "wrong", twice, PHOTOS)
    text = plain(page(tmp_path, tmp_path / "wrong"))
    assert "train/train-00000-of-00002.tfrecords and train/train-00001-of-00002" in text
    assert "30 of 60 sampled records of train have contents that other records have too" in text
    assert "1 sampled contents are both in train and in validation" in text


def test_files_of_another_tool(tmp_path: Path) -> None:
    write_records(tmp_path / "ds", {"train": [photos(0, 30)]}, PHOTOS)
    shutil.copy(tmp_path / "ds/train/train-00000-of-00001.tfrecords", tmp_path / "x.record")
    content = page(tmp_path, tmp_path / "x.record")
    assert content.count("data:image/jpeg;base64,") == 24
    assert "TFRecords without a manifest of recordmill" in content


def test_wrong_usage(
    bert_dataset: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", str(tmp_path / "nothing")]) == 2
    assert "there is no file" in capsys.readouterr().err
    assert main(["report", str(bert_dataset), "--html=/proc/report.html"]) == 2
    assert "--html=/proc/report.html cannot be written" in capsys.readouterr().err
    assert main(["report", str(bert_dataset), "--sample=-1"]) == 2


@pytest.mark.slow
@pytest.mark.parametrize("width", [360, 1600])
def test_in_a_browser(bert_dataset: Path, tmp_path: Path, width: int) -> None:
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if not chromium:
        pytest.skip("there is no Chromium on this machine")
    page(tmp_path, bert_dataset)
    line = [
        chromium, "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr",
        f"--user-data-dir={tmp_path}/profile", "--host-resolver-rules=MAP * ~NOTFOUND",
        f"--window-size={width},2000", "--virtual-time-budget=3000", "--dump-dom",
        f"file://{tmp_path}/report.html",
    ]  # fmt: skip
    shown = subprocess.run(line, capture_output=True, text=True, timeout=120)
    assert shown.returncode == 0
    assert "CONSOLE" not in shown.stderr
    plots = re.findall(r"<svg.*?</svg>", shown.stdout, re.DOTALL)
    assert len(plots) >= 4
    assert all(plot.count("<path") > 5 for plot in plots)
