"""`recordmill plan`: what it tells comes true, and it leaves nothing behind."""

from __future__ import annotations

import gzip
import json
import random
import re
from collections.abc import Callable, Iterable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from recordmill.pipelines.command_line import main
from recordmill.pipelines.planning import text_planner
from recordmill.pipelines.planning.estimate import Estimate, Step, show_seconds
from recordmill.pipelines.planning.outline import show_bytes

from ...conftest import BERT_FLAGS
from ...pictures import jpeg
from ..jobs import LENGTHS, manifest, records_by_split

Told = Callable[..., dict[str, str]]


@pytest.fixture
def told(capsys: pytest.CaptureFixture[str]) -> Told:
    def run(*flags: str) -> dict[str, str]:
        assert main(["plan", *flags]) == 0
        lines = capsys.readouterr().out.splitlines()
        return dict(re.split(r"  +", line, maxsplit=1) for line in lines)

    return run


def number(text: str) -> int:
    return int(re.findall(r"[\d,]+", text)[0].replace(",", ""))


def test_text_as_it_was_told(
    corpus: Path, vocab_file: str, bert_dataset: Path, tmp_path: Path, told: Told
) -> None:
    found = told(
        "text", f"--input={corpus}/*.txt", f"--output={tmp_path}/ds", f"--vocab_file={vocab_file}",
        *LENGTHS, *BERT_FLAGS, "--plan_workers=3", "--price_per_worker_hour=2",
    )  # fmt: skip
    assert not list(tmp_path.iterdir())
    written = records_by_split(bert_dataset)
    assert number(found["output"]) == pytest.approx(sum(written.values()), rel=0.2)
    assert number(found["shards of train"]) == 3
    assert found["input"].startswith("3 files, ")
    assert found["work items"] == "read 1, write 4"
    assert found["regroups"] == "0"
    assert "time of 3 workers" in found
    assert re.fullmatch(r"\d+\.\d\d for \d+\.\d worker hours", found["cost"])


@pytest.mark.parametrize("form", ["jsonl.gz", "csv", "parquet"])
def test_tables_and_compressed_files(
    form: str, vocab_file: str, tmp_path: Path, told: Told, tmp_path_factory: pytest.TempPathFactory
) -> None:
    written = tmp_path_factory.mktemp("written") / "ds"
    rows = [f"the words of line {i} in a file" for i in range(20_000)]
    if form == "csv":
        (tmp_path / "a.csv").write_text("text\n" + "".join(f'"{row}"\n' for row in rows))
    elif form == "parquet":
        pq.write_table(pa.table({"text": rows}), tmp_path / "a.parquet", row_group_size=5000)
    else:
        data = "".join(json.dumps({"text": row}) + "\n" for row in rows).encode()
        (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(data))
    flags = ("--task=mlm", "--dupe_factor=1", f"--vocab_file={vocab_file}", *LENGTHS)
    place = (f"--input={tmp_path}/a.*", f"--output={tmp_path}/ds")
    found = told("text", *place, *flags)
    if form == "parquet":
        job = ("text", *place[:1], f"--output={written}", *flags, "--direct_num_workers=1")
        assert main(list(job)) == 0
        records = sum(records_by_split(written).values())
        assert number(found["output"]) == pytest.approx(records, rel=0.3)
    else:
        assert number(found["output"]) > 0
    assert "cost" not in found
    assert [path.name for path in tmp_path.iterdir()] == [f"a.{form}"]


