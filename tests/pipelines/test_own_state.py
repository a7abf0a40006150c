"""What a run keeps for itself: damage counts as not done, and what is another's is left alone."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from recordmill.pipelines.command_line import main
from recordmill.pipelines.commands.verify import verify
from recordmill.pipelines.planning import plan_job
from recordmill.records.errors import UsageError
from recordmill.records.manifest import MANIFEST_PATH, RUN_PATH, STATISTICS_PATH
from recordmill.transforms.dataset import commit, shard_writer
from recordmill.transforms.dataset.run_state import MARKER, Marker
from recordmill.transforms.dataset.workspace import Workspace

from ..odd_files import KINDS, places, put
from .conftest import Written
from .jobs import manifest, shard_bytes


def stop_before_commit(
    small: Written, output: Path, monkeypatch: pytest.MonkeyPatch, *flags: str
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(commit, "_publish", lambda *_: 1 / 0)
        assert small.case.run(small.source, output, *small.flags, *flags) == 1


def kinds(folder: Path) -> dict[str, list[Path]]:
    """The files of a run by what they are for: their names without numbers, and their folders."""
    found: dict[str, list[Path]] = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not path.name.endswith(".log"):
            top = path.relative_to(folder).parts[0]
            found.setdefault(f"{top} {path.suffix}", []).append(path)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_overwrite_replaces_what_is_no_regular_file(
    written: Callable[[str, str], Written],
    tmp_path: Path,
    kind: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    small = written("examples", "small")
    shard = next(iter(small.shards))
    for name in ("_SUCCESS", STATISTICS_PATH, shard, "stray", "_meta/stray"):
        output = tmp_path / name.replace("/", "-")
        small.copy_dataset(output)
        put(output / name, kind)
        capsys.readouterr()
        status = small.case.run(small.source, output, *small.flags, "--overwrite")
        error = capsys.readouterr().err
        if kind == "folder" and "stray" not in name:  # what is in it may be a user's
            assert status == 1
            assert f"recordmill: {output}/{name} must be a file of the dataset, and is a" in error
            (output / name).rmdir()  # nothing else was removed
            left = set(small.shards) - {name}
            assert shard_bytes(output) == {each: small.shards[each] for each in left}
        else:
            assert status == 0, (name, error)
            assert shard_bytes(output) == small.shards
            assert verify(str(output)).lines() == []


@pytest.mark.parametrize("kind", ["fifo", "folder", "link to itself"])
@pytest.mark.parametrize("name", [MANIFEST_PATH, "_meta/index", "_tmp", f"_tmp/{MARKER}"])
def test_what_cannot_be_replaced_is_told_before_the_run(
    written: Callable[[str, str], Written],
    tmp_path: Path,
    name: str,
    kind: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    small, output = written("examples", "small"), tmp_path / "ds"
    small.copy_dataset(output)
    put(output / name, kind)
    before = places(output)
    status = small.case.run(small.source, output, *small.flags, "--overwrite")
    error = capsys.readouterr().err
    if status:
        last = error.splitlines()[-1]
        assert last.startswith("recordmill: ")
        assert "Errno" not in last
        assert str(output) in last
        assert [place for place in places(output) if not place.startswith("_tmp")] == [
            place for place in before if not place.startswith("_tmp")
        ]
    else:
        assert verify(str(output)).lines() == []


@pytest.mark.slow
def test_empty_files_of_a_stopped_run_are_made_anew(
    small: Written, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output, saved = tmp_path / "ds", tmp_path / "saved"
    stop_before_commit(small, output, monkeypatch)
    shutil.copytree(output / "_tmp", saved)
    of_kind = kinds(output / "_tmp")
    assert {"plan.json .json", f"{MARKER} ", "done .json", "shards .tfrecords"} <= of_kind.keys()
    foreign = b'{"run": "0123456789abcdef"}'
    for kind, damage in [*((kind, b"") for kind in of_kind), ("all", b""), ("all", foreign)]:
        shutil.rmtree(output)
        shutil.copytree(saved, output / "_tmp")
        for path in of_kind.get(kind, [p for paths in of_kind.values() for p in paths]):
            path.write_bytes(damage)
        assert small.case.run(small.source, output) == 0, (kind, damage)
        assert shard_bytes(output) == small.shards, (kind, damage)
        assert not (output / "_tmp").exists()


@pytest.mark.parametrize("kind", ["shards", "index"])
@pytest.mark.parametrize("published", [False, True])
def test_a_flipped_bit_in_a_finished_shard_is_written_anew(
    small: Written, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, published: bool
) -> None:
    output = tmp_path / "ds"
    if published:
        with monkeypatch.context() as patched:
            patched.setattr(commit.m, "success_bytes", lambda _: 1 / 0)
            assert small.case.run(small.source, output) == 1
        pattern = "train/*" if kind == "shards" else "_meta/index/train/*"
    else:
        stop_before_commit(small, output, monkeypatch)
        pattern = f"_tmp/{kind}/*/train/*"
    first, *_, last = (path for path in sorted(output.glob(pattern)) if path.stat().st_size)
    for path in (first, last):
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)
    assert small.case.run(small.source, output) == 0
    assert shard_bytes(output) == small.shards
    assert main(["verify", str(output)]) == 0
    assert not (output / "_tmp").exists()


def test_a_flipped_bit_in_what_was_planned_begins_anew(
    small: Written, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = tmp_path / "ds"
    stop_before_commit(small, output, monkeypatch)
    shutil.rmtree(output / "_tmp/done")
    planned = {"text": "vocab.txt", "images": "images-*.jsonl", "examples": "items-*.jsonl"}
    name = planned[small.case.command]
    for path in output.glob(f"_tmp/**/{name}"):
        data = path.read_bytes()
        half = data.index(b"cat") if small.case.command == "images" else len(data) // 2
        path.write_bytes(data[:half] + bytes([data[half] ^ 1]) + data[half + 1 :])
    assert small.case.run(small.source, output) == 0
    assert shard_bytes(output) == small.shards
    assert not (output / "_tmp").exists()


def test_what_a_kill_behind_success_leaves_does_not_stop_overwrite(
    small: Written, tmp_path: Path
) -> None:
    output = tmp_path / "ds"
    small.copy_dataset(output)
    (output / "_tmp/partial").mkdir(parents=True)
    (output / "_tmp/partial/.run.json.0123456789ab.tmp").write_bytes(b"{")
    (output / "_meta/statistics.json").write_bytes(b"{")
    assert small.case.run(small.source, output, *small.flags, "--overwrite") == 0
    assert shard_bytes(output) == small.shards
    assert not (output / "_tmp").exists()


def test_a_finished_shard_with_wrong_statistics_is_written_anew(
    small: Written, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = tmp_path / "ds"
    stop_before_commit(small, output, monkeypatch)
    for path in output.glob("_tmp/done/*"):
        content = json.loads(path.read_bytes())
        key = {"text": "lengths", "images": "sides", "examples": "bytes"}[small.case.command]
        content["statistics"][key] = [["a", -1]]
        path.write_text(json.dumps(content))
    assert small.case.run(small.source, output) == 0
    assert shard_bytes(output) == small.shards


def contents(output: Path) -> dict[str, bytes]:
    """The files of a dataset but for what a run says of itself."""
    paths = [path for path in sorted(output.rglob("*")) if path.is_file()]
    named = {str(path.relative_to(output)): path.read_bytes() for path in paths}
    return {name: data for name, data in named.items() if name != RUN_PATH}


@pytest.mark.parametrize("seed", range(4))
def test_another_digit_in_any_file_of_state_shows_nowhere(
    small: Written, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """A result with other numbers is no result, whatever else of it is whole."""
    output, draws = tmp_path / "ds", random.Random(seed)
    small.copy_dataset(tmp_path / "whole")
    stop_before_commit(small, output, monkeypatch)
    state = [
        path for path in sorted(output.glob("_tmp/**/*.json")) if b'"run": ' in path.read_bytes()
    ]
    assert {path.parent.name for path in state} >= {"_tmp", "done"}
    for path in state if not seed else [draws.choice(state)]:
        data = path.read_bytes()
        digits = [at for at, byte in enumerate(data) if byte in b"0123456789"]
        at = draws.choice(digits)
        other = draws.choice([digit for digit in b"0123456789" if digit != data[at]])
        path.write_bytes(data[:at] + bytes([other]) + data[at + 1 :])
    assert small.case.run(small.source, output, *small.flags) == 0
    assert contents(output) == contents(tmp_path / "whole")


@pytest.mark.parametrize("name", ["_meta", "_meta/index", "train"])
def test_a_link_that_leads_out_of_the_output_is_refused(
    small: Written, tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "elsewhere").mkdir()
    link = tmp_path / "ds" / name
    link.parent.mkdir(parents=True)
    link.symlink_to(tmp_path / "elsewhere")
    assert small.case.run(small.source, tmp_path / "ds", *small.flags) == 2
    line = capsys.readouterr().err.splitlines()[-1]
    assert line.endswith(f"and {link} is a link; remove the link, or choose another --output")
    assert not list((tmp_path / "elsewhere").iterdir())


def test_only_folders_of_shards_must_be_no_links(tmp_path: Path) -> None:
    for name in ("train", "Split-train"):
        (tmp_path / name).symlink_to(tmp_path)
    workspace = Workspace(output=str(tmp_path), work="", staging="")
    workspace.check_links(["train"], "{SPLIT}-{SHARD_X_OF_Y}.tfrecords")
    with pytest.raises(UsageError, match="Split-train is a link"):
        workspace.check_links(["train"], "Split-{SPLIT}/data-{SHARD_X_OF_Y}.tfrecords")


@pytest.mark.parametrize("position", [0.0, 0.4, 0.999])
def test_a_flipped_bit_in_a_run_file_is_made_anew(
    small: Written,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    position: float,
) -> None:
    if small.case.command == "images":
        pytest.skip("images have no run files")
    output = tmp_path / "ds"
    stop_before_commit(small, output, monkeypatch)
    shutil.rmtree(output / "_tmp/done")
    path = next(output.glob("_tmp/runs-0/*.bin"))
    (run, *_) = json.loads(path.with_name("run-000000.json").read_bytes())["runs"]
    end = run["tail_offset"]
    data = bytearray(path.read_bytes())
    data[int(end * position)] ^= 1
    path.write_bytes(data)
    assert small.case.run(small.source, output) == 1
    line = capsys.readouterr().err.splitlines()[-1]
    assert line == (
        f"recordmill: {path} is damaged; run the same command again, which makes it anew"
    )
    assert small.case.run(small.source, output) == 0
    assert shard_bytes(output) == small.shards


@pytest.mark.parametrize("emptied", ["_SUCCESS", "_meta/manifest.json", "features.json", "all"])
def test_overwrite_replaces_a_dataset_after_a_power_loss(
    small: Written, tmp_path: Path, emptied: str, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "ds"
    small.copy_dataset(output)
    (output / "notes.txt").write_text("mine")
    for path in output.rglob("*"):
        if path.is_file() and (emptied == "all" or str(path.relative_to(output)) == emptied):
            path.write_bytes(b"" if path.name != "notes.txt" else b"mine")
    if emptied != "_SUCCESS":  # without, the same command just begins anew
        assert small.case.run(small.source, output) == 1
        assert "--overwrite" in capsys.readouterr().err.splitlines()[-1]
    assert small.case.run(small.source, output, *small.flags, "--overwrite") == 0
    assert shard_bytes(output) == small.shards
    assert main(["verify", str(output)]) == 0
    assert (output / "notes.txt").read_text() == "mine"


def test_a_damaged_dataset_stays_where_overwrite_is_refused(
    small: Written, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "ds"
    small.copy_dataset(output)
    (output / "_meta/manifest.json").write_bytes(b"{")
    (output / "train/notes.txt").write_text("mine")
    before = sorted(output.rglob("*"))
    assert small.case.run(small.source, output, *small.flags, "--overwrite") == 2
    assert "train/notes.txt; move them away" in capsys.readouterr().err.splitlines()[-1]
    assert sorted(output.rglob("*")) == before


def test_a_power_loss_in_the_commit_is_finished_by_the_same_command(
    small: Written, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = tmp_path / "ds"
    with monkeypatch.context() as patched:
        patched.setattr(commit.m, "success_bytes", lambda _: 1 / 0)
        assert small.case.run(small.source, output) == 1
    assert (output / "_meta/manifest.json").exists()
    for path in (output / "_meta").rglob("*.json"):
        path.write_bytes(b"")
    (victim, *_) = (output / "train").glob("*.tfrecords")
    victim.write_bytes(b"")
    assert small.case.run(small.source, output) == 0
    assert shard_bytes(output) == small.shards
    assert main(["verify", str(output)]) == 0


@pytest.mark.parametrize("lost", ["_tmp", "output"])
def test_folders_deleted_meanwhile_are_one_line(
    small: Written,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    lost: str,
) -> None:
    output = tmp_path / "ds"
    close = shard_writer.ShardWriter.close

    def delete(*arguments: Any) -> Any:
        shutil.rmtree(output / "_tmp" if lost == "_tmp" else output)
        return close(*arguments)

    with monkeypatch.context() as patched:
        patched.setattr(shard_writer.ShardWriter, "close", delete)
        assert small.case.run(small.source, output) == 1
    line = capsys.readouterr().err.splitlines()[-1]
    assert line == (
        f"recordmill: {output}/_tmp was deleted while the run worked; see that nothing else writes "
        "there, and run the same command again"
    )
    assert small.case.run(small.source, output) == 0
    assert shard_bytes(output) == small.shards


def test_a_run_whose_folders_another_one_took_ends(
    small: Written,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    output = tmp_path / "ds"
    close = shard_writer.ShardWriter.close

    def take(*arguments: Any) -> Any:
        Marker(f"{output}/_tmp", "0123456789abcdef").write(f"{output}/_tmp")
        return close(*arguments)

    monkeypatch.setattr(shard_writer.ShardWriter, "close", take)
    assert small.case.run(small.source, output) == 1
    assert "_tmp now belongs to another run; see" in capsys.readouterr().err.splitlines()[-1]
    assert (output / "_tmp" / MARKER).exists()
    assert not (output / "_SUCCESS").exists()


def test_what_a_kill_leaves_of_a_claim_is_no_obstacle(small: Written, tmp_path: Path) -> None:
    output = tmp_path / "ds"
    (output / "_tmp").mkdir(parents=True)
    for name in (f".{MARKER}.0123456789ab.tmp", ".recordmill-probe-123"):
        (output / "_tmp" / name).write_bytes(b"x")
    (output / ".recordmill-probe-123").write_bytes(b"x")
    assert small.case.run(small.source, output) == 0
    assert shard_bytes(output) == small.shards
    listed = {*shard_bytes(output), *manifest(output)["files"], "_SUCCESS", "_meta/manifest.json"}
    listed.add("_meta/run.json")
    assert {str(p.relative_to(output)) for p in output.rglob("*") if p.is_file()} == listed


def test_an_empty_folder_beside_a_finished_dataset_goes(small: Written, tmp_path: Path) -> None:
    small.copy_dataset(tmp_path / "ds")
    (tmp_path / "ds/_tmp").mkdir()
    assert small.case.run(small.source, tmp_path / "ds") == 0
    assert not (tmp_path / "ds/_tmp").exists()


@pytest.mark.parametrize("token", ["0123456789abcdef", ""])
def test_a_marker_cannot_name_a_folder_of_another_run(
    small: Written, tmp_path: Path, token: str
) -> None:
    output, victim = tmp_path / "ds", tmp_path / "victim"
    for folder in (output / "_tmp", victim):
        folder.mkdir(parents=True)
    (victim / "plan.json").write_text("{}")
    (victim / "thesis.txt").write_text("precious")
    Marker(str(victim), "fedcba9876543210").write(str(victim))
    Marker(str(victim), token).write(f"{output}/_tmp")
    assert small.case.run(small.source, output, *small.flags, "--overwrite") == 0
    assert (victim / "thesis.txt").read_text() == "precious"
    assert (victim / "plan.json").exists()


def test_temporary_files_of_the_same_run_elsewhere_go(
    small: Written, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output, scratch = tmp_path / "ds", tmp_path / "scratch"
    stop_before_commit(small, output, monkeypatch, f"--temp_dir={scratch}")
    assert len(list(scratch.iterdir())) == 1
    assert small.case.run(small.source, output) == 2
    assert small.case.run(small.source, output, *small.flags, "--overwrite") == 0
    assert list(scratch.iterdir()) == []


def test_temporary_files_are_not_written_through_a_link(
    small: Written, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output, victim = tmp_path / "ds", tmp_path / "victim"
    for folder in (output, victim):
        folder.mkdir()
    Marker(f"{output}/_tmp", "0123456789abcdef").write(str(victim))
    (victim / "thesis.txt").write_text("precious")
    (output / "_tmp").symlink_to(victim)
    assert small.case.run(small.source, output) == 2
    assert "_tmp is needed for temporary files, and is a link" in capsys.readouterr().err
    assert (victim / "thesis.txt").read_text() == "precious"


def test_a_folder_of_others_under_the_name_of_ours_stays(
    small: Written, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output, scratch = tmp_path / "ds", tmp_path / "scratch"
    stop_before_commit(small, output, monkeypatch, f"--temp_dir={scratch}")
    (work,) = scratch.iterdir()
    shutil.rmtree(work)
    work.mkdir()
    (work / "thesis.txt").write_text("precious")
    flags = (*small.flags, "--overwrite", f"--temp_dir={scratch}")
    assert small.case.run(small.source, output, *flags) == 2
    assert (work / "thesis.txt").read_text() == "precious"


def test_published_rejects_are_not_deleted_through_a_link(
    small: Written, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output, victim = tmp_path / "ds", tmp_path / "victim"
    stop_before_commit(small, output, monkeypatch)
    (victim / "rejected").mkdir(parents=True)
    (victim / "rejected/thesis.txt").write_text("precious")
    (output / "_meta").symlink_to(victim)
    assert small.case.run(small.source, output, *small.case.fewer, "--overwrite") == 2
    assert (victim / "rejected/thesis.txt").read_text() == "precious"


def test_the_token_is_in_nothing_that_is_published(
    small: Written, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = tmp_path / "ds"
    stop_before_commit(small, output, monkeypatch)
    token = json.loads((output / "_tmp/plan.json").read_bytes())["run"]
    descriptions = [p for p in (output / "_tmp").rglob("*.json") if "inputs" not in p.parts]
    assert len(descriptions) > 5
    for path in descriptions:
        assert json.loads(path.read_bytes())["run"] == token, path
    for path in (output / "_tmp").rglob("run-*.bin"):
        assert token.encode() in path.read_bytes()
    assert small.case.run(small.source, output) == 0
    for path in output.rglob("*"):
        assert path.is_dir() or token.encode() not in path.read_bytes()


def test_files_of_another_plan_are_not_taken(
    written: Callable[[str, str], Written], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small, output, other = written("text", "small"), tmp_path / "ds", tmp_path / "other"
    stop_before_commit(small, output, monkeypatch)
    stop_before_commit(small, other, monkeypatch, "--random_seed=7")
    for folder in ("runs-0", "done"):
        for path in (other / "_tmp" / folder).iterdir():
            shutil.copy(path, output / "_tmp" / folder / path.name)
    assert small.case.run(small.source, output) == 0
    assert shard_bytes(output) == small.shards


@pytest.mark.parametrize("change", ["appended", "cut", "replaced"])
def test_input_that_changes_meanwhile_ends_the_run(
    small: Written,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    change: str,
) -> None:
    source, output = Path(shutil.copytree(small.source, tmp_path / "input")), tmp_path / "ds"
    victim = sorted(source.glob(small.case.pattern))[1]
    whole = victim.read_bytes()
    write_plan = plan_job._write_plan

    def then_change(*arguments: Any) -> None:
        write_plan(*arguments)
        if change == "replaced":
            (tmp_path / "other").write_bytes(whole)
            (tmp_path / "other").replace(victim)
        else:
            victim.write_bytes(whole + b"more" if change == "appended" else whole[:-10])

    with monkeypatch.context() as patched:
        patched.setattr(plan_job, "_write_plan", then_change)
        assert small.case.run(source, output, *small.flags, "--max_rejected=1") == 1
    line = capsys.readouterr().err.splitlines()[-1]
    assert line.startswith(f"recordmill: {victim} changed since the run was planned: it ")
    assert line.endswith("; see that nothing writes to the input, and start anew with --overwrite")
    assert not (output / "_SUCCESS").exists()
    flags = (*small.flags, "--overwrite", "--max_rejected=1")
    assert small.case.run(source, output, *flags) == 0
    if change == "replaced":
        assert shard_bytes(output) == small.shards
