"""Images in columns: of Parquet, Arrow and folders of Hugging Face's datasets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import apache_beam as beam
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from apache_beam.testing.util import assert_that, equal_to

from recordmill.pipelines.command_line import main
from recordmill.records.errors import UsageError
from recordmill.transforms import Box, Image, ReadImages
from recordmill.transforms.images import build_image_shards as build
from recordmill.transforms.images.listing import byte_rows
from recordmill.transforms.images.listing.byte_rows import find_byte_columns, read_byte_rows
from recordmill.transforms.images.listing.list_images import SourceSpec, list_images
from recordmill.transforms.images.references import ListedReject
from recordmill.transforms.sources.work_items import SourceRange

from ....pictures import jpeg, png
from ....pipelines.jobs import records_by_split, shard_bytes

LABELS = ("cat", "dog", "emu")


def rows(count: int) -> list[dict[str, Any]]:
    return [
        {"image": {"bytes": png(seed=n), "path": f"{n}.png"}, "label": LABELS[n % 3], "id": n}
        for n in range(count)
    ]


def write_parquet(path: Path, content: list[dict[str, Any]], **options: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(content), path, **options)
    return path


def write_arrow(path: Path, table: pa.Table) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with pa.OSFile(str(path), "wb") as out, pa.ipc.new_stream(out, table.schema) as writer:
        writer.write_table(table, max_chunksize=5)
    return path


def listed(path: Path | str, **options: Any) -> tuple[dict[str, Any], list[tuple[str, str]]]:
    items = list(list_images(SourceSpec(patterns=(str(path),), **options)))
    images = {item.name: item for item in items if not isinstance(item, ListedReject)}
    return images, [(i.source, i.reason) for i in items if isinstance(i, ListedReject)]


def run(source: Path | str, output: Path, *flags: str) -> int:
    return main(["images", f"--input={source}", f"--output={output}", "--num_shards=2", *flags])


@pytest.fixture
def small_packs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(byte_rows, "PACK_BYTES", 3000)


@pytest.mark.usefixtures("small_packs")
def test_the_command_writes_images_of_columns(tmp_path: Path) -> None:
    table = write_parquet(tmp_path / "in/a.parquet", rows(20), row_group_size=3)
    assert run(table, tmp_path / "ds", "--direct_num_workers=1") == 0
    counts = json.loads((tmp_path / "ds/_meta/manifest.json").read_bytes())["counts"]
    assert (counts["images_listed"], counts["images_written"]) == (20, 20)
    data = b"".join(shard_bytes(tmp_path / "ds").values())
    assert all(data.count(row["image"]["bytes"]) for row in rows(20))
    assert (tmp_path / "ds/labels.txt").read_text().split() == list(LABELS)
    assert not (tmp_path / "ds/_tmp").exists()
    assert main(["verify", str(tmp_path / "ds")]) == 0
    # A second run has nothing to do; other bytes are another input.
    assert run(table, tmp_path / "ds", "--direct_num_workers=1") == 0
    write_parquet(table, rows(21), row_group_size=3)
    assert run(table, tmp_path / "ds", "--direct_num_workers=1") == 2


@pytest.mark.usefixtures("small_packs")
def test_an_estimate_unpacks_one_pack(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = write_parquet(tmp_path / "in/a.parquet", rows(20), row_group_size=3)
    flags = [f"--input={table}", f"--output={tmp_path}/ds"]
    assert main(["plan", "images", *flags]) == 0
    printed = capsys.readouterr().out
    assert "20 images" in printed
    assert "unpack" in printed
    assert not (tmp_path / "ds").exists()


@pytest.mark.slow
@pytest.mark.usefixtures("small_packs")
def test_row_groups_and_workers_do_not_show(tmp_path: Path) -> None:
    a = write_parquet(tmp_path / "a/in.parquet", rows(30), row_group_size=4)
    b = write_parquet(tmp_path / "b/in.parquet", rows(30), row_group_size=30)
    flags = ["--image_size=8x8", "--augmentations=flip", "--copies=2", "--statistics=full"]
    assert run(a, tmp_path / "one", *flags, "--direct_num_workers=1") == 0
    assert run(b, tmp_path / "two", *flags, "--direct_num_workers=2") == 0
    assert shard_bytes(tmp_path / "one") == shard_bytes(tmp_path / "two")


def test_a_killed_run_is_finished_without_unpacking_again(
    tmp_path: Path, small_packs: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = write_parquet(tmp_path / "in/a.parquet", rows(20), row_group_size=3)
    assert run(table, tmp_path / "whole", "--direct_num_workers=1") == 0
    with monkeypatch.context() as patched:
        patched.setattr(build.ImageShardBuilder, "build", lambda *_: 1 / 0)
        assert run(table, tmp_path / "ds", "--direct_num_workers=1") == 1
    packs = {p: p.stat().st_mtime_ns for p in (tmp_path / "ds/_tmp/packs").iterdir()}
    assert len(packs) > 3
    lost = sorted(packs)[0]
    lost.unlink()
    touched: list[Path] = []
    original = build.ImageShardBuilder.build

    def note(self: Any, item: int) -> Any:
        touched[:] = [p for p, at in packs.items() if p.stat().st_mtime_ns != at]
        return original(self, item)

    monkeypatch.setattr(build.ImageShardBuilder, "build", note)
    assert run(table, tmp_path / "ds", "--direct_num_workers=1") == 0
    assert touched == [lost]
    assert shard_bytes(tmp_path / "ds") == shard_bytes(tmp_path / "whole")


def test_forms_of_files_and_columns(tmp_path: Path) -> None:
    plain = [{"jpg": jpeg(seed=n), "kind": LABELS[n % 3]} for n in range(12)]
    table = pa.Table.from_pylist(plain)
    paths = [
        write_parquet(tmp_path / "p/a.parquet", plain),
        write_arrow(tmp_path / "s/a.arrow", table),
        write_arrow(tmp_path / "l/a.arrow", table.set_column(0, "jpg", [
            pa.array([row["jpg"] for row in plain], pa.large_binary())
        ])),
    ]  # fmt: skip
    for path in paths:
        with beam.Pipeline(runner="FnApiRunner") as pipeline:
            found = pipeline | ReadImages(str(path), path_field="jpg", label_field="kind")
            expected = [
                Image(row["jpg"], f"{path.name}#{n + 1}", row["kind"])
                for n, row in enumerate(plain)
            ]
            assert_that(found, equal_to(expected))


def hugging_face(folder: Path, splits: dict[str, int]) -> Path:
    """A folder as `DatasetDict.save_to_disk` writes it, with labels by number."""
    folder.mkdir(parents=True)
    (folder / "dataset_dict.json").write_text(json.dumps({"splits": [*splits]}))
    features = {"label": {"names": ["emu", "dog", "cat"], "_type": "ClassLabel"}}
    metadata = {b"huggingface": json.dumps({"info": {"features": features}}).encode()}
    for split, count in splits.items():
        content = [{"image": row["image"], "label": n % 3} for n, row in enumerate(rows(count))]
        table = pa.Table.from_pylist(content).replace_schema_metadata(metadata)
        write_arrow(folder / split / "data-00000-of-00001.arrow", table)
        state = {"_data_files": [{"filename": "data-00000-of-00001.arrow"}]}
        (folder / split / "state.json").write_text(json.dumps(state))
    return folder


def test_folders_of_hugging_face_have_names_of_classes_and_splits(tmp_path: Path) -> None:
    folder = hugging_face(tmp_path / "in", {"train": 12, "test": 6})
    flags = ["--split_from=folder", "--direct_num_workers=1"]
    assert main(["images", f"--input={folder}", f"--output={tmp_path}/ds", *flags]) == 0
    assert (tmp_path / "ds/labels.txt").read_text().split() == ["emu", "dog", "cat"]
    assert records_by_split(tmp_path / "ds") == {"train": 12, "test": 6}
    with beam.Pipeline(runner="FnApiRunner") as pipeline:
        found = pipeline | ReadImages(str(folder), split_from="folder", split="test")
        assert_that(found | beam.Map(lambda i: i.label), equal_to(["emu", "dog", "cat"] * 2))


def test_boxes_of_a_row(tmp_path: Path) -> None:
    content = [
        {"image": jpeg(seed=1), "objects": {"bbox": [[1, 2, 3, 4], [5, 6, 1, 1]],
                                            "category": ["nut", "bolt"]}},
        {"image": jpeg(seed=2), "objects": {"bbox": [], "category": []}},
        {"image": jpeg(seed=3), "objects": {"bbox": [[1, 2, 3]], "category": ["nut"]}},
        {"image": jpeg(seed=4), "objects": {"bbox": [[1, 2, 3, 4]], "category": []}},
    ]  # fmt: skip
    path = write_parquet(tmp_path / "a.parquet", content)
    with beam.Pipeline(runner="FnApiRunner") as pipeline:
        found = pipeline | ReadImages(str(path), box_format="xywh", skip_rejected=True)
        boxes = (Box("nut", 1.0, 2.0, 4.0, 6.0), Box("bolt", 5.0, 6.0, 6.0, 7.0))
        assert_that(found | beam.Map(lambda i: i.boxes), equal_to([boxes, ()]))
    flags = ["--task=detection", "--box_format=xywh", "--max_rejected=0.5"]
    assert run(path, tmp_path / "ds", *flags, "--direct_num_workers=1") == 0
    counts = json.loads((tmp_path / "ds/_meta/manifest.json").read_bytes())["counts"]
    assert counts["rejected"] == {"bad_row": 2}
    assert counts["images_written"] == 2


def test_rows_that_cannot_be_used_are_rejects(tmp_path: Path) -> None:
    content = rows(6)
    content[1]["image"]["bytes"] = None
    content[2]["label"] = None
    content[3]["image"]["bytes"] = b""
    content[4]["image"]["bytes"] = b"no image"
    path = write_parquet(tmp_path / "in/a.parquet", content)
    assert run(path, tmp_path / "ds", "--max_rejected=0.9", "--direct_num_workers=1") == 0
    found = [
        json.loads(line)
        for file in sorted((tmp_path / "ds/_meta/rejected").iterdir())
        for line in file.read_text().splitlines()
    ]
    assert sorted((r["source"], r["reason"]) for r in found) == [
        ("a.parquet#2", "no_image"), ("a.parquet#3", "no_label"), ("a.parquet#4", "empty_image"),
        ("a.parquet#5", "not_an_image"),
    ]  # fmt: skip


def test_a_damaged_page_rejects_its_row_group(tmp_path: Path) -> None:
    path = write_parquet(
        tmp_path / "a.parquet", rows(12), row_group_size=4, compression="NONE",
        use_dictionary=False, write_page_checksum=True,
    )  # fmt: skip
    data = bytearray(path.read_bytes())
    at = data.index(rows(12)[5]["image"]["bytes"][30:])
    data[at + 50] ^= 1
    path.write_bytes(data)
    images, rejects = listed(path)
    assert rejects == [("a.parquet", "broken_file")]
    assert len(images) == 8


@pytest.mark.parametrize(
    ("content", "options", "message"),
    [
        ([{"image": b"x", "label": "a"}], {"label_field": "kind"}, "--label_field must be a col"),
        ([{"image": b"x", "other": "a"}], {}, "--label_field must name the column"),
        ([{"image": b"x", "label": "a"}], {"path_field": "label"}, "no image|there is no"),
        ([{"image": b"x", "label": "a"}], {"split_from": "fold"}, "--split_from must be a col"),
        ([{"image": b"x", "label": "a"}], {"path_field": "img"}, "--path_field must be a column"),
    ],
)
def test_wrong_columns_are_one_line(
    tmp_path: Path, content: list[dict[str, Any]], options: dict[str, Any], message: str
) -> None:
    path = write_parquet(tmp_path / "a.parquet", content)
    if options.get("path_field") == "label":  # a table of paths
        assert listed(path, **options)[1] == [("a.parquet#1", "no_image")]
        return
    with pytest.raises(UsageError, match=message) as error:
        listed(path, **options)
    assert "\n" not in str(error.value)


def test_tables_of_both_kinds_are_refused(tmp_path: Path) -> None:
    write_parquet(tmp_path / "in/a.parquet", rows(3))
    write_parquet(tmp_path / "in/b.parquet", [{"path": "x.png", "label": "cat"}])
    with pytest.raises(UsageError, match=r"b.parquet holds none"):
        listed(f"{tmp_path}/in/*.parquet")
    write_parquet(tmp_path / "in/b.parquet", rows(2))
    (tmp_path / "in/b.parquet").write_bytes(b"PAR1 is broken")
    with pytest.raises(UsageError, match=r"--input .*b.parquet cannot be read: not a whole Parq"):
        listed(f"{tmp_path}/in/*.parquet")


def test_memory_is_that_of_a_page_not_of_a_row_group(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    table = pa.table({"image": [bytes(1 << 14)] * 6000, "label": ["a"] * 6000})
    pq.write_table(table, path, use_dictionary=False, row_group_size=6000)
    del table
    spec = SourceSpec(patterns=(str(path),))
    columns = find_byte_columns(str(path), spec)
    assert columns
    source = SourceRange(str(path), "a", "parquet", "", path.stat().st_size)
    before, most, count = pa.total_allocated_bytes(), 0, 0
    for _ in read_byte_rows(source, columns, spec):
        most = max(most, pa.total_allocated_bytes() - before)
        count += 1
    assert count == 6000
    assert most < 24 << 20  # a page has 1024 rows, of 16 MiB; the row group has 94
