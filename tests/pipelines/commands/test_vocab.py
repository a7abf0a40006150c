"""`recordmill vocab`: counts, file, determinism, and what a user can do wrong."""

from __future__ import annotations

import fcntl
import os
import random
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from recordmill.pipelines import vocabulary as vocab
from recordmill.pipelines.command_line import main
from recordmill.pipelines.engines.local import LocalEngine
from recordmill.transforms.sources.document_spec import DocumentSpec
from recordmill.transforms.sources.item_cutting import cut_work_items
from recordmill.transforms.sources.work_item_files import write_work_items
from recordmill.transforms.sources.work_items import list_sources
from recordmill.transforms.text.normalization import normalize
from recordmill.transforms.text.tokenization import SPECIAL_TOKENS, Vocabulary
from recordmill.transforms.text.tokenizer_files import load_tokenizer
from recordmill.transforms.vocabulary.counting_stages import WordCountSpec
from recordmill.transforms.vocabulary.word_counts import SketchSpec

AWKWARD = (
    "Ça va? ÇA VA!\n東京 2024年\nzero\u200bwidth soft\u00adhyphen\nΣίσυφος, ΣΊΣΥΦΟΣ\n\ndon't\n"
)


def run_vocab(*flags: str) -> int:
    return main(["vocab", "--direct_num_workers=1", *flags])


def reference(*paths: Path) -> Counter[str]:
    text = "\n".join(path.read_text(encoding="utf-8") for path in paths)
    return Counter(w for line in text.split("\n") for w in normalize(line, lower_case=True).split())


@pytest.fixture
def awkward(tmp_path: Path) -> Path:
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a.txt").write_text(AWKWARD, encoding="utf-8")
    rng = random.Random(5)
    words = [f"w{i:x}" for i in range(3000)]
    lines = [
        " ".join(words[int(rng.paretovariate(0.7)) % 3000] for _ in range(12)) for _ in range(900)
    ]
    (folder / "b.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


def count(
    folder: Path, work: Path, *, sketch: SketchSpec | None, workers: int
) -> tuple[dict[str, int], dict[str, int]]:
    sources = list_sources([f"{folder}/*.txt"])
    work_items = list(cut_work_items(sources, 6_000))
    assert len(work_items) > 3
    work.mkdir()
    write_work_items(str(work), work_items)
    spec = WordCountSpec(
        str(work), len(work_items), DocumentSpec(sentence_splitter="none"), lower_case=True,
        sketch=sketch,
    )  # fmt: skip
    engine = LocalEngine(processes=workers)
    words, characters, _ = vocab.count_words(engine, spec, 1)
    return words, characters


def test_counts_equal_those_of_a_plain_loop(awkward: Path, tmp_path: Path) -> None:
    words, characters = count(awkward, tmp_path / "work", sketch=None, workers=1)
    expected = reference(*awkward.iterdir())
    assert words == expected
    letters: Counter[str] = Counter()
    for word, number in expected.items():
        for letter in word:
            letters[letter] += number
    assert characters == letters


def test_pruned_counts_are_all_those_above_the_threshold(awkward: Path, tmp_path: Path) -> None:
    expected = reference(*awkward.iterdir())
    words, _ = count(awkward, tmp_path / "work", sketch=SketchSpec(128), workers=1)
    assert 20 < len(words) <= 128 < len(expected)
    assert words.items() <= expected.items()
    least = min(words.values())
    assert not {w: n for w, n in expected.items() if n > least and w not in words}


@pytest.mark.slow
def test_the_file_is_the_same_for_any_workers_and_order_of_files(
    corpus: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(vocab, "ONE_PASS_BYTES", 0)  # as for a large corpus
    flags = ["--vocab_size=150", f"--output={tmp_path / 'one.txt'}"]
    assert run_vocab(f"--input={corpus}/*.txt", *flags) == 0
    said = capsys.readouterr().out
    assert re.search(r"\d+ tokens .* distinct words .* [\d.]+ s\nuse it by: recordmill text ", said)
    names = [str(path) for path in sorted(corpus.iterdir(), reverse=True)]
    flags = ["--vocab_size=150", f"--output={tmp_path / 'two.txt'}", "--direct_num_workers=2"]
    assert main(["vocab", "--input", *names, *flags]) == 0
    data = (tmp_path / "one.txt").read_bytes()
    assert (tmp_path / "two.txt").read_bytes() == data
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one.txt", "two.txt"]
    vocabulary = Vocabulary.from_bytes(data, "one.txt")
    assert vocabulary.tokens[:5] == SPECIAL_TOKENS
    assert 100 < len(vocabulary) <= 150
    assert {"the", "a", "##a", "y", "##y", "."} <= set(vocabulary.tokens)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "size"), [("bpe", 400), ("unigram", 150)])
