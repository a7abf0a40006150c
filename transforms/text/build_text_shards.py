"""Build: make each output shard from the ranges of hashes that it covers in all run files.

A shard is made block by block: a block's chunks are read from all run files, made into examples,
shuffled by their keys, encoded, framed and appended. A worker holds one block, however large the
shard.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import chain

import numpy as np

from recordmill.records.arrays import Int64s
from recordmill.records.codec.encoding import encode_batch
from recordmill.records.hashing import U64
from recordmill.records.manifest import ShardInfo
from recordmill.records.ranges import Range, merge_ranges
from recordmill.records.seqio_metadata import is_seqio_cache
from recordmill.transforms.dataset.background import OneBehind
from recordmill.transforms.dataset.shard_writer import ShardWriter, finished_shard, write_shard
from recordmill.transforms.shuffle.finished_runs import made_anew, read_run_files
from recordmill.transforms.shuffle.merge_tree import MergeTree
from recordmill.transforms.shuffle.run_files import RunFile, RunFileReader
from recordmill.transforms.shuffle.shard_ranges import SplitShards
from recordmill.transforms.storage.buffers import Arena
from recordmill.transforms.text.chunk_order import sort_chunks
from recordmill.transforms.text.chunk_records import decode_chunks, id_words
from recordmill.transforms.text.chunks import Chunks
from recordmill.transforms.text.feature_tokens import FeatureTokens
from recordmill.transforms.text.objective import ExampleBatch, Objective
from recordmill.transforms.text.text_job import TextJob, add_counts
from recordmill.transforms.text.text_shard_plan import read_shard_plan
from recordmill.transforms.text.text_state import TextShardStatistics

BLOCK_TOKENS = 1 << 21
# Best fit leaves less room, the more documents it chooses from: 99.7 % of rows of 2,048 tokens are
# filled, where blocks of 2 million tokens fill 99.4 %.
BEST_FIT_BLOCK_TOKENS = 1 << 23
MIN_PARTNER_TOKENS = 1 << 20
_SPOOLS_BYTES = 1 << 26  # read ahead from object storage, all run files together
_MAX_TAILS = 4096  # of run files, kept in memory

_Readers = dict[tuple[int, int], list[RunFileReader]]  # (run, position of the range) -> readers


def block_tokens(packing: str) -> int:
    """Returns the most tokens that a shard is built of at a time."""
    return BEST_FIT_BLOCK_TOKENS if packing == "best_fit" else BLOCK_TOKENS


class TextShardBuilder:
    """Builds shards one after the other.

    Memory: a block of 2 million tokens, of 8 million for best fit, and some of its examples,
    whatever the size of the shard.
    """

    def __init__(self, job: TextJob, tree: MergeTree) -> None:
        self._job = job
        self._tree = tree
        self._objectives: list[Objective] = job.load_objectives(job.planned_classes())
        self._counts_tokens = is_seqio_cache(job.shard_template)
        self._words_per_id = id_words(len(self._objectives[0].vocabulary))
        self._splits = read_shard_plan(job)
        self._runs: dict[int, list[RunFile]] = {}
        # For a block: what is read, and its ids of four bytes.
        bytes_per_token = 2 * self._words_per_id + 4
        self._arena = Arena(block_tokens(job.objective.packing) * bytes_per_token * 9 // 8)

    def build(self, split: int, shard: int) -> ShardInfo:
        """Writes a shard, its index and its description, unless they exist already."""
        planned = self._splits[split]
        name = self._job.shard_name(planned.name, shard, planned.shards)
        objective = self._objectives[split]

        def fill(writer: ShardWriter) -> TextShardStatistics:
            counts: Counter[str] = Counter()
            classes: Counter[str] = Counter()
            lengths = np.zeros(0, np.int64)
            tokens = FeatureTokens(objective, counts=self._counts_tokens)

            def write(batch: ExampleBatch) -> None:
                encoded = encode_batch(objective.schema, batch.columns)
                writer.add(encoded.buffer, encoded.offsets)

            blocks = self._blocks(split, shard)
            batches = (batch for block in blocks for batch in objective.examples(*block))
            # The next batch is made meanwhile: the last shards leave cores without work.
            with OneBehind(write) as written:
                for batch in batches:
                    written.add(batch)
                    counts.update(batch.counts)
                    classes.update(batch.classes)
                    lengths = add_counts(lengths, np.bincount(batch.lengths))
                    tokens.add(batch.columns)
            return TextShardStatistics(
                counts=counts, lengths=lengths.tolist(), classes=classes,
                feature_tokens=tokens.sums, most_tokens=tokens.most,
            )  # fmt: skip

        return finished_shard(self._job, name) or write_shard(self._job, name, fill)

    def _blocks(self, split: int, shard: int) -> Iterator[tuple[Chunks, Int64s, Int64s]]:
        """Yields the chunks of a block, the positions of those to use, and the copy of each."""
        planned = self._splits[split]
        copies = self._objectives[split].copies
        size = block_tokens(self._job.objective.packing)
        blocks = max(1, -(-planned.size * copies // (planned.shards * size)))
        denominator = planned.shards * blocks * copies
        readers: _Readers = {}
        for block in range(blocks):
            begin = (shard * blocks + block) * copies
            wanted = [
                list(
                    planned.ranges(
                        begin, begin + copies, denominator, copy * planned.shards * blocks
                    )
                )
                for copy in range(copies)
            ]
            partners = self._partners(planned, begin, denominator)
            ranges = merge_ranges([*chain.from_iterable(wanted), *partners])
            chunks = self._load(split, ranges, readers)
            chosen, copy_of = choose_chunks(chunks.hashes, wanted)
            if len(chosen):
                yield chunks, chosen, copy_of

    def _partners(self, planned: SplitShards, begin: int, denominator: int) -> list[Range]:
        """Returns the ranges outside of a block from which its random second segments come too.

        The range begins where the block does, so every block has another sample.
        """
        if not self._objectives[0].wants_partners:
            return []
        width = -(-MIN_PARTNER_TOKENS * denominator // max(planned.size, 1))
        return list(planned.ranges(begin, begin + min(denominator, width), denominator, 0))

    def _load(self, split: int, ranges: list[Range], readers: _Readers) -> Chunks:
        """Reads the chunks of some ranges from all runs, in order of (hash, document)."""
        slices, lows, highs = [], [], []
        self._arena.reset()
        final_groups = self._tree.group_count(self._tree.levels)
        spool_bytes = _SPOOLS_BYTES // (len(ranges) * final_groups or 1)
        for position, (low, end) in enumerate(ranges):
            high = end - 1
            for number in self._tree.runs_to_build_from(low, high):
                if (number, position) not in readers:
                    readers[number, position] = [
                        RunFileReader(run, split, spool_bytes) for run in self._run_files(number)
                    ]
                with made_anew(self._job, self._tree.levels, number):
                    read = [
                        reader.read(low, high, self._arena) for reader in readers[number, position]
                    ]
                for data in read:
                    if len(data):
                        slices.append(data)
                        lows.append(low)
                        highs.append(high)
        has_fields = self._job.documents.row.is_carried
        return sort_chunks(
            decode_chunks(
                slices, lows, highs, self._words_per_id, has_fields=has_fields, arena=self._arena
            )
        )

    def _run_files(self, number: int) -> list[RunFile]:
        """Returns the run files of run `number`, whose tails stay in memory for further shards."""
        if number not in self._runs:
            if len(self._runs) > _MAX_TAILS:
                self._runs.clear()
            self._runs[number] = read_run_files(
                self._job, self._tree.levels, number, histograms=False
            )
        return self._runs[number]


def choose_chunks(hashes: U64, ranges: list[list[Range]]) -> tuple[Int64s, Int64s]:
    """Returns the chunks of each copy.

    Args:
      hashes: `[num_chunks] uint64`.
      ranges: for each copy the hash ranges `[low, high)` that it uses.

    Returns:
      `[n] int64`: the chunks, and `[n] int64`: the copy of each.
    """
    chosen, copies = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for copy, wanted in enumerate(ranges):
        for low, high in wanted:
            # `high` may be 2**64, which is no uint64.
            inside = (hashes >= np.uint64(low)) & (hashes <= np.uint64(high - 1))
            chosen.append(np.flatnonzero(inside))
            copies.append(np.full(len(chosen[-1]), copy, np.int64))
    return np.concatenate(chosen), np.concatenate(copies)
