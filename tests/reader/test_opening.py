"""What is refused when a split is opened."""

from __future__ import annotations

import inspect
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recordmill.reader import Reader, load, torch_dataset
from recordmill.reader.options import ReaderOptions
from recordmill.records.errors import RunError, UsageError
from recordmill.records.manifest import success_bytes
from recordmill.records.schema import Feature, Schema
from recordmill.records.spec import declared_fields

from .small_datasets import NUMBERS


def copy_of(dataset: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(dataset, tmp_path / "copy"))


@pytest.mark.parametrize("path", ["nowhere", "unfinished"])
def test_a_folder_without_success_is_refused(uneven: Path, tmp_path: Path, path: str) -> None:
    folder = tmp_path / path
    if path == "unfinished":
        shutil.copytree(uneven, folder)
        (folder / "_SUCCESS").unlink()
    with pytest.raises(UsageError, match=r"must have _SUCCESS.*has none: give the folder") as info:
        load(folder, "train", batch_size=4)
    assert "\n" not in str(info.value)
    assert str(folder) in str(info.value)


def test_an_edited_manifest_is_refused(uneven: Path, tmp_path: Path) -> None:
    copy = copy_of(uneven, tmp_path)
    path = copy / "_meta/manifest.json"
    path.write_bytes(path.read_bytes().replace(b'"numbers"', b'"letters"'))
    with pytest.raises(UsageError, match=r"_SUCCESS must vouch for .* is another one .* verify"):
        load(copy, "train", batch_size=4)
    path.unlink()
    with pytest.raises(UsageError, match=r"_SUCCESS must vouch for .* is missing"):
        load(copy, "train", batch_size=4)


def test_a_later_format_is_refused(uneven: Path, tmp_path: Path) -> None:
    copy = copy_of(uneven, tmp_path)
    path = copy / "_meta/manifest.json"
    content = path.read_bytes().replace(b'"format_version": 1', b'"format_version": 99')
    path.write_bytes(content)
    (copy / "_SUCCESS").write_bytes(success_bytes(content))
    with pytest.raises(UsageError, match=r"manifest.json cannot be used: written by a later"):
        load(copy, "train", batch_size=4)


def test_files_of_a_split_must_be_its_shards(uneven: Path, tmp_path: Path) -> None:
    copy = copy_of(uneven, tmp_path)
    (copy / "train/.DS_Store").write_bytes(b"")
    assert load(copy, "train", batch_size=4)
    (copy / "train/train-00000-of-00002.tfrecords").write_bytes(b"")
    with pytest.raises(UsageError, match=r"nothing but the shards .* train-00000-of-00002.tfrec"):
        load(copy, "train", batch_size=4)
    assert load(copy, "validation", batch_size=4), "another split is not concerned"
    (copy / "train/train-00000-of-00002.tfrecords").unlink()
    (copy / "train/train-00002-of-00007.tfrecords").unlink()
    with pytest.raises(UsageError, match=r"lacks train-00002-of-00007.tfrecords; put"):
        load(copy, "train", batch_size=4)


@pytest.mark.parametrize("name", ["../secret.txt", "/etc/passwd", "linked/secret.txt"])
def test_a_manifest_that_lists_a_file_outside_is_refused(
    uneven: Path, tmp_path: Path, name: str
) -> None:
    copy = copy_of(uneven, tmp_path)
    (tmp_path / "elsewhere").mkdir()
    (copy / "linked").symlink_to(tmp_path / "elsewhere")
    path = copy / "_meta/manifest.json"
    content = json.loads(path.read_bytes())
    content["files"][name] = 0
    path.write_text(json.dumps(content))
    (copy / "_SUCCESS").write_bytes(success_bytes(path.read_bytes()))
    # By its name alone, or only with links resolved.
    with pytest.raises((UsageError, RunError), match=r"lists .*, which is not inside of"):
        load(copy, "train", batch_size=4)


@pytest.mark.parametrize("folder", ["train", "_meta/index/train"])
def test_a_shard_that_is_a_link_out_of_the_dataset_is_refused(
    uneven: Path, tmp_path: Path, folder: str
) -> None:
    copy = copy_of(uneven, tmp_path)
    (shard, *_) = sorted((copy / folder).iterdir())
    outside = shard.rename(tmp_path / "outside")
    shard.symlink_to(outside)
    with pytest.raises(RunError, match="which is not inside of it"):
        load(copy, "train", batch_size=4)
    shard.unlink()
    outside.rename(copy / "moved")
    shard.symlink_to(copy / "moved")
    assert load(copy, "train", batch_size=4)
    (tmp_path / "link").symlink_to(copy)
    assert load(tmp_path / "link", "train", batch_size=4)


