"""`WriteText`: any PCollection of documents to a dataset, with the promises of the commands."""

from __future__ import annotations

import json
import unicodedata
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from recordmill.records.errors import UsageError
from recordmill.records.hashing import seed_for
from recordmill.transforms.dataset import counters
from recordmill.transforms.dataset.bundles import (
    BundleWriter,
    WriteElements,
    Written,
    bundle_path,
    runs_folder,
)
from recordmill.transforms.dataset.commit import CommitSpec
from recordmill.transforms.dataset.pipeline_run import commit_spec, pipeline_job
from recordmill.transforms.dataset.splits import choose_splits
from recordmill.transforms.shuffle.gathered_runs import RunFileSink
from recordmill.transforms.shuffle.merge_tree import MergeTree
from recordmill.transforms.shuffle.regroup import merge_run_files
from recordmill.transforms.shuffle.shard_ranges import SplitShards
from recordmill.transforms.sources.document_batch import DocumentBatch
from recordmill.transforms.sources.document_spec import DocumentSpec
from recordmill.transforms.storage import files
from recordmill.transforms.subwords.tokenizer import Tokenizer
from recordmill.transforms.text.build import TextShardBuilder
from recordmill.transforms.text.chunk_fields import ChunkFields
from recordmill.transforms.text.chunk_runs import ChunkRuns, TextTools
from recordmill.transforms.text.chunks import CHUNK_PURPOSE, ChunkCutter
from recordmill.transforms.text.descriptions import ScatterResult
from recordmill.transforms.text.elements import DocumentMaker, text_bytes
from recordmill.transforms.text.job import TextJob
from recordmill.transforms.text.shard_plan import ScatterTotals, plan_shards
from recordmill.transforms.text.task import TextTask
from recordmill.transforms.text.tokenizer_checks import (
    check_case,
    check_own_normalization,
    read_vocabulary,
)

_RUN_TOKENS = 1 << 24


class _TextBundles(BundleWriter):
    """Documents -> run files of chunks."""

    def __init__(self, job: TextJob, run_tokens: int) -> None:
        self._job = job
        self._run_tokens = run_tokens
        self._tools = TextTools(job)
        self._shares = [split.share for split in job.splits]
        self._maker = DocumentMaker(job.documents, groups=len(self._shares) > 1)
        self._seed = seed_for(job.seed, CHUNK_PURPOSE)

    def begin(self) -> None:
        """Begins a bundle."""
        path = partial(_run_path, bundle_path(self._job))
        self._runs = ChunkRuns(self._tools, path, self._run_tokens)
        self._cutter = ChunkCutter(self._tools.objective.cut, self._seed, self._tools.id_type)
        self._read = 0

    def add(self, elements: list[Any]) -> None:
        """Tokenizes documents and cuts them into chunks."""
        for batch in self._maker.batches(elements):
            self._add(batch)

    def _add(self, batch: DocumentBatch) -> None:
        runs = self._runs
        self._read += len(batch.keys)
        tokens = self._tools.tokenizer.tokenize(batch.lines)
        runs.held_tokens += len(tokens.ids)
        chunks, of_document = self._cutter.cut(batch, tokens, goes_on=False)
        if batch.carried is not None:
            fields = ChunkFields.encode(batch.carried).take(of_document)
            chunks = replace(chunks, fields=fields)
            runs.held_tokens += len(fields.words)
            runs.add_labels(batch.carried)
        runs.add(chunks, choose_splits(batch.groups, self._shares)[of_document])

    def end(self) -> Written:
        """Writes what is held."""
        runs = self._runs
        runs.write()
        used = self._cutter.documents
        counters.count("documents_read", self._read)
        counters.count("documents_written", used)
        result = ScatterResult(
            runs=tuple(runs.runs), chunks=tuple(runs.chunks), tokens=tuple(runs.tokens),
            documents_read=self._read, documents_used=used, rejected={},
            rejected_file=(0, 0), labels=tuple(sorted(runs.labels)),
        )  # fmt: skip
        return _describe(result)


def _run_path(base: str, number: int) -> str:
    return f"{base}-{number}.bin"


def _describe(result: ScatterResult) -> Written:
    return Written(sum(result.tokens), json.dumps(result.to_json(), sort_keys=True))


@dataclass(frozen=True)
class _TextSink(RunFileSink[TextJob]):
    """Documents, with the tokenizer's file; see `RunFileSink`.

    Attributes:
      vocabulary: the content of the tokenizer's file, packed by zlib; b"" once it is written.
      checksums: of the tokenizer, for the manifest.
    """

    transform = "WriteText"
    vocabulary: bytes = b""
    checksums: tuple[tuple[str, str | int], ...] = ()

    def prepare(self) -> None:
        """Writes the tokenizer's file beside the run files."""
        files.write_bytes(self.job.vocabulary_path, zlib.decompress(self.vocabulary))

    def prepared(self) -> _TextSink:
        """Returns the sink without the tokenizer's file."""
        return replace(self, vocabulary=b"")

    def size_of(self, element: Any) -> int:
        """Returns about how many bytes a document or a batch takes."""
        return text_bytes(element)

    def open_writer(self) -> BundleWriter:
        """Returns the writer of a worker."""
        return _TextBundles(self.job, self.merge_size)

    def merge(self, texts: list[str]) -> Written:
        """Merges run files into one."""
        job = self.job
        whole = self.gather(texts)
        run = merge_run_files(job, f"{bundle_path(job)}.bin", whole.runs)
        return _describe(replace(whole, runs=(run,)))

    def plan_shards(self, tree: MergeTree) -> list[SplitShards]:
        """Plans the shards by the expected bytes of chunks."""
        return plan_shards(self.job, tree)

    def open_builder(self, tree: MergeTree) -> TextShardBuilder:
        """Returns what builds shards in a worker."""
        return TextShardBuilder(self.job, tree)

    def gather(self, texts: list[str]) -> ScatterResult:
        """Adds up descriptions."""
        folder = runs_folder(self.job)
        results = [ScatterResult.from_json(json.loads(text), folder) for text in texts]
        totals = ScatterTotals(len(self.job.splits))
        for result in results:
            totals.add(0, result)
        return ScatterResult(
            runs=tuple(run for result in results for run in result.runs),
            chunks=tuple(totals.chunks), tokens=tuple(totals.tokens),
            documents_read=totals.documents_read, documents_used=totals.documents_used,
            rejected={}, rejected_file=(0, 0), labels=tuple(sorted(totals.labels)),
        )  # fmt: skip

    def commit_spec(self) -> CommitSpec:
        """Returns what the manifest says."""
        return commit_spec(self.job, self.transform, ("tokenizers",), dict(self.checksums))


