"""`recordmill examples`: the records are those that were read, in another order and other files."""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from recordmill.pipelines.command_line import main
from recordmill.pipelines.planning import examples_planner

from ..transforms.examples.record_files import (
    example,
    feature,
    framed,
    message,
    packed,
    unframed,
    write_records,
)
from .jobs import manifest, shard_bytes


def run(output: Path, *flags: str, workers: int = 1) -> int:
    return main(["examples", f"--output={output}", f"--direct_num_workers={workers}", *flags])


def records_of(output: Path, split: str = "") -> list[bytes]:
    shards = shard_bytes(output)
    return [r for name, data in shards.items() if name.startswith(split) for r in unframed(data)]


def statistics(output: Path) -> dict[str, Any]:
    return dict(json.loads((output / "_meta/statistics.json").read_bytes()))


def numbered(count: int, start: int = 0) -> list[bytes]:
    return [
        example(id=i, text="word " * random.Random(i).randrange(30), ids=[i % 7] * 4)
        for i in range(start, start + count)
    ]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files as three tools would write them: plain, GZIP and ZLIB, under any names."""
    made = tmp_path_factory.mktemp("records")
    write_records(made / "a.tfrecord", numbered(200))
    write_records(made / "b.tfrecord.gz", numbered(150, 200), "GZIP")
    write_records(made / "c-00000-of-00001", numbered(50, 350), "ZLIB")
    return made


def test_a_permutation_of_all_records(folder: Path, tmp_path: Path) -> None:
    assert run(tmp_path / "ds", f"--input={folder}/*", "--num_shards=4") == 0
    found, given = records_of(tmp_path / "ds"), numbered(400)
    assert sorted(found) == sorted(given)
    assert found != given
    # Neighbours come from all over the input.
    places = {record: place for place, record in enumerate(given)}
    steps = [abs(places[a] - places[b]) for a, b in pairwise(found)]
    assert sum(steps) / len(steps) > 80
    assert manifest(tmp_path / "ds")["counts"] == {
        "records_read": 400, "examples": 400, "rejected": {}
    }  # fmt: skip
    features = {f["name"]: (f["dtype"], f["shape"]) for f in manifest(tmp_path / "ds")["features"]}
    assert features == {"id": ("int64", []), "ids": ("int64", [4]), "text": ("bytes", [])}
    assert main(["verify", str(tmp_path / "ds")]) == 0


@pytest.mark.parametrize("workers", [1, 2])
def test_the_order_of_the_input(folder: Path, tmp_path: Path, workers: int) -> None:
    flags = (f"--input={folder}/*", "--order=input", "--num_shards=3")
    assert run(tmp_path / "ds", *flags, workers=workers) == 0
    assert records_of(tmp_path / "ds") == numbered(400)
    assert len(shard_bytes(tmp_path / "ds")) == 3


def test_equal_records_stay_as_many_as_they_were(tmp_path: Path) -> None:
    records = [example(id=i % 40) for i in range(300)]
    write_records(tmp_path / "in/x", records)
    flags = (f"--input={tmp_path}/in/*", "--num_shards=3", "--splits=train:0.6,test:0.4")
    assert run(tmp_path / "ds", *flags) == 0
    assert Counter(records_of(tmp_path / "ds")) == Counter(records)
    both = set(records_of(tmp_path / "ds", "train")) & set(records_of(tmp_path / "ds", "test"))
    assert not both, "equal records are in one split"
    found = records_of(tmp_path / "ds", "train")
    repeats = sum(a == b for a, b in pairwise(found))
    assert repeats < 0.2 * len(found), "equal records are spread"


def test_deduplicate_leaves_one_of_each(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for i in range(3):
        write_records(tmp_path / f"in/{i}", [*numbered(80), *numbered(20, 100 * (i + 1))])
    assert run(tmp_path / "ds", f"--input={tmp_path}/in/*", "--deduplicate", "--num_shards=2") == 0
    found = records_of(tmp_path / "ds")
    assert len(found) == len(set(found)) == 80 + 60
    assert manifest(tmp_path / "ds")["counts"]["dropped"] == {"duplicate": 160}
    assert "300 read, 140 written, 160 dropped as duplicate" in capsys.readouterr().out
    # The files that they are in do not matter, nor how the work is cut.
    write_records(tmp_path / "one/x", [*numbered(80), *(r for i in (1, 2, 3) for r in
                                                        numbered(20, 100 * i))])  # fmt: skip
    assert run(tmp_path / "again", f"--input={tmp_path}/one/*", "--deduplicate",
               "--num_shards=2") == 0  # fmt: skip
    assert records_of(tmp_path / "again") == found


def test_weights_repeat_and_sample(folder: Path, tmp_path: Path) -> None:
    flags = (f"--input={folder}/a*", f"--input={folder}/b*", "--weights=2.5,0.4", "--num_shards=2")
    assert run(tmp_path / "ds", *flags) == 0
    found = Counter(records_of(tmp_path / "ds"))
    first = [found[record] for record in numbered(200)]
    second = [found[record] for record in numbered(150, 200)]
    assert set(first) == {2, 3}
    assert set(second) == {0, 1}
    assert 70 <= first.count(3) <= 130
    assert 40 <= sum(second) <= 80
    counts = manifest(tmp_path / "ds")["counts"]
    assert counts["records_read"] + counts["repeated"] - counts["dropped"]["weight"] == sum(
        found.values()
    )


def test_the_input_may_name_the_splits(folder: Path, tmp_path: Path) -> None:
    flags = (f"--input=train={folder}/a*", f"--input=test={folder}/b*", "--num_shards=2")
    assert run(tmp_path / "ds", *flags) == 0
    assert sorted(records_of(tmp_path / "ds", "train")) == sorted(numbered(200))
    assert sorted(records_of(tmp_path / "ds", "test")) == sorted(numbered(150, 200))


def test_records_in_two_named_splits_are_reported(tmp_path: Path) -> None:
    write_records(tmp_path / "a", numbered(50))
    write_records(tmp_path / "b", numbered(50, 40))
    flags = (f"--input=train={tmp_path}/a", f"--input=test={tmp_path}/b")
    assert run(tmp_path / "ds", *flags) == 0
    (shared,) = statistics(tmp_path / "ds")["inputs"]["shared_contents"]
    assert (shared["splits"], shared["records"]) == (["train", "test"], 10)


@pytest.mark.parametrize("kind", ["sequences", "bytes", "types"])
def test_records_without_a_schema_pass_as_bytes(
    tmp_path: Path, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    entry = message((0x0A, b"a"), (0x12, feature(1)))
    steps = message((0x0A, b"b"), (0x12, message((0x0A, feature(2)))))
    sequence = message((0x0A, message((0x0A, entry))), (0x12, message((0x0A, steps))))
    records = {
        "sequences": [sequence] * 9,
        "bytes": [bytes([i]) * i for i in range(9)],
        "types": [example(a=1), example(a=2.5), example(a="x")],
    }[kind]
    write_records(tmp_path / "x", records)
    assert run(tmp_path / "ds", f"--input={tmp_path}/x") == 0
    assert sorted(records_of(tmp_path / "ds")) == sorted(records)
    assert manifest(tmp_path / "ds")["features"] == []
    inputs = statistics(tmp_path / "ds")["inputs"]
    assert inputs["form"] == "bytes"
    assert ("types" in kind) == ("feature a is" in inputs["no_schema"])
    assert not (tmp_path / "ds/features.json").exists()
    assert main(["verify", str(tmp_path / "ds")]) == 0
    capsys.readouterr()
    assert main(["inspect", str(tmp_path / "ds")]) == 0
    assert re.search(r"^task +examples$", capsys.readouterr().out, re.M)


def test_damaged_records_are_listed_and_within_budget(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = write_records(tmp_path / "in/x", numbered(100))
    data = bytearray((tmp_path / "in/x").read_bytes())
    data[20] ^= 1
    (tmp_path / "in/x").write_bytes(data)
    (tmp_path / "in/y").write_bytes(packed(framed(numbered(100, 100)), "GZIP")[:-40])
    flags = (f"--input={tmp_path}/in/*", "--num_shards=2")
    assert run(tmp_path / "ds", *flags) == 1
    assert "broken_file 1, broken_record 1" in capsys.readouterr().err
    assert run(tmp_path / "ds", *flags, "--max_rejected=0.1") == 0
    counts = manifest(tmp_path / "ds")["counts"]
    assert counts["rejected"] == {"broken_file": 1, "broken_record": 1}
    assert counts["records_read"] == counts["examples"] == len(records_of(tmp_path / "ds"))
    lines = "".join(p.read_text() for p in (tmp_path / "ds/_meta/rejected").iterdir())
    assert source.name in lines
    assert "checksum of the data" in lines


def test_what_the_reader_gives(folder: Path, tmp_path: Path) -> None:
    import recordmill.reader as reader

    assert run(tmp_path / "ds", f"--input={folder}/*", "--num_shards=2") == 0
    batches = reader.load(str(tmp_path / "ds"), "train", batch_size=50, epochs=1)
    ids = [int(value) for batch in batches for value in batch["id"].numpy()]
    assert sorted(ids) == list(range(400))


def test_features_that_some_records_lack_are_read_as_none(tmp_path: Path) -> None:
    import recordmill.reader as reader

    write_records(tmp_path / "x", [example(a=1), example(a=2, b=[7, 8]), example(a=3, b=None)])
    assert run(tmp_path / "ds", f"--input={tmp_path}/x") == 0
    assert main(["verify", str(tmp_path / "ds")]) == 0
    (batch,) = reader.load(str(tmp_path / "ds"), "train", batch_size=3, epochs=1)
    rows = dict(zip(batch["a"].numpy().tolist(), batch["b"].to_list(), strict=True))
    assert rows == {1: [], 2: [7, 8], 3: []}


@pytest.mark.slow
def test_the_tools_look_into_records_without_a_schema(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_records(tmp_path / "x", [b"raw %d" % i * 3 for i in range(40)])
    assert run(tmp_path / "raw", f"--input={tmp_path}/x", "--num_shards=2") == 0
    assert run(tmp_path / "ds", f"--input={folder}/*", "--num_shards=2") == 0
    for shown in (str(tmp_path / "raw"), str(tmp_path / "ds")):
        assert main(["report", shown, f"--html={tmp_path}/page.html"]) == 0
    assert main(["inspect", str(tmp_path / "raw")]) == 0
    assert "raw 1" in capsys.readouterr().out
    assert main(["diff", str(tmp_path / "raw"), str(tmp_path / "ds")]) == 1
    assert main(["diff", str(tmp_path / "raw"), str(tmp_path / "ds"), "--key=id"]) == 2
    assert "--key needs tf.Examples" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_tfds_reads_the_result(folder: Path, tmp_path: Path) -> None:
    import tensorflow_datasets as tfds

    assert run(tmp_path / "ds", f"--input={folder}/*", "--num_shards=3") == 0
    builder = tfds.builder_from_directory(str(tmp_path / "ds"))
    rows = list(tfds.as_numpy(builder.as_dataset(split="train")))
    assert sorted(int(row["id"]) for row in rows) == list(range(400))
    assert {row["ids"].shape for row in rows} == {(4,)}


ERRORS = [
    (("--input={0}/none*",), "matches no file"),
    (("--input={0}/notes",), "--input must match TFRecord files alone"),
    (("--input={0}/a.tfrecord", "--order=input", "--deduplicate"), "--deduplicate needs"),
    (("--input={0}/a.tfrecord", "--weights=1,2"), "--weights must have a number for each of the 1"),
    (("--input={0}/a.tfrecord", "--weights=x"), "--weights must be numbers"),
    (("--input={0}/a.tfrecord", "--weights=-1"), "--weights must be in (0, 1000]"),
    (("--input={0}/a.tfrecord", "--weights=2", "--deduplicate"), "--deduplicate would undo"),
    (("--input={0}/a.tfrecord", "--order=input", "--random_seed=3"), "--random_seed has no effect"),
    (("--input=train={0}/a.tfrecord", "--splits=train:1,x:1"), "--splits has no effect"),
]


@pytest.mark.parametrize(("flags", "message"), ERRORS)
def test_wrong_use_is_one_line(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    flags: tuple[str, ...], message: str,
) -> None:  # fmt: skip
    (tmp_path / "notes").write_text("these are no records")
    where = tmp_path if "notes" in flags[0] else folder
    assert run(tmp_path / "ds", *(flag.format(where) for flag in flags)) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not (tmp_path / "ds").exists()


def test_more_shards_than_records(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_records(tmp_path / "x", numbered(3))
    assert run(tmp_path / "ds", f"--input={tmp_path}/x", "--num_shards=4") == 1
    assert "train has 3 records, and 4 shards were asked for" in capsys.readouterr().err


def test_an_estimate(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "examples", f"--input={folder}/*", "--output=ds", "--num_shards=3"]) == 0
    shown = capsys.readouterr().out
    assert "3 files" in shown
    assert "shards of train" in shown


def test_duplicates_leave_the_same_shards_however_the_input_is_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(1)
    records = numbered(300)
    write_records(
        tmp_path / "in", [rng.choice(records[: rng.choice([9, 300])]) for _ in range(900)]
    )
    found = []
    for name, size in (("whole", 1 << 30), ("cut", 5000)):
        monkeypatch.setattr(examples_planner, "record_item_bytes", lambda *_, size=size: size)
        flags = (f"--input={tmp_path}/in", "--deduplicate", "--num_shards=4")
        assert run(tmp_path / name, *flags) == 0
        found.append(shard_bytes(tmp_path / name))
    assert found[0] == found[1]
    assert sum(len(unframed(data)) for data in found[0].values()) > 200
