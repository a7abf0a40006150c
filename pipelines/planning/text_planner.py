"""Planning a text job: what it adds to `plan_job.py`."""

from __future__ import annotations

import ctypes
import operator
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import msgspec

from recordmill.pipelines.planning.column_checks import check_column_types
from recordmill.pipelines.planning.input_checks import check_outside, without_input
from recordmill.pipelines.planning.item_sizes import (
    PassedOver,
    mapped_item_bytes,
    work_item_bytes,
)
from recordmill.pipelines.planning.outline import Outline
from recordmill.pipelines.planning.planner import Inventory, Planner, WorkPlan
from recordmill.pipelines.planning.sample_sources import Layout
from recordmill.pipelines.planning.shuffle_outline import (
    ShuffleOutline,
    count_work_items,
    describe_files,
)
from recordmill.pipelines.planning.text_warm_up import TextWarmUp
from recordmill.pipelines.planning.tokenizer_sample import sample_texts
from recordmill.pipelines.text_request import (
    TextRequest,
    check_formats,
    check_order,
    check_ratio,
)
from recordmill.records.errors import UsageError, listed
from recordmill.transforms.dataset.labels import LABELS_PATH
from recordmill.transforms.dataset.output_spec import ShardSpec, SplitSpec
from recordmill.transforms.dataset.run_state import decode_state
from recordmill.transforms.dataset.shard_counts import count_shards
from recordmill.transforms.dataset.stages import Stage
from recordmill.transforms.dataset.workspace import Workspace
from recordmill.transforms.shuffle.merge_tree import MergeTree, choose_merge_tree
from recordmill.transforms.sources.bigquery_service import is_bigquery, read_time
from recordmill.transforms.sources.bigquery_tables import list_table
from recordmill.transforms.sources.delimited_rows import read_first_row
from recordmill.transforms.sources.document_spec import READ_LIMITS, DocumentSpec
from recordmill.transforms.sources.documents import count_documents
from recordmill.transforms.sources.formats import FORMATS, load
from recordmill.transforms.sources.input_spec import InputSpec
from recordmill.transforms.sources.item_cutting import cut_work_items
from recordmill.transforms.sources.query_rows import list_query
from recordmill.transforms.sources.row_documents import column_names
from recordmill.transforms.sources.source_checks import check_contents
from recordmill.transforms.sources.source_list import SourceList, first_sources
from recordmill.transforms.sources.work_item_files import write_work_items
from recordmill.transforms.sources.work_items import SourceRange, format_of, list_sources
from recordmill.transforms.storage import files
from recordmill.transforms.subwords.hugging_face import forget_libraries
from recordmill.transforms.subwords.sentence_pieces import PieceTokenizer
from recordmill.transforms.subwords.tokenizer import VOCAB_TXT, Tokenizer
from recordmill.transforms.text.bind_objective import bind
from recordmill.transforms.text.cleaning.duplicates import PART_BYTES
from recordmill.transforms.text.cleaning.unicode_forms import ftfy_version
from recordmill.transforms.text.text_job import TextJob
from recordmill.transforms.text.text_stages import text_stages
from recordmill.transforms.text.tokenizer_checks import (
    check_case,
    check_own_normalization,
    lines_of_fastokens,
    padding_problem,
    read_vocabulary,
)

_SAMPLE_BYTES = 1 << 24
_SAMPLE_COPIED_BYTES = 1 << 25  # of all copies of its text
_LEAST_BYTES = 1 << 18
_MEMORY_PER_ITEM_BYTE = 2.3  # measured by benchmarks/text.py


@dataclass(frozen=True, slots=True)
class TextInventory(Inventory):
    """The files to read, and the vocabulary."""

    files: SourceList
    vocabulary: bytes


def tree_for_job(job: TextJob, work_items: int, input_bytes: int) -> MergeTree:
    """Returns the merge tree for so many work items."""
    split_bytes = [
        int(2 * input_bytes * split.share * copies)
        for split, copies in zip(job.splits, job.copies, strict=True)
    ]
    shards = count_shards(split_bytes, job.splits, job.shards)
    # About how many ranges all shards together read from each run.
    build_reads = sum(map(operator.mul, shards, job.copies))
    run_bytes = input_bytes if job.documents.row.keep_fields else input_bytes / 2
    return choose_merge_tree(work_items, build_reads, run_bytes)