class WriteText(WriteElements):
    """Documents -> a dataset of examples; gives the counts of it, once `_SUCCESS` is written.

    An element is a `Document`, or its text as a `str`; or a batch: a list of these, or an Arrow
    table with a column `text`, and `key` and `group` if wanted, which costs least.

    The key of a document decides its position and its draws, its group the split; without them its
    text does. So equal documents give equal shards for any engine, any number of workers and any
    bundles. Memory: 16 million tokens twice for each bundle, and the largest element, however large
    the bundle. Repeated bundles change nothing. A document without tokens is counted as such.

    Args:
      output: the folder of the dataset, on storage that all workers see.
      objective: what examples are made of: `Bert`, `Mlm`, `MlmTokens`, `Classify`, `Gpt`, `T5`,
        `T5Tokens` or `Ul2`, with its options.
      tokenizer: BERT's vocab.txt, a Hugging Face tokenizer.json, GPT-2's encoder.json beside
        its vocab.bpe, or a SentencePiece .model.
      splits: name -> share, such as `{"train": 0.9, "validation": 0.1}`; one split by default.
      num_shards: of the first split, or of each by name; without it `shard_bytes` decides.
      shard_bytes: the size of a shard, before compression.
      do_lower_case: lower-case and strip accents, with a vocab.txt.
      check_case: refuse a vocabulary whose capital letters do not fit `do_lower_case`.
      allow_special_tokens: the spelling of a special token in text becomes its id.
      dupe_splits: the splits that get all copies of the text; by default train, or the first.
      keep_fields: `NAME[:int|:float],…` of `Document.fields` that are carried into the records.
      compression: of shards: "", "GZIP" or "ZLIB".
      seed: of the order and of all draws.
      overwrite: replace the dataset that is there.
      run_tokens: a worker holds so many tokens, twice.
    """

    def __init__(
        self,
        output: str,
        *,
        objective: TextTask,
        tokenizer: str,
        splits: Mapping[str, float] | None = None,
        num_shards: int | Mapping[str, int] | None = None,
        shard_bytes: int = 200_000_000,
        do_lower_case: bool = True,
        check_case: bool = True,
        allow_special_tokens: bool = False,
        dupe_splits: tuple[str, ...] | None = None,
        keep_fields: str = "",
        compression: str = "",
        seed: int = 12345,
        overwrite: bool = False,
        run_tokens: int = _RUN_TOKENS,
    ) -> None:
        """Checks what can be checked before the pipeline runs, and reads the tokenizer.

        Raises:
          UsageError: a value is not valid, the tokenizer cannot be used, or a dataset is there.
        """
        if not isinstance(objective, TextTask):
            raise UsageError(
                "objective must be Bert(), Mlm(), MlmTokens(), Classify(), Gpt(), T5(), T5Tokens() "
                f"or Ul2(), got {objective!r:.80}"
            )
        splitter, row = objective.splitter, objective.row(keep_fields)
        job = TextJob(
            **pipeline_job(output, splits=splits, num_shards=num_shards, shard_bytes=shard_bytes),
            compression=compression,
            seed=seed,
            overwrite=overwrite,
            objective=objective.spec,
            documents=DocumentSpec(sentence_splitter=splitter, row=row),
            lower_case=do_lower_case,
            dupe_splits=dupe_splits,
            allow_special_tokens=allow_special_tokens,
        )
        data, vocabulary = read_vocabulary(tokenizer)
        check_own_normalization(vocabulary, job)
        _check_case(vocabulary, lower_case=do_lower_case, refuse=check_case)
        job.objective.bind(vocabulary, seed, row)
        packed, checksums = zlib.compress(data), tuple(_checksums(vocabulary).items())
        super().__init__(_TextSink(job, run_tokens, packed, checksums))


def _check_case(vocabulary: Tokenizer, *, lower_case: bool, refuse: bool) -> None:
    if refuse:
        check_case(vocabulary, lower_case=lower_case)


def _checksums(vocabulary: Tokenizer) -> dict[str, str | int]:
    found: dict[str, str | int] = {
        "vocabulary_blake2b": vocabulary.checksum,
        "vocabulary_size": len(vocabulary),
        "unicode": unicodedata.unidata_version,
    }
    return found | ({"tokenizer": vocabulary.kind} if vocabulary.stored_name else {})
