"""Flex Templates: their metadata, made from the flags, and their launch.

`python -m recordmill.pipelines.templates` writes `templates/*/metadata.json`. With `--image` and
`--folder` it writes the specs that `gcloud dataflow flex-template run` takes: the image's name and
that metadata. (gcloud's own command drops fields of the metadata that it does not know.)
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recordmill.pipelines.arguments import Parser, default_text, is_boolean
from recordmill.pipelines.beam_internals import grouped_actions
from recordmill.pipelines.flag_table import TABLE_PATH, make_table, table_bytes
from recordmill.pipelines.image_options import add_image_arguments
from recordmill.pipelines.options import required
from recordmill.pipelines.text_options import add_text_arguments
from recordmill.records.errors import UsageError
from recordmill.transforms.storage import files

_OBJECT = r"^gs://[^/]+/.+$"
_WHOLE = r"^-?[0-9]+$"
_REAL = r"^[0-9]*\.?[0-9]+(e-?[0-9]+)?$"
_COUNTS = r"^([A-Za-z][A-Za-z0-9_]*:)?[0-9]+(,[A-Za-z][A-Za-z0-9_]*:[0-9]+)*$"

# flag -> its picker in the console, and what its value must match; others are known by their type.
_FORMS = {
    "input": ("GCS_READ_FILE", _OBJECT),
    "vocab_file": ("GCS_READ_FILE", _OBJECT),
    "annotations": ("GCS_READ_FILE", _OBJECT),
    "masks": ("GCS_READ_FILE", _OBJECT),
    "output": ("GCS_WRITE_FOLDER", _OBJECT),
    "temp_dir": ("GCS_WRITE_FOLDER", _OBJECT),
    "splits": ("TEXT", r"^[A-Za-z][A-Za-z0-9_]*(:[0-9.]+)?(,[A-Za-z][A-Za-z0-9_]*(:[0-9.]+)?)*$"),
    "num_shards": ("TEXT", _COUNTS),
    "shard_size": ("TEXT", r"^[0-9.]+([KMGkmg][Ii]?)?[Bb]?$"),
    "image_size": ("TEXT", r"^[0-9]+(x[0-9]+)?$"),
    "fill": ("TEXT", r"^[0-9]+(,[0-9]+,[0-9]+)?$"),
}


@dataclass(frozen=True, slots=True)
class Template:
    """A pipeline as a template.

    Attributes:
      description: for the list of templates.
      add_arguments: adds its flags, not those of engines: Dataflow gives these itself.
      required: flags without which it does not start.
    """

    description: str
    add_arguments: Callable[[argparse.ArgumentParser], None]
    required: tuple[str, ...]

    def options(self) -> Iterator[tuple[str, argparse.Action]]:
        """Yields the flags, each with its group."""
        parser = Parser(add_help=False)
        self.add_arguments(parser)
        yield from ((group, a) for group, a in grouped_actions(parser) if a.dest != "help")


TEMPLATES = {
    "text": Template(
        "Raw text to tokenized, masked, sharded TFRecords.",
        add_text_arguments,
        ("input", "output", "vocab_file"),
    ),
    "images": Template(
        "Images, with labels, boxes or masks, to sharded TFRecords.",
        add_image_arguments,
        ("input", "output"),
    ),
}


def _form(action: argparse.Action) -> dict[str, Any]:
    """Returns type, regexes and options of a parameter."""
    if action.dest in _FORMS:
        kind, regex = _FORMS[action.dest]
        return {"paramType": kind, "regexes": [regex]}
    if is_boolean(action):
        return {"paramType": "BOOLEAN", "regexes": ["^(true|false)$"]}
    if action.choices:
        values = [str(choice) for choice in action.choices]
        regex = "^(" + "|".join(map(re.escape, values)) + ")$"
        options = [{"value": value, "label": value} for value in values]
        return {"paramType": "ENUM", "regexes": [regex], "enumOptions": options}
    if action.type in (int, float):
        return {"paramType": "NUMBER", "regexes": [_WHOLE if action.type is int else _REAL]}
    return {"paramType": "TEXT"}


def _parameter(group: str, action: argparse.Action, is_required: bool) -> dict[str, Any]:
    name = action.dest
    default = str(action.default).lower() if is_boolean(action) else str(action.default)
    has_default = action.default not in (None, "")
    text = action.help or f"--{name} of the pipeline."
    if action.nargs == "+":
        text += " Here several are separated by spaces."
    return {
        "name": name,
        "label": name.replace("_", " ").capitalize(),
        "helpText": text.replace("%%", "%"),
        "isOptional": not is_required,
        "groupName": group.capitalize(),
        **({"defaultValue": default} if has_default else {}),
        **_form(action),
    }


def metadata(name: str) -> dict[str, Any]:
    """Returns a template's metadata, in the JSON form of Dataflow's `TemplateMetadata`."""
    template = TEMPLATES[name]
    image = {
        "name": "sdk_container_image",
        "label": "Sdk container image",
        "helpText": "The workers' image, where it is not the launcher's own under its own name.",
        "isOptional": True,
        "groupName": "Engine",
        "paramType": "TEXT",
    }
    return {
        "name": f"recordmill {name}",
        "description": template.description,
        "streaming": False,
        "supportsAtLeastOnce": False,
        "parameters": [
            *(_parameter(g, a, a.dest in template.required) for g, a in template.options()),
            image,
        ],
    }


def spec(name: str, image: str) -> dict[str, Any]:
    """Returns a template's spec, in the JSON form of Dataflow's `ContainerSpec`."""
    return {"image": image, "sdkInfo": {"language": "PYTHON"}, "metadata": metadata(name)}


def to_json(content: dict[str, Any]) -> bytes:
    """Returns the content of a metadata or spec file."""
    return (json.dumps(content, indent=2, ensure_ascii=False) + "\n").encode()


def template_arguments(name: str, arguments: list[str]) -> list[str]:
    """Returns a launcher's arguments as the pipeline takes them.

    A launcher gives every parameter once, as --name=value, and the labels of the job as --labels,
    which is a flag of the image pipeline; Beam's other name of it is --label. Beside a preset,
    values that are defaults count as not given.
    """
    actions = {action.dest: action for _, action in TEMPLATES[name].options()}
    has_preset = any(argument.startswith("--preset=") for argument in arguments)
    result = []
    for argument in arguments:
        flag, equals, value = argument.partition("=")
        action = actions.get(flag.removeprefix("--"))
        if has_preset and action is not None and value and value == default_text(action):
            continue
        if flag == "--labels" and value.startswith("{"):
            result.append(f"--label={value}")
        elif action is None or not equals:
            result.append(argument)
        elif action.nargs == "+":
            result += [f"{flag}={one}" for one in re.split(r"[ ,]+(?=gs://)", value)]
        else:
            result.append(argument)
    return result


def launch(name: str, arguments: list[str] | None = None) -> int:
    """Runs a template's pipeline with a launcher's arguments; returns the exit status."""
    from recordmill.pipelines.command_line import main as command_line

    given = sys.argv[1:] if arguments is None else arguments
    return command_line([name, *template_arguments(name, given)])


def make_parser() -> Parser:
    """Returns the parser of `python -m recordmill.pipelines.templates`."""
    parser = Parser(prog="recordmill.pipelines.templates")
    parser.add_argument(
        "--folder", default="templates", help="The folder to write to; specs may go to gs://…."
    )
    parser.add_argument(
        "--image",
        help="Writes specs, for the image of launcher and workers; -text and -images are appended.",
    )
    return parser


def main(arguments: list[str] | None = None) -> int:
    """Writes the metadata of all templates, or their specs for an image."""
    try:
        options = make_parser().parse_args(arguments)
        required(options, "folder")
        for name in TEMPLATES:
            if options.image:
                path = files.join(options.folder, f"recordmill-{name}.json")
                files.write_bytes(path, to_json(spec(name, f"{options.image}-{name}")))
            else:
                path = str(Path(options.folder) / name / "metadata.json")
                files.write_bytes(path, to_json(metadata(name)))
            print(path)
        if not options.image:
            TABLE_PATH.write_bytes(table_bytes(make_table()))
    except UsageError as error:
        print(f"recordmill: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
