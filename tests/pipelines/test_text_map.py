"""`recordmill text --map`: functions of users' own in a job."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from recordmill.pipelines.command_line import main
from recordmill.transforms.storage import files

from .jobs import shard_bytes, unpublished
from .test_text_cleaning import KNOWN, SPLITS, counts, dropped, make_vocabulary, run

FUNCTIONS = '''
"""Functions for a corpus."""
import os
from dataclasses import dataclass, replace

@dataclass
class Limits:
    least: int = 20

def keep(document):
    return document

def only_long(document):
    return document if len(document.text.split()) >= Limits().least else None

def halves(document):
    words = document.text.split()
    at = len(words) // 2
    return [replace(document, text=" ".join(part)) for part in (words[:at], words[at:]) if part]

def fails_for_some(document):
    if len(document.text.split()) == 7:
        raise ValueError("seven words")
    return document

def where(document):
    with open(os.environ["MAP_WORKERS"], "a") as log:
        print(os.getpid(), file=log)
    total = sum(i * i for i in range(20_000))
    return document

class Counts:
    def __init__(self):
        self.number = 0

    def __call__(self, document):
        self.number += 1
        return document if self.number else None

LIMIT = 3
'''


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Documents of 1 to 60 words."""
    folder = tmp_path_factory.mktemp("map")
    tokens = dict.fromkeys([*make_vocabulary(), *KNOWN])
    (folder / "vocab.txt").write_text("\n".join(tokens) + "\n", encoding="utf-8")
    rows = [" ".join(KNOWN[(i * j) % 7] for j in range(i + 1)) for i in range(60)]
    lines = [json.dumps({"text": text, "number": i}) + "\n" for i, text in enumerate(rows)]
    (folder / "rows.jsonl").write_text("".join(lines))
    (folder / "functions.py").write_text(FUNCTIONS)
    package = folder / "own/corpus_tools/rules"
    package.mkdir(parents=True)
    (package.parent / "__init__.py").write_text("")
    (package / "length.py").write_text("def is_long(text):\n    return len(text.split()) >= 20\n")
    (package / "filters.py").write_text(
        "from .length import is_long\n\ndef only_long(document):\n"
        "    return document if is_long(document.text) else None\n"
    )
    (package / "unused.py").write_text("1 / 0\n")
    return folder


ROWS = "--input={folder}/rows.jsonl"


@pytest.fixture(scope="module")
def plain(folder: Path) -> Path:
    return run(folder, "plain", ROWS, SPLITS)


@pytest.fixture(scope="module")
def long(folder: Path) -> Path:
    flags = (SPLITS, "--map={folder}/functions.py:only_long", "--list_dropped")
    return run(folder, "long", ROWS, *flags)


def config(output: Path) -> dict[str, object]:
    return dict(json.loads((output / "_meta/manifest.json").read_bytes())["config"])


def test_a_function_that_changes_nothing_gives_the_same_shards(folder: Path, plain: Path) -> None:
    flags = ("--map={folder}/functions.py:keep", "--map={folder}/functions.py:Counts")
    kept = run(folder, "kept", ROWS, SPLITS, *flags)
    assert shard_bytes(kept) == shard_bytes(plain)
    assert counts(kept)["dropped"] == {}
    assert counts(kept)["documents_added"] == 0
    assert "map" not in config(plain)
    assert "documents_added" not in counts(plain)


def test_what_a_function_drops_is_counted_and_listed(long: Path) -> None:
    found = counts(long)
    assert found["dropped"] == {"map": 19}
    assert (found["documents_read"], found["documents_written"]) == (60, 41)
    lines = dropped(long)
    assert {line["reason"] for line in lines} == {"map"}
    assert len({line["position"] for line in lines}) == 19
    statistics = json.loads((long / "_meta/statistics.json").read_bytes())
    assert sum(statistics[split]["dropped"].get("map", 0) for split in statistics
               if split in ("train", "validation")) == 19  # fmt: skip


