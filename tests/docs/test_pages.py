"""What pages name is there: files, flags, public names; and their sizes stay small."""

from __future__ import annotations

import argparse
import ast
import inspect
import re
import textwrap
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path

import api_reference
import doc_blocks
import flag_reference
import pytest
import site_hooks
from apache_beam.options.pipeline_options import PipelineOptions

from recordmill.pipelines.beam_internals import JOB_SERVER_FLAGS
from recordmill.pipelines.command_table import COMMANDS
from recordmill.pipelines.faces import default_text, flag_names

ROOT = doc_blocks.ROOT
_LINK = re.compile(r"\[[^\]]+\]\((?![a-z]+:)([^)#\s]*)(?:#[^)\s]*)?\)")
# Pages that are made while the site is built.
_GENERATED = re.compile(r"docs/reference/(flags|api)-\w+\.md|docs/reference/rejects\.md")
_ROOMS = re.compile(r"^\| `([\w/]+/)` \|(.*)\|$", re.MULTILINE)
# Flags of other programs: gcloud, docker, benchmarks, Flink's runner in Java.
_FOREIGN = {
    "--worker-machine-type", "--disable-public-ips", "--network", "--service-account-email",
    "--dataflow-kms-key", "--number_of_execution_retries", "--build-arg", "--parts",
}  # fmt: skip
_EXAMPLES = (
    "examples/flink/cluster.py", "examples/train_multiworker.py", "tests/faults/__main__.py",
    "tests/faults/cluster_kills.py",
)  # fmt: skip


