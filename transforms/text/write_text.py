"""`WriteText`: any PCollection of documents to a dataset, with the promises of the commands."""

from __future__ import annotations

import os
import unicodedata
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

import apache_beam as beam
from msgspec import structs

from recordmill.records.errors import UsageError, at_least
from recordmill.records.spec import checked_arguments, python_names
from recordmill.transforms.dataset.bundles import (
    BundleWriter,
    WriteElements,
    Written,
    bundle_path,
)
from recordmill.transforms.dataset.commit import CommitSpec
from recordmill.transforms.dataset.job import Compression, Warnings
from recordmill.transforms.dataset.output_spec import KeptFields, ShardCounts, Shares
from recordmill.transforms.dataset.pipeline_run import commit_spec, pipeline_job
from recordmill.transforms.shuffle.gathered_runs import RunFileSink
from recordmill.transforms.shuffle.merge_tree import MergeTree
from recordmill.transforms.shuffle.regroup import merge_run_files
from recordmill.transforms.shuffle.shard_ranges import SplitShards
from recordmill.transforms.sources.document_spec import DocumentSpec
from recordmill.transforms.sources.kept_fields import parse_fields
from recordmill.transforms.sources.row_fields import RowSpec
from recordmill.transforms.storage import files
from recordmill.transforms.subwords.tokenizer import Tokenizer
from recordmill.transforms.text.bind_objective import bind
from recordmill.transforms.text.build_text_shards import TextShardBuilder
from recordmill.transforms.text.bundle_results import (
    BundleResult,
    add_up,
    complete,
    read_samples,
    write_samples,
)
from recordmill.transforms.text.cleaning.unicode_forms import ftfy_version
from recordmill.transforms.text.deduplicate_bundles import DeduplicateBundles
from recordmill.transforms.text.document_bundles import DocumentBundles
from recordmill.transforms.text.label_spec import label_spec
from recordmill.transforms.text.list_bundles import ListDropped
from recordmill.transforms.text.text_elements import LABEL, PAIR, PROMPT, text_bytes
from recordmill.transforms.text.text_job import TextJob
from recordmill.transforms.text.text_shard_plan import plan_shards
from recordmill.transforms.text.text_spec import (
    AnyObjective,
    Classify,
    CleanSpec,
    Deduplication,
    Gpt,
    Normalization,
    TextSpec,
)
from recordmill.transforms.text.text_state import ScatterResult
from recordmill.transforms.text.tokenizer_checks import (
    check_case,
    check_own_normalization,
    read_vocabulary,
)

