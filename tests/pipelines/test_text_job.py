"""The text job as a user runs it: the same bytes always, nothing lost, nothing half-written."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner

from recordmill.pipelines.command_line import main
from recordmill.pipelines.faces import parse
from recordmill.pipelines.planning import text_planner as text_planning
from recordmill.pipelines.planning.plan_job import plan_job
from recordmill.pipelines.planning.text_planner import TextPlanner
from recordmill.pipelines.text_request import text_request
from recordmill.transforms.dataset.stage_pipeline import RunStages
from recordmill.transforms.shuffle.merge_tree import MergeTree
from recordmill.transforms.sources.document_spec import DocumentLimits
from recordmill.transforms.text.scatter import Scatterer, ScatterLimits
from recordmill.transforms.text.text_spec import Mlm, TextSpec
from recordmill.transforms.text.text_stages import text_stages
from recordmill.transforms.text.write_text import WriteText

from ..conftest import bert_text, make_documents
from .jobs import (
    LENGTHS,
    manifest,
    records,
    records_by_split,
    shard_bytes,
    shuffle_listings,
)

FLAGS = (*LENGTHS, "--dupe_factor=2", "--num_shards=5", "--splits=train:0.8,validation:0.2")


def arguments(source: Path | str, output: Path, vocab_file: str, *flags: str) -> list[str]:
    place = (f"--input={source}", f"--output={output}", f"--vocab_file={vocab_file}")
    return [*place, *(flags or FLAGS)]


def run(
    source: Path | str, output: Path, vocab_file: str, *flags: str, workers: int = 1, **kwargs: Any
) -> int:
    own = arguments(source, output, vocab_file, *flags)
    return main(["text", f"--direct_num_workers={workers}", *own], **kwargs)


@pytest.fixture(scope="session")
def reference(
    tmp_path_factory: pytest.TempPathFactory, corpus: Path, vocab_file: str
) -> dict[str, bytes]:
    output = tmp_path_factory.mktemp("reference") / "ds"
    assert run(f"{corpus}/*.txt", output, vocab_file) == 0
    return shard_bytes(output)


class TestSameBytes:
    @pytest.mark.slow
    @pytest.mark.parametrize("work_item_bytes", [3_000, 40_000])
    def test_many_tasks_regrouped_blocks_and_shuffled_listing(
        self,
        reference: dict[str, bytes],
        corpus: Path,
        vocab_file: str,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        work_item_bytes: int,
    ) -> None:
        monkeypatch.setattr(
            text_planning, "work_item_bytes", lambda total, workers: work_item_bytes
        )
        fan_in = {"max_fan_in": 3, "fan_in": 4}
        monkeypatch.setattr(
            text_planning,
            "choose_merge_tree",
            lambda work_items, *_: MergeTree(work_items, **fan_in),
        )
        listed = shuffle_listings(monkeypatch)
        assert run(f"{corpus}/*.txt", tmp_path / "ds", vocab_file) == 0
        assert str(corpus) in listed
        assert shard_bytes(tmp_path / "ds") == reference
        in_order = hashlib.blake2b(digest_size=16)
        for path in sorted(corpus.glob("*.txt")):
            in_order.update(f"{path.name}\ttext\t{path.stat().st_size}\n".encode())
        assert manifest(tmp_path / "ds")["sources"]["checksum"] == in_order.hexdigest()

    def test_several_run_files_for_a_work_item(
        self, reference: dict[str, bytes], corpus: Path, vocab_file: str, tmp_path: Path
    ) -> None:
        line = arguments(f"{corpus}/*.txt", tmp_path / "ds", vocab_file)
        plan = plan_job(TextPlanner(text_request(parse(TextSpec, line))), workers=1)
        assert plan
        limits = ScatterLimits(500, 500, DocumentLimits(block_bytes=5_000))
        with beam.Pipeline(runner=FnApiRunner()) as pipeline:
            stages = text_stages(plan.job, plan.stages, limits=limits)
            _ = pipeline | RunStages(stages, plan.commit)
        assert shard_bytes(tmp_path / "ds") == reference

    def test_limits_of_scatter_have_an_effect(
        self, corpus: Path, vocab_file: str, tmp_path: Path
    ) -> None:
        line = arguments(f"{corpus}/*.txt", tmp_path / "ds", vocab_file)
        plan = plan_job(TextPlanner(text_request(parse(TextSpec, line))), workers=1)
        assert plan
        assert len(Scatterer(plan.job).run(0).runs) == 1
        os.remove(plan.job.description_path(0, 0))
        limits = ScatterLimits(500, 500, DocumentLimits(block_bytes=5_000))
        assert len(Scatterer(plan.job, limits).run(0).runs) > 10


@pytest.mark.parametrize(
    ("flag", "other"),
    [
        ("--task=bert", "--task=mlm"),
        ("--task=bert", "--do_whole_word_mask"),
        ("--task=bert", "--max_ngram_size=3"),
        ("--do_whole_word_mask", "--replacement=per_word"),
        ("--task=bert", "--masked_lm_prob=0.3"),
        ("--task=bert", "--short_seq_prob=0.9"),
        ("--task=bert", "--use_v2_feature_names"),
        ("--task=bert", "--use_position_id"),
        ("--task=bert", "--dupe_factor=3"),
        ("--task=bert", "--documents=line"),
        ("--task=bert", "--sentence_splitter=punctuation"),
        ("--task=bert", "--compression=GZIP"),
        ("--task=mlm", "--overlap_size=3"),
        ("--task=mlm", "--min_short_seq_length=40"),
        ("--task=mlm", "--allow_cross_document_examples"),
    ],
)
def test_each_option_has_an_effect(
    write_dataset: Callable[..., Path], flag: str, other: str
) -> None:
    plain = write_dataset("--num_shards=1", flag)
    changed = write_dataset("--num_shards=1", *dict.fromkeys([flag, other]).keys())
    if other == "--task=mlm":
        changed = write_dataset("--num_shards=1", other)
    assert shard_bytes(plain) != shard_bytes(changed)


class TestAccounts:
    def test_every_document_is_written(self, bert_dataset: Path) -> None:
        counts = manifest(bert_dataset)["counts"]
        assert counts["documents_read"] == counts["documents_written"] == 402
        assert counts["examples"] == len(records(bert_dataset))

    def test_nothing_temporary_is_left(self, bert_dataset: Path) -> None:
        names = {path.name for path in bert_dataset.iterdir()}
        assert names == {
            "_SUCCESS", "_meta", "train", "validation", "dataset_info.json", "features.json",
        }  # fmt: skip

    def test_shards_are_of_one_size(self, tmp_path: Path, vocab_file: str) -> None:
        (tmp_path / "in.txt").write_text(bert_text(make_documents(1500, sentences=80)))
        flags = (*LENGTHS, "--dupe_factor=1", "--num_shards=8")
        assert run(tmp_path / "in.txt", tmp_path / "ds", vocab_file, *flags) == 0
        sizes = [len(data) for data in shard_bytes(tmp_path / "ds").values()]
        assert len(sizes) == 8
        assert max(sizes) / min(sizes) < 1.05

    def test_splits_hold_copies_together(self, tmp_path: Path, vocab_file: str) -> None:
        lines = [json.dumps({"text": f"the document number {i % 50} of some"}) for i in range(400)]
        (tmp_path / "in.jsonl").write_text("\n".join(lines))
        flags = (
            "--task=mlm", "--max_seq_length=48", "--short_seq_prob=0", "--dupe_factor=1",
            "--num_shards=1", "--splits=train:0.5,test:0.5", "--masked_lm_prob=0.01",
        )  # fmt: skip
        assert run(tmp_path / "in.jsonl", tmp_path / "ds", vocab_file, *flags) == 0
        counts = records_by_split(tmp_path / "ds")
        assert all(count % 8 == 0 for count in counts.values())
        assert sum(counts.values()) == 400
        assert len(counts) == 2

    def test_one_group_is_one_split(self, tmp_path: Path, vocab_file: str) -> None:
        lines = [json.dumps({"text": f"text {i} of the group", "book": i % 10}) for i in range(300)]
        (tmp_path / "in.jsonl").write_text("\n".join(lines))
        flags = (
            "--task=mlm", "--max_seq_length=48", "--short_seq_prob=0", "--dupe_factor=1",
            "--num_shards=1", "--splits=train:0.5,test:0.5", "--split_by=book",
        )  # fmt: skip
        assert run(tmp_path / "in.jsonl", tmp_path / "ds", vocab_file, *flags) == 0
        counts = records_by_split(tmp_path / "ds")
        assert all(count % 30 == 0 for count in counts.values())
        assert len(counts) == 2

    def test_rejects_are_listed_and_within_budget(self, tmp_path: Path, vocab_file: str) -> None:
        lines = [json.dumps({"text": f"a good line {i} ."}) for i in range(98)]
        lines[40:40] = ["{broken", '{"body": "no text"}']
        (tmp_path / "in.jsonl").write_text("\n".join(lines))
        flags = (*LENGTHS, "--task=mlm", "--dupe_factor=1", "--num_shards=1")
        output = tmp_path / "ds"
        source = tmp_path / "in.jsonl"
        assert run(source, output, vocab_file, *flags, "--max_rejected=0.01") == 1
        assert not (output / "_SUCCESS").exists()
        assert not (output / "train").exists()
        assert run(source, output, vocab_file, *flags, "--max_rejected=0.02") == 0
        counts = manifest(output)["counts"]
        assert counts["rejected"] == {"field_missing": 1, "not_json": 1}
        assert counts["documents_read"] == 98
        listed = [
            json.loads(line)
            for path in (output / "_meta/rejected").glob("*.jsonl")
            for line in path.read_text().splitlines()
        ]
        assert [item["reason"] for item in listed] == ["not_json", "field_missing"]
        assert listed[0]["source"] == "in.jsonl"
        assert listed[0]["position"] == sum(len(line) + 1 for line in lines[:40])

    @pytest.mark.parametrize("flags", [(), ("--documents=line",), ("--documents=file",)])
    def test_rejects_of_plain_text_are_a_share_of_its_lines(
        self, tmp_path: Path, vocab_file: str, capsys: pytest.CaptureFixture[str],
        flags: tuple[str, ...],
    ) -> None:  # fmt: skip
        source, output = tmp_path / "a.txt", tmp_path / "ds"
        lines = [b"the water. of the sea."] * 40 + [b""] + [b"the \xff"] * 3 + [b"of"] * 10
        source.write_bytes(b"\n".join(lines))
        flags = ("--task=mlm", *flags)
        assert run(source, output, vocab_file, *flags) == 1
        error = capsys.readouterr().err
        assert "3 of 53 inputs rejected (undecodable 3), which is 5.660% where" in error
        line = ["vocab", f"--input={source}", f"--output={tmp_path}/v.txt", "--vocab_size=100"]
        assert main([*line, "--direct_num_workers=1"]) == 1
        assert "3 of 53 inputs rejected (undecodable 3), which is 5" in capsys.readouterr().err
        assert run(source, output, vocab_file, *flags, "--max_rejected=0.06", "--overwrite") == 0

    def test_long_documents_are_a_share_of_the_documents(
        self, tmp_path: Path, vocab_file: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        source, output = tmp_path / "a.txt", tmp_path / "ds"
        source.write_text("the water.\n" * 1000 + "\nthe sea.\nof it.\n")
        flags = ("--max_document_bytes=1000", "--max_rejected=0.01")
        problem = "1 of 2 inputs rejected (document_too_long 1), which is 50.000% where"
        assert run(source, output, vocab_file, "--task=mlm", *flags) == 1
        assert problem in capsys.readouterr().err
        line = ["vocab", f"--input={source}", f"--output={tmp_path}/v.txt", "--vocab_size=100"]
        assert main([*line, "--direct_num_workers=1", *flags]) == 1
        assert problem in capsys.readouterr().err
        more = ("--task=mlm", flags[0], "--max_rejected=0.5", "--overwrite")
        assert run(source, output, vocab_file, *more) == 0

    def test_random_segments_come_from_the_whole_corpus(
        self, tmp_path: Path, vocab_file: str
    ) -> None:
        # Document i says only letter i: the letters of second segments tell where they come from.
        letters = "abcdefghijklmnopqrst"
        text = "\n\n".join("\n".join([f"{c} {c} {c}"] * 30) for c in letters for _ in range(5))
        (tmp_path / "in.txt").write_text(text)
        flags = (*LENGTHS, "--dupe_factor=5", "--num_shards=4", "--masked_lm_prob=0.01")
        assert run(tmp_path / "in.txt", tmp_path / "ds", vocab_file, *flags) == 0
        import recordmill.reader as reader

        pairs = set()
        dataset = reader.load(tmp_path / "ds", "train", batch_size=1, shuffle=False)
        for batch in dataset.as_numpy_iterator():
            if batch["next_sentence_labels"][0, 0]:
                ids, kinds = batch["input_ids"][0], batch["segment_ids"][0]
                real = batch["input_mask"][0] == 1
                pairs.add((int(ids[1]), int(ids[real & (kinds == 1)][0])))
        assert len({second for _, second in pairs}) >= len(letters)
        assert len(pairs) > 150  # of 400 ordered pairs of letters


def _truncated_gz(tmp_path: Path) -> Path:
    path = tmp_path / "cut.txt.gz"
    path.write_bytes(gzip.compress(b"the first line .\n" * 5000)[:-20])
    return path


def test_truncated_gz_ends_the_run(
    tmp_path: Path, vocab_file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    source = _truncated_gz(tmp_path)
    assert run(source, tmp_path / "ds", vocab_file, *LENGTHS, "--num_shards=1") == 1
    error = capsys.readouterr().err.splitlines()[-1]
    assert "broken_file 1" in error
    assert "--max_rejected" in error
    rejected = list((tmp_path / "ds/_tmp/rejected").rglob("*.jsonl"))
    assert json.loads(rejected[0].read_text())["source"] == "cut.txt.gz"
    assert not (tmp_path / "ds/_SUCCESS").exists()


MISTAKES: list[tuple[list[str], str]] = [
    (["--input={corpus}/*.nothing"], "--input {corpus}/*.nothing matches no file"),
    (["--input={tmp}/empty"], "--input {tmp}/empty has no file in it"),
    (["--tokenizer=x"], "--vocab_file and --tokenizer are two names of one flag; give one"),
    (["--vocab_file={tmp}/none.txt"], "none.txt cannot be read: No such file"),
    (["--vocab_file={tmp}/no_mask.txt"], "it lacks [MASK]"),
    (["--vocab_file={tmp}/twice.txt"], "contains 'the' twice"),
    (["--output={tmp}/taken"], "already holds 1 files that no dataset of recordmill lists"),
    (["--output=/proc/no/where"], "--output /proc/no/where cannot be written"),
    (["--output="], "--output is required"),
    (["--masked_lm_prob=1.5"], "--masked_lm_prob must be in (0, 1), got 1.5"),
    (["--max_seq_length=4"], "--max_seq_length must be in [8, 1048576], got 4"),
    (["--max_predictions_per_seq=64"], "--max_predictions_per_seq must be below --max_seq_length"),
    (["--dupe_factor=0"], "--dupe_factor must be at least 1, got 0"),
    (["--short_seq_prob=2"], "--short_seq_prob must be in [0, 1], got 2.0"),
    (["--max_ngram_size=0"], "--max_ngram_size must be from 1 to 16, got 0"),
    (["--splits=train:0.9,test:0.3"], "--splits must have shares that add up to 1, got 1.2"),
    (["--splits=train:a"], "--splits must be like train:0.9,validation:0.1"),
    (["--splits=a/b:1"], "a split's name must be letters, digits and underscores"),
    (["--num_shards=none"], "--num_shards must be a number or like train:80,validation:8"),
    (["--num_shards=tran:3"], "did you mean 'train'?"),
    (["--shard_size=big"], "--shard_size must be a number of bytes such as 200MB"),
    (["--num_shards=2", "--num_readers=2"], "give one of --num_shards, --shard_size"),
    (["--num_shards=3,4"], "--num_shards gives two numbers for one split"),
    (["--shard_size=1e400"], "--shard_size must be a number of bytes such as 200MB"),
    (["--output=nosuch://bucket/ds"], "there is no file system for nosuch:// here"),
    (["--runner=Flnk"], "--runner must be one of direct, flink, dataflow, prism"),
    (["--encoding=hex"], "--encoding must be one that Python knows"),
    (["--max_rejected=3"], "--max_rejected must be in [0, 1], got 3.0"),
    (["--encoding=klingon"], "--encoding must be one that Python knows"),
    (["--overlap_size=3"], "--overlap_size has no effect with --task=bert"),
    (["--task=mlm", "--overlap_size=60"], "--overlap_size must be in [0, 31]"),
    (["--task=gpt", "--eos_id=99999"], "--eos_id must be one of the"),
    (
        ["--task=t5", "--first_sentinel_id=0"],
        "may have 3 spans, and the vocabulary has 1 sentinels",
    ),
    (["--task=t5", "--noise_density=1.5"], "noise_density must be in (0, 1), got 1.5"),
    (["--task=ul2", "--denoisers=0.15:3"], "--denoisers must be DENSITY:SPAN:SHARE,"),
    (["--task=ul2", "--mode_tokens=a,b"], "--mode_tokens must be three tokens, of regular, seq"),
    (["--task=ul2", "--mode_tokens=[R],[S],[X]"], "and it has no [R]; add it to the tokenizer"),
    (["--task=gpt", "--dupe_factor=2"], "--dupe_factor must be 1 for --task=gpt, which has no"),
    (
        ["--task=gpt", "--packing=concat", "--keep_fields=a"],
        "--keep_fields has no meaning with --p",
    ),
    (["--task=mlm", "--packing=concat", "--overlap_size=3"], "--overlap_size has no effect with"),
    (["--task=mlm", "--use_position_id"], "--use_position_id has no effect without --packing"),
    (["--task=mlm_tokens", "--dupe_factor=2"], "--dupe_factor must be 1 for --task=mlm_tokens"),
    (["--task=mlm", "--record_type=example"], "--record_type has no effect with --task=mlm"),
    (["--split_by=book"], "--split_by needs fields"),
    (["--input={tmp}/table.csv"], "--text_field must be a column of {tmp}/table.csv: a, b"),
    (["--input={tmp}/comma.tsv"], "a,b; got 'text'; if ',' separates its fields, give --delim"),
    (["--input={tmp}/tab.csv"], "got 'text'; if tab separates its fields, give --delimiter=tab"),
    (["--task=gpt7"], "--task must be one of bert, classify, gpt, mlm, mlm_tokens, t5,"),
    (["--task=bret"], "got 'bret'; did you mean 'bert'?"),
    (
        ["--do_lower_case=Falze"],
        "--do_lower_case must be true or false, got 'Falze'; did you mean false?",
    ),
    (["--input={tmp}/**", "--output={tmp}/ds"], "choose an output outside of the input"),
    (["--max_seq_lenght=64"], "unknown flag --max_seq_lenght=64; did you mean --max_seq_length?"),
]


@pytest.mark.parametrize(("flags", "message"), MISTAKES)
def test_mistakes_are_one_line(
    flags: list[str],
    message: str,
    corpus: Path,
    vocab_file: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    tokens = Path(vocab_file).read_text()
    (tmp_path / "no_mask.txt").write_text(tokens.replace("[MASK]\n", ""))
    (tmp_path / "twice.txt").write_text(tokens + "the\nthe\n")
    (tmp_path / "empty").mkdir()
    (tmp_path / "taken/train").mkdir(parents=True)
    (tmp_path / "taken/train/old.tfrecords").write_text("x")
    (tmp_path / "table.csv").write_text("a,b\n1,2\n")
    (tmp_path / "comma.tsv").write_text("a,b\n1,2\n")
    (tmp_path / "tab.csv").write_text("a\ttext\n1\t2\n")
    named = {"corpus": str(corpus), "tmp": str(tmp_path)}
    given = [flag.format(**named) for flag in flags]
    plain = {"--input": f"{corpus}/*.txt", "--output": f"{tmp_path}/ds"}
    plain |= {"--vocab_file": vocab_file, "--max_seq_length": "64"}
    for flag in given:
        plain.pop(flag.partition("=")[0], None)
    status = main(["text", *(f"{k}={v}" for k, v in plain.items()), *given])
    captured = capsys.readouterr().err
    assert status == 2, captured
    assert message.format(**named) in captured
    assert captured.count("\n") == 1
    assert not (tmp_path / "ds").exists()


def test_unknown_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["txt"]) == 2
    assert "did you mean 'text'?" in capsys.readouterr().err


def test_more_shards_than_text(
    tmp_path: Path, vocab_file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "in.txt").write_text("the only line .\n")
    flags = (*LENGTHS, "--task=mlm", "--dupe_factor=1", "--num_shards=4")
    assert run(tmp_path / "in.txt", tmp_path / "ds", vocab_file, *flags) == 1
    error = capsys.readouterr().err
    assert "text for at most 1 shards, 4 were asked for; set a smaller --num_shards and" in error
    assert "--overwrite" not in error
    flags = (*LENGTHS, "--task=mlm", "--dupe_factor=1", "--shard_size=1")
    assert run(tmp_path / "in.txt", tmp_path / "ds", vocab_file, *flags) == 0
    assert len(shard_bytes(tmp_path / "ds")) == 1
    flags = (*flags[:-1], "--num_shards=4", "--overwrite")
    assert run(tmp_path / "in.txt", tmp_path / "ds", vocab_file, *flags) == 1
    assert "smaller --num_shards and run again with --overwrite" in capsys.readouterr().err


def test_options_that_do_not_fit_leave_nothing_that_is_kept(
    tmp_path: Path, vocab_file: str
) -> None:
    (tmp_path / "in.txt").write_text("the only line .\n")
    flags = (*LENGTHS, "--task=mlm", "--dupe_factor=1")
    unfit = (*flags, "--num_shards=4")
    elsewhere = f"--temp_dir={tmp_path}/temp"
    assert run(tmp_path / "in.txt", tmp_path / "new", vocab_file, *unfit, elsewhere) == 1
    assert run(tmp_path / "in.txt", tmp_path / "new", vocab_file, *flags) == 0
    assert run(tmp_path / "in.txt", tmp_path / "own", vocab_file, *unfit) == 1
    WriteText(f"{tmp_path}/own", objective=Mlm(), tokenizer=vocab_file)  # is not refused
