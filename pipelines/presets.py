"""Presets: the flags that a reader wants, by its name. Flags that are given win over a preset's."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Set
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn

from recordmill.pipelines.beam_internals import FlagGroup
from recordmill.pipelines.flags import TextFlags
from recordmill.records.errors import UsageError
from recordmill.records.shards import NAMINGS

Value = str | int | bool
_Needs = dict[str, tuple[Value, ...]]


@dataclass(frozen=True, slots=True)
class Preset:
    """What a reader wants.

    Attributes:
      reader: its name, for people.
      needs: flag -> the values that the reader can read; the first of them is what is set.
      sets: flag -> its usual value for this reader, which another may replace.
    """

    reader: str
    needs: Mapping[str, tuple[Value, ...]]
    sets: Mapping[str, Value] = field(default_factory=dict)

    @property
    def flags(self) -> dict[str, Value]:
        """The value of each flag that the preset sets."""
        return {name: values[0] for name, values in self.needs.items()} | dict(self.sets)


_BERT_LENGTHS = {"max_seq_length": 128, "max_predictions_per_seq": 20}
_PAIRS: _Needs = {"task": ("bert",), "no_nsp": (False,)}
_PLAIN: _Needs = {"compression": ("NONE",)}
# Cerebras' readers take every file of a folder, so a split needs one of its own.
_CEREBRAS: _Needs = {**_PLAIN, "naming": ("default",)}
_UNPACKED_NAMES = tuple(name for name in NAMINGS if name != "tfx")
_FIRST_NAMES: _Needs = {"use_v2_feature_names": (False,)}

PRESETS = {
    "cerebras-bert": Preset(
        "Cerebras' BertTfRecordsProcessor", {**_PAIRS, **_FIRST_NAMES, **_CEREBRAS}, _BERT_LENGTHS
    ),
    "cerebras-mlm": Preset(
        "Cerebras' BertMlmOnlyTfRecordsStaticMaskProcessor",
        {"task": ("mlm",), **_FIRST_NAMES, **_CEREBRAS}, _BERT_LENGTHS,
    ),
    "cerebras-gpt": Preset(
        "Cerebras' GptTfRecordsProcessor",
        {"task": ("gpt",), "format": ("cerebras",), **_CEREBRAS}, {"max_seq_length": 1024},
    ),
    "cerebras-t5": Preset(
        "a model of Cerebras' T5DynamicDataProcessor",
        {"task": ("t5", "ul2"), "format": ("cerebras",), **_CEREBRAS}, {"max_seq_length": 512},
    ),
    "bert": Preset(
        "google-research/bert's run_pretraining.py",
        {**_PAIRS, **_FIRST_NAMES, **_PLAIN, "naming": _UNPACKED_NAMES}, _BERT_LENGTHS,
    ),
    "model-garden-v2": Preset(
        "Model Garden's BertPretrainDataLoader, v2 names",
        {**_PAIRS, "use_v2_feature_names": (True,), "compression": ("NONE", "GZIP")},
        {"max_seq_length": 512, "max_predictions_per_seq": 76},
    ),
    "seqio-t5": Preset(
        "seqio's tasks with use_cached=True, as T5X trains on",
        {"task": ("t5", "ul2"), "format": ("seqio",), "naming": ("seqio",), **_PLAIN},
        {"max_seq_length": 512, "packing": "concat"},
    ),
    "maxtext": Preset(
        "MaxText's TFDS pipeline, with the column targets, which it shifts and packs itself",
        {"task": ("gpt",), "format": ("seqio",), **_PLAIN, "naming": _UNPACKED_NAMES},
        {"max_seq_length": 2049, "packing": "none"},
    ),
}  # fmt: skip


class _ShowPresets(argparse.Action):
    """Prints all presets, and ends the program."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> NoReturn:
        print(presets_help())
        parser.exit()


def add_preset_arguments(group: FlagGroup) -> None:
    """Adds the flags."""
    group.add_argument(
        "--preset", choices=tuple(PRESETS),
        help="Set the flags that a reader wants, such as cerebras-gpt or seqio-t5; flags that are "
        "given win. --help-presets shows them.",
    )  # fmt: skip
    group.add_argument(
        "--help-presets", action=_ShowPresets, nargs=0, dest="help", default=argparse.SUPPRESS,
        help="Show all presets with their flags.",
    )  # fmt: skip


def presets_help() -> str:
    """Returns each preset with its reader and the flags that it sets."""
    lines = ["Presets: flags that are given win over those of a preset.", ""]
    for name, preset in PRESETS.items():
        lines += [f"--preset={name}", f"  for {preset.reader}"]
        lines.append("  " + " ".join(preset_line(preset)))
    return "\n".join(lines)


def preset_line(preset: Preset) -> list[str]:
    """Returns the flags of a preset as they are written, without those that mean no."""
    return [_written(name, value) for name, value in preset.flags.items() if value is not False]


def _written(name: str, value: Value) -> str:
    if isinstance(value, bool):
        return f"--{name}" if value else f"--no-{name}"
    return f"--{name}={value}"


def with_preset(options: TextFlags, given: Set[str]) -> TextFlags:
    """Returns the flags with those of the preset.

    Args:
      options: of the text job.
      given: the names of the flags on the command line, also of those with their default value.

    Raises:
      UsageError: a given flag asks for what the preset's reader cannot read.
    """
    if options.preset is None:
        return options
    preset = PRESETS[options.preset]
    for name, readable in preset.needs.items():
        value = getattr(options, name)
        if name in given and value not in readable:
            wrong = _written(name, value)
            possible = " or ".join(_written(name, each) for each in readable)
            advice = f"leave out {wrong}" if readable == (False,) else f"give {possible}"
            raise UsageError(
                f"--preset={options.preset} is for {preset.reader}, which cannot read {wrong}; "
                f"{advice}, or leave out --preset"
            )
    changes: dict[str, Any] = {n: v for n, v in preset.flags.items() if n not in given}
    return replace(options, **changes)
