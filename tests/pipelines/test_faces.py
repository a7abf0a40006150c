"""The faces of options: flags, help, signatures, examples and where options are named."""

from __future__ import annotations

import ast
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Annotated, ClassVar

import pytest

from recordmill.pipelines.command_line import main
from recordmill.pipelines.command_table import COMMANDS
from recordmill.pipelines.faces import (
    Given,
    Parser,
    checked_values,
    default_text,
    example_of,
    flag_names,
    merged,
    parse,
)
from recordmill.records.errors import UsageError
from recordmill.records.spec import Option, Spec, convert, option, options_of

ROOT = Path(__file__).parents[2]


class Switches(Spec, frozen=True, kw_only=True):
    group: ClassVar[str] = "some"

    lower: Annotated[bool, option("Lower.")] = True
    overwrite: Annotated[bool, option("Overwrite.")] = False
    wait: Annotated[bool, option("Wait.", negative="no_wait")] = True
    name: Annotated[str, option("A name.")] = ""
    folder: Annotated[str, option("A folder.", positional=True)] = ""


def switches(*arguments: str) -> Switches:
    return parse(Switches, [*arguments, *([] if arguments[-1:] == ("false",) else ["x"])])


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
    assert switches(argument).lower is lower


def test_every_flag_without_a_value_takes_one() -> None:
    assert switches("--overwrite=true").overwrite is True
    assert switches("--overwrite", "--overwrite=false").overwrite is False
    assert switches("--no-overwrite").overwrite is False
    assert switches("--no_wait").wait is False
    assert switches("--wait=no").wait is False


def test_a_boolean_takes_nothing_but_what_follows_the_sign() -> None:
    options = switches("--overwrite", "false")
    assert (options.overwrite, options.folder) == (True, "false")
    assert switches("--name=--lower=x").name == "--lower=x"
    assert parse(Switches, ["--", "--lower=x"]).folder == "--lower=x"


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
        switches(argument)
    assert str(error.value) == message


OPTIONS = [
    pytest.param(each, id=f"{name} {each.name}")
    for name, command in COMMANDS.items()
    if not name.startswith("plan ")
    for each in options_of(command.kinds()[0]).values()
]


@pytest.mark.parametrize("each", OPTIONS)
def test_an_option_has_help_that_names_the_default_once(each: Option) -> None:
    assert len(each.help) > 8
    assert not (default_text(each) and "by default" in each.help), "help names the default itself"


@pytest.mark.parametrize("each", OPTIONS)
def test_the_example_of_an_option_is_one(each: Option) -> None:
    parser = Parser()
    parser.add_options({each.name: each})
    values, rest = parser.parse_values(shlex.split(example_of(each)))
    assert not rest
    assert set(values) == {each.name}
    if not each.field.specs:
        assert convert(each.field, values[each.name]) is not None


@pytest.mark.parametrize("page", ["--help", "--help-all"])
@pytest.mark.parametrize("name", COMMANDS)
def test_help_has_each_heading_once(
    name: str, page: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*name.split(), page]) == 0
    headings = re.findall(r"^(\w[\w ]*):$", capsys.readouterr().out.lower(), re.MULTILINE)
    assert len(headings) == len(set(headings))


def test_a_flag_that_says_no_has_an_opposite_that_does_not() -> None:
    no_nsp = COMMANDS["text"].options()["no_nsp"]
    assert flag_names(no_nsp) == ["--no_nsp", "--nsp"]
    parser = Parser()
    parser.add_options({"no_nsp": no_nsp})
    assert parser.parse_values(["--nsp"]) == ({"no_nsp": False}, [])
    assert parser.parse_values(["--no_nsp=false"]) == ({"no_nsp": False}, [])


@pytest.mark.parametrize("name", COMMANDS)
def test_help_all_has_every_flag_with_its_default(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*name.split(), "--help-all"]) == 0
    shown = re.sub(r"\s+", "", capsys.readouterr().out)
    for each in COMMANDS[name].options().values():
        assert all(flag in shown for flag in flag_names(each))
        if default := default_text(each):
            assert re.sub(r"\s+", "", f"(default: {default})") in shown


def test_a_flag_under_two_names_is_refused() -> None:
    parser = Parser()
    parser.add_options(merged(COMMANDS["text"].kinds()))
    with pytest.raises(UsageError) as error:
        parser.parse_values(["--vocab_file=a", "--tokenizer=b"])
    assert str(error.value) == "--vocab_file and --tokenizer are two names of one flag; give one"


def test_values_of_a_command_line_are_only_what_is_given() -> None:
    parser = Parser()
    parser.add_options(merged(COMMANDS["text"].kinds()))
    line = ["--input", "a", "b", "--input=c", "--dupe_factor=3", "--no_wait", "--region", "eu"]
    values, rest = parser.parse_values(line)
    assert values == {"input": [["a", "b"], ["c"]], "dupe_factor": "3", "wait": False}
    assert rest == ["--region", "eu"]


def test_choices_are_taken_in_any_case() -> None:
    parser = Parser()
    parser.add_options(merged(COMMANDS["images"].kinds()))
    values, _ = parser.parse_values(["--encoding=png", "--task=Detection", "--channels=3"])
    assert values == {"encoding": "PNG", "task": "detection", "channels": "3"}
    options = merged(COMMANDS["images"].kinds())
    settings = {"encoding": "Jpeg", "channels": 1, "output": "PNG"}
    assert checked_values(settings, options, "job.yaml:") == {**settings, "encoding": "JPEG"}