def check_columns(
    sources: SourceList, spec: DocumentSpec, flags: Iterable[tuple[str, str]]
) -> None:
    """Checks that tables have the columns asked for, and text in those of text.

    Args:
      sources: the input; the first table of each format is looked at.
      spec: how documents lie in it.
      flags: flag -> column, "" where none is asked for.

    Raises:
      UsageError: names the columns that there are.
    """
    flags = list(flags)
    check_column_types(sources, flags)
    for first in (sources.first[kind] for kind in ("csv", "tsv") if kind in sources.first):
        row = read_first_row(first, spec)
        if spec.columns and row and len(row) != len(spec.columns):
            raise UsageError(
                f"--columns names {len(spec.columns)} columns, and the first row of {first.path} "
                f"has {len(row)} fields; name them all, or see --delimiter"
            )
        header = list(spec.columns) or row
        for flag, name in flags:
            if name and name not in header:
                raise UsageError(
                    f"{flag} must be a column of {first.path}: {listed(header)}; got {name!r}"
                    f"{'' if spec.columns else _way_out(header, name)}"
                )


def _way_out(row: list[str], name: str) -> str:
    """Returns what to do about the first row of a table, which does not have a name."""
    hint = "; if that is no row of names, give --header=none and --columns=NAME,…"
    found = max("\t,;|", key=row[0].count) if len(row) == 1 else ""
    if not found or found not in row[0]:
        return hint
    shown = "tab" if found == "\t" else f"'{found}'"
    return f"; if {shown} separates its fields, give --delimiter={shown}" + (
        "" if name in row[0].split(found) else hint
    )


def list_input(
    patterns: list[str],
    options: InputSpec,
    spec: DocumentSpec,
    *,
    splits: Sequence[str] = (),
    pass_over: Callable[[str, str], object],
    snapshot_ms: int = 0,
) -> Iterator[SourceRange]:
    """Yields the files of an input, or the answer to its query.

    Args:
      patterns: globs, or the URL of a database or of BigQuery.
      options: of the input.
      spec: how documents lie in it.
      splits, pass_over: see `list_sources`.
      snapshot_ms: see `list_table`.

    Raises:
      UsageError: there are none, or the database cannot be used.
    """
    url = patterns[0]
    if is_bigquery(url):
        yield list_table(url, options.query, column_names(spec), snapshot_ms)
        return
    if options.query:
        yield list_query(url, options.query, options.partition_column, spec.text_field)
        return
    yield from list_sources(
        patterns, input_format=options.input_format,
        input_compression=options.input_compression, splits=splits,
        allow_outside=options.allow_outside, skip_files=options.skip_files, pass_over=pass_over,
    )  # fmt: skip


def _planned_snapshot(workspace: Workspace, patterns: Sequence[str]) -> int:
    """Returns the time as of which an unfinished run reads a table of BigQuery, 0 for none.

    Args:
      workspace: of the run; one that has lost its streams counts as none.
      patterns: of the input.
    """
    try:
        commit = decode_state(files.read_bytes(workspace.plan_path), dict)["commit"]
        is_same = commit["config"]["input"] == list(patterns)
        is_over = files.exists(workspace.over_budget_path) or not workspace.can_be_finished
        if is_same and not is_over:
            return read_time(commit["sources"]["snapshot_time"])
    except (FileNotFoundError, NotADirectoryError, ValueError, TypeError, KeyError):
        pass
    return 0


