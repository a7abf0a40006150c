"""The commands: what each does, its options, and the function that runs it, loaded when needed."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any

from recordmill.pipelines.cores import usable_cores
from recordmill.pipelines.engines.engine_spec import LOCAL_RUNNERS, EngineSpec
from recordmill.pipelines.engines.preloading import preloading
from recordmill.pipelines.engines.processes import is_surely_small
from recordmill.pipelines.faces import Given, HelpPage, merged
from recordmill.records.errors import one_of
from recordmill.records.spec import Option, Spec, SpecT
from recordmill.transforms.text.presets import with_preset

if TYPE_CHECKING:
    from recordmill.transforms.dataset.user_functions import UserFunction

_SPECS = "recordmill.pipelines.command_specs"
_COMMANDS = "recordmill.pipelines.commands"
_TRANSFORMS = "recordmill.transforms"
_ENGINE = "recordmill.pipelines.engines.engine_spec:EngineSpec"
_RUNNER = "recordmill.pipelines.engines.engine_spec:RunnerSpec"


@dataclass(frozen=True, kw_only=True)
class Command:
    """A command of `recordmill`.

    Attributes:
      name: one word, or two of `plan`.
      summary: what it does, for the list of commands.
      specs: MODULE:CLASS of its specs; the first is its own.
      function: MODULE:FUNCTION: of jobs what gives the planner; of others what runs it, with the
        `Call` where an engine does the work, else with its spec.
      loads: modules that workers of this machine load, the stages among them.
      example: lines of a command line.
      usage: behind the name; "[flags]" where it is not given.
      description: sentences of `--help-all`.
      more: the end of the last line of `--help`.
      is_job: it writes a dataset.
      is_estimated: so does `plan` of it, without writing.
    """

    name: str
    summary: str
    specs: tuple[str, ...]
    function: str
    loads: tuple[str, ...] = ()
    example: tuple[str, ...] = ()
    usage: str = "[flags]"
    description: str = ""
    more: str = ""
    is_job: bool = False
    is_estimated: bool = False

    @property
    def has_engine(self) -> bool:
        """Whether an engine runs it, whose flags pass through."""
        return _ENGINE in self.specs or _RUNNER in self.specs

    @property
    def runs_stages(self) -> bool:
        """Whether it does the stages of a job, on any engine, or estimates them."""
        return _ENGINE in self.specs

    def kinds(self) -> list[type[Spec]]:
        """Returns its specs."""
        return [load(each) for each in self.specs]

    def options(self) -> Mapping[str, Option]:
        """Returns its options by name."""
        return merged(self.kinds())

    @property
    def page(self) -> HelpPage:
        """Its short help."""
        sentence = f"{self.summary[0].upper()}{self.summary[1:]}."
        return HelpPage(
            usage=f"{self.name} {self.usage}",
            sentence=sentence,
            example=self.example,
            more=self.more,
        )


def load(name: str) -> Any:
    """Returns what MODULE:NAME names."""
    module, _, attribute = name.partition(":")
    return getattr(import_module(module), attribute)


@dataclass(frozen=True, kw_only=True)
class Call:
    """A command with what its user gave.

    Attributes:
      command: which one.
      given: for its options.
      functions: what a program gives instead of --map.
    """

    command: Command
    given: Given
    functions: tuple[UserFunction, ...] = ()

    def make(self, kind: type[SpecT]) -> SpecT:
        """Returns one of the command's specs, with the options of a preset.

        Raises:
          UsageError: an option is wrong.
        """
        values = self.given.values
        return self.given.make(kind, with_preset(values) if "preset" in values else values)

    def check(self) -> None:
        """Makes all specs, which check themselves, before anything heavy is loaded.

        Raises:
          UsageError: an option is wrong.
        """
        for kind in self.command.kinds():
            self.make(kind)

    @cached_property
    def workers(self) -> int:
        """The number of processes of this machine that the command may begin; 1: none but this."""
        if not self.command.loads:
            return 1
        engine = self.make(EngineSpec)
        if engine.runner not in LOCAL_RUNNERS:
            return 1
        return engine.direct_num_workers or (1 if self._is_small() else usable_cores())

    def preloading(self) -> AbstractContextManager[object]:
        """Begins to load what workers need, before this process loads the same itself.

        It does so where they are processes of this machine, and the command is a job whose input
        may be worth several.
        """
        return nullcontext() if self.workers == 1 else preloading(self.command.loads)

    def _is_small(self) -> bool:
        values = self.given.values
        if self.functions or values.get("map"):  # how long these take is not known
            return False
        patterns = list(_flat(values.get("input") or values.get("dataset") or ()))
        return bool(patterns) and is_surely_small(patterns)

    def run(self) -> int:
        """Runs the command; returns the exit status.

        Raises:
          UsageError, RunError: one line: what is wrong, and what to do.
        """
        if self.command.is_job:
            load("recordmill.pipelines.launch:run_job")(self)
            return 0
        run = load(self.command.function)
        if self.command.has_engine:
            status: int = run(self)
        else:
            status = run(self.make(self.command.kinds()[0]))
        return status


def _flat(given: Any) -> Iterator[str]:
    """Yields the paths of an option, which may be written once or several times.

    What is none is refused where the option is read.
    """
    if isinstance(given, list | tuple):
        for each in given:
            yield from _flat(each)
    elif isinstance(given, str | os.PathLike):
        yield os.fspath(given)


_TEXT = "recordmill.transforms.text.text_spec:TextSpec"
_IMAGES = "recordmill.transforms.images.image_spec:ImagesSpec"
_EXAMPLES = "recordmill.transforms.examples.examples_spec:ExamplesSpec"
_DATASET = "DIR [flags]"
_MAKE = (
    Command(
        name="text",
        summary="raw text to tokenized, masked, sharded TFRecords",
        specs=(_TEXT, _ENGINE),
        function=f"{_COMMANDS}.text:planner",
        loads=(f"{_TRANSFORMS}.text.text_stages",),
        usage="--input=GLOB --output=DIR --tokenizer=FILE [flags]",
        example=(
            "recordmill text --input='wiki/*.txt.gz' --output=gs://bucket/wiki \\",
            "  --vocab_file=vocab.txt --splits=train:0.99,validation:0.01",
        ),
        more="recordmill plan text: an estimate",
        is_job=True,
        is_estimated=True,
    ),
    Command(
        name="images",
        summary="images, with labels, boxes or masks, to sharded TFRecords",
        specs=(_IMAGES, _ENGINE),
        function=f"{_COMMANDS}.images:planner",
        loads=(f"{_TRANSFORMS}.images.image_stages",),
        usage="--input=FOLDER --output=DIR [flags]",
        example=(
            "recordmill images --input=photos --output=ds --image_size=224x224 \\",
            "  --resize=crop --splits=train:0.9,validation:0.1",
        ),
        more="recordmill plan images: an estimate",
        is_job=True,
        is_estimated=True,
    ),
    Command(
        name="examples",
        summary="existing TFRecords: shuffled, resharded, merged, deduplicated",
        specs=(_EXAMPLES, _ENGINE),
        function=f"{_COMMANDS}.examples:planner",
        loads=(
            f"{_TRANSFORMS}.examples.examples_stages",
            f"{_TRANSFORMS}.examples.kernels",
        ),
        usage="--input=GLOB --output=DIR [flags]",
        example=(
            "recordmill examples --input='old/*.tfrecord.gz' --output=new \\",
            "  --num_shards=256",
        ),
        more="recordmill plan examples: an estimate",
        is_job=True,
        is_estimated=True,
    ),
    Command(
        name="index",
        summary="metadata and indexes beside TFRecords, which stay as they are",
        specs=("recordmill.transforms.examples.examples_spec:IndexSpec", _ENGINE),
        function=f"{_COMMANDS}.examples:index_planner",
        loads=(f"{_TRANSFORMS}.examples.in_place_stages",),
        usage=_DATASET,
        example=("recordmill index old", "recordmill index gs://bucket/old --runner=dataflow"),
        is_job=True,
    ),
    Command(
        name="vocab",
        summary="a vocabulary from text: WordPiece, BPE or Unigram",
        specs=("recordmill.transforms.vocabulary.vocab_spec:VocabSpec", _ENGINE),
        function=f"{_COMMANDS}.vocab:run",
        usage="--input=GLOB --output=FILE [flags]",
        example=(
            "recordmill vocab --input='wiki/*.txt.gz' --output=vocab.txt",
            "recordmill vocab --input='wiki/*.txt.gz' --output=tokenizer.json --kind=bpe",
        ),
    ),
)
MADE = tuple(command.name for command in _MAKE)  # the same command finishes what was killed
JOBS = tuple(command.name for command in _MAKE if command.is_estimated)
_PLAN_SUMMARY = "estimate what such a job does, takes and costs; write nothing"


def _plan(job: Command) -> Command:
    return Command(
        name=f"plan {job.name}",
        summary=f"estimate what the {job.name} job does, takes and costs; write nothing",
        specs=(f"{_SPECS}:PlanSpec", *job.specs),
        function=f"{_COMMANDS}.plan:run",
        usage=job.usage,
        example=tuple(
            line.replace(f"recordmill {job.name}", f"recordmill plan {job.name}")
            for line in job.example
        ),
        more=f"recordmill {job.name}: the job itself",
    )


_LOOK = (
    Command(
        name="inspect",
        summary="show what a dataset is, and some of its records",
        specs=(f"{_SPECS}:InspectSpec",),
        function=f"{_COMMANDS}.inspect:run",
        usage=_DATASET,
        description="Shows what a dataset is, and some of its records; also TFRecords that other "
        "tools wrote.",
    ),
    Command(
        name="report",
        summary="write a page about a dataset: sizes, classes, masks, examples",
        specs=(f"{_SPECS}:ReportSpec",),
        function=f"{_COMMANDS}.report:run",
        usage=_DATASET,
    ),
    Command(
        name="diff",
        summary="show what two datasets differ in",
        specs=(f"{_SPECS}:DiffSpec",),
        function=f"{_COMMANDS}.diff:run",
        usage="A B [flags]",
    ),
    Command(
        name="verify",
        summary="check every record, count and checksum of a dataset",
        specs=(f"{_SPECS}:VerifySpec", _RUNNER),
        function=f"{_COMMANDS}.verify:run",
        usage=_DATASET,
    ),
    Command(
        name="bench",
        summary="measure the reading speed of a dataset, and where the time goes",
        specs=("recordmill.reader.options:BenchSpec",),
        function=f"{_COMMANDS}.bench:run",
        usage=_DATASET,
        description="Measures how fast a dataset is read and where the time goes; says what to "
        "change.",
    ),
)
_SET_UP = (
    Command(
        name="doctor",
        summary="report what is installed, and what will not work",
        specs=(f"{_SPECS}:DoctorSpec",),
        function=f"{_COMMANDS}.doctor:run",
    ),
    Command(
        name="completion",
        summary="print what completes commands and flags in bash, zsh or fish",
        specs=("recordmill.pipelines.completion:CompletionSpec",),
        function="recordmill.pipelines.completion:run",
        usage="SHELL",
        description="Prints a script that completes commands, flags and their values: in bash "
        'eval "$(recordmill completion bash)", in zsh the same behind compinit; for fish a file '
        "~/.config/fish/completions/recordmill.fish. Or, as schema, the JSON Schema of a "
        "configuration file, by which editors complete and check it.",
    ),
)
COMMANDS: dict[str, Command] = {
    command.name: command
    for command in (*_MAKE, *(_plan(job) for job in _MAKE if job.is_estimated), *_LOOK, *_SET_UP)
}
_GROUPS = {"Make a dataset": _MAKE, "Look into one": _LOOK, "Set up": _SET_UP}
# The first words of commands -> what each does, as help lists them.
SUMMARIES: dict[str, str] = {
    name: summary
    for commands in _GROUPS.values()
    for name, summary in (
        *((command.name, command.summary) for command in commands),
        *([("plan", _PLAN_SUMMARY)] if commands is _MAKE else []),
    )
}


def find_command(arguments: list[str]) -> tuple[Command, list[str]]:
    """Returns the command of a command line, and the arguments behind it.

    Raises:
      UsageError: there is no such command, or `plan` has no job.
    """
    one_of("the command", arguments[0], SUMMARIES)
    if arguments[0] != "plan":
        return COMMANDS[arguments[0]], arguments[1:]
    job = one_of("recordmill plan: the job", (arguments[1:] or [""])[0], JOBS)
    return COMMANDS[f"plan {job}"], arguments[2:]


def main_help() -> str:
    """Returns the help of `recordmill`."""
    lines = ["usage: recordmill COMMAND [flags]", ""]
    lines.append("Raw text and images to sharded TFRecords for training, and what is in them.")
    for title, commands in _GROUPS.items():
        names = [command.name for command in commands] + (["plan"] if commands is _MAKE else [])
        lines += ["", f"{title}:", *(f"  {name:<11} {SUMMARIES[name]}" for name in names)]
    return "\n".join(
        [
            *lines,
            "",
            "Example:",
            "  recordmill vocab --input='wiki/*.txt' --output=vocab.txt",
            "  recordmill text --input='wiki/*.txt' --output=ds --vocab_file=vocab.txt",
            "  recordmill inspect ds",
            "",
            "recordmill COMMAND --help shows its flags, recordmill --version the version.",
            "Exit status: 0 done, 1 failed, 2 wrong usage, 130 stopped by Ctrl-C.",
        ]
    )


PLAN_HELP = """\
usage: recordmill plan text | images | examples [flags]   (recordmill plan text --help)

Estimates what the job does, takes and costs with the same flags; writes nothing."""
