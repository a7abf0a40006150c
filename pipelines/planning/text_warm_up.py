"""What all workers of a text job need, loaded once in the process that they are forked from.

Kernels of the cache take a second of a core, and the tables of a tokenizer a quarter of one. They
are loaded by doing a job on one line, while the driver plans.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import numpy as np

from recordmill.pipelines.planning.tokenizer_kernels import compile_kernels
from recordmill.records.codec.encoding import encode_batch
from recordmill.records.codec.framing import checksums_between, index_lines
from recordmill.transforms.shuffle.run_files import MAX_HASH
from recordmill.transforms.sources.document_batch import BatchMaker, DocumentBatch
from recordmill.transforms.sources.json_texts import read_texts
from recordmill.transforms.sources.lines import Lines
from recordmill.transforms.sources.sentences import split_sentences
from recordmill.transforms.sources.work_items import SourceRange
from recordmill.transforms.text.bind_objective import bind
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

_LINE = b'{"text": "Some words of a line, and of another one."}\n'


def warm_up(job: TextJob, tokenizer: bytes) -> None:
    """Loads kernels and tokenizer of a job; compiles what no cache holds.

    An error is no affair of this process: whoever plans or does the job meets it, and says it.

    Args:
      job: as it is before the input is known.
      tokenizer: the content of its file, as the job stores it.
    """
    with suppress(Exception):
        vocabulary = load_tokenizer(tokenizer, LOADED_FROM)
        if vocabulary.kind != "wordpiece":
            compile_kernels()
        objective = bind(job.objective, vocabulary, job.seed, job.documents.row)
        lines = vocabulary.start(
            lower_case=job.lower_case, allow_special_tokens=job.allow_special_tokens
        )
        batch = _documents()
        if not job.documents.keeps_text:
            split_sentences(batch.lines)
        words_per_id = id_words(len(vocabulary))
        cutter = ChunkCutter(objective.cut, 0, id_type(words_per_id))
        chunks, _ = cutter.cut(batch, lines.tokenize(batch.lines), goes_on=False)
        compact = replace(chunks, ids=chunks.ids.astype(id_type(words_per_id)))
        words, offsets, _ = encode_chunks(compact, words_per_id)
        stored = words.view(np.uint8)
        checksums_between(stored, offsets)
        decoded = sort_chunks(decode_chunks([stored], [0], [MAX_HASH], words_per_id))
        _encode_examples(objective, decoded)


def _documents() -> DocumentBatch:
    """Returns a document of one line, as it is read from JSONL."""
    ends = np.array([len(_LINE)], np.int64)
    texts = read_texts(_LINE, ends - ends, ends, name="text", most_bytes=len(_LINE))
    lines = Lines(texts.pool, texts.starts, texts.ends, texts.non_ascii)
    maker = BatchMaker(SourceRange("", "", "jsonl", "", len(_LINE)), hashed_bytes=1)
    return maker.batch(lines, np.zeros(1, np.int64), np.zeros(1, np.int64))


def _encode_examples(objective: Objective, chunks: Chunks) -> None:
    zero = np.zeros(1, np.int64)
    for batch in objective.examples(chunks, zero, zero):
        encoded = encode_batch(objective.schema, batch.columns)
        index_lines(encoded.offsets)
