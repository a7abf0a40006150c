"""Jobs and files on a Google Cloud Storage that is slow to answer, refuses, or hangs up."""

from __future__ import annotations

import gc
import itertools
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from recordmill.pipelines.command_line import main
from recordmill.records.errors import RunError
from recordmill.transforms.dataset import commit as committing
from recordmill.transforms.storage import files, google_storage

from .cloud_storage import BUCKET, SILENT_SECONDS, Cloud, after, breaking, cloud, once, only
from .pipelines.jobs import CASES, JobCase, shard_bytes
from .reader.small_datasets import write_numbers
from .transforms.examples.record_files import example, write_records

__all__ = ["cloud"]

# Google's libraries and Beam leave sockets of lost connections to the garbage collector.
pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

ROOT = f"gs://{BUCKET}"
DATA = bytes(range(256)) * (3 << 10)  # 768 KiB


def stored_shards(output: str) -> dict[str, bytes]:
    found = sorted(files.list_files(output))
    return {
        path[len(output) + 1 :]: files.read_bytes(path)
        for path in found
        if path.endswith(".tfrecords") and "/_tmp/" not in path
    }


@pytest.fixture
def place(cloud: Cloud) -> Iterator[str]:
    """An empty folder."""
    yield f"{ROOT}/work"
    files.delete_folder(f"{ROOT}/work")
    cloud.watch()


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests are given up soon."""
    monkeypatch.setattr(google_storage, "patience", google_storage.Patience(0.01, 0.02, 0.1))


OPERATIONS: dict[str, Callable[[str], object]] = {
    "read": files.read_bytes,
    "open": files.open_read,
    "size": files.size,
    "list": files.list_files,
    "write": lambda path: files.write_bytes(path, b"x"),
    "delete": lambda path: files.delete_quietly([path]),
    "rename": lambda path: files.rename([path], [f"{path}-2"]),
}


@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_service_that_says_nothing_is_given_up(
    cloud: Cloud, place: str, operation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    files.write_bytes(f"{place}/x", DATA)
    quick = google_storage.Patience(0.01, 0.02, total=0.2, request=0.3)
    monkeypatch.setattr(google_storage, "patience", quick)
    began = time.monotonic()
    with cloud.failing(lambda *_: "silent"), pytest.raises(RunError, match=r"timed out|timeout"):
        OPERATIONS[operation](f"{place}/x")
    assert time.monotonic() - began < SILENT_SECONDS - 1


class TestFiles:
    def test_reads_what_was_written(self, place: str) -> None:
        path = f"{place}/a [1]*?#%é/x.bin"
        for data in (b"", b"x", DATA):
            files.write_bytes(path, data)
            assert files.read_bytes(path) == data
            assert files.read_bytes(path, 0, 1 << 29) == data
            assert files.read_bytes(path, 3, 5) == data[3:8]
            assert files.size(path) == len(data)
            with files.open_read(path) as handle:
                assert handle.read() == data
        assert files.list_files(place) == {path: len(DATA)}

    @pytest.mark.parametrize("size", [0, 1, (1 << 18) - 1, 1 << 18, (1 << 19) + 3])
    def test_writes_as_a_stream(self, place: str, size: int, monkeypatch) -> None:
        monkeypatch.setattr(google_storage, "WRITE_BYTES", 1 << 18)
        data = DATA[:size]
        with files.writing(f"{place}/x", f"{place}/partial") as handle:
            for at in range(0, size, 100_000):
                handle.write(data[at : at + 100_000])
            assert not files.exists(f"{place}/x")
        assert files.read_bytes(f"{place}/x") == data
        assert list(files.list_files(place)) == [f"{place}/x"]

    def test_seeks(self, place: str) -> None:
        path = f"{place}/x"
        files.write_bytes(path, DATA)
        with files.open_read(path, 100) as handle:
            assert handle.read(5) == DATA[100:105]
            for at in (700_000, 5, 6, 300_000, 299_999):
                handle.seek(at)
                assert handle.read(700) == DATA[at : at + 700]
            handle.seek(-3, 2)
            assert handle.read(10) == DATA[-3:]
            handle.seek(10, 1)
            assert handle.read() == b""

    def test_an_error_while_writing_leaves_what_was_there(self, place: str) -> None:
        path = f"{place}/x"
        files.write_bytes(path, b"old")
        with pytest.raises(TypeError), files.writing(path) as handle:
            handle.write(b"new" + None)  # type: ignore[operator]
        assert files.list_files(place) == {path: 3}

    def test_what_is_not_there(self, place: str) -> None:
        path = f"{place}/none"
        assert not files.exists(path)
        assert files.list_files(place) == {}
        files.delete_quietly([path])
        for read in (files.read_bytes, files.open_read):
            with pytest.raises(FileNotFoundError, match="no such file"):
                read(path)
        with pytest.raises(
            RunError, match=r"cannot rename gs://bucket/work/none to .*no such file"
        ):
            files.rename([path], [f"{place}/other"])
        with pytest.raises(FileNotFoundError, match="no such file or bucket"):
            files.write_bytes("gs://no-such-bucket/x", b"")

    def test_a_stored_encoding_is_not_undone(self, place: str, cloud: Cloud) -> None:
        blob = google_storage._blob(f"{place}/x")
        blob.content_encoding = "gzip"
        import gzip

        packed = gzip.compress(b"text")
        blob.upload_from_string(packed)
        assert files.read_bytes(f"{place}/x") == packed


class TestFaults:
    def use(self, place: str) -> None:
        path = f"{place}/x"
        with files.writing(path) as handle:
            handle.write(DATA)
        files.write_bytes(f"{place}/y", b"small")
        assert files.read_bytes(path) == DATA
        with files.open_read(path) as handle:
            assert handle.read() == DATA
        assert files.list_files(place) == {path: len(DATA), f"{place}/y": 5}
        files.rename([f"{place}/y"], [f"{place}/z"])
        files.delete_quietly([path, f"{place}/z"])
        assert files.list_files(place) == {}

    @pytest.mark.parametrize("fault", ["429", "503", "drop", "lose", "cut"])
    def test_passing_ones_are_not_seen(self, place: str, cloud: Cloud, fault: str) -> None:
        self.use(place)
        cloud.watch()
        self.use(place)
        requests = list(cloud.requests)
        for number, (method, _) in list(enumerate(requests))[len(fault) % 3 :: 3]:
            if fault in ("lose", "cut") and method == "PUT":
                continue  # Google takes a piece of an upload twice, the emulator does not
            with cloud.failing(only(number, fault)):
                self.use(place)

    def test_several_in_a_row(self, place: str, cloud: Cloud) -> None:
        files.write_bytes(f"{place}/x", DATA)
        with cloud.failing(once("503", "drop", "cut", "429", "lose", "cut", "500")):
            assert files.read_bytes(f"{place}/x") == DATA
            assert len(cloud.requests) == 8

    @pytest.mark.parametrize(
        ("fault", "error", "why"),
        [
            ("429", RunError, "429 Too Many Requests"),
            ("503", RunError, "503 Service Unavailable"),
            ("drop", RunError, "the connection was lost"),
            ("403", (RunError, PermissionError), "403 Forbidden"),
        ],
    )
    def test_lasting_ones_are_one_line(
        self, place: str, cloud: Cloud, impatient: None, fault: str, error: Any, why: str
    ) -> None:
        path = f"{place}/x"
        for act in (
            lambda: files.read_bytes(path),
            lambda: files.open_read(path),
            lambda: files.size(path),
            lambda: files.write_bytes(path, b"1"),
            lambda: self.write(path),
            lambda: files.list_files(place),
            lambda: files.delete_quietly([path]),
            lambda: files.rename([path], [f"{place}/y"]),
        ):
            with cloud.failing(after(0, fault)), pytest.raises(error, match=why) as caught:
                act()
            assert "\n" not in str(caught.value)
            assert "gs://bucket/work" in str(caught.value)
        assert files.list_files(place) == {}

    def write(self, path: str) -> None:
        with files.writing(path) as handle:
            handle.write(DATA)

    @pytest.mark.parametrize("written", [True, False])
    def test_what_failed_is_not_sent_again_when_it_is_forgotten(
        self, place: str, cloud: Cloud, impatient: None, written: bool
    ) -> None:
        def write() -> None:
            with files.writing(f"{place}/x") as handle:
                handle.write(DATA)
                if not written:
                    raise RunError("the writer failed")

        with cloud.failing(after(0, "drop")), pytest.raises(RunError):
            write()
        cloud.watch()
        gc.collect()
        assert cloud.requests == []
        assert files.list_files(place) == {}

    @pytest.mark.parametrize("fault", ["drop", "lose"])
    def test_nothing_is_cut_under_its_name(
        self, place: str, cloud: Cloud, impatient: None, fault: str, monkeypatch
    ) -> None:
        monkeypatch.setattr(google_storage, "WRITE_BYTES", 1 << 18)
        cloud.watch()
        self.write(f"{place}/x")
        for number in range(len(cloud.requests)):
            files.delete_folder(place)
            with cloud.failing(breaking(number, fault)), suppress(RunError):
                self.write(f"{place}/x")
            assert files.size(f"{place}/x") in (-1, len(DATA))

    def test_a_short_temporary_file_is_not_renamed(self, place: str, monkeypatch) -> None:
        monkeypatch.setattr(google_storage.GoogleStorage, "size", lambda self, path: 17)
        with pytest.raises(RunError, match="has 17 bytes where 786432 were written; check the"):
            self.write(f"{place}/x")
        monkeypatch.undo()


class TestCost:
    def test_of_many_files_is_few_requests(self, place: str, cloud: Cloud) -> None:
        paths = [f"{place}/{folder}/{i}" for folder in "ab" for i in range(75)]
        for path in paths:
            files.write_bytes(path, b"1")

        def cost(act: Callable[[], Any]) -> int:
            cloud.watch()
            act()
            return len(cloud.requests)

        assert cost(lambda: files.count(place, "1")) == 1
        assert cost(lambda: files.sizes([*paths, f"{place}/b/none"])) == 2
        moved = [f"{path}.moved" for path in paths]
        assert cost(lambda: files.rename(paths, moved)) == 4
        assert cost(lambda: list(files.read_many(moved))) == len(moved)
        assert cost(lambda: files.delete_folder(place)) == 3

    def test_of_memory_is_a_piece_for_each_open_writer(self, place: str) -> None:
        held = 0
        with files.writing(f"{place}/x") as handle:
            for _ in range(30):
                handle.write(DATA)
                held = max(held, len(handle._handle._buffer))  # type: ignore[attr-defined]
        assert held < google_storage.WRITE_BYTES == 8 << 20
        assert files.size(f"{place}/x") == 30 * len(DATA)

    def test_of_a_reader_is_what_it_wants(self, place: str, cloud: Cloud) -> None:
        files.write_bytes(f"{place}/x", DATA * 20)
        with files.open_read(f"{place}/x") as handle:
            cloud.watch()
            for at in (9_000_000, 1_000_000, 5_000_000):
                handle.seek(at)
                handle.read(30)
                assert len(handle._held) == 1 << 18  # type: ignore[attr-defined]
            handle.seek(0)
            held = 0
            while handle.read(100_000):
                held = max(held, len(handle._held))  # type: ignore[attr-defined]
        assert held <= google_storage.MOST_AHEAD_BYTES + 100_000
        assert len(cloud.requests) <= 3 + 9


@dataclass(frozen=True)
class Stored:
    """A job whose input lies in the bucket, and what it makes of it on a disk."""

    case: JobCase
    source: Any
    shards: dict[str, bytes]

    def run(self, output: str, *flags: str) -> int:
        return self.case.run(self.source, output, *(*self.case.flags, *flags))  # type: ignore[arg-type]


@pytest.fixture(
    scope="module",
    params=["text", "images", "examples", pytest.param("gpt", marks=pytest.mark.slow)],
)
def stored(
    request: pytest.FixtureRequest, cloud: Cloud, tmp_path_factory: pytest.TempPathFactory
) -> Stored:
    case, folder = CASES[request.param], tmp_path_factory.mktemp(f"{request.param}_stored")
    case.fill(folder / "input", 1)
    assert case.run(folder / "input", folder / "ds") == 0
    remote = f"{ROOT}/{request.param}-input"
    for path in sorted((folder / "input").rglob("*")):
        if path.is_file():
            name = path.relative_to(folder / "input")
            files.write_bytes(f"{remote}/{name}", path.read_bytes())
    return Stored(case, remote, shard_bytes(folder / "ds"))


class TestJobs:
    def test_same_bytes_and_verified(self, stored: Stored, place: str, cloud: Cloud) -> None:
        output = f"{place}/ds"
        cloud.watch()
        assert stored.run(output) == 0
        if stored.case.command == "images":
            name = stored.source.rpartition("/")[2]
            # Each copy once: two of 50 images in train, one of 10 in validation.
            assert cloud.count("GET", "/download/", f"{name}%2F") == 110
            assert cloud.count(f"GET /storage/v1/b/{BUCKET}/o/{name}%2F") == 0
        assert stored_shards(output) == stored.shards
        assert not [path for path in files.list_files(output) if "/_tmp/" in path]
        assert main(["verify", output]) == 0
        assert stored.run(output) == 0  # nothing to do

    def test_passing_faults_change_nothing(self, stored: Stored, place: str, cloud: Cloud) -> None:
        faults = itertools.cycle(["429", "503", "drop"])

        def rule(number: int, method: str, path: str) -> str:
            return next(faults) if number % 9 == 8 else ""

        with cloud.failing(rule):
            assert stored.run(f"{place}/ds") == 0
        assert stored_shards(f"{place}/ds") == stored.shards

    @pytest.mark.slow
    @pytest.mark.parametrize("part", [0.4, 0.8])
    def test_a_lasting_fault_ends_the_run_and_the_next_finishes_it(
        self, stored: Stored, place: str, cloud: Cloud, impatient: None, part: float, capsys
    ) -> None:
        output = f"{place}/ds"
        cloud.watch()
        assert stored.run(output) == 0
        requests = len(cloud.requests)
        files.delete_folder(output)
        capsys.readouterr()
        with cloud.failing(after(int(requests * part), "503")):
            assert stored.run(output) == 1
        said = capsys.readouterr().err
        assert "Traceback" not in said
        line = said.splitlines()[-1]  # before it, how far the run was
        assert line.startswith("recordmill: gs://")
        assert "503 Service Unavailable" in line
        assert not files.exists(f"{output}/_SUCCESS")
        assert stored.run(output) == 0
        assert stored_shards(output) == stored.shards

    @pytest.mark.slow
    def test_a_commit_broken_anywhere_is_finished_by_the_next(
        self, stored: Stored, place: str, cloud: Cloud, impatient: None, monkeypatch
    ) -> None:
        output, seen = f"{place}/ds", []
        commit = committing.commit

        def stop(*arguments: Any) -> None:
            seen.append(arguments)
            raise RunError("stopped before the commit")

        monkeypatch.setattr(committing, "commit", stop)
        assert stored.run(output) == 1
        staged = {path: files.read_bytes(path) for path in files.list_files(output)}
        cloud.watch()
        commit(*seen[0])
        requests = len(cloud.requests)
        for number in range(0, requests, max(1, requests // 6)):
            fault = ("drop", "lose")[number % 2]
            files.delete_folder(output)
            for path, data in staged.items():
                files.write_bytes(path, data)
            with cloud.failing(breaking(number, fault)), pytest.raises(RunError):
                commit(*seen[0])
            for name, data in stored_shards(output).items():
                assert data == stored.shards[name]
            commit(*seen[0])
            assert stored_shards(output) == stored.shards
            assert files.exists(f"{output}/_SUCCESS")

    def test_what_is_missing_or_forbidden(self, stored: Stored, place: str, cloud: Cloud, capsys):
        arguments = stored.case.arguments(stored.source, f"{place}/ds")  # type: ignore[arg-type]
        no_input = [f"--input={ROOT}/none/*.txt" if "--input" in a else a for a in arguments]
        assert main([stored.case.command, *no_input]) == 2
        assert "matches no file" in capsys.readouterr().err
        output_none = [
            "--output=gs://no-such-bucket/x" if "--output" in a else a for a in arguments
        ]
        assert main([stored.case.command, *output_none]) == 2
        line = capsys.readouterr().err.splitlines()[-1]
        assert line.endswith("cannot be written: no such file or bucket")


def test_a_dataset_on_gs_is_inspected_and_reported(
    cloud: Cloud, place: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    local = write_numbers(tmp_path / "ds", [5, 7], validation=[3])
    for path in (path for path in local.rglob("*") if path.is_file()):
        files.write_bytes(f"{place}/{path.relative_to(local)}", path.read_bytes())
    assert main(["inspect", place, "--record=train:9", "--record=validation:2"]) == 0
    shown = capsys.readouterr().out
    assert "12 records, 2 shards" in shown
    assert '"record 9"' in shown
    assert '"record 14"' in shown
    assert main(["inspect", place, "--where=id==11"]) == 0
    assert '"record 11"' in capsys.readouterr().out
    assert main(["report", place, f"--html={place}/page.html"]) == 0
    assert b"Copies and leaks" in files.read_bytes(f"{place}/page.html")
    assert main(["diff", place, str(local)]) == 0


def test_metadata_of_records_that_stay_in_the_bucket(
    cloud: Cloud, place: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = ["index", f"{place}/old", "--direct_num_workers=1"]
    for i in range(2):
        name = f"train-{i:05d}-of-00002.tfrecord"
        records = [example(id=n) for n in range(20 * i, 20 * i + 20)]
        write_records(tmp_path / "old" / name, records)
        files.write_bytes(f"{place}/old/{name}", (tmp_path / "old" / name).read_bytes())
    assert main(["index", f"{tmp_path}/old", "--direct_num_workers=1"]) == 0
    cloud.watch()
    assert main(line) == 0
    writes = [path for method, path in cloud.requests if method != "GET"]
    assert writes
    assert not [path for path in writes if "old%2Ftrain-0" in path]
    assert main(["verify", f"{place}/old"]) == 0
    assert main(line) == 0
    assert "is complete: nothing to do" in capsys.readouterr().out
    for name in ("_meta/index/train/train-00001-of-00002.idx", "features.json"):
        assert files.read_bytes(f"{place}/old/{name}") == (tmp_path / "old" / name).read_bytes()
    other = ["examples", f"--input={tmp_path}/old/train-*", f"--output={place}/old", "--overwrite"]
    assert main([*other, "--direct_num_workers=1"]) == 2
    assert "no command replaces or deletes them" in capsys.readouterr().err
    assert main([*line, "--overwrite"]) == 0
    assert main(["verify", f"{place}/old"]) == 0
    for path in (tmp_path / "old").glob("train-*"):
        assert files.read_bytes(f"{place}/old/{path.name}") == path.read_bytes()