def test_an_error_names_options_as_they_were_written() -> None:
    message = "--fim_rate has no effect with --task=bert; see --fim_rate_more and a/--fim_rate"
    given = Given({}, {"fim_rate": "a.yaml, line 3"})
    assert given.worded(message).startswith("a.yaml, line 3: fim_rate has no effect with --task=")
    assert Given({}).worded(message) == message
    python = Given({}, is_python=True).worded("--no-check_case has no effect; --fim_rate=0.5")
    assert python == "check_case=False has no effect; fim_rate=0.5"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("text --masked_lm_prob=1.5", "--masked_lm_prob must be in (0, 1), got 1.5"),
        ("text --masked_lm_prob=15%", "--masked_lm_prob must be a number, got '15%'"),
        ("text --dupe_factor=1e3", "--dupe_factor must be a whole number, got '1e3'"),
        ("text --dupe_factor=0", "--dupe_factor must be at least 1, got 0"),
        ("text --max_seq_length=4", "--max_seq_length must be in [8, 1048576], got 4"),
        (
            "text --max_seq_length=16 --max_predictions_per_seq=20",
            "--max_predictions_per_seq must be below --max_seq_length=16, got 20",
        ),
        ("text --taks=mlm", "unknown flag --taks=mlm; did you mean --task?"),
        ("text --task=gtp", "--task must be one of bert, classify, gpt, mlm, mlm_tokens, t5, "),
        ("text --fim_rate=0.5", "--fim_rate has no effect with --task=bert; leave it out"),
        (
            "text --task=gpt --fim_spm_rate=0.3",
            "--fim_spm_rate has no effect without --fim_rate; leave it out",
        ),
        ("text --task=t5 --format=maxtext", "--format=maxtext is for --task=gpt; give seqio or "),
        ("text --compression=zip", "--compression must be one of GZIP, NONE, ZLIB, got 'zip'"),
        ("text --encoding=utf9", "--encoding must be one that Python knows (utf-8, latin-1"),
        ("text --delimiter=ab", "--delimiter must be one ASCII character other than a quote"),
        ("text --header=none", "--header=none and --columns belong together: give both, or"),
        ("text --columns=a,a --header=none", "--columns must name each once, got a,a"),
        ("text --max_rejected=2", "--max_rejected must be in [0, 1], got 2.0"),
        ("text --max_rejected=nan", "--max_rejected must be in [0, 1], got nan"),
        ("text --text_field=", "--text_field must not be empty; leave it out for 'text'"),
        ("text --overwrite=maybe", "--overwrite must be true or false, got 'maybe'"),
        ("text --num_shards=2 --num_readers=3", "give one of --num_shards, --shard_size and "),
        ("text --max_tokens=3 --min_tokens=5", "--max_tokens must be at least 1 and not below"),
        ("text --near_threshold=0.9", "--near_threshold has no effect without --deduplicate="),
        ("text --random_seed=99999999999999999999", "--random_seed must be at most 92233720368"),
        ("text", "--input is required"),
        ("text --input=x", "--output is required"),
        ("text --input=x --output=y", "--vocab_file is required"),
        ("verify", "the following arguments are required: DIR"),
        ("verify a b", "unexpected argument 'b'; write quotes around a glob, and see --help"),
        ("verify a --worker=2", "unknown flag --worker=2; did you mean --workers?"),
        ("bench ds --batch_size=0", "--batch_size must be at least 1, got 0"),
        ("completion tcsh", "--shell must be one of bash, fish, schema, zsh, got 'tcsh'"),
    ],
)
def test_wrong_usage_is_one_line(
    line: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(shlex.split(line)) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"recordmill: {message}"), error
    assert error.count("\n") == 1


def test_help_and_wrong_usage_load_nothing_heavy() -> None:
    code = (
        "import sys; from recordmill.pipelines.command_line import main; "
        "main(['text', '--help']); main(['images', '--help-all']); main(['text', '--task=x']); "
        "print([name for name in ('apache_beam', 'numpy', 'pyarrow', 'tensorflow', 'yaml') "
        "if name in sys.modules], file=sys.stderr)"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stderr.splitlines()[-1] == "[]"


def test_entrances_hardly_name_options() -> None:
    """Commands, configuration files, notebooks, templates and docs know options by declarations.

    What is left is what only several structs or the input can say. Names with more than one meaning
    are not counted.
    """
    found: dict[str, set[str]] = {name: set() for name in NAMES}
    for path in (ROOT / "pipelines").rglob("*.py"):
        words = set()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            words |= {getattr(node, name, None) for name in ("arg", "attr", "id", "value")} & NAMES
        for name in words:
            found[name].add(path.name)
    assert {name: files for name, files in found.items() if len(files) > 4} == {}


NAMES = {
    each.name
    for command in COMMANDS.values()
    for kind in command.kinds()
    for each in options_of(kind).values()
}
# Words of programs, of manifests and of Beam.
_OTHERS = {"vocab_file", "num_shards", "record_bytes", "max_rejected", "flink_master"}
NAMES = {name for name in NAMES if "_" in name} - _OTHERS
