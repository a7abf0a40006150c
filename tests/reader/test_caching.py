"""Copies of shards in TensorFlow's memory file system, as a stand-in for a bucket."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import tensorflow as tf

from recordmill.reader import caching, load
from recordmill.reader.caching import ShardCache
from recordmill.reader.dataset import open_dataset
from recordmill.records.errors import RunError, UsageError

from .small_datasets import ids, write_numbers

SIZES = [20, 30, 10]


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_numbers(tmp_path_factory.mktemp("local"), SIZES)


@pytest.fixture
def remote(local: Path, tmp_path: Path) -> str:
    folder = f"ram://cached/{tmp_path.name}"
    for path in local.rglob("*"):
        if path.is_file():
            name = f"{folder}/{path.relative_to(local)}"
            tf.io.gfile.makedirs(name.rpartition("/")[0])
            with tf.io.gfile.GFile(name, "wb") as handle:
                handle.write(path.read_bytes())
    return folder


def release() -> None:
    """Releases what this process holds, as its end does."""
    while caching._held:
        os.close(caching._held.popitem()[1])


@pytest.fixture(autouse=True)
def release_at_the_end() -> Iterator[None]:
    yield
    release()


def sizes(folder: Path) -> list[int]:
    return sorted(path.stat().st_size for path in folder.iterdir() if path.name != ".lock")


def shard_bytes(remote: str) -> list[int]:
    return [shard.file_bytes for shard in open_dataset(remote).split("train").shards]


def test_the_second_reading_is_local(remote: str, tmp_path: Path) -> None:
    cache = str(tmp_path / "cache")
    first = ids(load(remote, "train", batch_size=6, cache_dir=cache))
    assert sizes(tmp_path / "cache") == sorted(shard_bytes(remote))
    shard = f"{remote}/train/train-00001-of-00003.tfrecords"
    with tf.io.gfile.GFile(shard, "wb") as handle:
        handle.write(b"no longer a shard")
    assert ids(load(remote, "train", batch_size=6, cache_dir=cache)) == first


def test_a_wrong_checksum_is_named(remote: str, tmp_path: Path) -> None:
    shard = f"{remote}/train/train-00001-of-00003.tfrecords"
    with tf.io.gfile.GFile(shard, "rb") as handle:
        content = bytearray(handle.read())
    content[50] ^= 1
    with tf.io.gfile.GFile(shard, "wb") as handle:
        handle.write(bytes(content))
    with pytest.raises(RunError, match=r"train-00001-of-00003.tfrecords must have .* crc32c"):
        load(remote, "train", batch_size=6, cache_dir=str(tmp_path / "cache"))
    assert not list((tmp_path / "cache").glob("*.part"))
    assert len(sizes(tmp_path / "cache")) <= 2


def test_the_limit_holds_and_the_rest_is_read_remotely(remote: str, tmp_path: Path) -> None:
    limit = sum(shard_bytes(remote)) - 1
    dataset = open_dataset(remote)
    shards = dataset.split("train").shards
    paths = ShardCache(str(tmp_path / "cache"), limit).fetch(dataset, shards)
    assert 1 <= sum(path.startswith("ram://") for path in paths) <= 2
    assert sum(sizes(tmp_path / "cache")) <= limit
    found = load(remote, "train", batch_size=6, cache_dir=str(tmp_path / "cache"),
                 cache_bytes=limit)  # fmt: skip
    assert sorted(ids(found)) == list(range(60))


def test_what_nobody_holds_makes_room(remote: str, tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    folder.mkdir()
    (folder / "00000000-9.shard").write_bytes(b"x" * 900)
    (folder / "left-by-a-dead-process.part").write_bytes(b"x" * 900)
    dataset = open_dataset(remote)
    shards = dataset.split("train").shards
    limit = sum(shard_bytes(remote))
    paths = ShardCache(str(folder), limit).fetch(dataset, shards)
    assert all(path.startswith(str(folder)) for path in paths)
    assert sizes(folder) == sorted(shard_bytes(remote))


def test_what_is_held_stays(remote: str, tmp_path: Path) -> None:
    dataset = open_dataset(remote)
    first, second, _ = dataset.split("train").shards
    cache = ShardCache(str(tmp_path / "cache"), max(first.file_bytes, second.file_bytes))
    (held,) = cache.fetch(dataset, [first])
    assert cache.fetch(dataset, [second]) == [dataset.file(second.name.path)]
    assert Path(held).exists()
    release()
    (other,) = cache.fetch(dataset, [second])
    assert other != held
    assert not Path(held).exists()


def test_what_is_held_is_opened_once(remote: str, tmp_path: Path) -> None:
    dataset = open_dataset(remote)
    shards = dataset.split("train").shards
    for _ in range(3):
        paths = ShardCache(str(tmp_path / "cache"), 1 << 20).fetch(dataset, shards)
        assert len(caching._held) == len(shards)
    Path(paths[0]).unlink()
    assert ShardCache(str(tmp_path / "cache"), 1 << 20).fetch(dataset, shards) == paths
    assert len(caching._held) == len(shards)
    held = os.fstat(caching._held[Path(paths[0])])
    assert os.path.samestat(held, Path(paths[0]).stat())


_FEW_DESCRIPTORS = """
    import os, resource, sys
    from recordmill.reader.caching import ShardCache
    from recordmill.reader.dataset import open_dataset
    import google_crc32c, tensorflow
    dataset = open_dataset(sys.argv[1])
    shards = dataset.split("train").shards
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = os.dup(0)
    os.close(free)
    for limit in (free, 2 * (free + 20)):
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, most))
        paths = ShardCache(sys.argv[2], 1 << 20).fetch(dataset, shards)
        print(sum(path.startswith(sys.argv[2]) for path in paths))
