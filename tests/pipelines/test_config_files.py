"""`--config`: flags in a file, and the file that every dataset has of its own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from recordmill.pipelines.command_line import main
from recordmill.pipelines.command_table import COMMANDS
from recordmill.pipelines.config_files import add_config, settings_text
from recordmill.pipelines.faces import Given, Parser
from recordmill.transforms.text.text_spec import Bert, Mlm, TextSpec

from ..conftest import bert_text, make_documents, make_vocabulary
from ..pictures import jpeg
from .jobs import shard_bytes


def write(folder: Path, text: str) -> str:
    path = folder / "job.yaml"
    path.write_text(text)
    return str(path)


def given_of(command: str, *arguments: str) -> Given:
    """What a command line and its configuration file give."""
    options = COMMANDS[command].options()
    parser = Parser()
    parser.add_options(options)
    given = Given(parser.parse_values(arguments)[0])
    add_config(given, options)
    return given


class TestReading:
    def test_values_become_options(self, tmp_path: Path) -> None:
        path = write(
            tmp_path,
            "input: [a/*.txt, 'b/*.txt']\nsplits: {train: 0.9, validation: 0.1}\n"
            "masked_lm_prob: 0.2\nno_nsp: true\ndo_lower_case: false\ncolumns: [id, text]\n"
            "num_shards:\nheader: none\n",
        )
        spec = given_of("text", "--config", path).make(TextSpec)
        assert spec.input.input == ("a/*.txt", "b/*.txt")
        assert spec.output.splits == "train:0.9,validation:0.1"
        assert spec.objective == Bert(masked_lm_prob=0.2, no_nsp=True)
        assert spec.tokenizer.do_lower_case is False
        assert spec.source.columns == ("id", "text")
        assert spec.output.num_shards is None

    def test_flags_of_the_command_line_win(self, tmp_path: Path) -> None:
        path = write(tmp_path, "input: a.txt\ntask: mlm\ntokenizer: v.txt\n")
        flags = [f"--config={path}", "--input", "b.txt", "--vocab_file=w.txt"]
        spec = given_of("text", *flags).make(TextSpec)
        assert spec.input.input == ("b.txt",)
        assert (spec.objective, spec.tokenizer.vocab_file) == (Mlm(), "w.txt")

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("taks: mlm\n", ": there is no flag named taks; did you mean task?"),
            ("help: true\n", ": there is no flag named help; "),
            ("3: 4\n", ": there is no flag named 3; --help-all lists all flags"),
            ("task: [1, [2]]\n", ": task must be a list of words or numbers"),
            ("task: true\n", ": task must be a word or number, got true"),
            ("no_nsp: 1\n", ": no_nsp must be true or false, got 1"),
            ("a: [b\n", " is no YAML: line 2: "),
            ("a: !!python/object:os.system {}\n", ", line 1: values must have no tags, got 'tag:"),
            ("- a\n", " must have a line `name: value` for each flag, and is a list"),
            ("task: mlm\nmasked_lm_prob: 1.5\n", ", line 2: masked_lm_prob must be in (0, 1), got"),
            ("dupe_factor: 1e3\n", ", line 1: dupe_factor must be a whole number, got '1e3'"),
            ("\nfim_rate: 0.5\n", ", line 2: fim_rate has no effect with --task=bert; leave it"),
            ("task: mlm\nfim_rate: 0.5\n", ", line 2: fim_rate has no effect with task=mlm; leave"),
        ],
    )
    def test_what_is_wrong(
        self, tmp_path: Path, text: str, message: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        path = write(tmp_path, text)
        assert main(["text", f"--config={path}"]) == 2
        error = capsys.readouterr().err
        assert error.startswith(f"recordmill: --config {path}{message}")
        assert error.count("\n") == 1

    def test_a_file_that_is_not_there(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["text", "--config=/no/such.yaml"]) == 2
        assert capsys.readouterr().err == (
            "recordmill: --config /no/such.yaml cannot be read: No such file or directory\n"
        )


def settings_of(command: str, *arguments: str) -> str:
    options = COMMANDS[command].options()
    return settings_text(command, given_of(command, *arguments), options)


class TestWriting:
    def test_what_is_given_is_written_and_nothing_of_the_run(self) -> None:
        text = settings_of(
            "text", "--input", "a.txt", "b.txt", "--input=c.txt", "--output=ds",
            "--overwrite", "--temp_dir=/tmp/x", "--dupe_factor=3", "--no-do_lower_case",
            "--max_seq_length=128", "--map=my/clean.py:f",
        )  # fmt: skip
        assert yaml.safe_load(text) == {
            "input": ["a.txt", "b.txt", "c.txt"], "do_lower_case": False, "dupe_factor": 3,
            "max_seq_length": 128, "map": ["my/clean.py:f"],
        }  # fmt: skip

    def test_no_credentials(self) -> None:
        text = settings_of(
            "text", "--input=postgresql://me:hunter2@host/db?sslmode=require",
            "--input=https://host/a.txt?sig=hunter2&x=1", "--input=db://h?PASSWORD=hunter2",
        )  # fmt: skip
        assert "hunter2" not in text
        assert yaml.safe_load(text)["input"] == [
            "postgresql://me@host/db?sslmode=require", "https://host/a.txt?sig=&x=1",
            "db://h?PASSWORD=",
        ]  # fmt: skip

    def test_nothing_given(self) -> None:
        assert yaml.safe_load(settings_of("images")) == {}


def finished(output: Path) -> dict[str, object]:
    manifest = json.loads((output / "_meta/manifest.json").read_bytes())
    assert "_meta/config.yaml" in manifest["files"]
    return dict(yaml.safe_load((output / "_meta/config.yaml").read_text()))


def check_again(command: str, first: Path, again: Path) -> None:
    """Checks that a dataset's own file writes the same shards, and that commands know the file."""
    config = first / "_meta/config.yaml"
    engine = "--direct_num_workers=1"
    assert main([command, f"--config={config}", f"--output={again}", engine]) == 0
    assert shard_bytes(again) == shard_bytes(first)
    assert (again / "_meta/config.yaml").read_bytes() == config.read_bytes()
    assert main(["verify", str(again)]) == 0
    (again / "_meta/config.yaml").write_text("{}\n")
    assert main(["verify", str(again)]) == 1
    overwritten = ["--random_seed=7", "--overwrite", engine]
    assert main([command, f"--config={config}", f"--output={again}", *overwritten]) == 0
    assert finished(again)["random_seed"] == 7


