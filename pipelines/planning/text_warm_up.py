"""What a text job needs is loaded before it begins: kernels, and the tables of its tokenizer.

Kernels of the cache take a second of a core, and a tokenizer a quarter of one. The process that
workers are forked from loads them while the driver plans, by doing a job on one line.

Where the cache does not hold them, on the first use, they are compiled. That process begins behind
with the last step of a job, and the driver in front when it has planned, so that two cores compile:
they share the files of the cache, and none compiles what the other does.
"""

from __future__ import annotations

import gc
import itertools
import json
import string
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from recordmill.pipelines import temporary_folders
from recordmill.records.codec import jit
from recordmill.records.codec.encoding import encode_batch
from recordmill.records.codec.framing import checksums_between, index_lines
from recordmill.transforms.shuffle.run_files import MAX_HASH
from recordmill.transforms.sources.delimited import delimiter_of
from recordmill.transforms.sources.document_batch import BatchMaker
from recordmill.transforms.sources.documents import read_documents
from recordmill.transforms.sources.formats import DELIMITED
from recordmill.transforms.sources.lines import Lines
from recordmill.transforms.sources.work_items import SourceRange
from recordmill.transforms.subwords.byte_pairs import ALL
from recordmill.transforms.subwords.hugging_face import JsonTokenizer
from recordmill.transforms.subwords.tokenizer import Tokenizer, Tokens
from recordmill.transforms.text.bind_objective import bind
from recordmill.transforms.text.chunk_fields import ChunkFields
from recordmill.transforms.text.chunk_order import sort_chunks
from recordmill.transforms.text.chunk_records import (
    decode_chunks,
    encode_chunks,
    id_type,
    id_words,
)
from recordmill.transforms.text.chunks import ChunkCutter, Chunks
from recordmill.transforms.text.objective import Objective
from recordmill.transforms.text.text_job import LOADED_FROM, TextJob
from recordmill.transforms.text.tokenizer_files import load_tokenizer

_TEXT = "Some words of a line and of another one."
_CLASS = "0"  # the only one
_PATIENCE = 3.0  # seconds; machine code of the cache is loaded in less
# All Unigrams share their kernels, each of one signature: the smallest one compiles them, and
# needs no second in which a large file is read. This one's lines are normalized and marked as well.
SMALLEST_UNIGRAM = {
    "version": "1.0",
    "added_tokens": [],
    "normalizer": {"type": "NFKC"},
    "pre_tokenizer": {
        "type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True,
    },
    "model": {"type": "Unigram", "unk_id": 0, "vocab": [["<unk>", 0.0], ["a", -1.0]]},
}  # fmt: skip


