"""Jobs as functions, for programs and notebooks: the commands, with their flags as arguments.

An error that the caller can mend is a `JobError` of one line, the one that the command prints.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from recordmill.pipelines.command_table import COMMANDS, Call
from recordmill.pipelines.config_files import add_config
from recordmill.pipelines.faces import Given, checked_values
from recordmill.pipelines.launch import run_job
from recordmill.pipelines.map_functions import function_from_object, user_function
from recordmill.records import manifest as m
from recordmill.records.errors import RunError, UsageError
from recordmill.records.spec import signature_of
from recordmill.transforms.dataset.user_functions import UserFunction
from recordmill.transforms.dataset.workspace import read_manifest
from recordmill.transforms.storage import files

if TYPE_CHECKING:
    import tensorflow as tf


class JobError(Exception):
    """A job cannot run, or has failed; one line says why, and what to do."""


@dataclass(frozen=True)
class WrittenDataset:
    """A finished dataset.

    Attributes:
      path: its folder.
      splits: split -> its examples.
      counts: of inputs and examples, as the manifest has them.
    """

    path: str
    splits: Mapping[str, int]
    counts: Mapping[str, Any]

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> WrittenDataset:
        """Reads the manifest of a dataset.

        Raises:
          JobError: there is none that is finished.
        """
        path = os.fspath(path)
        try:
            manifest = read_manifest(path)
            if manifest is None or not files.exists(files.join(path, m.SUCCESS_PATH)):
                raise JobError(f"{path} is no finished dataset: it has no {m.SUCCESS_PATH}")
        except RunError as error:
            raise JobError(str(error)) from error
        splits = {
            split: sum(shard.records for shard in shards)
            for split, shards in manifest.split_shards().items()
        }
        return cls(path, splits, manifest.counts)

    @property
    def rejects(self) -> dict[str, int]:
        """Reason -> inputs that were rejected."""
        return dict(self.counts.get("rejected", {}))

    def rejected(self) -> Iterator[dict[str, Any]]:
        """Yields each rejected input: its source, position, stage, reason and detail."""
        for path in sorted(files.list_files(files.join(self.path, m.REJECTED_PATH))):
            for line in files.read_bytes(path).splitlines():
                yield json.loads(line)

    def load(self, split: str = "train", **options: Any) -> tf.data.Dataset:
        """Returns batches for training: `recordmill.reader.load` of this dataset.

        Args:
          split: such as "train", "train[:10%]".
          options: of `recordmill.reader.load`, such as `batch_size`, which has no default.
        """
        from recordmill.reader.loading import load

        return load(self.path, split, **options)


def write_text_dataset(**options: Any) -> WrittenDataset:
    """Writes a dataset of text, as `recordmill text`; its flags are the arguments.

    Where the dataset is there already, written so, nothing is done; a run that was cut short is
    finished.

    Args:
      options: `input`, `output`, `vocab_file` and any other flag without its dashes; `map` may be
        a function, or a list of functions and names; `beam_flags` are a list of Beam's own.

    Raises:
      JobError: one line: what is wrong, and what to do.
    """
    return _write("text", options)


def write_image_dataset(**options: Any) -> WrittenDataset:
    """Writes a dataset of images, as `recordmill images`; see `write_text_dataset`.

    Raises:
      JobError: one line: what is wrong, and what to do.
    """
    return _write("images", options)


def write_examples_dataset(**options: Any) -> WrittenDataset:
    """Writes a dataset of existing records, as `recordmill examples`; see `write_text_dataset`.

    Raises:
      JobError: one line: what is wrong, and what to do.
    """
    return _write("examples", options)


def learn_vocabulary(**options: Any) -> str:
    """Learns a vocabulary, as `recordmill vocab`; its flags are the arguments.

    Returns:
      The path of the file.

    Raises:
      JobError: one line: what is wrong, and what to do.
    """
    with _job_errors(given := Given({}, is_python=True)):
        _call("vocab", options, given).run()
    return os.fspath(given.values["output"])


def _write(name: str, options: Mapping[str, Any]) -> WrittenDataset:
    with _job_errors(given := Given({}, is_python=True)):
        return WrittenDataset.read(run_job(_call(name, options, given)))


@contextmanager
def _job_errors(given: Given) -> Iterator[None]:
    """Turns errors into those of a program, in which options are arguments."""
    try:
        yield
    except (UsageError, RunError) as error:
        raise JobError(given.worded(str(error))) from error


def _call(name: str, options: Mapping[str, Any], given: Given) -> Call:
    """Returns a command with what a program gave, among it options of the file `config`."""
    command = COMMANDS[name]
    known = command.options()
    functions = _functions(options.get("map"))
    own = {n: v for n, v in options.items() if n not in ("map", "beam_flags")}
    given.values |= checked_values(own, known, "arguments:")
    given.beam += options.get("beam_flags") or ()
    add_config(given, known, has_functions=bool(functions))
    call = Call(command=command, given=given, functions=functions)
    call.check()
    return call


def _functions(given: Any) -> tuple[UserFunction, ...]:
    if given is None:
        return ()
    each = given if isinstance(given, list | tuple) else [given]
    return tuple(
        user_function(one) if isinstance(one, str) else function_from_object(one) for one in each
    )


def _describe(function: Callable[..., Any], name: str) -> None:
    """Gives a function the signature that notebooks show and complete.

    It has not `wait`, because the dataset is what is returned.
    """
    arguments = [
        (flag, option.default, option.field.kind)
        for flag, option in COMMANDS[name].options().items()
        if flag != "wait"
    ]
    arguments.append(("beam_flags", None, Sequence[str]))
    function.__signature__ = signature_of(function, arguments)  # type: ignore[attr-defined]


for _function, _name in (
    (write_text_dataset, "text"),
    (write_image_dataset, "images"),
    (write_examples_dataset, "examples"),
    (learn_vocabulary, "vocab"),
):
    _describe(_function, _name)