def test_an_index_of_another_shard_is_refused(uneven: Path, tmp_path: Path) -> None:
    copy = copy_of(uneven, tmp_path)
    index = copy / "_meta/index/train/train-00001-of-00007.idx"
    index.write_bytes(index.read_bytes()[:-4])
    with pytest.raises(UsageError, match=r"00001-of-00007.idx must have the checksum of the"):
        load(copy, "train", batch_size=4)
    index.unlink()
    with pytest.raises(UsageError, match=r"must hold _meta/index/.*, which the manifest lists"):
        load(copy, "train", batch_size=4)


def test_another_schema_is_refused(uneven: Path) -> None:
    assert load(uneven, "train", batch_size=4, schema=NUMBERS)
    other = Schema((Feature("id", "int64", (2,), ""), Feature("row", "int64", (3,), "")))
    with pytest.raises(
        UsageError, match=r"id must be int64 \[2\], and is int64 \[\]; text must be absent"
    ):
        load(uneven, "train", batch_size=4, schema=other)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"batch_size": 0}, "batch_size must be at least 1, got 0"),
        ({"batch_size": 108}, "1 workers x batch_size 108 must be at most the 107 records"),
        ({"epochs": 0}, "epochs must be at least 1, got 0"),
        ({"window_records": 0}, "window_records must be at least 1, got 0"),
        (
            {"batch_size": 1 << 63},
            r"batch_size must be at most 9223372036854775807, got 9",
        ),
        ({"batch_size": 2.5}, "batch_size must be a whole number, got 2.5"),
        ({"batch_size": float("nan")}, "batch_size must be a whole number, got nan"),
        ({"batch_size": True}, "batch_size must be a whole number, got True"),
        ({"batch_size": "4"}, "batch_size must be a whole number, got '4'"),
        ({"seed": None}, "seed must be a whole number, got None"),
        ({"shuffle": 1}, "shuffle must be True or False, got 1"),
        ({"parallel_calls": -1}, "parallel_calls must be at least 1, got -1"),
        ({"cache_bytes": 0}, "cache_bytes must be at least 1, got 0"),
        ({"cache_dir": 3}, "cache_dir must be a string or a path, got 3"),
        ({"transform": 3}, "transform must be a function or a list of functions, got 3"),
        ({"transform": ["flip"]}, r"transform must be a function or .*, got \['flip'\]"),
        ({"schema": "ids"}, r"schema must be Schema\(…\), got 'ids'"),
        ({"num_workers": 0, "worker_index": 0}, "num_workers must be at least 1, got 0"),
        ({"num_workers": 2, "worker_index": -1}, "worker_index must be at least 0, got -1"),
        ({"num_workers": 2, "worker_index": 2}, r"worker_index must be in \[0, num_workers\)"),
        ({"remainder": "dorp"}, "remainder must be one of .*; did you mean 'drop'"),
        ({"on_error": "skip"}, "on_error must be one of fail, skip_record, skip_shard"),
        ({"start_step": 27}, r"start_step must be in \[0, 26\], the steps of all epochs, got 27"),
        ({"start_step": -1}, "start_step must be at least 0, got -1"),
        ({"num_workers": 2}, "num_workers and worker_index must be given together"),
        ({"split": "trian"}, "split must be one of train, validation, got 'trian'; did you mean"),
        ({"split": "train[:x]"}, "a bound in a split must be a number of records or a percentage"),
        ({"split": "train[5:5]"}, "must select at least one record, and 'train"),
        ({"split": "train["}, r"a split must be a name such as 'train' or a part"),
    ],
)
def test_wrong_arguments_are_refused(uneven: Path, arguments: dict[str, Any], message: str) -> None:
    values = {"split": "train", "batch_size": 4, **arguments}
    with pytest.raises(UsageError, match=message) as info:
        load(uneven, **values)
    assert "\n" not in str(info.value)


def test_the_arguments_are_those_of_the_struct(uneven: Path) -> None:
    names = [each.name for each in declared_fields(ReaderOptions)]
    for function in (load, Reader, torch_dataset):
        assert list(inspect.signature(function).parameters) == ["path", "split", *names]
    for each in declared_fields(ReaderOptions):
        assert f"\n      {each.name}: {each.text[:40]}" in str(load.__doc__)
    with pytest.raises(TypeError, match=r"^load\(\) has no .* batchsize; did you mean batch_size"):
        load(uneven, "train", batchsize=4)
    with pytest.raises(TypeError, match=r"^Reader\(\) needs the argument batch_size$"):
        Reader(uneven, "train")


def test_numbers_and_paths_of_other_types_are_taken(uneven: Path, tmp_path: Path) -> None:
    reader = Reader(
        uneven, "train", batch_size=np.int32(4), seed=np.uint8(3), start_step=np.int64(2),
        shuffle=np.bool_(True), cache_dir=tmp_path, transform=[lambda features, keys: features],
    )  # fmt: skip
    assert json.loads(reader.state())["seed"] == 3
    assert sum(1 for _ in reader) == 107 // 4 - 2
