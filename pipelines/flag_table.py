"""All flags of all commands as a file, `flag_table.json`, for what must not load Beam to know them.

Short help and shell completion read it, and so start in a tenth of a second where the parsers take
seconds. `python -m recordmill.pipelines.templates` writes it; a test compares it with the parsers.
"""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path
from typing import Any

TABLE_PATH = Path(__file__).with_name("flag_table.json")
_JOBS = ("text", "images", "examples", "vocab")
_PARSERS = {
    "text": (), "images": (), "examples": (), "vocab": (),
    "plan text": ("text",), "plan images": ("images",), "plan examples": ("examples",),
    "bench": (), "inspect": (), "report": (), "diff": (), "verify": (), "doctor": (),
}  # fmt: skip
# What a value names, for completion; of all other flags without choices it is text.
_FILES = ("annotations", "html", "images", "input", "input_file", "vocab_file", "labels", "schema")
_FOLDERS = ("allow_outside", "masks", "output", "output_file", "temp_dir")

_SUGGESTED = {"runner": ["direct", "flink", "dataflow", "prism"]}
_OF_THE_MACHINE = ("plan_workers",)  # their defaults differ from machine to machine

Table = dict[str, dict[str, dict[str, Any]]]


def make_table() -> Table:
    """Returns command -> flag -> what it is, from the parsers; arguments without a name are ""."""
    from recordmill.pipelines.arguments import default_text, is_boolean
    from recordmill.pipelines.beam_internals import grouped_actions
    from recordmill.pipelines.engines.choice import add_engine_arguments

    table: Table = {}
    for command, arguments in _PARSERS.items():
        module = import_module(f"recordmill.pipelines.commands.{command.split()[0]}")
        parser = module.make_parser(*arguments)
        if command.split()[-1] in _JOBS:
            add_engine_arguments(parser)
        flags = table[command] = {}
        for _, action in grouped_actions(parser):
            name = action.dest
            values: Any = "text"
            if action.nargs == 0 or is_boolean(action):
                values = "none"
            elif action.choices:
                values = [str(choice) for choice in action.choices]
            elif name in _SUGGESTED:
                values = _SUGGESTED[name]
            elif not action.option_strings or name in _FOLDERS:
                values = "folder"
            elif name in _FILES:
                values = "file"
            help_text = (action.help or "").replace("%%", "%")
            for flag in [f for f in action.option_strings if f.startswith("--")] or [""]:
                flags[flag] = {
                    "values": values,
                    "default": "" if name in _OF_THE_MACHINE else default_text(action),
                    "help": help_text.partition(". ")[0].rstrip("."),
                }
    return table


def table_bytes(table: Table) -> bytes:
    """Returns the file: a flag a line, so that changes of two branches seldom meet."""
    commands = []
    for command, flags in table.items():
        lines = [
            f"  {json.dumps(flag)}: {json.dumps(known, ensure_ascii=False)}"
            for flag, known in flags.items()
        ]
        commands.append(f" {json.dumps(command)}: {{\n" + ",\n".join(lines) + "\n }")
    return ("{\n" + ",\n".join(commands) + "\n}\n").encode()


def read_table() -> Table:
    """Returns the table that is installed."""
    table: Table = json.loads(TABLE_PATH.read_bytes())
    return table