def test_tokenizers_are_the_same_for_any_workers_and_order_of_files(
    kind: str, size: int, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vocab, "ONE_PASS_BYTES", 0)  # as for a large corpus
    flags = [f"--kind={kind}", f"--vocab_size={size}"]
    assert run_vocab(f"--input={corpus}/*.txt", f"--output={tmp_path}/one", *flags) == 0
    names = [str(path) for path in sorted(corpus.iterdir(), reverse=True)]
    two = [f"--output={tmp_path}/two", "--direct_num_workers=2"]
    assert main(["vocab", "--input", *names, *two, *flags]) == 0
    data = (tmp_path / "one").read_bytes()
    assert (tmp_path / "two").read_bytes() == data
    tokenizer = load_tokenizer(data, "one")
    assert tokenizer.kind == kind
    assert len(tokenizer) == size


@pytest.mark.slow
def test_what_a_killed_run_left_is_gone_after_the_same_command(
    awkward: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "made"
    command = ["vocab", f"--input={awkward}/*.txt", f"--output={folder}/vocab.txt",
               "--direct_num_workers=1", "--vocab_size=500"]  # fmt: skip
    kill = (
        "import os, sys\n"
        "from recordmill.pipelines import vocabulary\n"
        "from recordmill.pipelines.command_line import main\n"
        "vocabulary.learn_tokenizer = lambda *_: os.kill(os.getpid(), 9)\n"
        "main(sys.argv[1:])\n"
    )
    ended = subprocess.run([sys.executable, "-c", kill, *command])
    assert ended.returncode == -9
    (left,) = folder.iterdir()
    assert any(left.iterdir())
    others = [folder / ".vocab.txt.recordmill-notes", folder / f".other{left.name[10:]}"]
    held = folder / f"{left.name}0"  # as of a run on another machine, whose processes are others
    for path in (*others, held):
        path.mkdir()
    descriptor = os.open(held, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_SH)
    assert main(command) == 0
    assert sorted(folder.iterdir()) == sorted([folder / "vocab.txt", held, *others])
    os.close(descriptor)


def test_case_special_tokens_and_overwriting_have_an_effect(tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("Hello hello World World\n" * 5, encoding="utf-8")
    output = tmp_path / "out" / "vocab.txt"
    tokens = "[UNK],[PAD],[MASK],[SEP],[CLS],[EOD]"
    flags = [f"--input={tmp_path}/in.txt", f"--output={output}", "--vocab_size=60"]
    assert run_vocab(*flags, "--no-do_lower_case", f"--special_tokens={tokens}") == 0
    lines = output.read_text(encoding="utf-8").splitlines()
    assert lines[:6] == tokens.split(",")
    assert {"Hello", "hello", "World"} <= set(lines)
    assert run_vocab(*flags) == 2
    assert run_vocab(*flags, "--overwrite", "--progress=none") == 0
    lines = output.read_text(encoding="utf-8").splitlines()
    assert "Hello" not in lines
    assert "world" in lines


def test_rejects_over_the_budget_end_the_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "in.txt").write_bytes(b"good line here\n\nbad \xff line\n\nfine again here\n")
    flags = [f"--input={tmp_path}/in.txt", f"--output={tmp_path}/v.txt", "--vocab_size=60"]
    assert run_vocab(*flags) == 1
    error = capsys.readouterr().err.splitlines()[-1]
    assert "inputs rejected (undecodable 1)" in error
    assert "in.txt at position 20" in error
    assert "while running" not in error
    assert [path.name for path in tmp_path.iterdir()] == ["in.txt"]
    assert run_vocab(*flags, "--max_rejected=0.5") == 0


def test_an_input_without_words_ends_the_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "in.txt").write_text("\n  \n", encoding="utf-8")
    assert run_vocab(f"--input={tmp_path}/in.txt", f"--output={tmp_path}/v.txt") == 1
    assert "the input has no words" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["in.txt"]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--output=T/v.txt"], "--input is required"),
        (["--input=T/in.txt"], "--output is required"),
        (["--input=T/none*.txt", "--output=T/v.txt"], "matches no file"),
        (["--input=T/in.txt", "--output=T/old.txt"], "already there; choose another, or --over"),
        (["--input=T/in.txt", "--output=T"], "must be a file, got the folder"),
        (["--input=T/in.txt", "--output=T/in.txt/v.txt"], "cannot be written"),
        (["--input=T/in.txt", "--output=T/v.txt", "--vocab_size=6"], "must be at least 7"),
        (["--input=T/in.txt", "--output=T/v.txt", "--vocab_size=x"], "must be a whole number"),
        (["--input=T/in.txt", "--output=T/v.txt", "--kind=bpe", "--vocab_size=256"], "least 257"),
        (["--input=T/in.txt", "--output=T/v.txt", "--kind=bqe"], "did you mean 'bpe'?"),
        (
            ["--input=T/in.txt", "--output=T/v.txt", "--kind=unigram", "--special_tokens=<pad>"],
            "must contain <unk>",
        ),
        (["--input=T/in.txt", "--output=T/v.txt", "--vocab_sise=9"], "unknown flag"),
        (["--input=T/in.txt", "--output=T/v.txt", "--special_tokens=[PAD]"], "it lacks"),
        (["--input=T/in.txt", "--output=T/v.txt", "--max_rejected=2"], "must be in [0, 1]"),
        (["--input=T/in.txt", "--output=T/v.txt", "--encoding=klingon"], "one that Python knows"),
        (["--input=T/in.csv", "--output=T/v.txt"], "--text_field must be a column of"),
    ],
)
def test_what_a_user_can_do_wrong_is_one_line(
    flags: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "in.txt").write_text("some words\n", encoding="utf-8")
    (tmp_path / "in.csv").write_text("a,b\n1,2\n", encoding="utf-8")
    (tmp_path / "old.txt").write_text("kept\n", encoding="utf-8")
    assert (
        run_vocab(
            *(flag.replace("T/", f"{tmp_path}/").replace("=T", f"={tmp_path}") for flag in flags)
        )
        == 2
    )
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.csv", "in.txt", "old.txt"]
    assert (tmp_path / "old.txt").read_text(encoding="utf-8") == "kept\n"


@pytest.mark.real
def test_books_give_a_vocabulary_that_spells_them(real_data: Path, tmp_path: Path) -> None:
    output = tmp_path / "vocab.txt"
    books = real_data / "text" / "books" / "blake-poems.txt"
    assert run_vocab(f"--input={books}", f"--output={output}", "--vocab_size=1000") == 0
    vocabulary = Vocabulary.from_bytes(output.read_bytes(), "vocab.txt")
    assert 900 < len(vocabulary) <= 1000
    words = reference(books)
    assert set("".join(words)) <= set(vocabulary.tokens)
    assert {"the", "and", "little"} <= set(vocabulary.tokens)