@dataclass(frozen=True)
class TextWarmUp:
    """Loads kernels and tokenizer of a job; compiles what no cache holds.

    Attributes:
      job: as it is before the input is known.
      tokenizer: the content of its file, as the job stores it.
      kind: of tokenizer.
      input_format: of the first file, by its name.
    """

    job: TextJob
    tokenizer: bytes
    kind: str
    input_format: str

    def __call__(self) -> None:
        """Loads all. An error is left to who plans or does the job, meets it too, and says it."""
        compiled = self.is_compiled
        for step in self._steps if compiled else reversed(self._steps):
            with suppress(Exception):
                step()
        self._remember()

    def compile(self) -> None:
        """Compiles what the job needs, if nobody did it yet; says so if that is long."""
        if self.is_compiled:
            return
        with saying_if_long(_say), _without_collection():
            for step in self._steps:
                with suppress(Exception):
                    step()
        self._remember()

    @property
    def is_compiled(self) -> bool:
        """Whether the cache holds the kernels."""
        with suppress(Exception):
            return jit.is_compiled(self._use)
        return True

    def _remember(self) -> None:
        with suppress(Exception):
            jit.remember(self._use)

    @property
    def _steps(self) -> tuple[Callable[[], None], ...]:
        return self._read, self._tokenize, self._store, self._write

    @property
    def _use(self) -> str:
        documents = self.job.documents
        by_punctuation = documents.by_punctuation(self.input_format)
        kinds = (
            type(self.job.objective).__name__, self.kind, self.input_format,
            documents.documents, "sentences" if by_punctuation else documents.sentence_splitter,
        )  # fmt: skip
        return "-".join(("text", *kinds))

    @cached_property
    def _vocabulary(self) -> Tokenizer:
        tokenizer = load_tokenizer(self.tokenizer, LOADED_FROM)
        if isinstance(tokenizer, JsonTokenizer) and tokenizer.kind == "bpe":
            # Whether it gives the ids is found out by the driver meanwhile.
            return replace(tokenizer, lines_of_fastokens=ALL)
        return tokenizer

    @cached_property
    def _objective(self) -> Objective:
        job, row = self.job, self.job.documents.row
        classes = (_CLASS,) if row.label else ()
        return bind(job.objective, self._vocabulary, job.seed, row, classes)

    def _sample(self) -> bytes:
        """Returns two documents of a format that kernels read, b"" for any other."""
        documents = self.job.documents
        if self.input_format == "text":
            return f"{_TEXT}\n\n{_TEXT}\n".encode()
        row = dict.fromkeys(documents.other_names, _CLASS)
        if documents.split_from:
            row[documents.split_from] = next(iter(documents.split_names), _CLASS)
        if (label := documents.row.label) and label.names:
            row[label.name] = label.names[0]
        row |= dict.fromkeys(documents.text_names, _TEXT)
        if self.input_format == "jsonl":
            return f"{json.dumps(row)}\n".encode() * 2
        if self.input_format not in DELIMITED:
            return b""
        delimiter = delimiter_of(self.input_format, documents.delimiter)
        names = documents.columns or tuple(row)
        lines = [[row.get(name, _CLASS) for name in names]] * 2
        lines[:0] = [list(names)] if documents.header == "first_row" else []
        return "".join(f"{delimiter.join(fields)}\n" for fields in lines).encode()

    def _read(self) -> None:
        text = self._sample()
        if not text:
            return
        folder = temporary_folders.make_folder()
        try:
            path = f"{folder}/sample"
            with open(path, "wb") as file:
                file.write(text)
            source = SourceRange(path, "sample", self.input_format, "", len(text))
            for _ in read_documents(source, self.job.documents):
                pass
        finally:
            temporary_folders.remove_folder(folder)

    def _tokenize(self) -> None:
        job = self.job
        if self.kind == "unigram":
            compile_tokenizers()
        lines = self._vocabulary.start(
            lower_case=job.lower_case, allow_special_tokens=job.allow_special_tokens
        )
        lines.tokenize(Lines.from_list([b"Some words of a line."]))

    @property
    def _fields(self) -> ChunkFields | None:
        """What a chunk carries along: a label, and kept fields."""
        row = self.job.documents.row
        return ChunkFields.encode([(_CLASS,) * row.num_carried]) if row.is_carried else None

    def _store(self) -> None:
        """Cuts a document into chunks, writes and reads them."""
        maker = BatchMaker(SourceRange("", "", "jsonl", "", 1), hashed_bytes=1)
        zero = np.zeros(1, np.int64)
        texts = max(1, self._objective.cut.row_texts)
        lines = Lines.from_list([b"Some words"] * texts)
        batch = maker.batch(lines, np.zeros(texts, np.int64), zero)
        tokens = Tokens(np.zeros(2 * texts, np.int32), 2 * np.arange(texts + 1, dtype=np.int64))
        words_per_id = id_words(len(self._vocabulary))
        cutter = ChunkCutter(self._objective.cut, 0, id_type(words_per_id))
        chunks, _ = cutter.cut(batch, tokens, goes_on=False)
        compact = replace(chunks, ids=chunks.ids.astype(id_type(words_per_id)), fields=self._fields)
        words, offsets, _ = encode_chunks(compact, words_per_id)
        stored = words.view(np.uint8)
        checksums_between(stored, offsets)
        has_fields = self._fields is not None
        sort_chunks(decode_chunks([stored], [0], [MAX_HASH], words_per_id, has_fields=has_fields))

    def _write(self) -> None:
        """Makes examples of a chunk of two sentences."""
        zero, one = np.zeros(1, np.int64), np.ones(1, np.uint64)
        texts = max(2, self._objective.cut.row_texts)
        chunks = Chunks(
            one, one, zero, np.array([texts], np.int64), np.array([0, texts], np.int64),
            np.ones(texts, np.int32), np.zeros(texts, np.int32), self._fields,
        )  # fmt: skip
        for batch in self._objective.examples(chunks, zero, zero):
            encoded = encode_batch(self._objective.schema, batch.columns)
            index_lines(encoded.offsets)


def compile_tokenizers() -> None:
    """Compiles the kernels of Unigrams, or loads them from the cache."""
    tokenizer = load_tokenizer(json.dumps(SMALLEST_UNIGRAM).encode(), "").start(lower_case=False)
    # As many words as make the memory of words grow, and a line after them.
    words = map("".join, itertools.product(string.ascii_lowercase, repeat=3))
    tokenizer.tokenize(Lines.from_list([" ".join(words).encode(), "é".encode()]))


def _say() -> None:
    print("compiling kernels, once on this machine: it takes about 10 seconds", file=sys.stderr)


@contextmanager
def _without_collection() -> Iterator[None]:
    """Keeps the garbage collector from looking, again and again, at all that a compiler makes."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


@contextmanager
def saying_if_long(say: Callable[[], None], after: float = _PATIENCE) -> Iterator[None]:
    """Calls `say` if the block takes longer than `after` seconds; no thread outlives the block."""
    timer = threading.Timer(after, say)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
