"""A tokenizer.json that would end the process, or never end: one line that names the file."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from recordmill.pipelines.command_line import main
from recordmill.records.codec import jit
from recordmill.records.errors import RunError, UsageError
from recordmill.transforms.sources.lines import Lines
from recordmill.transforms.subwords import trial
from recordmill.transforms.subwords.hugging_face import JsonTokenizer, byte_level_file
from recordmill.transforms.text.tokenizer_checks import read_vocabulary

REDOS = {"type": "Split", "pattern": {"Regex": "(x+x+)+y"}, "behavior": "Isolated", "invert": False}


def content(**changes: Any) -> dict[str, Any]:
    vocab = {"<|endoftext|>": 0} | {letter: i for i, letter in enumerate("abcxyz", 1)}
    return byte_level_file(vocab, [], ["<|endoftext|>"]) | changes


def of_model(**changes: Any) -> dict[str, Any]:
    return {"model": content()["model"] | changes}


def replacing(pattern: dict[str, str], by: str) -> dict[str, Any]:
    return {"type": "Replace", "pattern": pattern, "content": by}


def charsmap(data: bytes) -> dict[str, Any]:
    encoded = base64.b64encode(data).decode()
    return {"normalizer": {"type": "Precompiled", "precompiled_charsmap": encoded}}


GROWS = replacing({"String": "a"}, "a" * 500)
HOSTILE = {
    "regex": ({"pre_tokenizer": REDOS}, "retry-limit-in-match over"),
    "broken regex": (
        {"pre_tokenizer": REDOS | {"pattern": {"Regex": "(a"}}}, "end pattern with unmatched",
    ),
    "replaced nothing": ({"normalizer": replacing({"String": ""}, "aa")}, "index out of bounds"),
    "replaced again": (
        {"normalizer": {"type": "Sequence", "normalizers": [GROWS] * 5}},
        "its normalizer may make more than 1000 characters of one",
    ),
    "large replacement": (
        {"normalizer": replacing({"Regex": "quokka"}, "a" * 100_000)},
        "its normalizer may make more than 1000 characters of one",
    ),
    "empty charsmap": (charsmap(b""), "Cannot parse precompiled_charsmap"),
    "short charsmap": (charsmap(b"\0\4\0\0" + bytes(range(256)) * 4 + b"a\0"), "out of bounds"),
    "large charsmap": (charsmap(b"\xff" * 6), "ends the process that loads it (SIGABRT)"),
    "charsmap that grows": (
        charsmap(bytes(4) + b"a" * 5000 + b"\0"),
        "its normalizer may make more than 1000 characters of one",
    ),
    "long prefix": (of_model(merges=["a b"], continuing_subword_prefix="#" * 20), "out of range"),
    "no such part": ({"pre_tokenizer": {"type": "Nope"}}, "did not match any variant"),
}  # fmt: skip


def write(tmp_path: Path, given: dict[str, Any]) -> str:
    path = tmp_path / "given.json"
    path.write_text(json.dumps(given), encoding="utf-8")
    return str(path)


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_is_named(tmp_path: Path, name: str) -> None:
    changes, why = HOSTILE[name]
    path = write(tmp_path, content(**changes))
    with pytest.raises(UsageError) as caught:
        read_vocabulary(path)
    message = str(caught.value)
    assert message.startswith(f"--tokenizer {path} cannot be used: ")
    assert why in message
    assert "\n" not in message


def test_a_file_that_is_not_utf_8_is_named(tmp_path: Path) -> None:
    path = Path(write(tmp_path, content(notes="here")))
    path.write_bytes(path.read_bytes().replace(b"here", b"\xab"))
    with pytest.raises(
        UsageError, match=r"given\.json cannot be used: it is not UTF-8: .* at byte"
    ):
        read_vocabulary(str(path))


@pytest.mark.parametrize("levels", [100, 200, 400, 3000])
def test_a_deep_file_is_named(tmp_path: Path, levels: int) -> None:
    path = write(tmp_path, content())
    deep = '{"type":"Sequence","pretokenizers":[' * levels + "]}" * levels
    Path(path).write_text(json.dumps(content(pre_tokenizer="HERE")).replace('"HERE"', deep))
    with pytest.raises(UsageError, match=r"given\.json cannot be used: "):
        read_vocabulary(path)


def test_a_command_says_it_in_one_line(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.txt").write_text("a b c\n")
    path = write(tmp_path, content(pre_tokenizer=REDOS))
    line = ["text", f"--input={tmp_path}/a.txt", f"--output={tmp_path}/ds", "--task=gpt"]
    assert main([*line, f"--tokenizer={path}", "--direct_num_workers=1"]) == 2
    error = capfd.readouterr().err
    assert error.startswith(f"recordmill: --tokenizer {path} cannot be used: Onig")
    assert error.count("\n") == 1


def test_a_file_that_can_be_used_is_read(tmp_path: Path) -> None:
    _, tokenizer = read_vocabulary(write(tmp_path, content()))
    assert len(tokenizer) == 7


def test_what_was_tried_with_success_is_not_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jit, "_CACHE_FOLDER", str(tmp_path))
    data, other = (json.dumps(content(**each)).encode() for each in ({}, {"version": "2.0"}))
    bad = json.dumps(content(pre_tokenizer={"type": "Nope"})).encode()
    lines = ("abc",)
    trial.find_fault.cache_clear()
    assert trial.find_fault(data, lines) == ""
    assert trial.find_fault(bad, lines) == trial.find_fault.__wrapped__(bad, lines) != ""
    monkeypatch.setattr(trial, "_PROGRAM", "import sys; sys.exit('tried')")
    assert trial.find_fault.__wrapped__(data, lines) == ""
    assert trial.find_fault.__wrapped__(data, ("ab",)) == "tried"
    assert trial.find_fault.__wrapped__(other, lines) == "tried"
    assert trial.find_fault.__wrapped__(bad, lines) == "tried"


def test_what_the_process_prints_is_no_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPROFILEIMPORTTIME", "1")
    noise = "import sys; print('loaded'); print('loaded', file=sys.stderr); "
    monkeypatch.setattr(trial, "_PROGRAM", noise + trial._PROGRAM)
    monkeypatch.setattr(jit, "_CACHE_FOLDER", str(tmp_path))
    find_fault = trial.find_fault.__wrapped__
    assert find_fault(json.dumps(content()).encode(), ("abc",)) == ""
    bad = find_fault(json.dumps(content(pre_tokenizer={"type": "Nope"})).encode(), ("abc",))
    assert bad.startswith("data did not match any variant")
    assert "\n" not in bad
    monkeypatch.delenv("PYTHONPROFILEIMPORTTIME")
    monkeypatch.setattr(trial, "_PROGRAM", "import sys; sys.exit(3)")
    ended = find_fault(json.dumps(content()).encode(), ("other",))
    assert ended == "it ends a process with status 3"


LETTERS = {"ä": "ae", "ö": "oe", "ü": "ue", "Ä": "Ae", "Ö": "Oe", "Ü": "Ue", "ß": "ss", "æ": "ae",
           "œ": "oe", "…": "...", "½": "1/2", "ﬁ": "fi", "™": "(tm)"}  # fmt: skip


@pytest.mark.parametrize("kind", ["String", "Regex"])
def test_replacements_of_other_characters_do_not_multiply(kind: str) -> None:
    rules = [replacing({kind: letter}, by) for letter, by in LETTERS.items()]
    assert trial._growth({"type": "Sequence", "normalizers": rules}) == 4
    fed = [*rules, replacing({kind: "e"}, "eee")]
    assert trial._growth(fed) == 6, "the e of ä is replaced again"
    assert trial._growth([rules[0], {"type": "Lowercase"}, rules[1]]) == 4, "it may change letters"


@pytest.mark.parametrize("regex", ["a*", ".", "a|", "[^b]", "\\w", "(?i)B", "[a-c]"])
def test_a_regular_expression_may_match_what_others_write(regex: str) -> None:
    rules = [replacing({"String": "x"}, "yyy"), replacing({"Regex": regex}, "zz")]
    assert trial._growth(rules) == 6


@pytest.mark.slow
def test_processor_time_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial, "_MOST_SECONDS", 1)
    data = json.dumps(content()).encode()
    fault = trial.find_fault(data, ("abc" * 100_000,) * 500)
    assert fault == "500 lines take it more than 1 s of processor time"


def test_memory_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial, "_MOST_BYTES", 1 << 30)  # what it loads must fit
    fault = trial.find_fault(json.dumps(content()).encode(), ("abc" * (1 << 23),))
    assert fault.startswith("it takes more than 1024 MiB of memory")


def test_a_line_that_the_library_does_not_survive_ends_the_run_in_one_line() -> None:
    tokenizer = JsonTokenizer(json.dumps(content(pre_tokenizer=REDOS)).encode(), "a.json")
    lines = Lines.from_list([b"abc", b"x" * 300])
    with pytest.raises(RunError) as caught:
        tokenizer.start(lower_case=False).tokenize(lines)
    message = str(caught.value)
    assert message.startswith("the library of --tokenizer fails with a line of the input: Onig")
    assert f"{'x' * 80!r}" in message
    assert "\n" not in message
