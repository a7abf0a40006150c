"""Commands of the documentation: run in this process, or checked without being run."""

from __future__ import annotations

import itertools
import json
import re
import runpy
import shlex
import shutil
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from recordmill.pipelines.command_line import main
from recordmill.pipelines.command_table import Call, find_command
from recordmill.pipelines.config_files import add_config
from recordmill.pipelines.engines.choice import check_beam_flags
from recordmill.pipelines.examples_request import any_request
from recordmill.pipelines.faces import Given, Parser
from recordmill.pipelines.image_request import image_request
from recordmill.pipelines.text_request import text_request

ROOT = Path(__file__).parents[2]
JOBS = ("text", "images", "examples", "index", "vocab")


def commands(code: str) -> Iterator[list[str]]:
    """Yields the commands of a block, as words."""
    for line in code.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        while "&&" in words:
            end = words.index("&&")
            yield words[:end]
            words = words[end + 1 :]
        if words:
            yield words


def run(code: str) -> None:
    """Runs the commands of a block in the current folder; what they write is removed before."""
    found = list(commands(code))
    for output in {w.partition("=")[2] for c in found for w in c if w.startswith("--output=")}:
        shutil.rmtree(output) if Path(output).is_dir() else Path(output).unlink(missing_ok=True)
    for words in found:
        check(words)
        if words[0] == "recordmill":
            one_worker = ["--direct_num_workers=1"] if words[1] in JOBS else []
            assert main([*words[1:], *one_worker]) == 0, words
        elif words[0] == "python":
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(sys, "argv", words[1:])
                runpy.run_path(str(ROOT / words[1]), run_name="__main__")
        else:
            pytest.fail(f"{words[0]} cannot be run in a test; mark the block with parse")


def check(words: list[str]) -> None:
    """Checks a command without running it."""
    name = Path(words[0]).name
    if name not in _CHECKS:
        pytest.fail(f"nobody knows how to check {words[0]}")
    _CHECKS[name](words[1:])


def _recordmill(words: list[str]) -> None:
    command, own = find_command(words)
    options = command.options()
    parser = Parser()
    parser.add_options(options)
    values, rest = parser.parse_values([word for word in own if word not in ("--help-all",)])
    given = Given(values, beam=rest)
    add_config(given, options)
    check_beam_flags(rest, options)
    requests: dict[str, Callable[[Any], Any]] = {
        "text": text_request, "images": image_request, "examples": any_request,
    }  # fmt: skip
    call = Call(command=command, given=given)
    call.check()
    if command.name in requests:
        requests[command.name](call.make(command.kinds()[0]))


def _make(words: list[str]) -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for word in words:
        variable, equals, _ = word.partition("=")
        pattern = rf"\$\({variable}\)" if equals else rf"^{word}:"
        assert re.search(pattern, makefile, re.MULTILINE), f"the Makefile has no {word}"


def _pip(words: list[str]) -> None:
    assert words[0] == "install"
    setup = (ROOT / "setup.py").read_text(encoding="utf-8")
    for package in words[1:]:
        name, _, extra = package.removesuffix("]").partition("[")
        assert name in ("recordmill", ".", "apache-beam"), package
        assert name == "apache-beam" or not extra or f'"{extra}": [' in setup, package


def _python(words: list[str]) -> None:
    if words[0] == "-m":
        assert find_spec(words[1]) is not None, words[1]
        for word in words[2:]:
            assert "/" not in word or (ROOT / word).exists(), word
        return
    program = ROOT / words[0]
    program = program / "__main__.py" if program.is_dir() else program
    source = program.read_text(encoding="utf-8")
    for word in words[1:]:
        flag = word.partition("=")[0]
        known = f'"{flag}"' in source or "parse(TextSpec" in source
        assert not flag.startswith("-") or known, f"{words[0]} has no {flag}"


def _files(words: list[str]) -> None:
    for flag, value in itertools.pairwise(words):
        if flag == "-f" and not value.startswith("job/"):
            assert (ROOT / value).is_file(), value


def _gcloud(words: list[str]) -> None:
    if "flex-template" not in words:
        assert words[0] == "auth"
        return
    given = {w.partition("=")[0]: w.partition("=")[2] for w in words if w.startswith("--")}
    template = given["--template-file-gcs-location"].rpartition("recordmill-")[2]
    folder = ROOT / "templates" / template.removesuffix(".json")
    content = json.loads((folder / "metadata.json").read_text(encoding="utf-8"))
    known = {parameter["name"]: parameter for parameter in content["parameters"]}
    values = dict(part.split("=", 1) for part in given["--parameters"].split(","))
    assert {name for name, p in known.items() if not p["isOptional"]} <= values.keys()
    for name, value in values.items():
        for regex in known[name].get("regexes", ()):
            assert re.fullmatch(regex, value), (name, value)


def _go(words: list[str]) -> None:
    version = re.search(r"@v(\d+\.\d+)\.", words[1])
    assert version
    assert f"apache-beam{{extras}}>={version[1]}" in (ROOT / "setup.py").read_text()


def _pre_commit(words: list[str]) -> None:
    assert words == ["install"]
    assert (ROOT / ".pre-commit-config.yaml").is_file()


_CHECKS: dict[str, Callable[[list[str]], None]] = {
    "recordmill": _recordmill,
    "make": _make,
    "pip": _pip,
    "python": _python,
    "docker": _files,
    "kubectl": _files,
    "gcloud": _gcloud,
    "go": _go,
    "pre-commit": _pre_commit,
}