def _words(rng: random.Random, size: int) -> str:
    return " ".join(rng.choice(("the", "words", "of", "a", "line")) for _ in range(size // 5 + 1))


def _jsonl(path: Path, sizes: Iterable[int]) -> None:
    rng = random.Random(1)
    lines = (json.dumps({"text": _words(rng, size)}) + "\n" for size in sizes)
    data = "".join(lines).encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)


def _short_first(folder: Path) -> None:
    _jsonl(folder / "a.jsonl", [40] * 15_000 + [2500] * 600)


def _long_lines(folder: Path) -> None:
    _jsonl(folder / "a.jsonl", [60_000] * 60)


def _small_and_large_files(folder: Path) -> None:
    rng = random.Random(1)
    for number in range(1200):
        (folder / f"a{number:04d}.txt").write_text(_words(rng, rng.randrange(20, 1000)))
    for number in range(4):
        (folder / f"z{number}.txt").write_text("\n".join(_words(rng, 80) for _ in range(4000)))


def _one_document(folder: Path) -> None:
    rng = random.Random(1)
    (folder / "a.txt").write_text("\n".join(_words(rng, 90) for _ in range(30_000)))


def _packed(folder: Path) -> None:
    rng = random.Random(1)
    for number in range(6):
        _jsonl(folder / f"{number}.jsonl.gz", (int(rng.lognormvariate(6, 1)) for _ in range(700)))


def _row_groups(folder: Path) -> None:
    rng = random.Random(1)
    rows = [_words(rng, 60 if row < 15_000 else 2500) for row in range(16_000)]
    pq.write_table(pa.table({"text": rows}), folder / "a.parquet", row_group_size=500)


def _table(folder: Path) -> None:
    rng = random.Random(1)
    rows = "".join(f'"{_words(rng, rng.randrange(10, 3000))}\nend"\n' for _ in range(2000))
    (folder / "a.csv").write_text(f"text\n{rows}")


@pytest.mark.parametrize(
    ("make", "flags"),
    [
        (_short_first, ()),
        (_long_lines, ()),
        (_small_and_large_files, ("--documents=file",)),
        (_one_document, ()),
        (_packed, ()),
        (_row_groups, ()),
        (_table, ()),
    ],
)
def test_a_sample_is_of_the_whole_input(
    make: Callable[[Path], None],
    flags: tuple[str, ...],
    vocab_file: str,
    tmp_path: Path,
    told: Told,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Within 10 %, or in the range that is told, wherever in the input what kind of text is."""
    (tmp_path / "in").mkdir()
    make(tmp_path / "in")
    monkeypatch.setattr(text_planner, "_SAMPLE_BYTES", 1 << 19)
    monkeypatch.setattr(text_planner, "_LEAST_BYTES", 1 << 19)
    flags = (
        f"--input={tmp_path}/in", f"--output={tmp_path}/ds", f"--vocab_file={vocab_file}",
        "--task=mlm", "--dupe_factor=1", "--max_seq_length=32", *flags,
    )  # fmt: skip
    found = told("text", *flags)["output"]
    assert main(["text", *flags, "--direct_num_workers=1", "--progress=none"]) == 0
    written = sum(records_by_split(tmp_path / "ds").values())
    between = re.search(r"between ([\d,]+) and ([\d,]+)", found)
    low, high = 0.9 * written, 1.1 * written
    if between:
        low, high = (int(each.replace(",", "")) for each in between.groups())
        assert high < 2 * low
        assert low <= written <= high
    else:
        assert low <= number(found) <= high


def test_a_sample_without_a_record_says_why(
    vocab_file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.jsonl").write_text('{"words": "of another field"}\n' * 9)
    flags = (f"--input={tmp_path}/a.jsonl", f"--output={tmp_path}/ds", f"--vocab_file={vocab_file}")
    assert main(["plan", "text", "--task=mlm", *flags]) == 2
    error = capsys.readouterr().err
    assert "gives no record (rejected: field_missing 9); `recordmill text` with" in error
    assert error.count("\n") == 1


def test_no_file_can_be_read(
    vocab_file: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(text_planner, "_SAMPLE_BYTES", 1 << 12)
    monkeypatch.setattr(text_planner, "_LEAST_BYTES", 1 << 12)
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(b"")[:10] + bytes(9999))
    flags = (f"--input={tmp_path}/a.*", f"--output={tmp_path}/ds", f"--vocab_file={vocab_file}")
    assert main(["plan", "text", "--task=mlm", *flags]) == 2
    error = capsys.readouterr().err
    assert "no sample could be taken" in error
    assert error.count("\n") == 1


def test_rejects_are_told_of_the_whole(vocab_file: str, tmp_path: Path, told: Told) -> None:
    lines = ['{"text": "the words of a line"}\n', '{"words": "of another field"}\n']
    (tmp_path / "a.jsonl").write_text("".join(lines) * 50)
    flags = (f"--input={tmp_path}/a.jsonl", f"--output={tmp_path}/ds", f"--vocab_file={vocab_file}")
    assert told("text", "--task=mlm", *flags)["rejected"] == "field_missing 50"


def test_images_as_it_was_told(tmp_path: Path, told: Told) -> None:
    for i in range(60):
        path = tmp_path / "in" / ("cat", "dog")[i % 2] / f"{i}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(jpeg(40 + i % 7, 32, seed=i))
    flags = (
        f"--input={tmp_path}/in", f"--output={tmp_path}/ds", "--image_size=24x32", "--copies=2",
        "--augmentations=flip", "--splits=train:0.8,validation:0.2", "--num_shards=3",
    )  # fmt: skip
    found = told("images", *flags, "--plan_workers=1")
    assert not (tmp_path / "ds").exists()
    assert main(["images", *flags, "--direct_num_workers=1"]) == 0
    shards = manifest(tmp_path / "ds")["shards"]
    counts = records_by_split(tmp_path / "ds")
    assert number(found["output"]) == sum(counts.values())
    assert counts["train"] + 2 * counts["validation"] == 120  # only train has two copies
    assert number(found["shards of train"]) == 3
    assert found["work items"] == f"write {len(shards)}"


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ([], "recordmill plan: the job must be one of examples, images, text, got ''"),
        (
            ["txt"],
            "recordmill plan: the job must be one of examples, images, text, got 'txt'; did you",
        ),
        (["text", "--plan_workers=0"], "--plan_workers must be at least 1, got 0"),
        (["text", "--price_per_worker_hour=-1"], "--price_per_worker_hour must be at least 0"),
        (["text"], "--input is required"),
        (["images", "--input=/nowhere/*", "--output=/x"], "--input /nowhere/* matches no file"),
        (["images", "--outptu=/x"], "unknown flag --outptu=/x; did you mean --output?"),
    ],
)
def test_mistakes_are_one_line(
    flags: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", *flags]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_a_phase_takes_as_long_as_its_fullest_worker() -> None:
    step = Step("write", 10, 100.0)
    assert [step.seconds(workers) for workers in (1, 5, 6, 10, 99)] == [100, 20, 20, 10, 10]


def test_costs_and_times_are_of_all_workers() -> None:
    estimate = Estimate(
        "in", "sample", (("train", 4, 8e9),), 1e6, (Step("write", 40, 36_000),), 0, 0, 0, 0
    )
    lines = dict(estimate.lines(10, 0.5))
    assert lines["shards of train"] == "4 of 2.0 GB"
    assert lines["time of 10 workers"] == "60 min (write 60 min)"
    assert lines["cost"] == "5.00 for 10.0 worker hours"


def test_numbers_for_people() -> None:
    sizes = [0, 999, 1000, 99_960, 999_600, 1e9, 2.5e17]
    expected = ["0 B", "999 B", "1.0 kB", "100 kB", "1.0 MB", "1.0 GB", "250.0 PB"]
    assert [show_bytes(size) for size in sizes] == expected
    assert [show_seconds(s) for s in (1.25, 300, 36_000)] == ["1.2 s", "5 min", "10.0 h"]
