"""Flex Templates: their metadata, made from the flags, and their launch.

`python -m recordmill.pipelines.templates` writes `templates/*/metadata.json`. With `--image` and
`--folder` it writes the specs that `gcloud dataflow flex-template run` takes: the image's name and
that metadata. (gcloud's own command drops fields of the metadata that it does not know.)
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from recordmill.pipelines.command_table import COMMANDS
from recordmill.pipelines.faces import default_text, parse
from recordmill.records.errors import UsageError
from recordmill.records.spec import Option, Spec, option, options_of
from recordmill.transforms.storage import files

_OBJECT = r"^gs://[^/]+/.+$"
_WHOLE = r"^-?[0-9]+$"
_REAL = r"^[0-9]*\.?[0-9]+(e-?[0-9]+)?$"


@dataclass(frozen=True, slots=True)
class Template:
    """A pipeline as a template.

    Attributes:
      description: for the list of templates.
      required: options without which it does not start.
    """

    description: str
    required: tuple[str, ...]


TEMPLATES = {
    "text": Template(
        "Raw text to tokenized, masked, sharded TFRecords.", ("input", "output", "vocab_file")
    ),
    "images": Template(
        "Images, with labels, boxes or masks, to sharded TFRecords.", ("input", "output")
    ),
}


def template_options(name: str) -> Mapping[str, Option]:
    """Returns the options of a template, without those of engines: Dataflow gives these itself."""
    return options_of(COMMANDS[name].kinds()[0])


def _form(option: Option) -> dict[str, Any]:
    """Returns type, regexes and options of a parameter."""
    declared = option.declared
    if declared.picker or declared.pattern:
        pattern = declared.pattern or _OBJECT
        return {"paramType": declared.picker or "TEXT", "regexes": [pattern]}
    if option.field.is_boolean:
        return {"paramType": "BOOLEAN", "regexes": ["^(true|false)$"]}
    if option.choices:
        values = [str(choice) for choice in option.choices]
        regex = "^(" + "|".join(map(re.escape, values)) + ")$"
        options = [{"value": value, "label": value} for value in values]
        return {"paramType": "ENUM", "regexes": [regex], "enumOptions": options}
    if option.field.kind in (int, float) and not declared.parse:
        return {
            "paramType": "NUMBER",
            "regexes": [_WHOLE if option.field.kind is int else _REAL],
        }
    return {"paramType": "TEXT"}


def _parameter(option: Option, is_required: bool) -> dict[str, Any]:
    default = default_text(option)
    text = option.help
    if option.declared.split == "words":
        text += " Here several are separated by spaces."
    return {
        "name": option.name,
        "label": option.name.replace("_", " ").capitalize(),
        "helpText": text,
        "isOptional": not is_required,
        "groupName": option.group.capitalize(),
        **({"defaultValue": default} if default else {}),
        **_form(option),
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
            *(
                _parameter(option, option.name in template.required)
                for option in template_options(name).values()
            ),
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
    options = template_options(name)
    has_preset = any(argument.startswith("--preset=") for argument in arguments)
    result = []
    for argument in arguments:
        flag, equals, value = argument.partition("=")
        option = options.get(flag.removeprefix("--"))
        if has_preset and option is not None and value and value == default_text(option):
            continue
        if flag == "--labels" and value.startswith("{"):
            result.append(f"--label={value}")
        elif option is not None and equals and option.declared.split == "words":
            result += [f"{flag}={one}" for one in re.split(r"[ ,]+(?=gs://)", value)]
        else:
            result.append(argument)
    return result


def launch(name: str, arguments: list[str] | None = None) -> int:
    """Runs a template's pipeline with a launcher's arguments; returns the exit status."""
    from recordmill.pipelines.command_line import main as command_line

    given = sys.argv[1:] if arguments is None else arguments
    return command_line([name, *template_arguments(name, given)])


class TemplatesSpec(Spec, frozen=True, kw_only=True):
    """The options of `python -m recordmill.pipelines.templates`."""

    folder: Annotated[str, option("The folder to write to; specs may go to gs://….")] = "templates"
    image: Annotated[
        str | None,
        option(
            "Writes specs, for the image of launcher and workers; -text and -images are appended."
        ),
    ] = None


def main(arguments: list[str] | None = None) -> int:
    """Writes the metadata of all templates, or their specs for an image."""
    try:
        options = parse(TemplatesSpec, arguments, program="recordmill.pipelines.templates")
        for name in TEMPLATES:
            if options.image:
                path = files.join(options.folder, f"recordmill-{name}.json")
                files.write_bytes(path, to_json(spec(name, f"{options.image}-{name}")))
            else:
                path = str(Path(options.folder) / name / "metadata.json")
                files.write_bytes(path, to_json(metadata(name)))
            print(path)
    except UsageError as error:
        print(f"recordmill: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
