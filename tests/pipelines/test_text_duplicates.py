"""Duplicates of a whole corpus: the same ones are dropped however the run goes."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from recordmill.pipelines import launch
from recordmill.pipelines.command_line import main
from recordmill.pipelines.planning import text_planner
from recordmill.records.errors import RunError
from recordmill.transforms.text.chunk_runs import ChunkRuns
from recordmill.transforms.text.cleaning import find_duplicates, fingerprinting
from recordmill.transforms.text.scatter import Scatterer

from ..conftest import WORDS, make_vocabulary
from .jobs import shard_bytes
from .test_text_cleaning import counts, dropped

ROOT = Path(__file__).parents[2]

DOCUMENTS = 240
FILES = 4


@dataclass(frozen=True)
class Planted:
    """A corpus in some files.

    Attributes:
      folder: with the files, and the vocabulary.
      equal: (file, number of the document in it) -> the same of the first of equal text.
      similar: the same of documents of which nine of ten 5-grams are those of another.
    """

    folder: Path
    equal: dict[tuple[int, int], tuple[int, int]]
    similar: dict[tuple[int, int], tuple[int, int]]


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Planted:
    """Each tenth document occurs again, each ninth almost, in the same file or a later one."""
    folder = tmp_path_factory.mktemp("planted")
    (folder / "vocab.txt").write_text("\n".join(make_vocabulary()) + "\n", encoding="utf-8")
    rng = random.Random(5)
    texts: list[list[list[str]]] = [[] for _ in range(FILES)]
    equal, similar = {}, {}
    for i in range(DOCUMENTS):
        lines = [[rng.choice(WORDS) + rng.choice("abcdef") for _ in range(40)] for _ in range(4)]
        home = rng.randrange(FILES)
        first = home, len(texts[home])
        texts[home].append([" ".join(line) for line in lines])
        later = rng.randrange(home, FILES)
        if i % 10 == 0:
            equal[later, len(texts[later])] = first
            words = [word for line in lines for word in line]
            texts[later].append([" ".join(words[:70]), "  ".join(words[70:])])
        elif i % 9 == 0:
            similar[later, len(texts[later])] = first
            lines[2][5] = "changed"
            texts[later].append([" ".join(line) for line in lines])
    for number, documents in enumerate(texts):
        content = "\n\n".join("\n".join(lines) for lines in documents) + "\n"
        (folder / f"part-{number}.txt").write_text(content, encoding="utf-8")
    return Planted(folder, equal, similar)


def cut_into(least: int) -> Callable[[int, int], int]:
    """Returns what cuts an input into some work items, as of a large one."""
    return lambda total, workers: max(least, total // (8 * workers))


@pytest.fixture(autouse=True)
def _small_work_items(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_planner, "work_item_bytes", cut_into(1 << 14))


def flags_of(planted: Planted, output: Path, workers: int = 1) -> list[str]:
    return [
        f"--input={planted.folder}/part-*.txt", f"--vocab_file={planted.folder}/vocab.txt",
        f"--output={output}", "--task=mlm", "--max_seq_length=64", "--max_predictions_per_seq=10",
        "--dupe_factor=1", "--num_shards=2", f"--direct_num_workers={workers}", "--list_dropped",
    ]  # fmt: skip


def run(planted: Planted, output: Path, *flags: str, workers: int = 1) -> int:
    plain = flags_of(planted, output, workers)
    names = {flag.partition("=")[0] for flag in flags}
    return main(["text", *(f for f in plain if f.partition("=")[0] not in names), *flags])


def positions(folder: Path) -> list[list[int]]:
    """Of each file the positions of its documents."""
    found = []
    for number in range(FILES):
        documents = (folder / f"part-{number}.txt").read_text(encoding="utf-8").split("\n\n")
        sizes = [len(text.encode()) + 2 for text in documents]
        found.append([sum(sizes[:i]) for i in range(len(sizes))])
    return found


Lines = set[tuple[str, tuple[int, int], tuple[int, int]]]


def listed(planted: Planted, output: Path) -> Lines:
    """What the lists say: reason, document, and what it repeats, as `Planted` has them."""
    known = {
        (f"part-{file}.txt", position): (file, number)
        for file, numbers in enumerate(positions(planted.folder))
        for number, position in enumerate(numbers)
    }
    lines: list[dict[str, Any]] = dropped(output)
    return {
        (
            line["reason"],
            known[line["source"], line["position"]],
            known[line["duplicate_of"]["source"], line["duplicate_of"]["position"]],
        )
        for line in lines
    }


@dataclass(frozen=True)
class Finished:
    """A finished run."""

    output: Path
    shards: dict[str, bytes]


@pytest.fixture(scope="module")
def finished(
    planted: Planted, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], Finished]:
    """Returns the run of one worker for a value of --deduplicate, done once."""
    known: dict[str, Finished] = {}

    def finish(how: str) -> Finished:
        if how not in known:
            output = tmp_path_factory.mktemp(how) / "ds"
            assert run(planted, output, f"--deduplicate={how}") == 0
            known[how] = Finished(output, shard_bytes(output))
        return known[how]

    return finish


def test_exact_duplicates_are_dropped_and_the_first_is_kept(
    planted: Planted, finished: Callable[[str], Finished]
) -> None:
    output = finished("exact").output
    wanted = {("duplicate", later, first) for later, first in planted.equal.items()}
    assert listed(planted, output) == wanted
    found = counts(output)
    assert found["dropped"] == {"duplicate": len(planted.equal)}
    assert found["documents_read"] == DOCUMENTS + len(planted.equal) + len(planted.similar)
    assert found["documents_written"] == DOCUMENTS + len(planted.similar)


def test_near_duplicates_are_dropped_too(
    planted: Planted, finished: Callable[[str], Finished]
) -> None:
    output = finished("near").output
    both = {**planted.equal, **planted.similar}
    assert listed(planted, output) == {("near_duplicate", *pair) for pair in both.items()}
    assert counts(output)["documents_written"] == DOCUMENTS


@pytest.mark.parametrize("how", ["exact", pytest.param("near", marks=pytest.mark.slow)])
def test_two_workers_and_other_work_items_give_the_same_bytes(
    planted: Planted,
    finished: Callable[[str], Finished],
    how: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(text_planner, "work_item_bytes", cut_into(1 << 15))
    monkeypatch.setattr(find_duplicates, "PART_BYTES", 1 << 12)
    assert run(planted, tmp_path / "ds", f"--deduplicate={how}", workers=2) == 0
    assert shard_bytes(tmp_path / "ds") == finished(how).shards
    assert listed(planted, tmp_path / "ds") == listed(planted, finished(how).output)


STAGES = {
    "fingerprint": (fingerprinting.Fingerprinter, "_write"),
    "parts": (find_duplicates, "count_parts"),
    "compare": (find_duplicates, "compare_part"),
    "collect": (find_duplicates, "collect_duplicates"),
    "scatter": (ChunkRuns, "write"),
}


@pytest.mark.slow
@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("how", ["exact", "near"])
def test_a_run_that_ended_in_any_stage_is_finished_to_the_same_bytes(
    planted: Planted,
    finished: Callable[[str], Finished],
    how: str,
    stage: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(find_duplicates, "PART_BYTES", 1 << 12)
    owner, name = STAGES[stage]
    work, calls = getattr(owner, name), Counter[str]()

    def failing(*arguments: Any, **more: Any) -> Any:
        calls["all"] += 1
        if calls["all"] == 2 or stage in ("parts", "collect"):
            raise RunError("the power is gone")
        return work(*arguments, **more)

    with monkeypatch.context() as patched:
        patched.setattr(owner, name, failing)
        assert run(planted, tmp_path / "ds", f"--deduplicate={how}") == 1
    assert run(planted, tmp_path / "ds", f"--deduplicate={how}") == 0
    assert shard_bytes(tmp_path / "ds") == finished(how).shards


@pytest.mark.slow
@pytest.mark.parametrize("name", ["item-000001-0.rows", "parts/part-000000.rows", "clusters.rows"])
def test_a_file_that_was_cut_meanwhile_is_made_anew(
    planted: Planted,
    finished: Callable[[str], Finished],
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def failing(*_: Any) -> Any:
        raise RunError("the power is gone")

    output = tmp_path / "ds"
    with monkeypatch.context() as patched:
        patched.setattr(Scatterer, "run", failing)
        assert run(planted, output, "--deduplicate=near") == 1
    (path,) = output.glob(f"_tmp/*/*/{name}")
    path.write_bytes(path.read_bytes()[:-8])
    assert run(planted, output, "--deduplicate=near") == 0
    assert shard_bytes(output) == finished("near").shards


_KILLED = """
import sys
from pathlib import Path
from recordmill.pipelines.command_line import main
from recordmill.pipelines.planning import text_planner
from tests.faults.shim import KillWhenThere
text_planner.work_item_bytes = lambda total, _: max(1 << 14, total // 8)
output, sign, *arguments = sys.argv[1:]
KillWhenThere(Path(output), f"_tmp/{sign}").install()
sys.exit(main(arguments))
"""


@pytest.mark.slow
@pytest.mark.parametrize("sign", ["fingerprints/*/*.rows", "duplicates/*/parts.json", "runs-0/*"])
def test_a_killed_run_is_finished_to_the_same_bytes(
    planted: Planted, finished: Callable[[str], Finished], sign: str, tmp_path: Path
) -> None:
    output = tmp_path / "ds"
    arguments = ["text", *flags_of(planted, output), "--deduplicate=near"]
    line = [sys.executable, "-c", _KILLED, str(output), sign, *arguments]
    assert subprocess.run(line, cwd=ROOT, capture_output=True).returncode == -signal.SIGKILL
    assert list(output.glob(f"_tmp/{sign}"))
    assert not (output / "_SUCCESS").exists()
    assert run(planted, output, "--deduplicate=near") == 0
    assert shard_bytes(output) == finished("near").shards


def test_rows_to_classify_are_dropped_with_their_labels(planted: Planted, tmp_path: Path) -> None:
    rows = [
        {"text": text, "other": other, "label": label}
        for text, other, label in (
            ("the of", "and to", "a"), ("the", "of and to", "b"), ("the  of", "and to", "c"),
            ("in a", "and to", "b"),
        )
    ]  # fmt: skip
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    arguments = [
        f"--input={tmp_path}/rows.jsonl", f"--vocab_file={planted.folder}/vocab.txt",
        "--task=classify", "--max_seq_length=16", "--text_pair_field=other",
        "--direct_num_workers=1",
    ]  # fmt: skip
    output = tmp_path / "ds"
    assert main(["text", *arguments, f"--output={output}", "--deduplicate=exact"]) == 0
    assert counts(output)["dropped"] == {"duplicate": 1}
    assert (output / "labels.txt").read_text().split() == ["a", "b"]


def test_the_plan_names_the_phases_and_their_time(
    planted: Planted, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [f"--input={planted.folder}/part-*.txt", f"--vocab_file={planted.folder}/vocab.txt"]
    arguments += ["--task=mlm", "--dupe_factor=1", "--max_seq_length=64", "--output=none"]
    assert main(["plan", "text", *arguments, "--deduplicate=near"]) == 0
    assert "compare" in capsys.readouterr().out


def test_a_text_in_two_splits_stays_where_it_comes_first(planted: Planted, tmp_path: Path) -> None:
    """The order of files decides and not that of the splits; then no warning is left."""
    rng = random.Random(2)
    texts = [" ".join(rng.choice(WORDS) for _ in range(30)) for _ in range(30)]
    (tmp_path / "a.txt").write_text("\n\n".join(texts[:20]), encoding="utf-8")
    (tmp_path / "b.txt").write_text("\n\n".join(texts[15:]), encoding="utf-8")
    inputs = (f"--input=validation={tmp_path}/a.txt", f"--input=train={tmp_path}/b.txt")
    found = {}
    for how in ("none", "exact"):
        output = tmp_path / how
        flags = ["--no-list_dropped"] if how == "none" else []
        given = (f"--deduplicate={how}", "--num_shards=1", *flags)
        assert run(planted, output, *inputs, *given) == 0
        found[how] = json.loads((output / "_meta/statistics.json").read_bytes())
    rules = {how: {w["rule"] for w in each["warnings"]} for how, each in found.items()}
    assert "shared_content" in rules["none"]
    assert "shared_content" not in rules["exact"]
    assert found["exact"]["train"]["dropped"] == {"duplicate": 5}
    assert found["exact"]["validation"]["dropped"] == {}


def test_prompt_and_answer_are_told_apart(planted: Planted, tmp_path: Path) -> None:
    """The same words, of which another share is the prompt, are another example."""
    rows = [("the of", "and to"), ("the", "of and to"), (" the  of", "and to"), ("", "the of")]
    lines = [json.dumps({"prompt": prompt, "text": text}) + "\n" for prompt, text in rows]
    (tmp_path / "rows.jsonl").write_text("".join(lines))
    output = tmp_path / "ds"
    arguments = [
        f"--input={tmp_path}/rows.jsonl", f"--vocab_file={planted.folder}/vocab.txt",
        "--task=gpt", "--prompt_field=prompt", "--max_seq_length=16", "--direct_num_workers=1",
        "--deduplicate=exact", "--max_tokens=4", "--min_tokens=3", "--list_dropped",
    ]  # fmt: skip
    assert main(["text", *arguments, f"--output={output}"]) == 0
    assert Counter(line["reason"] for line in dropped(output)) == counts(output)["dropped"]
    assert counts(output)["dropped"]["duplicate"] == 1
    assert counts(output)["documents_read"] == 4


def test_progress_shows_the_phases_in_order(
    planted: Planted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What `recordmill text` shows while it hashes, while it compares, and when it reads."""
    shown: list[list[tuple[str, bool]]] = []
    phases: list[Callable[[], Any]] = []

    class Watched(launch.Progress):
        def __enter__(self) -> Watched:
            phases.append(self.phases)
            super().__enter__()
            return self

    def watching(owner: Any, name: str) -> None:
        work = getattr(owner, name)

        def watched(*arguments: Any, **more: Any) -> Any:
            shown.append([(phase.name, phase.done < phase.total) for phase in phases[0]()])
            return work(*arguments, **more)

        monkeypatch.setattr(owner, name, watched)

    monkeypatch.setattr(launch, "Progress", Watched)
    watching(fingerprinting.Fingerprinter, "_write")
    watching(find_duplicates, "compare_part")
    watching(ChunkRuns, "write")
    assert run(planted, tmp_path / "ds", "--deduplicate=exact") == 0
    unfinished = [next(name for name, waits in each if waits) for each in shown]
    assert list(dict.fromkeys(unfinished)) == ["fingerprint", "compare", "read"]


@pytest.mark.parametrize("how", ["exact", "near"])
def test_documents_that_are_read_in_parts_are_compared_as_a_whole(
    planted: Planted, how: str, tmp_path: Path
) -> None:
    """Of three documents of 3 MB, the second differs at its end alone, or in all its words."""
    lines = [" ".join(f"{WORDS[i % 40]}{i % 997}" for i in range(n, n + 60)) for n in range(9000)]
    other = (
        [*lines[:-1], "another end"]
        if how == "exact"
        else ["x".join(line.split(" ")) for line in lines]
    )
    texts = ["\n".join(each) for each in (lines, other, ["between"], lines)]
    (tmp_path / "long.txt").write_text("\n\n".join(texts) + "\n", encoding="utf-8")
    output = tmp_path / "ds"
    assert run(planted, output, f"--input={tmp_path}/long.txt", f"--deduplicate={how}") == 0
    (line,) = dropped(output)
    assert line["position"] == sum(len(text) + 2 for text in texts[:3])
    assert line["duplicate_of"] == {"source": "long.txt", "position": 0}
    assert counts(output)["documents_written"] == 3


def test_inspect_says_how_many_were_dropped(
    planted: Planted, finished: Callable[[str], Finished], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["inspect", str(finished("exact").output)]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert f"dropped duplicate {len(planted.equal)}" in shown
