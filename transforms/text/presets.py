"""Presets: the flags that a reader wants, by its name. Flags that are given win over a preset's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from recordmill.records.errors import UsageError, one_of
from recordmill.records.shards import NAMINGS
from recordmill.records.spec import parse_boolean

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


def with_preset(values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns options with those of their preset; what is given wins.

    Args:
      values: flag -> value, of those that are given, also with their default value.

    Raises:
      UsageError: a value asks for what the preset's reader cannot read, or there is no such preset.
    """
    name = values.get("preset")
    if not name:
        return dict(values)
    preset = PRESETS[one_of("--preset", str(name), PRESETS)]
    for flag, readable in preset.needs.items():
        value = values.get(flag, readable[0])
        if isinstance(readable[0], bool) and isinstance(value, str):
            value = parse_boolean(f"--{flag}", value)
        if value not in readable:
            wrong = _written(flag, value)
            possible = " or ".join(_written(flag, each) for each in readable)
            advice = f"leave out {wrong}" if readable == (False,) else f"give {possible}"
            raise UsageError(
                f"--preset={name} is for {preset.reader}, which cannot read {wrong}; "
                f"{advice}, or leave out --preset"
            )
    return preset.flags | dict(values)
