"""`recordmill index`, by its other name `recordmill examples --in_place_metadata` too: metadata of
TFRecords that nobody touches."""

from __future__ import annotations

import gzip
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from recordmill.pipelines import write_examples_dataset
from recordmill.pipelines.command_line import main
from recordmill.records.errors import UsageError
from recordmill.records.shards import ShardName
from recordmill.records.spec import build, naming_flags, options_of
from recordmill.transforms.dataset import commit as committing
from recordmill.transforms.examples.examples_spec import ExamplesSpec, IndexSpec
from recordmill.transforms.storage import files

from ..transforms.examples.record_files import example, framed, message, write_records
from .jobs import twice

ROOT = Path(__file__).parents[2]

# TFDS calls what protobuf has deprecated.
pytestmark = pytest.mark.filterwarnings("ignore:.*label.. is deprecated:DeprecationWarning")

State = dict[str, tuple[bytes, int, int]]
RUN = ("_meta/run.json", "_meta/report.html")  # of a run, not of its result


def numbered(count: int, start: int = 0) -> list[bytes]:
    return [example(id=i, text="word " * (i % 9), ids=[i % 7] * 4) for i in range(start, count)]


def shards(folder: Path, split: str = "train", count: int = 3, start: int = 0) -> None:
    for i in range(count):
        records = numbered(start + 20 * i + 20, start + 20 * i)
        write_records(folder / f"{split}-{i:05d}-of-{count:05d}.tfrecord", records)


def state(folder: Path) -> State:
    """What a folder holds: bytes, time of change and inode of each file."""
    found = (p for p in sorted(folder.rglob("*")) if p.is_file())
    return {
        str(p.relative_to(folder)): (p.read_bytes(), p.stat().st_mtime_ns, p.stat().st_ino)
        for p in found
    }


def metadata(folder: Path, before: State) -> dict[str, bytes]:
    """The files that came to a folder; those that were there must be as they were."""
    now = state(folder)
    assert {name: now.get(name) for name in before} == before
    return {n: c[0] for n, c in now.items() if n not in before and n not in RUN}


def run(*flags: str, workers: int = 1) -> int:
    return main(["examples", "--in_place_metadata", f"--direct_num_workers={workers}", *flags])


def index(folder: Path | str, *flags: str) -> int:
    return main(["index", str(folder), "--direct_num_workers=1", *flags])


def manifest(folder: Path) -> dict[str, Any]:
    return dict(json.loads((folder / "_meta/manifest.json").read_bytes()))


def error_of(capsys: pytest.CaptureFixture[str]) -> str:
    lines = capsys.readouterr().err.strip().splitlines()
    assert "Traceback" not in " ".join(lines)
    return lines[-1]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, State]:
    """A folder with metadata, and what was in it before."""
    folder = tmp_path_factory.mktemp("in_place") / "old"
    shards(folder)
    shards(folder, "validation", 2, start=100)
    before = state(folder)
    assert run(f"--input={folder}/*.tfrecord") == 0
    return folder, before


@pytest.fixture
def copied(made: tuple[Path, State], tmp_path: Path) -> tuple[Path, State]:
    """The same, to be damaged."""
    folder = tmp_path / "old"
    shutil.copytree(made[0], folder)
    now = state(folder)
    return folder, {name: now[name] for name in made[1]}


def test_metadata_lies_beside_shards_that_nobody_touched(made: tuple[Path, State]) -> None:
    folder, before = made
    found = metadata(folder, before)
    assert {name for name in found if not name.startswith("_meta/index/")} == {
        "_SUCCESS", "dataset_info.json", "features.json", "_meta/config.yaml",
        "_meta/in_place.txt", "_meta/manifest.json", "_meta/statistics.json",
    }  # fmt: skip
    assert sum(name.startswith("_meta/index/") for name in found) == 5
    told = manifest(folder)
    assert told["counts"] == {"records_read": 100, "rejected": {}, "examples": 100}
    assert told["format_version"] == 2
    assert [s["file"] for s in told["shards"]] == sorted(before)
    features = {f["name"]: (f["dtype"], f["shape"]) for f in told["features"]}
    assert features == {"id": ("int64", []), "ids": ("int64", [4]), "text": ("bytes", [])}
    statistics = json.loads(found["_meta/statistics.json"])
    assert statistics["validation"]["examples"] == 40
    sizes = statistics["train"]["record_bytes"]
    assert 0 < sizes["least"] < sizes["mean"] < sizes["most"]


def test_verify_and_a_second_run_find_it_whole(
    made: tuple[Path, State], capsys: pytest.CaptureFixture[str]
) -> None:
    folder, before = made
    assert main(["verify", str(folder)]) == 0
    first = state(folder)
    assert run(f"--input={folder}/*.tfrecord") == 0
    assert "is complete: nothing to do" in capsys.readouterr().out
    assert state(folder) == first
    metadata(folder, before)


