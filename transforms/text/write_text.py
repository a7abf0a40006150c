"""`WriteText`: any PCollection of documents to a dataset, with the promises of the commands."""

from __future__ import annotations

import logging
import os
import unicodedata
import zlib
from dataclasses import dataclass, replace
from typing import Any

from recordmill.records.errors import UsageError
from recordmill.records.spec import from_arguments, naming_arguments, python_names, takes
from recordmill.transforms.dataset.commit import CommitSpec
from recordmill.transforms.dataset.element_sink import ElementSpool, SpoolFile
from recordmill.transforms.dataset.pipeline_run import commit_spec, pipeline_job
from recordmill.transforms.dataset.stages import Stage
from recordmill.transforms.dataset.write_elements import WriteElements
from recordmill.transforms.sources.document_spec import DocumentSpec
from recordmill.transforms.sources.element_items import ShuffledElements
from recordmill.transforms.sources.element_rows import (
    LABEL,
    PAIR,
    PROMPT,
    DocumentSpool,
    text_bytes,
)
from recordmill.transforms.sources.formats import ELEMENTS
from recordmill.transforms.sources.kept_fields import parse_fields
from recordmill.transforms.sources.row_fields import RowSpec
from recordmill.transforms.sources.work_items import SourceRange
from recordmill.transforms.storage import files
from recordmill.transforms.subwords.tokenizer import VOCAB_TXT, Tokenizer
from recordmill.transforms.text.bind_objective import bind
from recordmill.transforms.text.cleaning.unicode_forms import ftfy_version
from recordmill.transforms.text.label_spec import label_spec
from recordmill.transforms.text.scatter import SCATTER_LIMITS, ScatterLimits
from recordmill.transforms.text.text_job import TextJob
from recordmill.transforms.text.text_spec import (
    AnyObjective,
    Classify,
    Gpt,
    TextSpec,
    WriteTextSpec,
)
from recordmill.transforms.text.text_stages import text_stages
from recordmill.transforms.text.tokenizer_checks import (
    check_case,
    check_own_normalization,
    lines_of_fastokens,
    padding_problem,
    read_vocabulary,
)

_LOGGER = logging.getLogger("recordmill")


@dataclass(frozen=True)
class _TextSink(ShuffledElements[TextJob]):
    """Documents, with the tokenizer's file.

    Attributes:
      limits: the sizes in which text is read.
      vocabulary: the content of the tokenizer's file, packed by zlib; b"" once it is written.
      checksums: of the tokenizer, for the manifest.
    """

    transform = "WriteText"
    limits: ScatterLimits = SCATTER_LIMITS
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

    def open_spool(self) -> ElementSpool:
        """Returns what writes documents as rows."""
        return DocumentSpool(self.job.documents)

    def source(self, spooled: SpoolFile) -> SourceRange:
        """Returns a file of rows as scatter reads it."""
        path = spooled.path(self.job)
        return SourceRange(path, spooled.name, ELEMENTS, "", spooled.size_bytes)

    def stages(self) -> list[Stage[Any]]:
        """Returns the stages of a text job."""
        return text_stages(self.job, None, limits=self.limits)

    def commit_spec(self) -> CommitSpec:
        """Returns what the manifest says."""
        packages = ("tokenizers", "fastokens") if self.job.lines_of_fastokens else ("tokenizers",)
        return commit_spec(self.job, self.transform, packages, dict(self.checksums))


class WriteText(WriteElements):
    """Documents -> a dataset of examples; gives the counts of it, once `_SUCCESS` is written.

    An element is a `Document`, or its text as a `str`; or a batch: a list of these, or an Arrow
    table with a column `text`, and `key` and `group` if wanted, which costs least.

    The key of a document decides its position and its draws, its group the split; without them its
    text does. So equal documents give equal shards for any engine, any number of workers and any
    bundles. Until the end the output's folder holds all text once more. Memory: 16 million tokens
    twice in a worker, and the largest element, however large the bundle. Repeated bundles change
    nothing. A document without tokens is counted as such. One
    that lacks what the objective reads of it, such as its label, is a reject, listed in
    `_meta/rejected`. Which one `deduplicate` keeps of documents that are alike follows from their
    keys and contents, as elements have no order. `keep_fields` names those of `Document.fields`.
    Statistics name texts that several splits have, as groups may cause it. What a tokenizer without
    a file, or a task of your own, makes of documents is for `WriteExamples`.
    """

    @takes(WriteTextSpec)
    @naming_arguments(python_names(TextSpec))
    def __init__(self, output: str | os.PathLike[str], **options: Any) -> None:
        """Checks what can be checked before the pipeline runs, and reads the tokenizer.

        Args:
          output: the folder of the dataset, on storage that all workers see.
          options: the keyword arguments listed below.

        Raises:
          UsageError: a value is not valid, the tokenizer cannot be used, or a dataset is there.
          TypeError: an argument that there is not, or no objective or tokenizer.
        """
        spec = from_arguments(WriteTextSpec, options)
        objective, clean, splits = spec.objective, spec.clean, spec.dupe_splits
        row = row_spec(objective, spec.keep_fields)
        job = TextJob(
            **pipeline_job(output, spec.dataset),
            max_rejected=spec.max_rejected,
            warnings=spec.warnings,
            clean=clean,
            objective=objective,
            documents=DocumentSpec(
                sentence_splitter=objective.splitter, strips=objective.strips, row=row
            ),
            lower_case=spec.do_lower_case is not False,
            dupe_splits=None if splits is None else tuple(splits),
            allow_special_tokens=spec.allow_special_tokens,
        )
        clean.check_lists(maps=False)
        data, vocabulary = read_vocabulary(os.fspath(spec.tokenizer))
        check_own_normalization(vocabulary, job, do_lower_case=spec.do_lower_case)
        if spec.check_case:
            check_case(vocabulary, lower_case=job.lower_case)
        bind(objective, vocabulary, spec.dataset.seed, row)
        if problem := padding_problem(vocabulary, objective.name):
            _LOGGER.warning("%s", job.worded(problem))
        special = spec.allow_special_tokens
        lines = lines_of_fastokens(vocabulary, (), allow_special_tokens=special)
        job = replace(job, lines_of_fastokens=lines)
        checksums = tuple(_checksums(vocabulary, clean.normalize).items())
        most = spec.run_tokens
        limits = replace(SCATTER_LIMITS, min_run_tokens=most, max_run_tokens=most)
        super().__init__(
            _TextSink(job, limits=limits, vocabulary=zlib.compress(data), checksums=checksums)
        )


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


def _checksums(vocabulary: Tokenizer, normalize: str) -> dict[str, str | int]:
    found: dict[str, str | int] = {
        "vocabulary_blake2b": vocabulary.checksum,
        "vocabulary_size": len(vocabulary),
        "unicode": unicodedata.unidata_version,
    }
    if vocabulary.stored_name != VOCAB_TXT:
        found["tokenizer"] = vocabulary.kind
    if normalize == "ftfy":
        found["ftfy"] = ftfy_version()
    return found
