"""Presets: the flags of a reader by its name."""

from __future__ import annotations

from pathlib import Path

import pytest

from recordmill.pipelines.command_line import main
from recordmill.pipelines.command_table import COMMANDS, Call
from recordmill.pipelines.faces import Given, Parser
from recordmill.pipelines.templates import template_arguments
from recordmill.pipelines.text_request import TextRequest, text_request
from recordmill.records.errors import UsageError
from recordmill.records.spec import options_of
from recordmill.transforms.text.presets import PRESETS, preset_line
from recordmill.transforms.text.text_spec import TextSpec

GUIDE = Path(__file__).parents[2] / "docs/guides/foreign-readers.md"


def request(*flags: str) -> TextRequest:
    line = ["--input=in.txt", "--output=ds", "--tokenizer=v.txt", *flags]
    parser = Parser()
    parser.add_options(options_of(TextSpec))
    values, _ = parser.parse_values(line)
    return text_request(Call(command=COMMANDS["text"], given=Given(values)).make(TextSpec))


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_is_its_flags_written_out(name: str) -> None:
    """The same request plans the same job, whose bytes are a function of it."""
    written_out = preset_line(PRESETS[name])
    assert written_out
    assert request(f"--preset={name}") == request(*written_out)


def test_given_flags_win_also_with_their_default_value() -> None:
    assert request("--preset=model-garden-v2").job.objective.max_seq_length == 512
    ours = request("--preset=model-garden-v2", "--max_seq_length=128")
    assert ours.job.objective.max_seq_length == 128
    assert ours.job.objective.use_v2_feature_names
    assert request("--max_seq_length", "64", "--preset=bert").job.objective.max_seq_length == 64
    assert request("--preset=seqio-t5", "--task=ul2").job.objective.name == "ul2"
    gzip = request("--preset=model-garden-v2", "--compression=GZIP").job
    assert gzip.compression == "GZIP"


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("cerebras-gpt", "--task=bert"), "cannot read --task=bert; give --task=gpt, or leave out"),
        (("cerebras-t5", "--format=seqio"), "cannot read --format=seqio; give --format=cerebras"),
        (("cerebras-mlm", "--compression=GZIP"), "cannot read --compression=GZIP"),
        (("cerebras-bert", "--naming=flat"), "cannot read --naming=flat; give --naming=default"),
        (("cerebras-bert", "--no_nsp"), "cannot read --no_nsp; leave out --no_nsp, or"),
        (("bert", "--use_v2_feature_names"), "cannot read --use_v2_feature_names"),
        (("bert", "--naming=tfx"), "cannot read --naming=tfx"),
        (("seqio-t5", "--naming=default"), "cannot read --naming=default; give --naming=seqio"),
        (("maxtext", "--format=maxtext"), "cannot read --format=maxtext; give --format=seqio"),
        (("maxtext", "--compression=ZLIB"), "cannot read --compression=ZLIB"),
    ],
)
def test_what_the_reader_could_not_read_is_refused(flags: tuple[str, str], message: str) -> None:
    with pytest.raises(UsageError) as error:
        request(f"--preset={flags[0]}", flags[1])
    assert message in str(error.value)
    assert str(error.value).startswith(f"--preset={flags[0]} is for ")
    assert "\n" not in str(error.value)


def test_help_shows_each_with_its_flags(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["text", "--help-presets"]) == 0
    lines = capsys.readouterr().out.splitlines()
    for name, preset in PRESETS.items():
        start = lines.index(f"--preset={name}")
        assert lines[start + 2].split() == preset_line(preset)
        assert preset.reader in lines[start + 1]


def test_the_guide_has_each_with_its_flags() -> None:
    guide = GUIDE.read_text(encoding="utf-8")
    for name, preset in PRESETS.items():
        assert f"| `{name}` | `{' '.join(preset_line(preset))}` |" in guide


def test_short_help_names_tokenizer_and_preset(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["text", "--help"]) == 0
    page = capsys.readouterr().out
    assert "--tokenizer=FILE" in page
    assert "--preset=NAME" in page


def test_a_launcher_that_gives_all_defaults_does_not_contradict_a_preset() -> None:
    given = ["--preset=cerebras-gpt", "--task=bert", "--max_seq_length=128", "--dupe_factor=3"]
    assert template_arguments("text", given) == ["--preset=cerebras-gpt", "--dupe_factor=3"]
    assert template_arguments("text", given[1:]) == given[1:]
