"""Parsers and the typed values of what they parse: the same flags, of fitting types."""

from __future__ import annotations

import argparse
import types
from collections.abc import Callable, Sequence
from dataclasses import FrozenInstanceError, fields
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import pytest

from recordmill.pipelines.arguments import Parser, is_boolean
from recordmill.pipelines.beam_internals import option_actions
from recordmill.pipelines.commands import (
    bench,
    diff,
    doctor,
    examples,
    images,
    inspect,
    plan,
    report,
    text,
    verify,
    vocab,
)
from recordmill.pipelines.commands.diff import DiffFlags
from recordmill.pipelines.commands.doctor import DoctorFlags
from recordmill.pipelines.commands.inspect import InspectFlags
from recordmill.pipelines.commands.plan import PlanFlags
from recordmill.pipelines.commands.report import ReportFlags
from recordmill.pipelines.commands.verify import VerifyFlags
from recordmill.pipelines.commands.vocab import VocabFlags
from recordmill.pipelines.engines.choice import EngineFlags, add_engine_arguments
from recordmill.pipelines.flags import ExamplesFlags, ImageFlags, TextFlags
from recordmill.pipelines.image_options import add_image_arguments
from recordmill.pipelines.text_options import add_text_arguments, text_request
from recordmill.reader.bench import BenchFlags


def engine_parser() -> Parser:
    parser = Parser()
    add_engine_arguments(parser)
    return parser


# Each parser, and the dataclasses that share its flags between them.
KINDS: dict[str, tuple[argparse.ArgumentParser, Sequence[type]]] = {
    "text": (text.make_parser(), [TextFlags]),
    "images": (images.make_parser(), [ImageFlags]),
    "examples": (examples.make_parser(), [ExamplesFlags]),
    "vocab": (vocab.make_parser(), [VocabFlags]),
    "plan examples": (plan.make_parser("examples"), [ExamplesFlags, PlanFlags]),
    "plan text": (plan.make_parser("text"), [TextFlags, PlanFlags]),
    "plan images": (plan.make_parser("images"), [ImageFlags, PlanFlags]),
    "verify": (verify.make_parser(), [VerifyFlags]),
    "inspect": (inspect.make_parser(), [InspectFlags]),
    "report": (report.make_parser(), [ReportFlags]),
    "diff": (diff.make_parser(), [DiffFlags]),
    "bench": (bench.make_parser(), [BenchFlags]),
    "doctor": (doctor.make_parser(), [DoctorFlags]),
    "engine": (engine_parser(), [EngineFlags]),
}
NOT_FLAGS = {"engine": {"beam"}}  # what a parser leaves over


def flags_of(parser: argparse.ArgumentParser) -> dict[str, argparse.Action]:
    actions = [*option_actions(parser).values(), *parser._actions]
    return {action.dest: action for action in actions if action.dest != "help"}


def types_of(kinds: Sequence[type]) -> dict[str, Any]:
    return {
        name: hint
        for kind in kinds
        for name, hint in get_type_hints(kind).items()
        if name in {field.name for field in fields(kind)}
    }


CASES = [
    pytest.param(action, types_of(kinds)[name], default, id=f"{kind} {name}")
    for kind, (parser, kinds) in KINDS.items()
    for name, action in flags_of(parser).items()
    for default in [parser.get_default(name)]
    if name in types_of(kinds)
]


@pytest.mark.parametrize("kind", KINDS)
def test_a_parser_and_its_dataclasses_name_the_same_flags(kind: str) -> None:
    parser, kinds = KINDS[kind]
    assert types_of(kinds).keys() - NOT_FLAGS.get(kind, set()) == flags_of(parser).keys()


@pytest.mark.parametrize(("action", "hint", "default"), CASES)
def test_a_field_has_the_type_of_its_flag(
    action: argparse.Action, hint: Any, default: object
) -> None:
    parts = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    value, *others = [part for part in parts if part is not type(None)]
    assert not others
    may_be_left_out = default is None and bool(action.option_strings)
    assert (type(None) in parts) == may_be_left_out, "None is the value of a flag not given"
    if get_origin(value) is Literal:
        assert set(get_args(value)) == set(action.choices or ())
    elif is_boolean(action):
        assert value is bool
    elif isinstance(action, argparse._AppendAction):
        assert value == (list[list[str]] if action.nargs == "+" else list[str])
    elif action.nargs == "*":
        assert value == Sequence[action.type]
    else:
        assert value is (action.type or str)


def parsed(add_arguments: Callable[[argparse.ArgumentParser], None], *given: str) -> Any:
    parser = Parser()
    add_arguments(parser)
    return parser.parse_args(given)


def test_flags_are_read_by_name_and_frozen() -> None:
    namespace = parsed(add_text_arguments, "--input", "a", "b", "--input=c", "--dupe_factor=3")
    namespace.other = 1
    flags = TextFlags.read(namespace)
    assert (flags.input, flags.dupe_factor, flags.task) == ([["a", "b"], ["c"]], 3, "bert")
    with pytest.raises(FrozenInstanceError):
        flags.dupe_factor = 4  # type: ignore[misc]


def test_a_flag_that_the_parser_lacks_is_an_error() -> None:
    with pytest.raises(AttributeError, match="vocab_size"):
        VocabFlags.read(parsed(add_text_arguments))


def test_flags_with_their_default_value_are_not_given() -> None:
    namespace = parsed(add_image_arguments, "--quality=95", "--copies=2", "--resize", "fit")
    flags = ImageFlags.read(namespace)
    assert flags.given(add_image_arguments) == {"copies", "resize"}


def test_a_request_leaves_the_namespace_as_it_is(tmp_path: Path) -> None:
    """A caller may make several requests of it."""
    given = (f"--input_file={tmp_path}/in", f"--output_file={tmp_path}/out", "--vocab_file=v")
    namespace = parsed(add_text_arguments, *given)
    before = dict(vars(namespace))
    assert text_request(namespace).job.splits[0].num_shards == 1
    assert vars(namespace) == before