_RUN_TOKENS = 1 << 24
_Objective = Annotated[
    AnyObjective, "Bert(), Mlm(), MlmTokens(), Classify(), Gpt(), T5(), T5Tokens() or Ul2()"
]


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
        return DocumentBundles(self.job, self.merge_size)

    def clean(self) -> beam.PTransform[Any, Any] | None:
        """Returns what drops duplicates, and lists what is dropped."""
        clean = self.job.clean
        lists = ListDropped(self.job) if clean.list_dropped else None
        if not clean.deduplicates:
            return lists
        drops = DeduplicateBundles(self.job)
        return drops | lists if lists else drops

    def merge(self, texts: list[str]) -> Written:
        """Merges run files into one, and samples; rejects stay where they are."""
        job, base = self.job, bundle_path(self.job)
        whole = add_up(job, texts)
        scatter = whole.scatter
        run = merge_run_files(job, f"{base}.bin", scatter.runs)
        samples = whole.samples
        if len(samples) > 1:
            path = f"{base}.samples"
            write_samples(path, read_samples(job, samples))
            samples = (path.rpartition("/")[2],)
        return BundleResult(structs.replace(scatter, runs=(run,)), whole.rejects, samples).written()

    def plan_shards(self, tree: MergeTree) -> list[SplitShards]:
        """Plans the shards by the expected bytes of chunks."""
        return plan_shards(self.job, tree)

    def open_builder(self, tree: MergeTree) -> TextShardBuilder:
        """Returns what builds shards in a worker."""
        return TextShardBuilder(self.job, tree)

    def gather(self, texts: list[str]) -> ScatterResult:
        """Adds up descriptions, and writes the list of rejects."""
        return complete(self.job, add_up(self.job, texts))

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
    the bundle. Repeated bundles change nothing. A document without tokens is counted as such. One
    that lacks what the objective reads of it, such as its label, is a reject, listed in
    `_meta/rejected`. Statistics name texts that several splits have, as groups may cause it.

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
      normalize: the Unicode form of texts: "none", "nfc", "nfkc" or "ftfy".
      min_tokens, max_tokens: documents with fewer or more tokens are dropped, and counted.
      deduplicate: "exact" keeps one of documents of equal text, "near" of similar ones; which one
        follows from their keys and contents, as elements have no order.
      near_threshold: the Jaccard similarity of word 5-grams from which documents are similar.
      list_dropped: lists dropped documents in `_meta/dropped`, by key or the beginning of the text,
        with the reason, and with what they repeat or their tokens.
      max_rejected: the share of documents that may be rejected, in [0, 1].
      warnings: of what looks wrong in the statistics: "print" logs them, "error" fails, "none".
      compression: of shards: "", "GZIP" or "ZLIB".
      seed: of the order and of all draws.
      overwrite: replace the dataset that is there.
      run_tokens: a worker holds so many tokens, twice.
    """

    @checked_arguments(python_names(TextSpec))
    def __init__(
        self,
        output: str | os.PathLike[str],
        *,
        objective: _Objective,
        tokenizer: str | os.PathLike[str],
        splits: Shares | None = None,
        num_shards: ShardCounts | None = None,
        shard_bytes: int = 200_000_000,
        do_lower_case: bool = True,
        check_case: bool = True,
        allow_special_tokens: bool = False,
        dupe_splits: Sequence[str] | None = None,
        keep_fields: KeptFields = "",
        normalize: Normalization = "none",
        min_tokens: int = 0,
        max_tokens: int | None = None,
        deduplicate: Deduplication = "none",
        near_threshold: float = CleanSpec().near_threshold,
        list_dropped: bool = False,
        max_rejected: float = 0.0,
        warnings: Warnings = "print",
        compression: Compression = "",
        seed: int = 12345,
        overwrite: bool = False,
        run_tokens: int = _RUN_TOKENS,
    ) -> None:
        """Checks what can be checked before the pipeline runs, and reads the tokenizer.

        Raises:
          UsageError: a value is not valid, the tokenizer cannot be used, or a dataset is there.
        """
        row = row_spec(objective, keep_fields)
        clean = CleanSpec(
            normalize=normalize, min_tokens=min_tokens, max_tokens=max_tokens,
            deduplicate=deduplicate, near_threshold=near_threshold, list_dropped=list_dropped,
        )  # fmt: skip
        job = TextJob(
            **pipeline_job(output, splits=splits, num_shards=num_shards, shard_bytes=shard_bytes),
            compression=compression,
            seed=seed,
            max_rejected=max_rejected,
            warnings=warnings,
            overwrite=overwrite,
            clean=clean,
            objective=objective,
            documents=DocumentSpec(sentence_splitter=objective.splitter, row=row),
            lower_case=do_lower_case,
            dupe_splits=None if dupe_splits is None else tuple(dupe_splits),
            allow_special_tokens=allow_special_tokens,
        )
        clean.check_lists(maps=False)
        data, vocabulary = read_vocabulary(os.fspath(tokenizer))
        check_own_normalization(vocabulary, job)
        _check_case(vocabulary, lower_case=do_lower_case, refuse=check_case)
        bind(objective, vocabulary, seed, row)
        checksums = tuple(_checksums(vocabulary, normalize).items())
        run_tokens = at_least("run_tokens", run_tokens, 1)
        super().__init__(_TextSink(job, run_tokens, zlib.compress(data), checksums))


def row_spec(objective: AnyObjective, keep_fields: str) -> RowSpec:
    """Returns what documents have beside their text, under the names of their attributes.

    Raises:
      UsageError: a value is not valid, or has no meaning for the objective.
    """
    for name in objective.given().keys() & {"label_field", "text_pair_field", "prompt_field"}:
        raise UsageError(
            f"{type(objective).__name__}.{name} is for files, and a Document has attributes; "
            "leave it out"
        )
    kept = parse_fields(keep_fields)
    if kept:
        objective.check_kept_fields()
    if isinstance(objective, Classify):
        pair = PAIR if objective.pairs else ""
        return RowSpec(label_spec(LABEL, objective.labels), pair, kept)
    has_prompts = isinstance(objective, Gpt) and objective.prompts
    return RowSpec(keep_fields=kept, prompt_field=PROMPT if has_prompts else "")


def _check_case(vocabulary: Tokenizer, *, lower_case: bool, refuse: bool) -> None:
    if refuse:
        check_case(vocabulary, lower_case=lower_case)


def _checksums(vocabulary: Tokenizer, normalize: str) -> dict[str, str | int]:
    found: dict[str, str | int] = {
        "vocabulary_blake2b": vocabulary.checksum,
        "vocabulary_size": len(vocabulary),
        "unicode": unicodedata.unidata_version,
    }
    if vocabulary.stored_name:
        found["tokenizer"] = vocabulary.kind
    if normalize == "ftfy":
        found["ftfy"] = ftfy_version()
    return found
