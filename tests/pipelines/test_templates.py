"""Flex Templates: their metadata lists what the pipelines take."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from google.cloud.dataflow_v1beta3 import ContainerSpec, ParameterType, TemplateMetadata
from google.protobuf import json_format

from recordmill.pipelines import templates
from recordmill.pipelines.command_table import COMMANDS, Call
from recordmill.pipelines.faces import Given, Parser
from recordmill.pipelines.image_request import image_request
from recordmill.pipelines.templates import (
    TEMPLATES,
    launch,
    metadata,
    spec,
    template_arguments,
    template_options,
)
from recordmill.pipelines.text_request import text_request
from recordmill.records.errors import UsageError

FOLDER = Path(__file__).parents[2] / "templates"
REQUESTS = {"text": text_request, "images": image_request}
GIVEN = {"input": "gs://b/in/*", "output": "gs://b/ds", "vocab_file": "gs://b/vocab.txt"}

name_of_each = pytest.mark.parametrize("name", list(TEMPLATES))


def parsed(name: str, *arguments: str) -> Any:
    parser = Parser()
    parser.add_options(COMMANDS[name].options())
    values, _ = parser.parse_values(template_arguments(name, list(arguments)))
    return Call(command=COMMANDS[name], given=Given(values)).make(COMMANDS[name].kinds()[0])


def parameters(name: str) -> dict[str, dict[str, Any]]:
    return {item["name"]: item for item in metadata(name)["parameters"]}


@name_of_each
def test_committed_files_are_current(name: str) -> None:
    assert {path.name for path in FOLDER.iterdir()} == {*TEMPLATES, "README.md", "boot"}
    committed = json.loads((FOLDER / name / "metadata.json").read_text(encoding="utf-8"))
    assert committed == metadata(name), "run python -m recordmill.pipelines.templates"
    program = (FOLDER / name / "main.py").read_text(encoding="utf-8")
    assert f'launch("{name}")' in program
    assert len(program.splitlines()) <= 10


@name_of_each
def test_dataflow_knows_every_field(name: str) -> None:
    strict = json_format.ParseDict(spec(name, "somewhere/recordmill:1-text"), ContainerSpec.pb()())
    again = json_format.MessageToDict(strict)
    assert again["image"] == "somewhere/recordmill:1-text"
    assert len(again["metadata"]["parameters"]) == len(metadata(name)["parameters"])
    with pytest.raises(json_format.ParseError):
        json_format.ParseDict({**metadata(name), "colour": "red"}, TemplateMetadata.pb()())


@name_of_each
def test_every_parameter_can_be_shown(name: str) -> None:
    for item in metadata(name)["parameters"]:
        assert item["label"]
        assert item["helpText"]
        assert item["paramType"] in ParameterType.__members__
        for value in (item.get("defaultValue"), *(o["value"] for o in item.get("enumOptions", ()))):
            for regex in item.get("regexes", ()):
                assert value is None or re.fullmatch(regex, value), item["name"]


@name_of_each
def test_every_flag_but_the_engines_is_a_parameter(name: str) -> None:
    assert set(parameters(name)) == {*template_options(name), "sdk_container_image"}
    assert not {"runner", "wait", "direct_num_workers"} & set(parameters(name))


@name_of_each
def test_required_is_what_the_pipeline_requires(name: str) -> None:
    needed = TEMPLATES[name].required
    assert needed == tuple(n for n, item in parameters(name).items() if not item["isOptional"])
    for missing in needed:
        given = [f"--{flag}={GIVEN[flag]}" for flag in needed if flag != missing]
        with pytest.raises(UsageError, match=f"--{missing} is required"):
            REQUESTS[name](parsed(name, *given))


@name_of_each
def test_defaults_change_nothing(name: str) -> None:
    """The console sends what it shows: the pipeline must take it for what it is."""
    given = [f"--{flag}={GIVEN[flag]}" for flag in TEMPLATES[name].required]
    shown = [
        f"--{item['name']}={item['defaultValue']}"
        for item in metadata(name)["parameters"]
        if "defaultValue" in item
    ]
    assert len(shown) > 10
    assert parsed(name, *given, *shown) == parsed(name, *given)


@pytest.mark.parametrize(
    ("flag", "taken", "refused"),
    [
        ("input", ["gs://b/in/*.txt", "gs://b/a/* gs://b/c/*"], ["in/*.txt", "gs://b"]),
        ("num_shards", ["80", "train:80,validation:8"], ["many", "80,"]),
        ("shard_size", ["200MB", "64MiB", "1000", "1.5G"], ["big", "200 MB"]),
        ("splits", ["train:0.9,validation:0.1", "train"], ["0.9", "train:"]),
        ("masked_lm_prob", ["0.15", ".2", "1e-2"], ["15%", "1.5.0"]),
        ("random_seed", ["7", "-1"], ["7.5", ""]),
        ("overwrite", ["true", "false"], ["yes", ""]),
        ("task", ["bert", "gpt"], ["gpt7"]),
    ],
)
def test_regexes(flag: str, taken: list[str], refused: list[str]) -> None:
    (regex,) = parameters("text")[flag]["regexes"]
    for value in taken:
        assert re.fullmatch(regex, value), value
        parsed("text", "--max_seq_length=256", f"--{flag}={value}")
    for value in refused:
        assert not re.fullmatch(regex, value), value


def test_a_launchers_arguments() -> None:
    given = [
        "--overwrite=true", "--multilabel=false", "--input=gs://b/a/* gs://b/c d/*",
        "--labels=gs://b/labels.txt", '--labels={"team": "vision"}', "--runner=DataflowRunner",
    ]  # fmt: skip
    assert template_arguments("images", given) == [
        "--overwrite=true", "--multilabel=false", "--input=gs://b/a/*", "--input=gs://b/c d/*",
        "--labels=gs://b/labels.txt", '--label={"team": "vision"}', "--runner=DataflowRunner",
    ]  # fmt: skip
    assert parsed("images", *given[:2]).output.overwrite is True
    assert parsed("text", "--do_lower_case=false").tokenizer.do_lower_case is False


def test_mistakes_are_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert launch("text", ["--overwrite=maybe"]) == 2
    assert capsys.readouterr().err == "recordmill: --overwrite must be true or false, got 'maybe'\n"
    assert launch("text", ["--output=gs://b/ds"]) == 2
    assert capsys.readouterr().err == "recordmill: --input is required\n"


def test_specs_are_written(tmp_path: Path) -> None:
    assert templates.main([f"--folder={tmp_path}", "--image=somewhere/recordmill:1"]) == 0
    written = json.loads((tmp_path / "recordmill-images.json").read_bytes())
    assert written == spec("images", "somewhere/recordmill:1-images")