def names(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("page", doc_blocks.PAGES, ids=names)
def test_links_lead_to_files(page: Path) -> None:
    for link in _LINK.findall(doc_blocks.prose(page)):
        target = (page.parent / link).resolve() if link else page
        assert target.exists() or _GENERATED.fullmatch(names(target)), link


def known_flags() -> set[str]:
    """Names every flag of recordmill, of Beam and of the examples."""
    parser = argparse.ArgumentParser(allow_abbrev=False, conflict_handler="resolve")
    for kind in PipelineOptions.__subclasses__():
        kind._add_argparse_args(parser)
    flags = {name for action in parser._actions for name in action.option_strings}
    for command in COMMANDS.values():
        flags |= {flag for option in command.options().values() for flag in flag_names(option)}
    flags |= {"--help-all", "--help-presets"}
    for path in _EXAMPLES:
        flags |= set(re.findall(r'"(--\w+)"', (ROOT / path).read_text(encoding="utf-8")))
    return flags | _FOREIGN | {"--version"} | {f"--{name}" for name in JOB_SERVER_FLAGS}


@pytest.fixture(scope="module")
def flags() -> set[str]:
    return known_flags()


@pytest.mark.parametrize("page", doc_blocks.PAGES, ids=names)
def test_flags_in_the_text_exist(page: Path, flags: set[str]) -> None:
    for code in re.findall(r"`([^`\n]+)`", doc_blocks.prose(page)):
        unknown = set(re.findall(r"(?<![\w-])--[a-z][\w-]*", code)) - flags
        assert not unknown, code


def test_every_file_that_the_architecture_names_is_there() -> None:
    rooms = _ROOMS.findall((ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8"))
    assert len(rooms) > 10
    for folder, text in rooms:
        assert (ROOT / folder).is_dir(), folder
        for name in re.findall(r"`(\w+\.py)`", text):
            assert (ROOT / folder / name).is_file(), f"{folder}{name}"


def test_every_room_is_in_the_architecture() -> None:
    rooms = {f for f, _ in _ROOMS.findall((ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8"))}
    for folder in ("records", "reader", "transforms", "pipelines"):
        for path in (ROOT / folder).rglob("__init__.py"):
            room = f"{path.parent.relative_to(ROOT).as_posix()}/"
            assert room in rooms or room == "transforms/", room


@pytest.mark.parametrize(("page", "limit"), [("README.md", 8192), ("ARCHITECTURE.md", 8192)])
def test_pages_that_are_read_first_are_short(page: str, limit: int) -> None:
    assert len((ROOT / page).read_bytes()) <= limit


@pytest.mark.parametrize("page", ["README.md", "docs/guides/text.md"])
def test_pages_name_every_task(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    for task in COMMANDS["text"].options()["task"].choices:
        assert f"`{task}`" in text, task


@pytest.mark.parametrize("package", api_reference.NAMES)
def test_api_pages_have_every_public_name(package: str) -> None:
    names = [name for part in api_reference.NAMES[package].values() for name in part]
    module = import_module(package)
    for name in names:
        assert getattr(module, name).__doc__, f"{package}.{name}"
    assert sorted(names) == sorted(module.__all__)


@pytest.mark.parametrize("command", dict.fromkeys(name.split()[0] for name in COMMANDS))
def test_a_page_has_every_flag_with_its_default_and_an_example(command: str) -> None:
    page = flag_reference.page(command)
    options = COMMANDS.get(command, COMMANDS["plan text"]).options()
    for name, option in options.items():
        if command != "plan" or option.group == "plan":
            (line,) = [row for row in page.splitlines() if row.startswith(f"| `--{name}`")] or [""]
            assert line or option.declared.positional, name
            default = default_text(option)
            assert not default or option.field.is_boolean or f"| `{default}` |" in line, name


def test_api_pages_have_the_arguments_that_a_struct_declares() -> None:
    page = api_reference.page("recordmill.reader")
    for row in (
        "| `batch_size` | `int` | required | The records in a batch of this worker. |",
        "| `epochs` | `int \\| None` | `1` | The passes over the split; None goes on",
        "| `flip`, `flip_left_right` | `bool \\| float \\| None` | `None` | Left and right are ",
    ):
        assert row in page


def test_decisions_are_listed() -> None:
    index = (ROOT / "docs/decisions/index.md").read_text(encoding="utf-8")
    for path in (ROOT / "docs/decisions").glob("0*.md"):
        text = path.read_text(encoding="utf-8")
        assert f"({path.name})" in index
        assert re.findall(r"^## (\w+)", text, re.M) == [
            "Context", "Decision", "Measured", "Consequences"
        ]  # fmt: skip


def raised_by(function: Callable[..., object]) -> set[str]:
    """Returns the names of the errors that the body of a function raises itself."""
    try:
        source = textwrap.dedent(inspect.getsource(function))
    except (OSError, TypeError):  # a dataclass has functions without a source
        return set()
    raised = [n.exc for n in ast.walk(ast.parse(source)) if isinstance(n, ast.Raise)]
    names = [call.func for call in raised if isinstance(call, ast.Call)]
    found = {name.id for name in names if isinstance(name, ast.Name)} - {"AssertionError"}
    return {name for name in found if name[0].isupper()}  # functions that make errors name theirs


def documented(package: str) -> Iterator[tuple[str, Callable[..., object], str]]:
    """Yields each public function, and each method of a public class, with what documents it.

    A special method is documented by its class; a method also by those that it overrides.
    """
    module = import_module(package)
    for name in module.__all__:
        value = getattr(module, name)
        if not inspect.isclass(value):
            yield name, value, value.__doc__
            continue
        for method, member in vars(value).items():
            function = getattr(member, "__func__", member)
            if inspect.isfunction(function) and (method[0] != "_" or method.endswith("__")):
                overridden = [vars(base).get(method) for base in value.__mro__]
                docs = [getattr(f, "__doc__", None) or "" for f in overridden]
                special = value.__doc__ or "" if method.startswith("__") else ""
                yield f"{name}.{method}", function, "\n".join([*docs, special])


@pytest.mark.parametrize("package", ["recordmill.records", *api_reference.NAMES])
def test_public_docstrings_name_the_errors_that_are_raised(package: str) -> None:
    missing = {
        name: sorted(e for e in raised_by(function) if f"{e}:" not in text)
        for name, function, text in documented(package)
    }
    assert not {name: errors for name, errors in missing.items() if errors}


def test_an_error_that_no_docstring_names_is_noticed() -> None:
    def check(value: int) -> None:
        """Checks a value."""
        if value < 0:
            raise ValueError(f"the value must be at least 0, got {value}")

    assert raised_by(check) == {"ValueError"}


def test_the_first_build_of_a_clone_finds_the_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The links are made at the start: in `on_config` mkdocstrings looks before the hooks."""
    monkeypatch.setattr(site_hooks, "ROOT", tmp_path)
    site_hooks.on_startup(command="build", dirty=False)
    links = {link.name: link.readlink() for link in (tmp_path / "build/typed/recordmill").iterdir()}
    assert links == {name: Path("../../..", name) for name in site_hooks.PACKAGES}