"""


@pytest.mark.slow
def test_descriptors_are_left_for_others(tmp_path: Path) -> None:
    dataset = write_numbers(tmp_path / "local", [1] * 80)
    found = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(_FEW_DESCRIPTORS), str(dataset),
         str(tmp_path / "cache")],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert found.returncode == 0, found.stderr
    none, some = map(int, found.stdout.split())
    assert none == 0
    assert 0 < some < 80


_FILL = """
    import sys
    from recordmill.reader.caching import ShardCache
    from recordmill.reader.dataset import open_dataset
    dataset = open_dataset(sys.argv[1])
    shards = dataset.split("train").shards
    for _ in range(20):
        paths = ShardCache(sys.argv[2], int(sys.argv[3])).fetch(dataset, shards)
        for path, shard in zip(paths, shards):
            assert len(open(path, "rb").read()) == shard.file_bytes, path
"""


@pytest.mark.slow
def test_several_processes_share_a_folder(local: Path, tmp_path: Path) -> None:
    limit = sum(shard_bytes(str(local))) - 1
    command = [
        sys.executable, "-c", textwrap.dedent(_FILL), str(local), str(tmp_path / "cache"),
        str(limit),
    ]  # fmt: skip
    running = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    for process in running:
        _, errors = process.communicate()
        assert process.returncode == 0, errors
    assert sum(sizes(tmp_path / "cache")) <= limit


def one_shard(remote: str, folder: Path) -> Path:
    """Fetches the first shard, releases it, and returns its copy."""
    dataset = open_dataset(remote)
    (path,) = ShardCache(str(folder), 1 << 20).fetch(dataset, dataset.split("train").shards[:1])
    release()
    return Path(path)


def damage(entry: Path) -> None:
    data = bytearray(entry.read_bytes())
    data[40] ^= 1
    entry.write_bytes(data)


def swap_with_other(entry: Path) -> None:
    entry.with_suffix(".other").write_bytes(entry.read_bytes()[::-1])
    entry.with_suffix(".other").rename(entry)


def make_link(entry: Path) -> None:
    entry.rename(entry.with_suffix(".elsewhere"))
    entry.symlink_to(entry.with_suffix(".elsewhere"))


def make_pipe(entry: Path) -> None:
    entry.unlink()
    os.mkfifo(entry)


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "change",
    [damage, swap_with_other, make_link, make_pipe, lambda entry: os.truncate(entry, 10)],
)
@pytest.mark.parametrize("held", [False, True])
def test_a_copy_that_is_wrong_is_replaced(
    local: Path, remote: str, tmp_path: Path, change: Callable[[Path], object], held: bool
) -> None:
    folder = tmp_path / "cache"
    entry = one_shard(remote, folder)
    right = entry.read_bytes()
    if held:
        assert one_shard_held(remote, folder) == entry
    change(entry)
    assert sorted(ids(load(remote, "train", batch_size=6, cache_dir=str(folder)))) == [*range(60)]
    assert entry.read_bytes() == right
    assert not entry.is_symlink()


def one_shard_held(remote: str, folder: Path) -> Path:
    dataset = open_dataset(remote)
    return Path(*ShardCache(str(folder), 1 << 20).fetch(dataset, dataset.split("train").shards[:1]))


def test_a_copy_is_read_again_only_where_somebody_wrote_to_it(
    remote: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checked = []
    check = caching.has_checksum
    monkeypatch.setattr(caching, "has_checksum", lambda *a: checked.append(a) or check(*a))
    entry = one_shard(remote, tmp_path / "cache")
    inode = entry.stat().st_ino
    assert one_shard(remote, tmp_path / "cache") == entry
    assert not checked
    os.utime(entry)
    for _ in range(2):
        assert one_shard(remote, tmp_path / "cache").stat().st_ino == inode
    assert len(checked) == 1


@pytest.mark.timeout(60)
def test_what_is_not_ours_in_the_folder_stays(remote: str, tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    entry = one_shard(remote, folder)
    entry.unlink()
    entry.mkdir()
    (entry / "notes").write_bytes(b"x")
    os.mkfifo(folder / "pipe.shard")
    (folder / "notes.txt").write_bytes(b"x" * 2000)
    (folder / "gone.part").symlink_to("nowhere")
    limit = sum(shard_bytes(remote))
    found = load(remote, "train", batch_size=6, cache_dir=str(folder), cache_bytes=limit)
    assert sorted(ids(found)) == list(range(60))
    assert (entry / "notes").exists()
    assert (folder / "notes.txt").exists()


def failing(*arguments: object, **options: object) -> None:
    raise OSError(errno.EROFS, os.strerror(errno.EROFS))


@pytest.mark.parametrize("call", ["os.open", "Path.open", "Path.mkdir", "Path.rename"])
def test_a_cache_that_cannot_be_written_is_gone_around(
    remote: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    if call == "os.open":
        (tmp_path / "cache").mkdir()
        (tmp_path / "cache/.lock").mkdir()  # what no process can open for writing
    else:
        monkeypatch.setattr(caching.Path, call.removeprefix("Path."), failing)
    with pytest.warns(RuntimeWarning, match="cache_dir .* cannot be written .*: shards that") as w:
        found = load(remote, "train", batch_size=6, cache_dir=str(tmp_path / "cache"))
    assert len(w) == 1
    monkeypatch.undo()
    assert sorted(ids(found)) == list(range(60))


def test_a_full_disk_is_gone_around(
    remote: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(remote: str, target: object, shard: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(caching, "_copy", full)
    with pytest.warns(RuntimeWarning, match="cannot be written .No space left on device."):
        found = load(remote, "train", batch_size=6, cache_dir=str(tmp_path / "cache"))
    assert sorted(ids(found)) == list(range(60))
    assert not list((tmp_path / "cache").glob("*.part"))


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(UsageError, match="cache_dir must be a folder"):
        ShardCache(str(tmp_path / "file"), 1)
