"""`recordmill verify` on datasets that were damaged in every way that its promise names."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from apache_beam.io.filesystem import FileMetadata
from apache_beam.io.localfilesystem import LocalFileSystem

from recordmill.pipelines.command_line import main
from recordmill.pipelines.commands.verify import verify
from recordmill.records.errors import UsageError
from recordmill.records.manifest import Manifest, success_bytes

from ...odd_files import KINDS, places, put

SHARD = "train/train-00001-of-00003.tfrecords"
OTHER = "train/train-00002-of-00003.tfrecords"
INDEX = "_meta/index/train/train-00001-of-00003.idx"
MANIFEST = "_meta/manifest.json"


@pytest.fixture
def copy(bert_dataset: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(bert_dataset, tmp_path / "ds"))


@pytest.fixture
def packed(write_dataset: Callable[..., Path], tmp_path: Path) -> Path:
    dataset = write_dataset("--task=mlm", "--dupe_factor=1", "--num_shards=2", "--compression=GZIP")
    return Path(shutil.copytree(dataset, tmp_path / "gz"))


def offsets(dataset: Path, index: str = INDEX) -> list[int]:
    return [int(line.split()[0]) for line in (dataset / index).read_text().splitlines()]


def flip(path: Path, place: int, bit: int = 4) -> None:
    content = bytearray(path.read_bytes())
    content[place] ^= 1 << bit
    path.write_bytes(content)


def edit(path: Path, old: str, new: str) -> None:
    content = path.read_text(encoding="utf-8")
    assert re.search(old, content), old
    path.write_text(re.sub(old, new, content, count=1), encoding="utf-8")


def edit_manifest(dataset: Path, change: Callable[[Any], None]) -> None:
    """Changes the manifest and makes `_SUCCESS` vouch for it."""
    path = dataset / MANIFEST
    content = json.loads(path.read_bytes())
    change(content)
    path.write_bytes(json.dumps(content).encode())
    (dataset / "_SUCCESS").write_bytes(success_bytes(path.read_bytes()))


def swap(one: Path, other: Path) -> None:
    content = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(content)


def test_a_file_outside_of_the_dataset_is_named_and_not_read(copy: Path, tmp_path: Path) -> None:
    (tmp_path / "secret.jsonl").write_text("no JSON")
    edit_manifest(copy, lambda content: content["files"].update({"../secret.jsonl": 7}))
    (line,) = verify(str(copy)).lines()
    assert "_meta/manifest.json: " in line
    assert "lists '../secret.jsonl', which is not inside of the dataset" in line


def test_a_manifest_without_the_features_of_its_records_is_named(copy: Path) -> None:
    edit_manifest(copy, lambda content: content.update(features=[]))
    lines = verify(str(copy)).lines()
    assert "features.json: describes records, of which the manifest has no features" in lines


def test_a_shard_that_is_a_link_is_named(copy: Path, tmp_path: Path) -> None:
    outside = (copy / SHARD).rename(tmp_path / "outside")
    (copy / SHARD).symlink_to(outside)
    (line,) = verify(str(copy)).lines()
    assert f"lists {SHARD!r}, which is not inside of it" in line


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_no_regular_file_is_named(bert_dataset: Path, tmp_path: Path, kind: str) -> None:
    listed = set(json.loads((bert_dataset / MANIFEST).read_bytes())["files"])
    for number, name in enumerate([*places(bert_dataset), "_tmp", "stray", "_tmp/of_recordmill"]):
        dataset = Path(shutil.copytree(bert_dataset, tmp_path / str(number)))
        put(dataset / name, kind)
        lines = verify(str(dataset)).lines()
        assert not any("\n" in line or "Errno" in line for line in lines)
        if name in listed or name.startswith(("_SUCCESS", MANIFEST, "train")):
            assert any(name in line for line in lines), (name, lines)


def test_temporary_files_beside_a_whole_dataset_are_told(
    copy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (copy / "_tmp").mkdir()
    (copy / "_tmp/of_recordmill").write_text("{}")
    assert main(["verify", str(copy)]) == 0
    error = capsys.readouterr().err
    assert error.startswith(f"{copy}/_tmp holds temporary files of a run that was stopped")


def test_a_whole_dataset(bert_dataset: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", str(bert_dataset)]) == 0
    manifest = Manifest.from_bytes((bert_dataset / MANIFEST).read_bytes())
    size = sum(path.stat().st_size for path in bert_dataset.glob("*/*.tfrecords"))
    assert capsys.readouterr().out == (
        f"{bert_dataset}: {len(manifest.shards)} shards, {manifest.counts['examples']} records, "
        f"{size} bytes: no defects\n"
    )


@pytest.mark.parametrize(
    "flags",
    [
        ("--task=mlm", "--dupe_factor=1", "--num_shards=2", "--compression=GZIP"),
        ("--task=mlm", "--dupe_factor=1", "--num_shards=2", "--compression=ZLIB"),
        ("--task=mlm_tokens", "--dupe_factor=1", "--num_shards=2"),
    ],
)
def test_whole_datasets_of_other_forms(
    write_dataset: Callable[..., Path], flags: tuple[str, ...]
) -> None:
    assert verify(str(write_dataset(*flags))).lines() == []


# Each damage, and a pattern for each line that names it, in order.
DAMAGES: dict[str, tuple[Callable[[Path], object], list[str]]] = {
    "a missing shard": (
        lambda ds: (ds / SHARD).unlink(),
        [f"{SHARD}: missing"],
    ),
    "an extra shard": (
        lambda ds: shutil.copy(ds / SHARD, ds / "train/train-00003-of-00004.tfrecords"),
        [r"train/train-00003-of-00004.tfrecords: is not in the manifest; .* remove it"],
    ),
    "a foreign file beside the shards": (
        lambda ds: (ds / "validation/notes.txt").write_text("hello"),
        ["validation/notes.txt: is not in the manifest"],
    ),
    "records in a folder of their own": (
        lambda ds: shutil.copytree(ds / "validation", ds / "test"),
        [r"test/validation-00000-of-0000\d.tfrecords: is not in the manifest"],
    ),
    "two shards swapped": (
        lambda ds: swap(ds / SHARD, ds / OTHER),
        [
            f"{SHARD}: holds the content of {OTHER}: put each under its own name",
            f"{OTHER}: holds the content of {SHARD}: put each under its own name",
        ],
    ),
    "a bit flipped in a record's data": (
        lambda ds: flip(ds / SHARD, offsets(ds)[5] + 100),
        [rf"{SHARD}: record 5 at byte \d+: checksum of the data does not match"],
    ),
    "a bit flipped in a data checksum": (
        lambda ds: flip(ds / SHARD, offsets(ds)[6] - 1),
        [rf"{SHARD}: record 5 at byte \d+: checksum of the data does not match"],
    ),
    "a bit flipped in a length": (
        lambda ds: flip(ds / SHARD, offsets(ds)[5]),
        [rf"{SHARD}: record 5 at byte \d+: checksum of the length does not match"],
    ),
    "a bit flipped in a length checksum": (
        lambda ds: flip(ds / SHARD, offsets(ds)[5] + 9),
        [rf"{SHARD}: record 5 at byte \d+: checksum of the length does not match"],
    ),
    "two records damaged": (
        lambda ds: [flip(ds / SHARD, offsets(ds)[number] + 60) for number in (0, 9)],
        [f"{SHARD}: record 0 at byte 0: checksum of", rf"{SHARD}: record 9 at byte \d+: checksum"],
    ),
    "a shard cut in a record": (
        lambda ds: (ds / SHARD).write_bytes((ds / SHARD).read_bytes()[:-5]),
        [
            rf"{SHARD}: record \d+ at byte \d+ is cut: the file ends \d+ bytes after its beginning",
            rf"{SHARD}: must have \d+ bytes by the manifest, and has \d+",
        ],
    ),
    "a shard cut between records": (
        lambda ds: (ds / SHARD).write_bytes((ds / SHARD).read_bytes()[: offsets(ds)[-1]]),
        [
            rf"{SHARD}: must have \d+ bytes by the manifest, and has \d+",
            rf"{SHARD}: must have \d+ records by the manifest, and has \d+",
            rf"{SHARD}: must have \d+ bytes of records by the manifest, and has \d+",
            rf"{INDEX}: has 1 lines after that of the last record, \d+",
        ],
    ),
    "bytes after the last record": (
        lambda ds: (ds / SHARD).write_bytes((ds / SHARD).read_bytes() + b"x"),
        [rf"{SHARD}: record \d+ at byte \d+ is cut", rf"{SHARD}: must have \d+ bytes by"],
    ),
    "an empty shard": (
        lambda ds: (ds / SHARD).write_bytes(b""),
        [
            f"{SHARD}: must have .* bytes by the manifest, and has 0",
            f"{SHARD}: must have .* records by the manifest, and has 0",
            f"{SHARD}: must have .* bytes of records by the manifest, and has 0",
            f"{INDEX}: has .* lines after",
        ],
    ),
    "an index line changed": (
        lambda ds: edit(ds / INDEX, r"\n(\d+) ", r"\n1\1 "),
        [rf"{INDEX}: line 2 must be '\d+ \d+', where record 1 lies, and is '1\d+ \d+'"],
    ),
    "an index cut": (
        lambda ds: (ds / INDEX).write_bytes((ds / INDEX).read_bytes()[:-1]),
        [f"{INDEX}: the line end after line .* is missing"],
    ),
    "an index emptied": (
        lambda ds: (ds / INDEX).write_bytes(b""),
        [f"{INDEX}: line 1 must be '0 .*', where record 0 lies, and is the end"],
    ),
    "an index missing": (lambda ds: (ds / INDEX).unlink(), [f"{INDEX}: missing"]),
    "a count edited in the manifest": (
        lambda ds: edit(ds / MANIFEST, r'"records": (\d+)', r'"records": 1\1'),
        [
            f"{MANIFEST}: must have the checksum in _SUCCESS, and has another",
            f"{MANIFEST}: counts.examples must be",
            r"dataset_info.json: splits\[0\].numBytes must be",
            r"dataset_info.json: splits\[0\].shardLengths\[0\] must be",
            r"_meta/statistics.json: examples of train must be",
            "train/train-00000-of-00003.tfrecords: must have .* records by the manifest, and has",
        ],
    ),
    "the sum of examples edited, and _SUCCESS with it": (
        lambda ds: edit_manifest(ds, lambda content: content["counts"].update(examples=7)),
        [rf"{MANIFEST}: counts.examples must be \d+, the sum over the shards, and is 7"],
    ),
    "a checksum edited, and _SUCCESS with it": (
        lambda ds: edit_manifest(ds, lambda content: content["shards"][1].update(crc32c=1)),
        [f"{SHARD}: crc32c must be 00000001 by the manifest, and is [0-9a-f]{{8}}"],
    ),
    "a shard taken out of the manifest, and _SUCCESS with it": (
        lambda ds: edit_manifest(ds, lambda content: content["shards"].pop(1)),
        [
            f"{MANIFEST}: counts.examples must be",
            f"{MANIFEST}: split train must list shards 0 to 2 of 3 once each, and lacks 1",
            r"dataset_info.json: splits\[0\].numBytes",
            r"dataset_info.json: splits\[0\].shardLengths must be",
            "_meta/statistics.json: examples of train must be",
            f"{SHARD}: is not in the manifest; readers would take it for a shard: remove it",
        ],
    ),
    "another schema in the manifest, and _SUCCESS with it": (
        lambda ds: edit_manifest(ds, lambda content: content["features"][0].update(shape=[65])),
        [
            r"features.json: featuresDict.features.input_ids.tensor.shape.dimensions\[0\] must be "
            '"65" by the manifest, and is "64"',
            "train/.*: record 0 at byte 0: feature input_ids must have 65 values, and has 64",
        ],
    ),
    "a length edited for TFDS": (
        lambda ds: edit(ds / "dataset_info.json", r'Lengths": \[\s*"\d+"', 'Lengths": ["3"'),
        [r'dataset_info.json: splits\[0\].shardLengths\[0\] must be "\d+" by .*, and is "3"'],
    ),
    "a dtype edited for TFDS": (
        lambda ds: edit(ds / "features.json", '"int64"', '"int32"'),
        [r"features.json: featuresDict.features.input_ids.tensor.dtype must be \"int64\""],
    ),
    "TFDS's file broken": (
        lambda ds: (ds / "features.json").write_text("{"),
        ["features.json: cannot be read: it is cut or no JSON"],
    ),
    "TFDS's file missing": (
        lambda ds: (ds / "dataset_info.json").unlink(),
        ["dataset_info.json: missing"],
    ),
    "examples edited in the statistics": (
        lambda ds: edit(ds / "_meta/statistics.json", r'"examples": \d+', '"examples": 5'),
        [r"_meta/statistics.json: examples of train must be \d+ by the manifest, and is 5"],
    ),
    "_SUCCESS missing": (
        lambda ds: (ds / "_SUCCESS").unlink(),
        ["_SUCCESS: missing: the dataset is not finished"],
    ),
    "a bit flipped in _SUCCESS": (
        lambda ds: flip(ds / "_SUCCESS", 30, 0),
        [f"{MANIFEST}: must have the checksum in _SUCCESS, and has another"],
    ),
    "the manifest missing": (
        lambda ds: (ds / MANIFEST).unlink(),
        [f"{MANIFEST}: missing: without it nothing else can be checked"],
    ),
    "no manifest at all": (
        lambda ds: (ds / MANIFEST).write_text("[]"),
        [f"{MANIFEST}: must have the checksum", f"{MANIFEST}: cannot be read: not a recordmill"],
    ),
    "a data folder missing": (
        lambda ds: shutil.rmtree(ds / "validation"),
        [r"validation/validation-00000-of-0000\d.tfrecords: missing"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGES)
def test_each_damage_is_named(copy: Path, damage: str, capsys: pytest.CaptureFixture[str]) -> None:
    break_it, expected = DAMAGES[damage]
    break_it(copy)
    assert main(["verify", str(copy)]) == 1
    *lines, summary = capsys.readouterr().out.splitlines()
    for pattern, line in zip(expected, lines, strict=False):
        assert re.match(pattern, line)
    if "another schema" in damage:
        assert "train/train-00000-of-00003.tfrecords: and " in "\n".join(lines)
        return
    assert len(lines) == len(expected), lines
    assert re.search(rf"bytes: {len(lines)} defects?$", summary)


def test_any_flipped_bit_of_a_small_dataset_is_found(copy: Path) -> None:
    """Flips one bit in each of many places of each kind of file that has a checksum or a twin."""
    for name in (SHARD, INDEX, MANIFEST, "_SUCCESS", "features.json"):
        path = copy / name
        whole = path.read_bytes()
        for step in range(7):
            place = step * (len(whole) - 1) // 6
            flip(path, place, step)
            lines = verify(str(copy)).lines()
            assert lines, (name, place)
            assert re.match("_meta/manifest.json" if name == "_SUCCESS" else name, lines[0])
            path.write_bytes(whole)
    assert verify(str(copy)).lines() == []


@pytest.mark.parametrize(
    ("damage", "expected"),
    [
        (lambda path: flip(path, 2000), ["GZIP data after byte 0: Error -3"]),
        (lambda path: flip(path, path.stat().st_size - 6), ["GZIP data after byte 0: Error -3"]),
        (
            lambda path: path.write_bytes(path.read_bytes()[:-9]),
            [r"GZIP data is cut at byte \d+", r"must have \d+ bytes by the manifest, and has \d+"],
        ),
        (
            lambda path: path.write_bytes(path.read_bytes() + b"more"),
            [r"must have \d+ bytes by the manifest, and has \d+"],
        ),
        (lambda path: flip(path, 4), ["crc32c must be [0-9a-f]{8} by the manifest, and is"]),
        (
            lambda path: path.write_bytes(b""),
            ["GZIP data is cut at byte 0", r"must have \d+ bytes by the manifest, and has 0"],
        ),
    ],
)
def test_compressed_shards(
    packed: Path, damage: Callable[[Path], object], expected: list[str]
) -> None:
    damage(packed / "train/train-00001-of-00002.tfrecords")
    lines = verify(str(packed)).lines()
    assert len(lines) == len(expected), lines
    for pattern, line in zip(expected, lines, strict=True):
        assert re.match(f"train/train-00001-of-00002.tfrecords: .*{pattern}", line)


def test_worker_processes_find_the_same(copy: Path) -> None:
    flip(copy / SHARD, 100)
    (copy / OTHER).unlink()
    alone, together = verify(str(copy), workers=1), verify(str(copy), workers=2)
    assert together.lines() == alone.lines()
    assert together.summary() == alone.summary()
    assert len(alone.lines()) == 2


def test_many_defects_are_counted(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    places = offsets(copy)
    for place in places[:50]:
        flip(copy / SHARD, place + 40)
    assert main(["verify", str(copy)]) == 1
    out = capsys.readouterr().out
    assert f"{SHARD}: and 30 more\n" in out
    assert "50 defects" in out


def test_large_records_and_small_blocks(copy: Path) -> None:
    assert verify(str(copy), block_bytes=97).lines() == []
    flip(copy / SHARD, offsets(copy)[5] + 100)
    assert len(verify(str(copy), block_bytes=97).lines()) == 1


COPY_AGAIN = "copy the broken files again, or repeat the dataset's own command with --overwrite"
RUN_AGAIN = "run the dataset's own command again: a run that was stopped goes on where it was"


def _unfinished(dataset: Path) -> None:
    shutil.rmtree(dataset / "_meta")
    shutil.rmtree(dataset / "train")
    (dataset / "_SUCCESS").unlink()
    (dataset / "_tmp").mkdir()
    (dataset / "_tmp/of_recordmill").write_text("")


def _later(dataset: Path) -> None:
    edit(dataset / MANIFEST, r'"format_version": 1', '"format_version": 3')


ADVICES: dict[str, tuple[Callable[[Path], Any], str]] = {
    "damaged": (lambda ds: (ds / "features.json").unlink(), COPY_AGAIN),
    "unfinished": (_unfinished, RUN_AGAIN),
    "killed before _SUCCESS": (lambda ds: (ds / "_SUCCESS").unlink(), RUN_AGAIN),
    "one file more": (
        lambda ds: shutil.copy(ds / SHARD, ds / "train/more.tfrecords"),
        "remove the files that the manifest does not list; the dataset itself is whole",
    ),
    "of a later release by its keys": (
        lambda ds: edit(ds / MANIFEST, r'"format_version": 1', '"format_version": 1, "later": 1'),
        "upgrade recordmill: the dataset is of a later release",
    ),
    "of a later release": (_later, "upgrade recordmill: the dataset is of a later release"),
}


@pytest.mark.parametrize("state", ADVICES)
def test_there_is_one_advice(copy: Path, state: str, capsys: pytest.CaptureFixture[str]) -> None:
    change, advice = ADVICES[state]
    change(copy)
    assert main(["verify", str(copy)]) == 1
    out, err = capsys.readouterr()
    assert err == f"{advice}\n"
    if state == "unfinished":
        assert out.startswith("_SUCCESS: missing: the dataset is not finished\n")
        assert out.count("\n") == 2


def test_a_foreign_folder_is_named_with_the_dataset_nearby(
    copy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    foreign = tmp_path / "foreign"
    foreign.mkdir(parents=True)
    (foreign / "notes.txt").write_text("")
    rule = "recordmill: DIR must be the folder of a dataset, and {} has neither"
    for folder, hint in (
        (foreign, "give the folder that --output named"),
        (copy / "train", f"the dataset is {copy}"),
        (copy.parent, f"there is one in {copy}"),
    ):
        assert main(["verify", str(folder)]) == 2
        error = capsys.readouterr().err
        assert error.startswith(rule.format(folder))
        assert error.endswith(f"; {hint}\n")


@pytest.mark.parametrize("name", ["no/such/folder", "a_file"])
def test_no_dataset_is_wrong_usage(
    tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a_file").write_text("")
    assert main(["verify", str(tmp_path / name)]) == 2
    error = capsys.readouterr().err
    assert re.fullmatch("recordmill: DIR must be the folder of a dataset, and .*\n", error)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "required"),
        (["x", "--workers=0"], "--workers must be at least 1, got 0"),
        (["x", "--worker=2"], "unknown flag --worker=2; did you mean --workers?"),
    ],
)
def test_wrong_arguments(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["verify", *arguments]) == 2
    assert message in capsys.readouterr().err


class FolderFileSystem(LocalFileSystem):
    """`folder:///a/b` is the local `/a/b`: stands in for object storage, which has a scheme too."""

    PREFIX = "folder://"

    @classmethod
    def scheme(cls) -> str:
        return "folder"

    def has_dirs(self) -> bool:
        return False

    def exists(self, path: str) -> bool:
        return bool(super().exists(path.removeprefix(self.PREFIX)))

    def metadata(self, path: str) -> Any:
        return super().metadata(path.removeprefix(self.PREFIX))

    def open(self, path: str, *arguments: Any) -> Any:
        return super().open(path.removeprefix(self.PREFIX), *arguments)

    def _list(self, dir_or_prefix: str) -> Iterator[FileMetadata]:
        for item in super()._list(dir_or_prefix.removeprefix(self.PREFIX)):
            yield FileMetadata(
                self.PREFIX + item.path, item.size_in_bytes, item.last_updated_in_seconds
            )


def test_a_dataset_on_another_file_system(copy: Path) -> None:
    assert verify(f"folder://{copy}").lines() == []
    assert verify(f"folder://{copy}/").lines() == []
    (copy / SHARD).unlink()
    (copy / "train/more.tfrecords").write_bytes(b"")
    lines = verify(f"folder://{copy}").lines()
    assert lines[0].startswith("train/more.tfrecords: is not in the manifest")
    assert lines[1:] == [f"{SHARD}: missing"]
    with pytest.raises(UsageError, match="DIR must be the folder of a dataset"):
        verify(f"folder://{copy}/nothing")
