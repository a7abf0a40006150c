"""What planning and running a text job takes beyond what `planning.py` does for all."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import apache_beam as beam
from apache_beam.io.filesystem import BeamIOError

from recordmill.pipelines.planning import Inventory, Phase, Plan, Planner, reason
from recordmill.pipelines.text import build_text
from recordmill.pipelines.text_options import TextRequest
from recordmill.records.errors import UsageError
from recordmill.transforms import files
from recordmill.transforms.documents import DocumentSpec, read_header
from recordmill.transforms.globs import matches_output
from recordmill.transforms.job import read_json
from recordmill.transforms.plan import MAX_FAN_IN, RunTree, choose_tree, write_tasks
from recordmill.transforms.shard_plan import count_shards
from recordmill.transforms.source_list import SourceList
from recordmill.transforms.sources import list_sources, plan_tasks
from recordmill.transforms.text_job import TextJob
from recordmill.transforms.tokenization import Vocabulary

_MIN_TASK_BYTES = 1 << 20
_USUAL_TASK_BYTES = 1 << 25
_MAX_TASK_BYTES = 1 << 28
_TASKS_PER_WORKER = 8


@dataclass(frozen=True, slots=True)
class TextInventory(Inventory):
    """The files to read, and the vocabulary."""

    files: SourceList
    vocabulary: bytes


def read_vocabulary(path: str) -> tuple[bytes, Vocabulary]:
    """Reads --vocab_file.

    Raises:
      UsageError: it is missing, empty or no vocabulary.
    """
    try:
        data = files.read_bytes(path)
    except (OSError, BeamIOError) as error:
        raise UsageError(
            f"--vocab_file {path} cannot be read: {reason(error)}; `recordmill vocab` makes one"
        ) from error
    return data, Vocabulary.from_bytes(data, path)


def task_bytes(total: int, workers: int) -> int:
    """Returns the size of a read task: enough of them for all workers, and runs not too many."""
    wanted = total // (workers * _TASKS_PER_WORKER)
    wanted = max(_MIN_TASK_BYTES, min(wanted, _USUAL_TASK_BYTES))
    return max(wanted, min(total // MAX_FAN_IN, _MAX_TASK_BYTES))


def choose_run_tree(job: TextJob, tasks: int, input_bytes: int) -> RunTree:
    """Returns how the runs of so many read tasks are gathered."""
    output_bytes = 2 * input_bytes * job.task.copies
    weights = [int(output_bytes * split.share) for split in job.splits]
    # About how many ranges all shards together read from each run.
    build_reads = sum(count_shards(weights, job.splits, job.shards)) * job.task.copies
    return choose_tree(tasks, build_reads, input_bytes / 2)


def check_columns(
    sources: SourceList, spec: DocumentSpec, flags: Iterable[tuple[str, str]]
) -> None:
    """Checks that tables have the columns asked for.

    Args:
      sources: the input; the first table of each format is looked at.
      spec: how documents lie in it.
      flags: flag -> column, "" where none is asked for.

    Raises:
      UsageError: names the columns that there are.
    """
    for first in (sources.first[kind] for kind in ("csv", "tsv") if kind in sources.first):
        header = read_header(first, spec)
        for flag, name in flags:
            if name and name not in header:
                raise UsageError(
                    f"{flag} must be a column of {first.path}: {', '.join(header)}; got {name!r}"
                )


class TextPlanner(Planner[TextJob, TextInventory]):
    """Plans and builds `recordmill text`."""

    kind = "text"
    worker_modules = ("recordmill.pipelines.text",)
    packages = ("tokenizers",)
    bytes_version = 1

    def __init__(self, request: TextRequest) -> None:
        super().__init__(request.job)
        self._request = request

    @contextmanager
    def inspect(self) -> Iterator[TextInventory]:
        """Lists the input and reads the vocabulary."""
        request, job = self._request, self.job
        data, vocabulary = read_vocabulary(request.vocab_file)
        job.task.bind(vocabulary, job.seed)
        patterns, spec = request.patterns, job.documents
        for pattern in patterns:
            if matches_output(pattern, job.output):
                raise UsageError(
                    f"--input {pattern} also matches what is written to --output {job.output}; "
                    "choose an output outside of the input"
                )
        with closing(
            SourceList(list_sources(patterns, input_format=request.input_format))
        ) as sources:
            if spec.split_by and "text" in sources.formats:
                raise UsageError(
                    "--split_by needs fields: JSONL, CSV or TSV, and there is plain text"
                )
            flags = ("--text_field", spec.text_field), ("--split_by", spec.split_by)
            check_columns(sources, spec, flags)
            checksums = {
                "vocabulary_blake2b": vocabulary.checksum,
                "vocabulary_size": len(vocabulary),
                "unicode": unicodedata.unidata_version,
            }
            yield TextInventory(
                sources.text_bytes, sources.summary(), checksums, sources.modified, sources, data
            )

    def write(self, inventory: TextInventory, *, workers: int) -> dict[str, Any]:
        """Cuts the input into read tasks and chooses how runs are gathered."""
        job, input_bytes = self.job, inventory.input_bytes
        files.write_bytes(job.vocabulary_path, inventory.vocabulary)
        target = task_bytes(input_bytes, workers)
        tasks = plan_tasks(
            inventory.files, target_bytes=target, splittable=job.documents.splittable
        )
        count = write_tasks(job.work, tasks)
        return asdict(choose_run_tree(job, count, input_bytes))

    def config(self) -> dict[str, Any]:
        """Returns where the input was."""
        return {"input": self._request.patterns}

    def describe(self) -> str:
        """Returns the description of the dataset."""
        return f"{self.job.task.name} examples written by recordmill"

    def build(self, pipeline: beam.Pipeline, plan: Plan[TextJob]) -> object:
        """Applies the stages of `text.py`."""
        return build_text(pipeline, plan.job, tree=RunTree(**plan.details), commit=plan.commit)

    def phases(self, plan: Plan[TextJob]) -> Iterator[Phase]:
        """Yields read, regroup where there is one, and write."""
        job, tree = plan.job, RunTree(**plan.details)
        for level in range(tree.levels + 1):
            done = files.count(files.join(job.work, f"runs-{level}"), ".json")
            name = "regroup" if level else "read"
            yield Phase(name, done, tree.runs(level), plan.input_bytes)
        if not files.exists(job.shard_plan_path):
            yield Phase("plan shards", 0, 1)
            return
        splits = read_json(job.shard_plan_path)["splits"]
        done = files.count(files.join(job.staging, "done"), ".json")
        expected = sum(int(split["expected_bytes"]) for split in splits)
        yield Phase("write", done, sum(int(split["shards"]) for split in splits), expected)

    def summary(self, counts: dict[str, Any]) -> str:
        """Returns one line of what became of the documents."""
        return (
            f"documents: {counts['documents_read']} read, {counts['documents_written']} written, "
            f"{counts['documents_without_tokens']} without tokens"
        )