class TextPlanner(Planner[TextJob, MergeTree, TextInventory]):
    """Plans and builds `recordmill text`."""

    kind = "text"
    stages_type = MergeTree
    packages: tuple[str, ...] = ("tokenizers",)
    bytes_version = 3

    def __init__(self, request: TextRequest) -> None:
        super().__init__(request.job)
        self._request = request
        self._limit = 0  # where it is reached
        self._vocabulary: tuple[bytes, Tokenizer] | None = None
        self.vocab_file = request.tokenizer.vocab_file
        if request.job.objective.name == "classify":
            self.metadata = (LABELS_PATH,)

    @contextmanager
    def inspect(self) -> Iterator[TextInventory]:
        """Lists the input and reads the vocabulary."""
        request, job = self._request, self.job
        data, vocabulary = self._read_vocabulary()
        check_own_normalization(vocabulary, job, do_lower_case=request.tokenizer.do_lower_case)
        if problem := padding_problem(vocabulary, job.objective.name):
            self.note(problem)
        self.metadata = (*self.metadata, f"_meta/{vocabulary.stored_name}")
        if isinstance(vocabulary, PieceTokenizer):
            self.packages = (*self.packages, "sentencepiece")
        check_case(vocabulary, lower_case=job.lower_case, refuse=request.tokenizer.check_case)
        bind(job.objective, vocabulary, job.seed, job.documents.row)
        patterns, spec = request.patterns, job.documents
        check_outside(patterns, job.workspace.output)
        passed_over = PassedOver()
        is_table = is_bigquery(patterns[0])
        listed = list_input(
            patterns, request.input, spec, splits=request.splits, pass_over=passed_over.add,
            snapshot_ms=_planned_snapshot(job.workspace, patterns) if is_table else 0,
        )  # fmt: skip
        with closing(SourceList(listed)) as sources:
            passed_over.report()
            check_formats(spec, sources.formats, len(job.splits))
            check_order(sources.formats, deduplicates=job.clean.deduplicates)
            check_ratio(spec, is_compressed=sources.is_compressed)
            check_contents(sources, spec, by_name=request.input.by_name)
            flags = (
                ("--text_field", spec.text_field), ("--split_by", spec.split_by),
                ("--split_from", spec.split_from), *spec.row.flags,
            )  # fmt: skip
            check_columns(sources, spec, flags)
            checksums: dict[str, str | int] = {
                "vocabulary_blake2b": vocabulary.checksum,
                "vocabulary_size": len(vocabulary),
                "unicode": unicodedata.unidata_version,
            }
            if job.clean.normalize == "ftfy":
                checksums["ftfy"] = ftfy_version()
                if spec.keeps_text:
                    checksums["line_ends"] = "kept"
            for versions in filter(None, (FORMATS[kind].versions for kind in sources.formats)):
                checksums |= load(versions)(spec)
            if vocabulary.stored_name != VOCAB_TXT:
                checksums["tokenizer"] = vocabulary.kind
            special = job.allow_special_tokens
            texts = sample_texts(sources, spec)
            lines = lines_of_fastokens(vocabulary, texts, allow_special_tokens=special)
            if lines:
                self.packages = (*self.packages, "fastokens")
                self.job = replace(self.job, lines_of_fastokens=lines)
            # Functions of users' own see documents as they are in their files.
            read = spec.raw(READ_LIMITS) if job.map else spec
            count = partial(count_documents, spec=read)
            with first_sources(sources, request.input.limit, count) as first:
                self._limit = (first.is_cut and request.input.limit) or 0
                self._take_shares(first)
                yield TextInventory(
                    first.text_bytes, first.summary(), checksums, first.modified, first, data
                )

    def _take_shares(self, sources: SourceList) -> None:
        """Makes the shares of splits those of their files, where --input names them."""
        sizes = [sources.split_bytes[split.name] for split in self.job.splits]
        if not any(self._request.splits):
            return
        for split, size in zip(self.job.splits, sizes, strict=True):
            if not size:
                reached = split.name in sources.split_bytes
                raise without_input(split.name, self._request.input.limit, reached=reached)
        splits = (
            msgspec.structs.replace(split, share=size / sum(sizes))
            for split, size in zip(self.job.splits, sizes, strict=True)
        )
        self.job = replace(self.job, splits=tuple(splits))

    def write(self, inventory: TextInventory, *, workers: int) -> MergeTree:
        """Cuts the input into work items and chooses how run files are gathered."""
        job, input_bytes = self.job, inventory.input_bytes
        files.write_bytes(job.vocabulary_path, inventory.vocabulary)
        target = work_item_bytes(input_bytes, workers)
        if job.map:
            target = min(target, mapped_item_bytes(input_bytes, workers))
        work_items = cut_work_items(inventory.files, target, job.documents.cutting)
        count = write_work_items(job.workspace.inputs_folder, work_items)
        return tree_for_job(job, count, input_bytes)

    def warm_up(self) -> TextWarmUp | None:
        """Returns what loads kernels and tokenizer; None where to read it may start threads."""
        if not all(files.is_local(path) for path in self._request.tokenizer.vocab_file.split(",")):
            return None
        try:
            return self._warm_up
        except (UsageError, OSError, ValueError):  # planning meets it too, and says it
            return None

    @property
    def is_compiled(self) -> bool:
        """Whether this machine has compiled what the job needs."""
        warm_up = self.warm_up()
        return warm_up is None or warm_up.is_compiled

    def compile_kernels(self) -> None:
        """Compiles what the job needs, if this machine does it for the first time."""
        self._warm_up.compile()

    def release(self) -> None:
        """Frees the tokenizer and what libraries hold of it, which may be 100 MB."""
        self._vocabulary = None
        forget_libraries()
        with suppress(AttributeError, OSError):  # a C library that keeps what is freed
            ctypes.CDLL(None).malloc_trim(0)

    @property
    def _warm_up(self) -> TextWarmUp:
        first = next(iter(self._request.patterns), "")
        kind, _ = format_of(first, self._request.input.input_format)
        content, tokenizer = self._read_vocabulary()
        return TextWarmUp(self.job, content, tokenizer.kind, kind)

    def _read_vocabulary(self) -> tuple[bytes, Tokenizer]:
        """Returns what `read_vocabulary` does, once."""
        if self._vocabulary is None:
            self._vocabulary = read_vocabulary(self._request.tokenizer.vocab_file)
        return self._vocabulary

    def config(self) -> dict[str, Any]:
        """Returns where the input was, and how much of it was read."""
        options = self._request.input
        config: dict[str, Any] = {"input": self._request.patterns}
        if options.query:
            config |= {"query": [options.query]}
        if options.partition_column:
            config |= {"partition_column": [options.partition_column]}
        if self._limit:
            config |= {"limit": self._limit}
        return config

    def describe(self) -> str:
        """Returns the description of the dataset."""
        return f"{self.job.objective.name} examples written by recordmill"

    def stages(self, plan: WorkPlan[TextJob, MergeTree]) -> list[Stage[Any]]:
        """Returns the stages of a text job."""
        return text_stages(plan.job, plan.stages, input_bytes=plan.input_bytes)

    def outline(self, inventory: TextInventory, *, workers: int) -> Outline:
        """Returns what an estimate must know of the job."""
        job, total = self.job, inventory.input_bytes
        target = work_item_bytes(total, workers)
        items = count_work_items(inventory.files, target, splittable=job.documents.splittable)
        tree = tree_for_job(job, items, total)
        dupe_factor = job.objective.dupe_factor

        def begin(workspace: Workspace) -> TextJob:
            sample = replace(
                job, workspace=workspace, splits=(SplitSpec("train", 1.0, 1),), shards=ShardSpec(),
                max_rejected=1.0, dupe_splits=None,
                documents=msgspec.structs.replace(job.documents, split_from="", split_names=()),
            )  # fmt: skip
            files.write_bytes(sample.vocabulary_path, inventory.vocabulary)
            return sample

        def first_steps(work_bytes: Mapping[str, float]) -> Iterator[tuple[str, str, int]]:
            if job.clean.deduplicates:
                yield "Fingerprint", "fingerprint", items
                ranges = -(-int(work_bytes["fingerprints"]) // PART_BYTES)
                yield "Compare", "compare", max(ranges, 1)
            yield "Scatter", "read", items

        return ShuffleOutline(
            inputs=describe_files(inventory.sources),
            job=job,
            sources=inventory.files,
            layout=Layout(
                job.documents.splittable,
                job.documents.delimiter,
                job.documents.quotes,
                tuple(column_names(job.documents)),
            ),
            total=total,
            wanted=max(min(_SAMPLE_BYTES, _SAMPLE_COPIED_BYTES // dupe_factor), _LEAST_BYTES),
            tree=tree,
            # A sample has all copies, which some splits do not get.
            shares={
                split.name: split.share * copies / dupe_factor
                for split, copies in zip(job.splits, job.copies, strict=True)
            },
            copies=dict(zip((split.name for split in job.splits), job.copies, strict=True)),
            begin=begin,
            stages=text_stages,
            first_steps=first_steps,
            item_bytes=_MEMORY_PER_ITEM_BYTE * target,
            is_most=job.clean.deduplicates,
        )
