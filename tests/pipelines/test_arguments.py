"""Flags: true and false as absl writes them, help that names each default once."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable

import pytest

from recordmill.pipelines import templates
from recordmill.pipelines.arguments import BooleanFlag, Parser, default_text, is_boolean
from recordmill.pipelines.beam_internals import option_actions
from recordmill.pipelines.commands import (
    bench,
    doctor,
    examples,
    images,
    plan,
    text,
    verify,
    vocab,
)
from recordmill.pipelines.engines.choice import add_engine_arguments
from recordmill.pipelines.engines.worker_boot import make_parser as worker_boot_parser
from recordmill.records.errors import UsageError

PARSERS: dict[str, Callable[[], argparse.ArgumentParser]] = {
    "text": text.make_parser,
    "images": images.make_parser,
    "examples": examples.make_parser,
    "vocab": vocab.make_parser,
    "plan text": lambda: plan.make_parser("text"),
    "plan images": lambda: plan.make_parser("images"),
    "bench": bench.make_parser,
    "verify": verify.make_parser,
    "doctor": doctor.make_parser,
    "templates": templates.make_parser,
    "worker boot": worker_boot_parser,
}
FLAGS = [
    (name, action)
    for name, make in PARSERS.items()
    for action in dict.fromkeys(option_actions(make()).values())
    if action.default != argparse.SUPPRESS
]


def engine_parser() -> Parser:
    parser = Parser()
    add_engine_arguments(parser)
    return parser


FLAGS += [("engine", action) for action in dict.fromkeys(option_actions(engine_parser()).values())]


def switches() -> Parser:
    parser = Parser()
    group = parser.add_argument_group("some")
    group.add_argument("--lower", action=BooleanFlag, default=True)
    group.add_argument("--overwrite", action="store_true")
    group.add_argument("--wait", "--no_wait", action=BooleanFlag, default=True)
    parser.add_argument("--name")
    parser.add_argument("folder", nargs="?")
    return parser


@pytest.mark.parametrize(
    ("argument", "lower"),
    [
        ("--lower", True),
        ("--no-lower", False),
        *((f"--lower={value}", True) for value in ("true", "True", "TRUE", "1", "yes", "t", "y")),
        *((f"--lower={value}", False) for value in ("false", "False", "0", "no", "No", "f", "n")),
    ],
)
def test_booleans(argument: str, lower: bool) -> None:
    assert switches().parse_args([argument]).lower is lower


def test_every_flag_without_a_value_takes_one() -> None:
    assert switches().parse_args(["--overwrite=true"]).overwrite is True
    assert switches().parse_args(["--overwrite", "--overwrite=false"]).overwrite is False
    assert switches().parse_args(["--no-overwrite"]).overwrite is False
    assert switches().parse_args(["--no_wait"]).wait is False
    assert switches().parse_args(["--wait=no"]).wait is False


def test_a_boolean_takes_nothing_but_what_follows_the_sign() -> None:
    options = switches().parse_args(["--overwrite", "false"])
    assert (options.overwrite, options.folder) == (True, "false")
    options = switches().parse_args(["--name=--lower=x"])
    assert options.name == "--lower=x"
    assert switches().parse_args(["--", "--lower=x"]).folder == "--lower=x"


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("--lower=flase", "--lower must be true or false, got 'flase'; did you mean false?"),
        ("--overwrite=", "--overwrite must be true or false, got ''"),
        ("--lower=2", "--lower must be true or false, got '2'"),
        ("--no-lower=true", "--no-lower takes no value, got 'true'; write --lower or --no-lower"),
        ("--no_wait=1", "--no_wait takes no value, got '1'; write --wait or --no_wait"),
    ],
)
def test_what_is_no_boolean(argument: str, message: str) -> None:
    with pytest.raises(UsageError) as error:
        switches().parse_args([argument])
    assert str(error.value) == message


@pytest.mark.parametrize(("name", "action"), FLAGS, ids=lambda value: getattr(value, "dest", value))
def test_help_names_the_default_once(name: str, action: argparse.Action) -> None:
    assert action.help, f"{name}: {action.option_strings} has no help"
    default = default_text(action)
    words = "default" in action.help.replace("(default: %(default)s)", "")
    assert not (default and words), f"{name}: {action.help!r} and the formatter name the default"
    assert not isinstance(action, argparse._StoreTrueAction | argparse._StoreFalseAction)


@pytest.mark.parametrize("name", [name for name in PARSERS if name != "worker boot"])
def test_help_ends_with_the_default(name: str) -> None:
    parser = PARSERS[name]()
    shown = re.sub(r"\s+", "", parser.format_help())  # a long default is broken over lines
    for action in dict.fromkeys(option_actions(parser).values()):
        if default_text(action):
            text = re.sub(r"\s+", " ", str(action.help)).replace("%%", "%")
            text = text.removesuffix(" (default: %(default)s)")
            default = default_text(action)
            wanted = re.sub(r"\s+", "", f"{text} (default: {default})")
            assert wanted in shown, action.option_strings
            assert is_boolean(action) == (action.nargs == 0)
