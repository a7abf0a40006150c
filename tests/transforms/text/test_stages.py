"""The stages of a text job, each in a pipeline of its own, on one small corpus."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.testing import test_pipeline
from apache_beam.testing.util import assert_that, equal_to

from recordmill.records.codec.framing import scan_records
from recordmill.records.errors import RunError
from recordmill.transforms.dataset.output_spec import SplitSpec
from recordmill.transforms.dataset.stage_pipeline import DoStages
from recordmill.transforms.dataset.stages import Phase, Stage
from recordmill.transforms.dataset.workspace import Workspace
from recordmill.transforms.shuffle.finished_runs import read_run_files
from recordmill.transforms.shuffle.merge_tree import MergeTree
from recordmill.transforms.shuffle.regroup import Regroup
from recordmill.transforms.shuffle.run_files import MAX_HASH, RunFileReader
from recordmill.transforms.sources.documents import DocumentSpec
from recordmill.transforms.sources.work_item_files import write_work_items
from recordmill.transforms.sources.work_items import SourceRange
from recordmill.transforms.text.chunk_records import decode_chunks
from recordmill.transforms.text.chunk_runs import TextTools
from recordmill.transforms.text.chunks import concatenate
from recordmill.transforms.text.scatter import SCATTER_LIMITS, ScatterDocuments
from recordmill.transforms.text.text_job import TextJob
from recordmill.transforms.text.text_spec import Mlm, MlmTokens
from recordmill.transforms.text.text_stages import text_stages
from recordmill.transforms.text.tokenization import SPECIAL_TOKENS

LETTERS = "abcdefgh"
TOKENS = (*SPECIAL_TOKENS, *LETTERS)
# A document is a line; letter i is id 5 + i. The second file's last line has no token.
FILES = ("a b c\nd e\nf\n", "g h\na a a a\n\n", "b b\n")
DOCUMENTS = [[5, 6, 7], [8, 9], [10], [11, 12], [5, 5, 5, 5], [6, 6]]
# Two groups of two runs each on the last level, so that regroup has work to do.
TREE = MergeTree(len(FILES), max_fan_in=2, fan_in=2)


@pytest.fixture
def job(tmp_path: Path) -> TextJob:
    """A job whose work items are planned: one file each, one copy, windows of up to 8 tokens."""
    work = tmp_path / "work"
    work.mkdir()
    (work / "vocab.txt").write_text("".join(f"{token}\n" for token in TOKENS))
    sources = []
    for number, text in enumerate(FILES):
        path = tmp_path / f"{number}.txt"
        path.write_text(text)
        sources.append([SourceRange(str(path), path.name, "text", "", len(text))])
    write_work_items(str(work), sources)
    return TextJob(
        workspace=Workspace(
            output=str(tmp_path / "out"), work=str(work), staging=str(tmp_path / "staging")
        ),
        splits=(SplitSpec("train", 1.0, 2),),
        objective=MlmTokens(max_seq_length=8, short_seq_prob=0.0, overlap_size=0),
        documents=DocumentSpec(documents="line", sentence_splitter="none"),
    )


@pytest.mark.parametrize(
    ("given", "written", "decides"),
    [
        ({}, 20, {}),
        ({"max_predictions_per_seq": 20}, 20, {}),
        ({"max_seq_length": 16}, 15, {"max_seq_length": 16, "max_predictions_per_seq": 15}),
        ({"max_predictions_per_seq": 30}, 30, {"max_predictions_per_seq": 30}),
    ],
)
def test_predictions_by_default_are_written_as_if_given(
    job: TextJob, given: dict[str, int], written: int, decides: dict[str, int]
) -> None:
    job = replace(job, objective=Mlm(**given))
    assert job.resolved()["objective"]["max_predictions_per_seq"] == written
    assert job.fingerprint_options()["objective"] == {"name": "mlm"} | decides


def run(*stages: Stage[TextJob], records: int = 0) -> None:
    with test_pipeline.TestPipeline(runner=FnApiRunner()) as pipeline:
        total = pipeline | DoStages(stages)
        assert_that(total, equal_to([records]))


def scatter(job: TextJob) -> None:
    run(ScatterDocuments(job, SCATTER_LIMITS))


def planning(job: TextJob) -> Stage[TextJob]:
    """The stage that plans the shards of run files that are not regrouped."""
    stages = text_stages(job, MergeTree(len(FILES)))
    assert [stage.name for stage in stages] == ["Scatter", "PlanShards", "Build"]
    return stages[1]


def texts_in(job: TextJob, level: int, number: int) -> list[tuple[int, list[int]]]:
    """Hash and ids of the chunks in the run files of a work item."""
    texts = []
    for run in read_run_files(job, level, number):
        data = RunFileReader(run, 0).read(0, MAX_HASH)
        chunks = decode_chunks([data], [0], [MAX_HASH], 1)
        for i, begin in enumerate(chunks.token_starts):
            ids = chunks.ids[begin : begin + chunks.token_counts[i]].tolist()
            texts.append((int(chunks.hashes[i]), ids))
    return texts


def test_scatter_writes_each_work_items_documents_in_order_of_hash(job: TextJob) -> None:
    scatter(job)
    per_file = [DOCUMENTS[:3], DOCUMENTS[3:5], DOCUMENTS[5:]]
    for number, documents in enumerate(per_file):
        texts = texts_in(job, 0, number)
        assert texts == sorted(texts)
        assert sorted(ids for _, ids in texts) == sorted(documents)
        result = job.read_scatter_result(number)
        assert result is not None
        assert result.chunks == (len(documents),)
        assert result.tokens == (sum(map(len, documents)),)
        assert result.documents_read == result.documents_used == len(documents)
        assert (result.rejected, result.rejected_file) == ({}, (0, 0))


def test_scatter_does_nothing_twice(job: TextJob) -> None:
    scatter(job)
    runs = sorted(Path(job.workspace.work).glob("runs-0/*"))
    before = [(path.read_bytes(), path.stat().st_mtime_ns) for path in runs]
    scatter(job)
    assert [(path.read_bytes(), path.stat().st_mtime_ns) for path in runs] == before


def test_regroup_merges_the_runs_by_ranges_of_hashes(job: TextJob) -> None:
    scatter(job)
    scattered = [text for number in range(len(FILES)) for text in texts_in(job, 0, number)]
    stage = Regroup(job, TREE, 1)
    run(stage)
    assert stage.items() == TREE.run_count(1)
    assert list(stage.phases()) == [Phase("regroup", stage.items(), stage.items())]
    regrouped = []
    for number in range(stage.items()):
        low, high = TREE.hash_range(1, number)
        texts = texts_in(job, 1, number)
        assert texts == sorted(texts)
        assert all(low <= hashed <= high for hashed, _ in texts)
        regrouped += texts
    assert sorted(regrouped) == sorted(scattered)


def test_few_runs_are_not_regrouped(job: TextJob) -> None:
    names = [stage.name for stage in text_stages(job, TREE)]
    assert names == ["Scatter", "Regroup1", "PlanShards", "Build"]
    planning(job)


def test_plan_shards_lists_every_shard_and_keeps_its_decision(job: TextJob) -> None:
    scatter(job)
    assert list(planning(job).phases()) == [Phase("plan shards", 0, 1)]
    run(planning(job))
    assert list(planning(job).phases()) == []
    plan = job.read_shard_plan()
    (split,) = plan.splits
    assert (split.name, split.shards, split.records) == ("train", 2, len(DOCUMENTS))
    assert split.size == sum(map(len, DOCUMENTS))
    assert (plan.documents_read, plan.documents_used) == (len(DOCUMENTS), len(DOCUMENTS))
    Path(job.description_path(0, 0)).unlink()  # it is not read again
    run(planning(job))


@pytest.fixture
def planned(job: TextJob) -> TextJob:
    scatter(job)
    run(planning(job))
    return job


def test_build_shards_writes_every_document_once(planned: TextJob) -> None:
    run(text_stages(planned, MergeTree(len(FILES)))[-1], records=len(DOCUMENTS))
    sequences = []
    for path in sorted(Path(planned.workspace.staging, "shards", "train").iterdir()):
        data = np.frombuffer(path.read_bytes(), np.uint8)
        offsets, used, problem = scan_records(data)
        assert (used, problem) == (len(data), "")
        sequences += [
            tokens_of(data[begin + 12 : end - 4].tobytes()) for begin, end in pairwise(offsets)
        ]
    expected = [[TOKENS[i] for i in (2, *ids, 3)] for ids in DOCUMENTS]
    assert sorted(sequences) == sorted(expected)


def tokens_of(record: bytes) -> list[str]:
    from tensorflow import train

    steps = train.SequenceExample.FromString(record).feature_lists.feature_list["tokens"].feature
    return [step.bytes_list.value[0].decode() for step in steps]


def test_a_stage_that_fails_leaves_the_reason(job: TextJob) -> None:
    job = replace(job, splits=(SplitSpec("train", 1.0, 50),))
    scatter(job)
    reason = "train has text for at most 6 shards, 50 were asked for"
    with pytest.raises((RunError, RuntimeError), match=reason):
        run(planning(job))
    assert Path(job.workspace.failure_path).read_text().startswith(reason)


def test_chunks_that_wait_hold_no_memory_but_their_own(job: TextJob) -> None:
    """The tokenizer's array has room for a token a byte: four times as many as there are."""
    tools = TextTools(job)
    room = np.zeros(1000, tools.id_type)
    chunks = concatenate([], tools.id_type)
    assert tools.compact(replace(chunks, ids=room[:10])).ids.base is None
    assert tools.compact(replace(chunks, ids=room)).ids is room
