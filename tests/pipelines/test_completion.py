"""`recordmill completion`: the scripts in the shells themselves, where these are installed."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from recordmill.pipelines.command_line import main
from recordmill.pipelines.completion import completion_script, make_table

# A line that is typed, and all that a key may put in its place.
CASES = {
    "recordmill te": ["text"],
    "recordmill plan te": ["text"],
    "recordmill completion z": ["zsh"],
    "recordmill text --task=ml": ["mlm", "mlm_tokens"],
    "recordmill text --task ml": ["mlm", "mlm_tokens"],
    "recordmill plan text --task=cl": ["classify"],
    "recordmill images --encoding=J": ["JPEG"],
    "recordmill text --vocab_file=vo": ["vocab.txt"],
    "recordmill text --runner=fl": ["flink"],
    "recordmill verify so": ["some/"],
    "recordmill in": ["index", "inspect"],
    "recordmill index so": ["some/"],
    "recordmill index --in": ["--input"],
    "recordmill text --mask": ["--masked_lm_prob"],
    "recordmill images --task=q": [],
    "recordmill plan ex": ["examples"],
    "recordmill examples --order=i": ["input"],
}

_BASH = """
source "$1"
COMP_LINE=$2 COMP_POINT=${#2}
compopt() { :; }
_recordmill
printf '%s\\n' "${COMPREPLY[@]}"
"""
# What a person sees who presses the key: zsh lists no candidates to programs.
_ZSH = """
zmodload zsh/zpty
zpty shell zsh -f -i
zpty -w shell "PS1=; stty cols 200; autoload -U compinit; compinit -u -D; source $1"
zpty -w shell "bindkey '^I' complete-word; zstyle ':completion:*' list-separator ' ##'"
zpty -w shell "setopt NO_AUTO_MENU NO_LIST_BEEP; echo READY"
zpty -r -m shell out '*READY*READY*'
zpty -w -n shell "$2"$'\\t\\t'
sleep 0.7
zpty -w -n shell $'\\x15'
zpty -w shell "echo END"
zpty -r -m shell out '*END*'
print -r -- "$out"
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("typed")
    (folder / "vocab.txt").write_text("")
    (folder / "some").mkdir()
    for shell in ("bash", "zsh", "fish"):
        (folder / f".{shell}").write_text(completion_script(shell, make_table()))
    return folder


def shell_output(folder: Path, shell: str, program: str, *arguments: str) -> str:
    path = shutil.which(shell)
    if not path:
        pytest.skip(f"{shell} is not installed")
    quiet = {"bash": ["--norc"], "zsh": ["-f"], "fish": ["--no-config"]}[shell]
    script = [program, shell] if shell != "fish" else [program]
    line = [path, *quiet, "-c", *script, str(folder / f".{shell}"), *arguments]
    ended = subprocess.run(line, capture_output=True, text=True, timeout=60, cwd=folder, check=True)
    assert not ended.stderr
    return ended.stdout


@pytest.mark.parametrize("typed", CASES)
def test_bash(folder: Path, typed: str) -> None:
    found = shell_output(folder, "bash", _BASH, typed).split()
    assert [text.removesuffix("=") for text in found] == CASES[typed]


@pytest.mark.parametrize("typed", CASES)
def test_fish(folder: Path, typed: str) -> None:
    found = shell_output(folder, "fish", "source $argv[1]; complete -C $argv[2]", typed)
    words = [line.partition("\t")[0] for line in found.splitlines()]
    start = typed.split()[-1].partition("=")[0] + "=" if "=" in typed else ""
    assert sorted(word.removeprefix(start) for word in words) == CASES[typed]


@pytest.mark.parametrize(
    ("typed", "shown"),
    [
        ("recordmill te", "recordmill text"),
        ("recordmill verify so", "recordmill verify some/"),
        ("recordmill text --mask", "recordmill text --masked_lm_prob="),
        ("recordmill images --encoding=J", "recordmill images --encoding=JPEG"),
        ("recordmill plan text --task=cl", "recordmill plan text --task=classify"),
        ("recordmill text --vocab_file=vo", "recordmill text --vocab_file=vocab.txt"),
    ],
)
@pytest.mark.slow
def test_zsh(folder: Path, typed: str, shown: str) -> None:
    screen = shell_output(folder, "zsh", _ZSH, typed)
    assert shown in re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", screen)  # without colours


def test_the_command_prints_a_script(capsys: pytest.CaptureFixture[str]) -> None:
    for shell in ("bash", "zsh", "fish"):
        assert main(["completion", shell]) == 0
        assert capsys.readouterr().out == completion_script(shell, make_table())
    assert main(["completion", "tcsh"]) == 2
    assert "must be one of bash, fish, schema, zsh" in capsys.readouterr().err


def test_the_schema_of_a_configuration_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "schema", "--command=text"]) == 0
    schema = json.loads(capsys.readouterr().out)
    known = schema["properties"]
    assert schema["additionalProperties"] is False
    assert known["masked_lm_prob"] == {
        "description": "The share of tokens that are masked.", "type": "number",
        "exclusiveMinimum": 0, "exclusiveMaximum": 1, "default": 0.15,
    }  # fmt: skip
    assert known["task"]["enum"][:2] == ["bert", "mlm"]
    assert known["tokenizer"] == known["vocab_file"]
    assert known["do_lower_case"]["type"] == "boolean"
