"""Signed metadata of wrong types is one line, and no name in it commands a terminal."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import google_crc32c
import pytest

from recordmill.pipelines.command_line import main
from recordmill.records.errors import RunError
from recordmill.records.manifest import MANIFEST_PATH, STATISTICS_PATH, success_bytes
from recordmill.records.statistics_file import SplitStatistics
from recordmill.transforms.dataset.workspace import read_manifest

from ...reader.small_datasets import write_dataset
from .report_faults import PHOTOS, photos

COMMANDS = "\x1b[31m\x9b31m\x07\x7f"  # a name that a terminal would obey
HOSTILE: list[Any] = [
    "text",
    None,
    True,
    -1,
    1e308,
    float("nan"),
    [None],
    {"a": "x"},
    {"a": [1]},
    2**70,
]
CONFIG = {
    "input": ["a/*.jpg"],
    "seed": 1,
    "vocabulary_size": 9,
    "objective": {"name": "bert", "masked_lm_prob": 0.15},
    "documents": {"row": {"keep_fields": [{"name": "id"}]}},
}
COUNTS = {"examples": 4, "images_listed": 5, "rejected": {"unreadable": 1}, "dropped": {"short": 0}}
SIDE = {"min": 1, "mean": 2.5, "max": 4}
STATISTICS: dict[str, Any] = {
    "inputs": {"rejected": {}},
    "train": {
        "examples": 4,
        "classes": {"cat": 3, "owl": 1},
        "tokens_per_example": [0, 1, 3],
        **dict.fromkeys(
            ("padding_rate", "prediction_rate", "masked_rate", "replaced_rate", "kept_rate",
             "random_next_rate", "unknown_rate"), 0.5
        ),
        "unknown_tokens": 2,
        "channel_mean": [0.5, 0.5, 0.5],
        "channel_std": [0.1, 0.1, 0.1],
        "width": SIDE,
        "height": SIDE,
        "log2_pixels": {"9": 4},
        "boxes_clipped": 1,
    },
    "warnings": [{"rule": "padding", "split": "train", "text": "much padding"}],
}  # fmt: skip


def sign(dataset: Path, manifest: dict[str, Any], statistics: Any) -> None:
    content = json.dumps(statistics).encode()
    (dataset / STATISTICS_PATH).write_bytes(content)
    manifest["files"][STATISTICS_PATH] = google_crc32c.value(content)
    signed = json.dumps(manifest).encode()
    (dataset / MANIFEST_PATH).write_bytes(signed)
    (dataset / "_SUCCESS").write_bytes(success_bytes(signed))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    dataset = write_dataset(tmp_path / "ds", {"train": [photos(0, 4)]}, PHOTOS)
    sign(dataset, manifest_of(dataset) | {"config": CONFIG, "counts": COUNTS}, STATISTICS)
    return dataset


def manifest_of(dataset: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((dataset / MANIFEST_PATH).read_bytes())
    return content


def changed(content: dict[str, Any]) -> Iterator[tuple[list[Any], Any]]:
    """Yields content in which one value is another, and the path of that value."""

    def paths(part: Any, path: list[Any]) -> Iterator[list[Any]]:
        keys = (
            part if isinstance(part, dict) else range(len(part)) if isinstance(part, list) else ()
        )
        for key in keys:
            yield [*path, key]
            yield from paths(part[key], [*path, key])

    for path in paths(content, []):
        for value in HOSTILE:
            other = copy.deepcopy(content)
            part = other
            for key in path[:-1]:
                part = part[key]
            part[path[-1]] = value
            yield path, other


def run(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[int, str]:
    status = main([*map(str, arguments)])
    printed = capsys.readouterr()
    assert printed.err.count("\n") <= 1
    return status, printed.out + printed.err


def test_all_statistics_that_anybody_uses_are_tried() -> None:
    masks = {"class_pixels", "masks", "masks_without_object"}
    boxes = {name for name in SplitStatistics.__struct_fields__ if name.startswith("boxes_")}
    assert set(SplitStatistics.__struct_fields__) - masks - boxes <= STATISTICS["train"].keys()


def test_wrong_types_in_a_manifest_are_one_line(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before, refused = manifest_of(path), set()
    html = f"--html={tmp_path}/report.html"
    for where, part in changed({"config": CONFIG, "counts": COUNTS}):
        sign(path, before | part, STATISTICS)
        status, out = run(capsys, "inspect", path, "--examples=0")
        assert (status == 2) == (f"{MANIFEST_PATH} cannot be used: {where[0]}" in out), (where, out)
        assert status in (0, 2)
        if status == 2:
            refused.add(".".join(where))
            assert run(capsys, "verify", path)[0] == 1
            assert run(capsys, "diff", path, path, "--no-records")[0] == 2
            assert run(capsys, "report", path, html)[0] == 2
    assert refused == {
        "config", "counts", "counts.examples", "counts.images_listed", "counts.rejected",
        "counts.rejected.unreadable", "counts.dropped", "counts.dropped.short",
    }  # fmt: skip


def test_wrong_types_in_statistics_are_one_line(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before, tried = manifest_of(path), set()
    for where, statistics in changed(STATISTICS):
        sign(path, before, statistics)
        status, out = run(capsys, "diff", path, path, "--no-records")
        assert status in (0, 1, 2), (where, out)  # 1: NaN is not equal to itself
        if status == 2:
            assert f"{STATISTICS_PATH} cannot be used: {where[0]}: " in out
        if status == 2 and str(where) not in tried:
            tried.add(str(where))
            report = run(capsys, "report", path, f"--html={tmp_path}/report.html", "--sample=0")
            assert report == (2, out)
            status, out = run(capsys, "verify", path)
            assert status == 1
            assert f"{STATISTICS_PATH}: {where[0]}: " in out
    assert len(tried) > len(STATISTICS["train"])
    sign(path, before, STATISTICS)
    assert run(capsys, "report", path, f"--html={tmp_path}/report.html")[0] == 0


@pytest.mark.parametrize("asked", ["x", 10**400])
def test_numbers_of_any_size_are_reported(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], asked: object
) -> None:
    statistics = copy.deepcopy(STATISTICS)
    statistics["train"] |= {"padding_rate": float("nan"), "log2_pixels": {"62": 2**63 - 1}}
    config = CONFIG | {"objective": {"name": "bert", "masked_lm_prob": asked}}
    sign(path, manifest_of(path) | {"config": config}, statistics)
    run_json = {"seconds": "x", "phases": 7, "input_bytes": 2**2000}
    (path / "_meta/run.json").write_text(json.dumps(run_json))
    assert run(capsys, "report", path, f"--html={tmp_path}/report.html")[0] == 0


def test_a_link_to_itself_is_not_missing(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in (STATISTICS_PATH, MANIFEST_PATH):
        (path / name).unlink()
        (path / name).symlink_to((path / name).name)
        status, out = run(capsys, "report", path, f"--html={tmp_path}/report.html")
        assert status == 1
        assert f"{name} cannot be read: a link that leads to itself" in out
    with pytest.raises(RunError, match="cannot be read: a link that leads to itself"):
        read_manifest(str(path))


def test_a_line_of_rejects_that_is_none_is_one_line(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    manifest = manifest_of(path)
    name = "_meta/rejected/rejected-000000.jsonl"
    (path / name).parent.mkdir()
    (path / name).write_bytes(b"[]\n")
    manifest["files"][name] = google_crc32c.value(b"[]\n")
    sign(path, manifest, STATISTICS)
    status, out = run(capsys, "report", path, f"--html={tmp_path}/report.html")
    assert status == 2
    assert f"{path}/{name} has a line that cannot be read: the whole must be an object" in out


def test_no_name_commands_a_terminal(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    manifest = manifest_of(path)
    for feature in manifest["features"]:
        feature["meaning"] = COMMANDS
        feature["classes"] = [COMMANDS] * 3 if feature["name"] == "label" else []
    manifest |= {"name": COMMANDS, "version": COMMANDS, "versions": {COMMANDS: COMMANDS}}
    manifest["config"] = {**CONFIG, COMMANDS: COMMANDS, "input": [COMMANDS], "seed": COMMANDS}
    manifest["counts"] = COUNTS | {"rejected": {COMMANDS: 1}, COMMANDS: 0}
    manifest["sources"] = {COMMANDS: COMMANDS}
    (path / f"train/{COMMANDS}").write_text("stray")
    other = path.with_name(COMMANDS.replace("[", ""))  # which would be a glob
    path.rename(other)
    sign(other, manifest, {**STATISTICS, COMMANDS: {"classes": {COMMANDS: 1}}})
    plain = write_dataset(path, {"train": [photos(1, 4)]}, PHOTOS)
    lines = [
        ("inspect", other), ("inspect", other, "--json"), ("verify", other), ("diff", other, plain),
        ("diff", plain, other, "--json"), ("report", other, f"--html={other}.html"),
        ("inspect", other, "--split=" + COMMANDS), ("inspect", f"{other}/train/*.tfrecords"),
    ]  # fmt: skip
    for line in lines:
        _, out = run(capsys, *line)
        assert "31m" in out, (line, out)
        assert not set(out) & set(COMMANDS) - set("[31m"), line


def test_no_token_commands_a_terminal() -> None:
    from recordmill.pipelines.inspection.spellings import find_spelling, spell, spell_alone

    for tokens in (
        [COMMANDS, f"##{COMMANDS}"],
        [f"▁{COMMANDS}", f"<{COMMANDS}>"],
        [f"Ġ{COMMANDS}"],
    ):
        spelling = find_spelling(tokens)
        shown = [each.text for each in spell(tokens, spelling)]
        shown += [spell_alone(token, spelling) for token in tokens]
        assert all(text.isprintable() for text in shown), shown
