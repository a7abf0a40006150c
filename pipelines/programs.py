"""Jobs as functions, for programs and notebooks: the commands, with their flags as arguments.

An error that the caller can mend is a `JobError` of one line, the one that the command prints.
"""

from __future__ import annotations

import inspect
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from recordmill.pipelines.arguments import Parser
from recordmill.pipelines.commands import examples, images, text, vocab
from recordmill.pipelines.config_files import setting_arguments
from recordmill.pipelines.engines.choice import add_engine_arguments
from recordmill.pipelines.launch import JobCommand
from recordmill.pipelines.map_options import function_from_object, user_function
from recordmill.pipelines.settings import (
    EngineSettings,
    ExamplesSettings,
    ImageSettings,
    TextSettings,
    VocabularySettings,
)
from recordmill.records import manifest as m
from recordmill.records.errors import RunError, UsageError
from recordmill.transforms.dataset.user_functions import UserFunction
from recordmill.transforms.dataset.workspace import read_manifest
from recordmill.transforms.storage import files

if TYPE_CHECKING:
    import tensorflow as tf
    from typing_extensions import Unpack


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


def write_text_dataset(**settings: Unpack[TextSettings]) -> WrittenDataset:
    """Writes a dataset of text, as `recordmill text`; its flags are the arguments.

    Where the dataset is there already, written so, nothing is done; a run that was cut short is
    finished.

    Args:
      settings: `input`, `output`, `vocab_file` and any other flag without its dashes; `map` may be
        a function, or a list of functions and names.

    Raises:
      JobError: one line: what is wrong, and what to do.
    """
    return _write(text.COMMAND, settings)


def write_image_dataset(**settings: Unpack[ImageSettings]) -> WrittenDataset:
    """Writes a dataset of images, as `recordmill images`; see `write_text_dataset`.

    Raises:
      JobError: one line: what is wrong, and what to do.
    """
    return _write(images.COMMAND, settings)


def write_examples_dataset(**settings: Unpack[ExamplesSettings]) -> WrittenDataset:
    """Writes a dataset of existing records, as `recordmill examples`; see `write_text_dataset`.

    Raises:
      JobError: one line: what is wrong, and what to do.
    """
    return _write(examples.COMMAND, settings)


def learn_vocabulary(**settings: Unpack[VocabularySettings]) -> str:
    """Learns a vocabulary, as `recordmill vocab`; its flags are the arguments.

    Returns:
      The path of the file.

    Raises:
      JobError: one line: what is wrong, and what to do.
    """
    try:
        arguments = _arguments(vocab.make_parser(), settings)
        vocab.main(arguments)
    except (UsageError, RunError) as error:
        raise JobError(str(error)) from error
    return os.fspath(settings["output"])


def _write(command: JobCommand[Any, Any, Any], settings: Mapping[str, Any]) -> WrittenDataset:
    try:
        functions = _functions(settings.get("map"))
        others = {name: value for name, value in settings.items() if name != "map"}
        arguments = _arguments(command.make_parser(), others)
        return WrittenDataset.read(command.run(arguments, functions))
    except (UsageError, RunError) as error:
        raise JobError(str(error)) from error


def _functions(given: Any) -> tuple[UserFunction, ...]:
    if given is None:
        return ()
    each = given if isinstance(given, list | tuple) else [given]
    return tuple(
        user_function(one) if isinstance(one, str) else function_from_object(one) for one in each
    )


def _arguments(parser: Parser, settings: Mapping[str, Any]) -> list[str]:
    """Returns settings as the arguments of a command."""
    add_engine_arguments(parser)
    beam: Sequence[str] = settings.get("beam_flags") or ()
    own = {name: value for name, value in settings.items() if name != "beam_flags"}
    return [*setting_arguments(parser, own, "settings:"), *beam]


def _describe(function: Callable[..., Any], settings: type, parser: Parser) -> None:
    """Gives a function the signature that notebooks show and complete: its flags, with defaults."""
    add_engine_arguments(parser)
    kinds: dict[str, Any] = {}
    for kind in (EngineSettings, settings):
        kinds |= kind.__annotations__
    parameters = [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=None if name in ("input", "beam_flags") else parser.get_default(name),
            annotation=getattr(kind, "__forward_arg__", kind),
        )
        for name, kind in kinds.items()
    ]
    result = inspect.signature(function).return_annotation
    function.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        parameters, return_annotation=result
    )


_describe(write_text_dataset, TextSettings, text.make_parser())
_describe(write_image_dataset, ImageSettings, images.make_parser())
_describe(write_examples_dataset, ExamplesSettings, examples.make_parser())
_describe(learn_vocabulary, VocabularySettings, vocab.make_parser())