def test_the_same_bytes_for_any_workers(made: tuple[Path, State], tmp_path: Path) -> None:
    folder, before = made
    other = tmp_path / "old"
    shards(other)
    shards(other, "validation", 2, start=100)
    there = state(other)
    assert run(f"--input={other}/*.tfrecord", workers=2) == 0
    found = metadata(other, there)
    # The globs alone are others.
    expected = {n: c.replace(str(folder).encode(), str(other).encode())
                for n, c in metadata(folder, before).items()}  # fmt: skip
    del found["_SUCCESS"], expected["_SUCCESS"]
    one, two = (json.loads(each.pop("_meta/manifest.json")) for each in (found, expected))
    assert one.pop("files").keys() == two.pop("files").keys()
    assert one == two
    assert found == expected


def test_the_command_writes_the_same(
    made: tuple[Path, State], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, before = made
    other = tmp_path / "old"
    other.mkdir()
    for name in before:
        shutil.copy2(folder / name, other / name)
    there = state(other)
    assert index(other) == 0
    written, expected = metadata(other, there), metadata(folder, before)
    text = written["_meta/config.yaml"].decode()
    assert "# recordmill index --config=FILE DIR\n{}\n" in text
    for found in (written, expected):
        told = json.loads(found.pop("_meta/manifest.json"))
        found["told"] = json.dumps({k: told[k] for k in ("shards", "counts", "features")}).encode()
        del found["_SUCCESS"], found["_meta/config.yaml"]
    assert written == expected
    capsys.readouterr()
    assert index(f"{other}/", f"--config={other}/_meta/config.yaml") == 0
    assert run(f"--input={other}/**tfrecord*") == 0
    told = capsys.readouterr()
    assert told.out.count("is complete: nothing to do") == 2
    assert told.err == f"--in_place_metadata is another name of `recordmill index {other}`\n"


def test_the_command_reads_files_below_with_tfrecord_in_their_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "a=b,[c]"
    write_records(folder / "train/x.tfrecord", numbered(4))
    write_records(folder / "deep/er/test.tfrecords", numbered(3))
    write_records(folder / "tfrecord/other", numbered(2))
    (folder / "notes.txt").write_text("mine")
    monkeypatch.chdir(folder)
    before = state(folder)
    assert index(".") == 0
    assert {s["file"] for s in manifest(folder)["shards"]} == {
        "deep/er/test.tfrecords", "train/x.tfrecord",
    }  # fmt: skip
    metadata(folder, before)
    assert index(folder, "--input=train=tfrecord/*", "--overwrite") == 0
    assert manifest(folder)["counts"]["examples"] == 2
    assert [s["split"] for s in manifest(folder)["shards"]] == ["train"]
    metadata(folder, before)
    assert main(["verify", str(folder)]) == 0


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ([""], "DIR must be the folder above all TFRecords, got ''"),
        (["nowhere"], "and nowhere does not exist; --input names"),
        (["old/notes.txt"], "and old/notes.txt is none; --input names"),
        (["old"], "--input old/**tfrecord* matches no file"),
        (["old", "--input=new/*"], "needs all files in one folder, and "),
        (["old", "--num_shards=2"], "unknown flag --num_shards=2"),
        ([], "the following arguments are required: DIR"),
    ],
)
def test_what_the_command_cannot_do_is_one_line(
    tmp_path: Path, line: list[str], message: str, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    write(tmp_path / "old/notes.txt", b"mine")
    write_records(tmp_path / "new/x", numbered(2))
    monkeypatch.chdir(tmp_path)
    assert main(["index", *line]) == 2
    told = capsys.readouterr().err
    assert message in told
    assert told.count("\n") == 1
    assert {path.name for path in (tmp_path / "old").iterdir()} == {"notes.txt"}


def test_our_reader_takes_it(made: tuple[Path, State]) -> None:
    from recordmill.reader import RecordTable, load

    folder, _ = made
    batches = load(folder, "train", batch_size=20, shuffle=False, epochs=1)
    ids = [int(i) for batch in batches for i in batch["id"].numpy()]
    assert ids == list(range(60))
    shuffled = load(folder, "train+validation", batch_size=10, seed=3, epochs=1)
    found = [int(i) for batch in shuffled for i in batch["id"].numpy()]
    assert sorted(found) == [*range(60), *range(100, 140)]
    assert found != sorted(found)
    records = RecordTable(folder, "validation")
    assert int(records[39]["id"]) == 139


def test_a_reader_goes_on_where_it_was(made: tuple[Path, State], tmp_path: Path) -> None:
    import tensorflow as tf

    from recordmill.reader import Reader

    folder, _ = made

    def ids(batches: Any) -> list[list[int]]:
        return [batch["id"].numpy().tolist() for batch in batches]

    whole = ids(Reader(folder, "train", batch_size=10, seed=3, epochs=1))
    reader = Reader(folder, "train", batch_size=10, seed=3, epochs=1)
    batches = iter(reader)
    first = ids(next(batches) for _ in range(2))
    other = Reader(folder, "train", batch_size=10, seed=3, epochs=1)
    other.restore(reader.state())
    assert first + ids(other) == whole
    iterator = iter(reader.dataset())
    checkpoint = tf.train.Checkpoint(iterator=iterator)
    next(iterator)
    path = checkpoint.save(str(tmp_path / "checkpoint"))
    following = ids([next(iterator)])
    checkpoint.restore(path)
    assert ids([next(iterator)]) == following


def test_tfds_takes_it(made: tuple[Path, State]) -> None:
    import tensorflow_datasets as tfds

    folder, _ = made
    builder = tfds.builder_from_directory(str(folder))
    assert builder.info.splits["train"].num_examples == 60
    ids = [int(r["id"]) for r in tfds.as_numpy(builder.as_dataset("validation"))]
    assert sorted(ids) == list(range(100, 140))
    half = tfds.as_numpy(builder.as_dataset("train[:50%]"))
    assert len(list(half)) == 30


def test_inspect_and_report_take_it(
    made: tuple[Path, State], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, _ = made
    assert main(["inspect", str(folder), "--record=validation:39"]) == 0
    assert "139" in capsys.readouterr().out
    assert main(["report", str(folder), f"--html={tmp_path}/report.html"]) == 0
    assert "validation" in (tmp_path / "report.html").read_text()


def test_the_shards_survive_overwrite(
    copied: tuple[Path, State], capsys: pytest.CaptureFixture[str]
) -> None:
    folder, before = copied
    write_records(folder / "test-00000-of-00001.tfrecord", numbered(5))
    before = before | {k: v for k, v in state(folder).items() if k.startswith("test-")}
    assert run(f"--input={folder}/*.tfrecord") == 2
    told = error_of(capsys)
    assert "5 files before, 6 now" in told
    assert "--overwrite makes its metadata anew, and leaves the shards as they are" in told
    (folder / "notes.txt").write_text("mine")
    assert run(f"--input={folder}/*.tfrecord", "--overwrite") == 0
    now = state(folder)
    assert {name: now[name] for name in before} == before
    assert (folder / "notes.txt").read_text() == "mine"
    assert manifest(folder)["counts"]["examples"] == 105
    assert main(["verify", str(folder)]) == 0
    # What was the index of one split is not left beside that of another.
    shutil.move(folder / "test-00000-of-00001.tfrecord", folder / "dev-00000-of-00001.tfrecord")
    assert run(f"--input={folder}/*.tfrecord", "--overwrite") == 0
    assert {p.name for p in (folder / "_meta/index").iterdir()} == {"train", "validation", "dev"}


def test_a_manifest_that_lists_other_files_deletes_none(copied: tuple[Path, State]) -> None:
    folder, before = copied
    (folder / "notes.txt").write_text("mine")
    told = manifest(folder)
    told["files"] |= dict.fromkeys([*before, "notes.txt"], 1)
    del told["shards"][0]["file"]
    (folder / "_meta/manifest.json").write_text(json.dumps(told))
    assert run(f"--input={folder}/*.tfrecord", "--overwrite") == 0
    now = state(folder)
    assert {name: now[name] for name in before} == before
    assert (folder / "notes.txt").read_text() == "mine"


OTHER_JOBS = {
    "examples": ("examples", "--num_shards=3"),
    "flat": ("examples", "--naming=flat", "--num_shards=3"),
    "text": ("text", "--task=mlm"),
}


@pytest.mark.parametrize("there", ["whole", "damaged", "no manifest", "unfinished", "mark alone"])
@pytest.mark.parametrize("job", OTHER_JOBS)
def test_no_later_job_replaces_the_shards(
    copied: tuple[Path, State], tmp_path: Path, there: str, job: str,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    folder, before = copied
    if there in ("damaged", "mark alone"):
        (folder / "_meta/manifest.json").write_bytes(b'{"cut')
        if there == "mark alone":
            (folder / "_SUCCESS").unlink()
            (folder / "_meta/config.yaml").unlink()
        else:
            (folder / "_meta/in_place.txt").unlink()
    elif there == "no manifest":
        (folder / "_meta/manifest.json").unlink()
    elif there == "unfinished":
        shutil.rmtree(folder / "_meta")
        for name in ("_SUCCESS", "dataset_info.json", "features.json"):
            (folder / name).unlink()
        (folder / "_tmp/done").mkdir(parents=True)
        mark = {"work": f"{folder}/_tmp", "run": "a" * 16, "in_place": True}
        (folder / "_tmp/of_recordmill").write_text(json.dumps(mark))
    first = state(folder)
    write_records(tmp_path / "in/x", numbered(40))
    (tmp_path / "in/text.txt").write_text("a b c\n\nd e f\n")
    (tmp_path / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\nb\n")
    name, *flags = OTHER_JOBS[job]
    source = "text.txt" if name == "text" else "x"
    vocab = [f"--vocab_file={tmp_path}/vocab.txt"] if name == "text" else []
    line = [name, f"--input={tmp_path}/in/{source}", f"--output={folder}", "--overwrite", *flags,
            *vocab, "--direct_num_workers=1"]  # fmt: skip
    assert main(line) == 2
    assert "no command replaces or deletes them: choose another output" in error_of(capsys)
    assert state(folder) == first
    metadata(folder, before)


def test_the_settings_of_the_command_alone_keep_the_shards(
    made: tuple[Path, State], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "old"
    folder.mkdir()
    for name in made[1]:
        shutil.copy2(made[0] / name, folder / name)
    assert index(folder) == 0
    (folder / "_meta/manifest.json").write_bytes(b'{"cut')
    (folder / "_meta/in_place.txt").unlink()
    first = state(folder)
    write_records(tmp_path / "in/x", numbered(40))
    line = ["examples", f"--input={tmp_path}/in/x", f"--output={folder}", "--overwrite"]
    assert main([*line, "--direct_num_workers=1"]) == 2
    assert "no command replaces or deletes them: choose another output" in error_of(capsys)
    assert state(folder) == first


def test_no_pipeline_of_a_user_replaces_them(copied: tuple[Path, State]) -> None:
    import apache_beam as beam

    from recordmill.transforms import WriteExamples

    folder, before = copied
    pipeline = beam.Pipeline(runner="DirectRunner")
    records = pipeline | beam.Create(numbered(5))
    records | WriteExamples(str(folder), overwrite=True)
    with pytest.raises(Exception, match="no command replaces or deletes them"):
        pipeline.run()
    metadata(folder, before)


def test_a_commit_never_renames_over_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # The last line of defence: whatever planning did not see, such as a file that came meanwhile.
    write_records(tmp_path / "in/x", numbered(40))
    target = tmp_path / "ds/train/train-00000-of-00002.tfrecords"
    replace = committing._remove_replaced

    def late(*arguments: Any) -> None:
        replace(*arguments)
        target.parent.mkdir(parents=True)
        target.write_bytes(b"mine")

    monkeypatch.setattr(committing, "_remove_replaced", late)
    line = ["examples", f"--input={tmp_path}/in/x", f"--output={tmp_path}/ds", "--num_shards=2",
            "--direct_num_workers=1"]  # fmt: skip
    assert main(line) == 1
    assert "is there, and this run did not write it; move it away" in error_of(capsys)
    assert target.read_bytes() == b"mine"


def test_a_dataset_of_ours_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_records(tmp_path / "in/x", numbered(40))
    line = ["examples", f"--input={tmp_path}/in/x", f"--output={tmp_path}/ds", "--num_shards=2",
            "--direct_num_workers=1"]  # fmt: skip
    assert main(line) == 0
    first = state(tmp_path / "ds")
    for flags in ((), ("--overwrite",)):
        given = (f"--input={tmp_path}/ds/train/*.tfrecords", f"--output={tmp_path}/ds", *flags)
        assert run(*given) == 2
        assert "is a dataset of recordmill, and has its metadata" in error_of(capsys)
        assert state(tmp_path / "ds") == first


@pytest.mark.parametrize("step", range(0, 9, 2))
def test_a_commit_that_was_cut_short_is_finished_by_the_same_command(
    made: tuple[Path, State], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    folder = tmp_path / "old"
    folder.mkdir()
    for name in made[1]:
        shutil.copy2(made[0] / name, folder / name)
    before, calls = state(folder), 0

    def failing(act: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls > step:
                raise OSError(5, "the disk is gone")
            return act(*arguments)

        return call

    class Failing:
        rename = staticmethod(failing(files.rename))
        write_bytes = staticmethod(failing(files.write_bytes))

        def __getattr__(self, name: str) -> Any:
            return getattr(files, name)

    with monkeypatch.context() as patched:
        patched.setattr(committing, "files", Failing())
        assert run(f"--input={folder}/*.tfrecord") == 1
    assert not (folder / "_SUCCESS").exists()
    metadata(folder, before)
    # A run of something else is kept from the folder meanwhile.
    write_records(tmp_path / "in/x", numbered(40))
    other = ["examples", f"--input={tmp_path}/in/x", f"--output={folder}", "--overwrite",
             "--direct_num_workers=1"]  # fmt: skip
    assert main(other) == 2
    metadata(folder, before)
    assert run(f"--input={folder}/*.tfrecord") == 0
    assert not (folder / "_tmp").exists()
    assert metadata(folder, before).keys() == metadata(*made).keys()
    assert main(["verify", str(folder)]) == 0


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("change", [lambda p: p.write_bytes(p.read_bytes()[::-1]), Path.unlink])
def test_a_shard_that_changes_behind_its_reading_ends_the_run(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    change: Callable[[Path], object],
    late: bool,
) -> None:
    folder = tmp_path / "old"
    shards(folder)
    shard = folder / "train-00001-of-00003.tfrecord"
    content = shard.read_bytes()
    name = "_publish" if late else "_read_finished"  # of the commit
    act = getattr(committing, name)

    def changed(*arguments: Any) -> Any:
        result = act(*arguments)
        change(shard)
        return result

    with monkeypatch.context() as patched:
        patched.setattr(committing, name, changed)
        assert run(f"--input={folder}/*.tfrecord") == 1
    assert f"{shard} changed since" in (error := error_of(capsys)) or "was removed" in error
    assert not (folder / "_SUCCESS").exists()
    shard.write_bytes(content)
    assert run(f"--input={folder}/*.tfrecord", "--overwrite") == 0
    assert main(["verify", str(folder)]) == 0


_KILLED = """
import sys
from pathlib import Path
from recordmill.pipelines.command_line import main
from tests.faults.shim import KillWhenThere
KillWhenThere(Path(sys.argv[1]), "_tmp/done/*", int(sys.argv[2])).install()
flags = ["--in_place_metadata", f"--input={sys.argv[1]}/train-*", "--direct_num_workers=1"]
sys.exit(main(["examples", *flags]))
"""


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_killed_at_some_moment(tmp_path: Path, seed: int) -> None:
    folder = tmp_path / "old"
    for i in range(40):
        write_records(folder / f"train-{i:05d}-of-00040", numbered(2000 * i + 2000, 2000 * i))
    before = state(folder)
    line = [sys.executable, "-c", _KILLED, str(folder), str(4 + 12 * seed)]
    assert subprocess.run(line, cwd=ROOT, capture_output=True).returncode == -signal.SIGKILL
    assert len(list(folder.glob("_tmp/done/*"))) == 4 + 12 * seed
    metadata(folder, before)
    assert run(f"--input={folder}/train-*", workers=2) == 0
    metadata(folder, before)
    assert main(["verify", str(folder)]) == 0


def test_verify_names_shards_that_changed(
    copied: tuple[Path, State], capsys: pytest.CaptureFixture[str]
) -> None:
    folder, _ = copied
    path = folder / "train-00001-of-00003.tfrecord"
    data = bytearray(path.read_bytes())
    data[40] ^= 1
    path.write_bytes(data)
    (folder / "validation-00000-of-00002.tfrecord").unlink()
    (folder / "train-other.tfrecord").write_bytes(b"not in the metadata")
    assert main(["verify", str(folder)]) == 1
    told = capsys.readouterr()
    assert "train-00001-of-00003.tfrecord: record 0 at byte 0: checksum of the data" in told.out
    assert "validation-00000-of-00002.tfrecord: missing" in told.out
    assert "train-other" not in told.out, "the folder is not ours"
    assert "make their metadata anew with --overwrite" in told.err


def test_a_shard_that_is_gone_is_named_by_the_reader(copied: tuple[Path, State]) -> None:
    from recordmill.reader import load
    from recordmill.records.errors import UsageError

    folder, _ = copied
    (folder / "train-00001-of-00003.tfrecord").unlink()
    with pytest.raises(UsageError, match=r"lacks train-00001-of-00003.tfrecord; put it back"):
        load(folder, "train", batch_size=10)


def test_damaged_records_are_named_and_a_new_copy_is_taken(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "old"
    shards(folder)
    good = (folder / "train-00001-of-00003.tfrecord").read_bytes()
    bad = bytearray(good)
    second = int.from_bytes(good[:8], "little") + 16
    bad[second + 14] ^= 1
    (folder / "train-00001-of-00003.tfrecord").write_bytes(bad)
    path = folder / "train-00002-of-00003.tfrecord"
    path.write_bytes(path.read_bytes()[:-3])
    before = state(folder)
    for workers in (1, 2):
        assert run(f"--input={folder}/train*", workers=workers) == 1
        told = error_of(capsys)
        assert told.startswith("recordmill: 2 records in 2 files cannot be used as they are")
        assert f"train-00001-of-00003.tfrecord at byte {second} (checksum of the data" in told
        assert "train-00002-of-00003.tfrecord at byte" in told
        assert "with `recordmill examples` and --max_rejected=SHARE" in told
        now = state(folder)
        assert {name: now[name] for name in before} == before
        assert not (folder / "_meta").exists()
    (folder / "train-00001-of-00003.tfrecord").write_bytes(good)
    write_records(path, numbered(3))
    before = {name: found for name, found in state(folder).items() if name.startswith("train")}
    assert run(f"--input={folder}/train*") == 0
    assert manifest(folder)["counts"]["examples"] == 43
    assert not (folder / "_tmp").exists()
    metadata(folder, before)


NAMINGS: dict[str, tuple[dict[str, int], dict[str, list[str]], bool]] = {
    # files and their records -> the splits in order, whether TFDS reads them
    "tfds": (
        {"cats-train.tfrecord-00000-of-00002": 3, "cats-train.tfrecord-00001-of-00002": 4,
         "cats-odd_ones.tfrecord-00000-of-00001": 2},
        {"train": ["cats-train.tfrecord-00000-of-00002", "cats-train.tfrecord-00001-of-00002"],
         "odd_ones": ["cats-odd_ones.tfrecord-00000-of-00001"]}, True,
    ),
    "folders": (
        {"train/part-00000": 3, "train/part-00001": 2, "val/part-00000": 2},
        {"train": ["train/part-00000", "train/part-00001"], "val": ["val/part-00000"]}, True,
    ),
    "tfx": (
        {"Split-train/data-00000-of-00001": 3, "Split-eval/data-00000-of-00001": 3},
        {"train": ["Split-train/data-00000-of-00001"],
         "eval": ["Split-eval/data-00000-of-00001"]}, True,
    ),
    "one of each": (
        {"coco_train.record": 3, "coco_val.record": 1},
        {"train": ["coco_train.record"], "val": ["coco_val.record"]}, True,
    ),
    "any": (
        {"b-10.tfrecord": 3, "b-2.tfrecord": 1, "a.tfrecord": 1, "a.tfrecords": 1},
        {"train": ["a.tfrecord", "a.tfrecords", "b-2.tfrecord", "b-10.tfrecord"]}, False,
    ),
    "empty shard": (
        {"train-00000-of-00002": 3, "train-00001-of-00002": 0},
        {"train": ["train-00000-of-00002", "train-00001-of-00002"]}, True,
    ),
    "odd digits": (
        {"train-1-of-2": 3, "train-2-of-2": 2},
        {"train": ["train-1-of-2", "train-2-of-2"]}, False,
    ),
}  # fmt: skip


@pytest.mark.parametrize("naming", NAMINGS)
def test_names_of_other_tools(
    tmp_path: Path, naming: str, capsys: pytest.CaptureFixture[str]
) -> None:
    from recordmill.reader import load

    folder = tmp_path / "old"
    given, splits, has_template = NAMINGS[naming]
    for name, count in given.items():
        write_records(folder / name, numbered(count))
    before = state(folder)
    assert run(f"--input={folder}") == 0
    capsys_err = capsys.readouterr().err
    metadata(folder, before)
    told: dict[str, list[str]] = {}
    for shard in manifest(folder)["shards"]:
        told.setdefault(shard["split"], []).append(shard["file"])
    assert told == splits
    assert main(["verify", str(folder)]) == 0
    for split, names in splits.items():
        count = sum(given[name] for name in names)
        batches = load(folder, split, batch_size=1, epochs=1)
        assert len(list(batches)) == count
    assert (folder / "dataset_info.json").exists() == has_template
    assert ("TFDS does not" in capsys_err) == (not has_template)
    if has_template:
        import tensorflow_datasets as tfds

        builder = tfds.builder_from_directory(str(folder))
        for split, names in splits.items():
            found = list(tfds.as_numpy(builder.as_dataset(split)))
            assert len(found) == sum(given[name] for name in names)


def test_the_input_may_name_the_splits_and_the_output_the_folder(tmp_path: Path) -> None:
    write_records(tmp_path / "old/x/a", numbered(3))
    write_records(tmp_path / "old/x/b", numbered(2))
    flags = (f"--input=train={tmp_path}/old/x/a", f"--input=held_out={tmp_path}/old/x/b")
    assert run(*flags, f"--output={tmp_path}/old") == 0
    told = {s["split"]: s["file"] for s in manifest(tmp_path / "old")["shards"]}
    assert told == {"train": "x/a", "held_out": "x/b"}
    assert main(["verify", str(tmp_path / "old")]) == 0


def test_a_relative_glob(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    shards(tmp_path / "old")
    monkeypatch.chdir(tmp_path)
    assert run("--input=old/*.tfrecord") == 0
    assert capsys.readouterr().out.startswith("old  train: 60 examples in 3 shards")
    monkeypatch.chdir(tmp_path / "old")
    assert run("--input=*") == 0
    assert "is complete: nothing to do" in capsys.readouterr().out


@pytest.mark.parametrize("compression", ["GZIP", "ZLIB"])
def test_compressed_shards_have_no_random_access(
    tmp_path: Path, compression: str, capsys: pytest.CaptureFixture[str]
) -> None:
    from recordmill.reader import RecordTable, load
    from recordmill.records.errors import UsageError

    folder = tmp_path / "old"
    for i in range(2):
        write_records(folder / f"train-{i}.gz", numbered(20 * i + 20, 20 * i), compression)
    if compression == "GZIP":  # as `cat` and bgzip make them
        parts = [framed(numbered(5)), framed(numbered(30, 5)), b""]
        (folder / "train-2.gz").write_bytes(b"".join(map(gzip.compress, parts)))
    before = state(folder)
    assert run(f"--input={folder}/*.gz") == 0
    told = capsys.readouterr().err
    assert f"the files are {compression}: recordmill.reader shuffles whole files and has no" in told
    metadata(folder, before)
    assert not (folder / "dataset_info.json").exists()
    assert main(["verify", str(folder)]) == 0
    count = 70 if compression == "GZIP" else 40
    found = [int(i) for batch in load(folder, "train", batch_size=5, epochs=1) for i in batch["id"]]
    assert len(found) == count == manifest(folder)["counts"]["examples"]
    with pytest.raises(UsageError, match="random access needs shards without compression"):
        RecordTable(folder, "train")


def write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


WRONG: dict[str, tuple[Callable[[Path], object], str]] = {
    "mixed": (
        lambda f: [write_records(f / c, numbered(2), c) for c in ("ZLIB", "GZIP")],
        "must be compressed in one way, and are not",
    ),
    "two streams": (
        lambda f: write(f / "a", zlib.compress(framed(numbered(2))) * 2),
        "more than one ZLIB stream, of which TensorFlow reads the first alone",
    ),
    "bz2": (lambda f: write(f / "a", b"BZh91AY&SY0000"), "is compressed as bz2"),
    "text": (lambda f: write(f / "a", b"once upon a time"), "must match TFRecord files alone"),
    "table": (lambda f: write(f / "a.csv", b"a,b\n1,2\n"), "is for TFRecords, and"),
    "lacks one": (
        lambda f: (shards(f), (f / "train-00001-of-00003.tfrecord").unlink()),
        "matches 2 of the 3 files that their names promise, and lacks "
        "train-00001-of-00003.tfrecord; copy them there",
    ),
    "some splits": (
        lambda f: (write_records(f / "train-1", numbered(2)), write_records(f / "b", numbered(2))),
        "b names no split, and other files do",
    ),
    "empty": (lambda f: write(f / "a", b""), "matches only empty files"),
    "metadata": (lambda f: write(f / "features.json", b"{}"), "matches only metadata"),
    "schema": (
        lambda f: (shards(f), write(f.parent / "schema.json", json.dumps({"features": [
            {"name": "id", "dtype": "bytes", "shape": [], "meaning": ""}]}).encode())),
        "not as --schema says",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_what_cannot_be_done_is_one_line(
    tmp_path: Path, case: str, capsys: pytest.CaptureFixture[str]
) -> None:
    fill, expected = WRONG[case]
    fill(tmp_path / "old")
    before = state(tmp_path / "old")
    schema = tmp_path / "schema.json"
    flags = [f"--schema={schema}"] if schema.exists() else []
    assert run(f"--input={tmp_path}/old/*", *flags) in (1, 2)
    assert expected in error_of(capsys)
    now = state(tmp_path / "old")
    assert {name: now[name] for name in before} == before
    assert not (tmp_path / "old/_SUCCESS").exists()


def test_files_elsewhere_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shards(tmp_path / "old")
    assert run(f"--input={tmp_path}/old/*", f"--output={tmp_path}/new") == 2
    assert "needs all files in one folder" in error_of(capsys)
    assert not (tmp_path / "new").exists()
    (tmp_path / "links").mkdir()
    (tmp_path / "links/train-0").symlink_to(tmp_path / "old/train-00000-of-00003.tfrecord")
    assert run(f"--input={tmp_path}/links/*") == 2
    assert "needs all files in one folder" in error_of(capsys)


def test_a_folder_that_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shards(tmp_path / "old")
    open_ = os.open

    def refuse(path: Any, flags: int, *rest: Any, **named: Any) -> int:
        if flags & os.O_WRONLY and str(path).startswith(str(tmp_path / "old")):
            raise OSError(30, "Read-only file system", path)
        return open_(path, flags, *rest, **named)

    monkeypatch.setattr(os, "open", refuse)
    assert run(f"--input={tmp_path}/old/*") == 2
    told = error_of(capsys)
    assert "cannot be written: Read-only file system; make the folder writable, or write copies" \
        in told  # fmt: skip


FLAGS = (
    "--num_shards=2", "--shard_size=1MB", "--num_readers=2", "--order=input",
    "--key=id --order=key", "--map=a.py:b", "--map_errors=fail", "--where=id>1",
    "--deduplicate", "--weights=1",
    "--splits=train:0.5,test:0.5", "--naming=flat", "--extension=tfrecord", "--compression=GZIP",
    "--columns=a", "--header=none --columns=a", "--delimiter=;", "--quoting=none",
    "--random_seed=1", "--max_rejected=0.5", "--limit=9", "--input_format=parquet",
    "--allow_outside=/x", "--skip_files=/x",
)  # fmt: skip


@pytest.mark.parametrize("flag", FLAGS)
def test_flags_without_effect_are_refused(flag: str) -> None:
    given = dict(each.removeprefix("--").partition("=")[::2] for each in flag.split())
    values: dict[str, object] = {name: value or True for name, value in given.items()}
    with naming_flags(), pytest.raises(UsageError) as error:
        build(ExamplesSpec, {"input": "old/*", "in_place_metadata": True} | values)
    named = "|".join(given)
    message = rf"--({named}) has no effect with --in_place_metadata, .*; leave it out"
    assert re.fullmatch(message, str(error.value))


def test_every_flag_is_refused_or_taken() -> None:
    taken = {"input", "in_place_metadata", "output", "overwrite", "schema", "temp_dir", "warnings"}
    refused = {each.removeprefix("--").partition("=")[0] for flag in FLAGS for each in flag.split()}
    assert {*options_of(ExamplesSpec)} == {*taken, *refused}
    assert {*options_of(IndexSpec)} == taken - {"in_place_metadata", "output"} | {"dataset"}


def test_metadata_of_tfds_stays(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "old"
    shards(folder)
    for name in ("dataset_info.json", "features.json"):
        write(folder / name, b'{"by": "tfds"}')
    before = state(folder)
    for flags in ((), ("--overwrite",)):
        assert run(f"--input={folder}/*", *flags) == 0
        told = capsys.readouterr().err
        assert "dataset_info.json and features.json of another tool stay as they are" in told
        metadata(folder, before)
    assert main(["verify", str(folder)]) == 0


def test_metadata_of_tfds_stays_where_the_manifest_is_damaged(tmp_path: Path) -> None:
    folder = tmp_path / "old"
    shards(folder)
    for name in ("dataset_info.json", "features.json"):
        write(folder / name, b'{"by": "tfds"}')
    before = state(folder)
    assert run(f"--input={folder}/*.tfrecord") == 0
    (folder / "_meta/manifest.json").write_bytes(b"}")
    assert run(f"--input={folder}/*.tfrecord", "--overwrite") == 0
    metadata(folder, before)
    assert main(["verify", str(folder)]) == 0


@pytest.mark.parametrize("damaged", [b"", b"Of another tool: \xff\xfe\n"])
def test_metadata_of_tfds_stays_where_the_note_is_damaged(tmp_path: Path, damaged: bytes) -> None:
    folder = tmp_path / "old"
    shards(folder)
    write(folder / "dataset_info.json", b'{"by": "tfds"}')
    before = state(folder)
    assert run(f"--input={folder}/*.tfrecord") == 0
    first = metadata(folder, before)
    (folder / "_meta/in_place.txt").write_bytes(damaged)
    assert run(f"--input={folder}/*.tfrecord", "--overwrite") == 0
    assert metadata(folder, before) == first
    assert main(["verify", str(folder)]) == 0


def test_metadata_of_a_run_that_was_killed_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "old"
    shards(folder)
    write_bytes = files.write_bytes

    def failing(path: str, *rest: Any) -> None:
        if path.endswith("manifest.json"):
            raise OSError(5, "the disk is gone")
        write_bytes(path, *rest)

    with monkeypatch.context() as patched:
        patched.setattr(files, "write_bytes", failing)
        assert run(f"--input={folder}/*.tfrecord") == 1
    assert (folder / "dataset_info.json").exists()
    shards(folder, start=7)
    write_records(folder / "train-00000-of-00003.tfrecord", numbered(50))
    assert run(f"--input={folder}/*.tfrecord", "--overwrite") == 0
    (split,) = json.loads((folder / "dataset_info.json").read_bytes())["splits"]
    assert split["shardLengths"][0] == "50"


def test_a_folder_that_looks_like_a_temporary_one_stays(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "old"
    shards(folder)
    write_records(folder / "_tmp/shards/b.tfrecord", numbered(3))
    before = state(folder)
    assert run(f"--input={folder}/*.tfrecord") == 2
    assert "holds others; move them" in error_of(capsys)
    metadata(folder, before)


@pytest.mark.parametrize("again", [(), ("--overwrite",)])
def test_what_a_command_did_not_finish_behind_its_end_is_removed(
    copied: tuple[Path, State], again: tuple[str, ...]
) -> None:
    folder, before = copied
    partial = folder / "_tmp/partial"
    partial.mkdir(parents=True)
    (partial / ".run.json.0123456789ab.tmp").write_text("{")
    assert run(f"--input={folder}/*.tfrecord", *again) == 0
    metadata(folder, before)
    assert not (folder / "_tmp").exists()
    partial.mkdir(parents=True)  # another tool's, with whatever is in it
    (partial / ".run.json.0123456789ab.tmp").write_text("{")
    (partial / "mine").write_text("of the user")
    assert run(f"--input={folder}/*.tfrecord") == 0
    assert len(list(partial.iterdir())) == 2


def test_a_job_of_a_run_that_another_has_committed(
    made: tuple[Path, State], tmp_path: Path
) -> None:
    folder = tmp_path / "old"
    folder.mkdir()
    for name in made[1]:
        shutil.copy2(made[0] / name, folder / name)
    before = state(folder)
    with twice():
        assert run(f"--input={folder}/*.tfrecord") == 0
    assert metadata(folder, before).keys() == metadata(*made).keys()
    assert not (folder / "_tmp").exists()


def test_records_without_a_schema(tmp_path: Path) -> None:
    from recordmill.reader import load

    folder = tmp_path / "old"
    write_records(folder / "a", [b"no example", message((0x12, b"x"))])
    write_records(folder / "b", [example(a=1)])
    assert run(f"--input={folder}/*") == 0
    assert manifest(folder)["features"] == []
    assert not (folder / "dataset_info.json").exists()
    assert main(["verify", str(folder)]) == 0
    assert len(list(load(folder, "train", batch_size=1, epochs=1))) == 3


def test_from_a_program(tmp_path: Path) -> None:
    shards(tmp_path / "old")
    dataset = write_examples_dataset(
        input=f"{tmp_path}/old/*.tfrecord", in_place_metadata=True, direct_num_workers=1
    )
    assert dataset.splits == {"train": 60}
    assert Path(dataset.path) == tmp_path / "old"


def test_there_is_no_estimate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shards(tmp_path / "old")
    assert main(["plan", "examples", "--in_place_metadata", f"--input={tmp_path}/old/*"]) == 2
    assert "--in_place_metadata has no estimate" in error_of(capsys)


def test_stems_of_indexes_do_not_meet() -> None:
    one = ShardName("train", 0, 2, file="a.tfrecord")
    two = ShardName("train", 1, 2, file="a.tfrecords")
    assert one.index_path != two.index_path
    assert ".tfrecord" not in one.index_path