def test_documents_that_become_several(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = run(folder, "halves", ROWS, "--map={folder}/functions.py:halves")
    found = counts(output)
    assert (found["documents_read"], found["documents_added"]) == (60, 59)
    assert found["documents_written"] == 119
    assert "60 read, 59 added by --map, 119 written, 0 without tokens" in capsys.readouterr().out


def test_a_function_that_drops_everything(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "dropping.py").write_text("def drop(document):\n    return None\n")
    arguments = [
        "text", f"--input={folder}/rows.jsonl", f"--vocab_file={folder}/vocab.txt", "--task=mlm",
        f"--output={folder}/nothing", f"--map={folder}/dropping.py:drop",
    ]  # fmt: skip
    assert main(arguments) == 1
    assert "60 dropped as map; check what drops them (map), and " in capsys.readouterr().err


def test_functions_are_called_in_order(folder: Path) -> None:
    first = run(
        folder, "ordered", ROWS, "--map={folder}/functions.py:halves",
        "--map={folder}/functions.py:only_long", "--min_tokens=1",
    )  # fmt: skip
    assert counts(first)["documents_read"] == 60
    assert counts(first)["documents_written"] == 21 + 22, "halves of 39 words and more"
    assert counts(first)["documents_added"] == 21
    assert counts(first)["dropped"]["map"] == 38


class TestErrors:
    """Functions that raise for one document."""

    def test_it_is_a_reject(self, folder: Path) -> None:
        flags = ("--map={folder}/functions.py:fails_for_some", "--max_rejected=0.1")
        output = run(folder, "rejected", ROWS, *flags)
        assert counts(output)["rejected"] == {"map_error": 1}
        (path,) = (output / "_meta/rejected").iterdir()
        reject = json.loads(path.read_bytes())
        assert reject["stage"] == "map"
        assert (
            "functions.py:fails_for_some: ValueError: seven words (functions.py, line 2"
            in (reject["detail"])
        )

    def test_without_a_budget_the_run_says_why(
        self, folder: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        status = main([
            "text", f"--input={folder}/rows.jsonl", f"--vocab_file={folder}/vocab.txt",
            f"--output={folder}/over", "--task=mlm", "--direct_num_workers=1",
            f"--map={folder}/functions.py:fails_for_some",
        ])  # fmt: skip
        assert status == 1
        error = capsys.readouterr().err
        assert "1 of 60 inputs rejected (map_error 1)" in error
        assert "functions.py:fails_for_some: ValueError: seven words" in error
        assert error.count("\n") == 1

    def test_or_stops_the_run(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        arguments = [
            "text", f"--input={folder}/rows.jsonl", f"--vocab_file={folder}/vocab.txt",
            f"--output={folder}/stopped", "--task=mlm", "--direct_num_workers=1",
            f"--map={folder}/functions.py:fails_for_some", "--map_errors=fail",
        ]  # fmt: skip
        assert main(arguments) == 1
        error = capsys.readouterr().err
        expected = (
            r"recordmill: --map functions\.py:fails_for_some: ValueError: seven words "
            r"\(functions\.py, line \d+\), for the document of rows\.jsonl at \d+; correct the "
            r"function and start anew with --overwrite, or give --map_errors=reject\n"
        )
        assert re.fullmatch(expected, error)


def test_a_changed_function_is_another_configuration(
    folder: Path, long: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [
        "text", f"--input={folder}/rows.jsonl", f"--vocab_file={folder}/vocab.txt",
        f"--output={long}", "--max_seq_length=32", "--task=mlm", "--max_predictions_per_seq=5",
        "--dupe_factor=1", "--direct_num_workers=1", SPLITS, "--list_dropped",
    ]  # fmt: skip
    copy = folder / "elsewhere"
    copy.mkdir()
    (copy / "functions.py").write_text(FUNCTIONS)
    assert main([*arguments, f"--map={copy}/functions.py:only_long"]) == 0
    assert "nothing to do" in capsys.readouterr().out
    (copy / "functions.py").write_text(FUNCTIONS.replace("20", "21", 1))
    assert main([*arguments, f"--map={copy}/functions.py:only_long"]) == 2
    assert "--map was functions.py:only_long@" in capsys.readouterr().err


def test_a_killed_run_is_finished_with_equal_bytes_on_two_workers(
    folder: Path, long: Path, plain: Path
) -> None:
    flags = (ROWS, SPLITS, "--map={folder}/functions.py:only_long", "--list_dropped")
    with unpublished(), pytest.raises(AssertionError):
        run(folder, "killed", *flags)
    again = run(folder, "killed", *flags, "--direct_num_workers=2")
    assert shard_bytes(again) == shard_bytes(long) != shard_bytes(plain)


def test_a_package_travels_with_what_it_imports(
    folder: Path, long: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Workers have neither the folder on their path nor a file of it."""
    monkeypatch.chdir(folder / "own")
    removed = folder / "own/corpus_tools/rules/length.py"
    text = removed.read_text()
    output = run(
        folder, "package", ROWS, SPLITS, "--map=corpus_tools.rules.filters:only_long",
        "--direct_num_workers=2",
    )  # fmt: skip
    assert shard_bytes(output) == shard_bytes(long)
    assert "corpus_tools" not in sys.modules
    before = config(output)["map"]
    removed.write_text(text.replace("20", "21"))
    with pytest.raises(AssertionError):
        run(folder, "package", ROWS, SPLITS, "--map=corpus_tools.rules.filters:only_long")
    removed.write_text(text)
    (removed.parent / "unused.py").write_text("2 / 0\n")
    again = run(folder, "package", ROWS, SPLITS, "--map=corpus_tools.rules.filters:only_long")
    assert config(again)["map"] == before


def test_duplicates_are_those_of_the_mapped_texts(folder: Path) -> None:
    (folder / "twice.jsonl").write_text(
        "".join(json.dumps({"text": text}) + "\n" for text in ("the of", "THE OF!", "and to"))
    )
    (folder / "plainer.py").write_text(
        "from dataclasses import replace\ndef plainer(document):\n"
        "    return replace(document, text=document.text.lower().strip('!'))\n"
    )
    flags = ("--deduplicate=exact", "--list_dropped", "--map={folder}/plainer.py:plainer")
    output = run(folder, "deduplicated", "--input={folder}/twice.jsonl", *flags)
    assert counts(output)["dropped"] == {"duplicate": 1}
    (line,) = dropped(output)
    assert line["duplicate_of"] == {"source": "twice.jsonl", "position": 0}


@pytest.mark.slow
def test_a_slow_function_uses_all_workers(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the input is so small that one process would do."""
    log = folder / "workers.txt"
    monkeypatch.setenv("MAP_WORKERS", str(log))
    text = (folder / "rows.jsonl").read_text()
    (folder / "more.jsonl").write_text(text * 64)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("recordmill.pipelines.launch.usable_cores", lambda: 2)
        patched.setattr("recordmill.pipelines.engines.local.usable_cores", lambda: 2)
        output = folder / "slow"
        arguments = [
            "text", f"--input={folder}/more.jsonl", f"--vocab_file={folder}/vocab.txt",
            f"--output={output}", "--task=mlm", f"--map={folder}/functions.py:where",
        ]  # fmt: skip
        assert main(arguments) == 0
    workers = set(log.read_text().split())
    assert len(workers) == 2
    assert str(os.getpid()) not in workers


WRONG = [
    ("clean", "--map must be FILE.py:FUNCTION or package.module:function, got 'clean'"),
    ("{folder}/functions.py", "--map must be FILE.py:FUNCTION or package.module:function, got"),
    ("{folder}/functions.py:a b", "'a b' is no name of a function"),
    ("{folder}/function.py:keep", "function.py:keep cannot be read: No such file or directory; "
     "did you mean {folder}/functions.py?"),
    ("{folder}/functions.py:keeps", "the function must be one of Counts, Limits, "),
    ("{folder}/functions.py:keeps", "got 'keeps'; did you mean 'keep'?"),
    ("{folder}/functions.py:LIMIT", "functions.py:LIMIT must be a function that takes an element, "
     "and is of type int"),
    ("{folder}/functions.py:Limits", "is a class whose objects cannot be called"),
    ("{folder}/broken.py:f", "broken.py:f has a syntax error: line 2: "),
    ("{folder}/raises.py:f", "raises.py:f cannot be imported: ZeroDivisionError: division by zero "
     "(raises.py, line 2)"),
    ("{folder}/imports.py:f", "cannot be imported: ModuleNotFoundError: No module named 'no_such'"),
    ("{folder}/signatures.py:none", "must take one argument, the element: too many positional"),
    ("{folder}/signatures.py:two", "must take one argument, the element: missing a required"),
    ("{folder}/signatures.py:later", "must be a plain function, and is async"),
    ("{folder}/signatures.py:Needs", "the class must need no argument: missing a required"),
    ("{folder}/nothing.py:f", "nothing.py:f: the module has no function, nor an __init__.py"),
    ("{folder}/latin.py:f", "cannot be read: the file is no UTF-8"),
    ("{folder}/large.py:f", "would have to travel with each stage, more than 1048576"),
    ("no_such_module:f", "there is no module no_such_module in this folder and none is installed"),
    ("json.no_such:f", "--map json.no_such:f: there is no module json.no_such"),
    ("json:no_such", "--map json:no_such: the function must be one of "),
]  # fmt: skip


@pytest.fixture(scope="module")
def wrong(folder: Path) -> Path:
    (folder / "broken.py").write_text("x = 1\ndef f(:\n")
    (folder / "raises.py").write_text("x = 1\nx / 0\n")
    (folder / "imports.py").write_text("import no_such\n")
    (folder / "signatures.py").write_text(
        "def none(): pass\ndef two(a, b): pass\nasync def later(a): pass\n"
        "class Needs:\n    def __init__(self, x): pass\n    def __call__(self, a): pass\n"
    )
    (folder / "nothing.py").write_text("LIMIT = 1\n")
    (folder / "latin.py").write_bytes(b"# \xe9\n")
    (folder / "large.py").write_text("def f(a): pass\n" + "#" * (1 << 20))
    return folder


@pytest.mark.parametrize(("value", "message"), WRONG)
def test_what_cannot_be_used_is_one_line_before_anything_starts(
    wrong: Path, value: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    output = wrong / "never"
    arguments = [
        "text", f"--input={wrong}/rows.jsonl", f"--vocab_file={wrong}/vocab.txt",
        f"--output={output}", f"--map={value.format(folder=wrong)}",
    ]  # fmt: skip
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert message.format(folder=wrong) in error
    assert error.count("\n") == 1
    assert not output.exists()


def test_errors_without_functions(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["text", "--input=a", "--output=b", "--vocab_file=c", "--map_errors=fail"]
    assert main(arguments) == 2
    assert "--map_errors=fail has no effect without --map" in capsys.readouterr().err


def test_a_function_of_another_storage(
    folder: Path, long: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only its text is read, by the storage layer."""
    read = files.read_limited
    monkeypatch.setattr(
        files, "read_limited",
        lambda path, most: read(path.replace("gs://bucket", str(folder)), most),
    )  # fmt: skip
    flags = (SPLITS, "--map=gs://bucket/functions.py:only_long", "--list_dropped")
    assert shard_bytes(run(folder, "remote", ROWS, *flags)) == shard_bytes(long)


def test_modules_that_are_loaded_already_stay(folder: Path) -> None:
    """A notebook may have imported another state of the package."""
    code = (
        "import sys\nsys.path.insert(0, '.')\n"
        "import corpus_tools.rules.filters as before\n"
        "from recordmill.pipelines.map_functions import user_function\n"
        "from recordmill.transforms.dataset.user_functions import load_function\n"
        "made = load_function(user_function('corpus_tools.rules.filters:only_long'))\n"
        "assert made is not before.only_long\n"
        "assert sys.modules['corpus_tools.rules.filters'] is before\n"
    )
    subprocess.run([sys.executable, "-c", code], cwd=folder / "own", check=True)