@pytest.mark.slow
def test_text_is_written_again_by_its_own_file(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(bert_text(make_documents(30, seed=3)))
    (tmp_path / "vocab.txt").write_text("\n".join(make_vocabulary()) + "\n")
    (tmp_path / "clean.py").write_text(
        "def clean(document):\n    return document if len(document.text) > 60 else None\n"
    )
    first = tmp_path / "first"
    assert main([
        "text", f"--input={tmp_path}/*.txt", f"--vocab_file={tmp_path}/vocab.txt", "--task=mlm",
        f"--output={first}", "--splits=train:0.8,test:0.2", "--dupe_factor=2", "--num_shards=2",
        "--max_seq_length=64", f"--map={tmp_path}/clean.py:clean", "--direct_num_workers=1",
    ]) == 0  # fmt: skip
    assert finished(first)["splits"] == "train:0.8,test:0.2"
    check_again("text", first, tmp_path / "again")


def test_images_are_written_again_by_their_own_file(tmp_path: Path) -> None:
    for i in range(8):
        path = tmp_path / "photos" / ("cat", "dog")[i % 2] / f"{i}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(jpeg(40 + i, 30, seed=i))
    first = tmp_path / "first"
    assert main([
        "images", f"--input={tmp_path}/photos", f"--output={first}", "--num_shards=2",
        "--image_size=16x16", "--augmentations=flip,rotate(9)", "--copies=2", "--keep_original",
        "--direct_num_workers=1",
    ]) == 0  # fmt: skip
    assert finished(first)["keep_original"] is True
    check_again("images", first, tmp_path / "again")


_BOMB = "input:\n  - &a0 [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"  - &a{i} [{','.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 14)
)
_MERGED = "splits:\n  a0: &a0 {x: 1}\n" + "".join(
    f"  a{i}: &a{i}\n    <<: [{','.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 14)
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (_BOMB, "line 5: aliases (*) must stand for fewer than 1000 values in all"),
        (_MERGED, "aliases (*) must stand for fewer than 1000 values in all"),
        ("input: &a [*a]\n", "line 1: aliases (*) must stand for fewer than 1000 values"),
        ("input: *b\n", "is no YAML: line 1: found undefined alias 'b'"),
        ("{[a, b]: 1}\n", "is no YAML: line 1: a list or a mapping cannot be a name"),
        ("input: " + "[" * 3000 + "]" * 3000, "line 1: values must be at most 20 levels deep"),
        ("".join(" " * i + "a:\n" for i in range(900)), "must be at most 20 levels deep"),
        ("input: [\n", "is no YAML: line 2"),
        ("random_seed: " + "1" * 5000, "a number must have at most 1000 digits"),
        ("random_seed: 1" + ":59" * 200_000, "a number must have at most 1000 digits"),
        ("input: !!timestamp foo\n", "line 1: values must have no tags, got 'tag:yaml.org,2002:t"),
        ("no_nsp: !!bool foo\n", "line 1: values must have no tags"),
        ('random_seed: !!int ""\n', "line 1: values must have no tags"),
        ('fim_rate: !!float ""\n', "line 1: values must have no tags"),
        ("input: !%0A [a]\n", "line 1: values must have no tags, got '!\\n'; remove it"),
        ("!!set {a, b}\n", "line 1: values must have no tags"),
        ("input: [" + "a," * 500_000 + "]", "line 1: there must be at most 50000 values; use"),
        ("input: [" + "[]," * 300_000 + "]", "line 1: there must be at most 50000 values; use"),
        ("input: " + "a" * (1 << 20), "cannot be read: it is larger than 1 MiB"),
        ("input: 2001-99-99\n", "has a value that YAML cannot read: month must be in 1..12"),
    ],
)
def test_a_hostile_file_is_one_line(
    tmp_path: Path, text: str, expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["text", f"--config={write(tmp_path, text)}", f"--output={tmp_path}/ds"]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert len(error) < 500
    assert "job.yaml" in error
    assert expected in error


def test_a_few_aliases_are_read(tmp_path: Path) -> None:
    path = write(tmp_path, "input: &in [a.txt, b.txt]\ncolumns: *in\nheader: none\n")
    spec = given_of("text", "--config", path).make(TextSpec)
    assert spec.input.input == spec.source.columns == ("a.txt", "b.txt")
