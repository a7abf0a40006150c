"""Objectives of language models on documents cut as scatter cuts them, against plain Python."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any

import numpy as np
import pytest

from recordmill.records.codec.encoding import Packed, Ragged, encode_batch
from recordmill.records.errors import UsageError
from recordmill.records.hashing import seed_for
from recordmill.transforms.sources.document_batch import DocumentBatch
from recordmill.transforms.sources.lines import Lines
from recordmill.transforms.sources.row_fields import RowSpec
from recordmill.transforms.subwords.tokenizer import Tokens
from recordmill.transforms.text.bind_objective import bind
from recordmill.transforms.text.causal import causal_columns, packed_columns
from recordmill.transforms.text.chunks import CHUNK_PURPOSE, ChunkCutter, Chunks
from recordmill.transforms.text.corruption import CorruptionSpec, Denoiser
from recordmill.transforms.text.objective import ExampleBatch, Objective
from recordmill.transforms.text.packing import FilledRows
from recordmill.transforms.text.text_spec import (
    T5,
    AnyObjective,
    Bert,
    Gpt,
    Mlm,
    MlmTokens,
    T5Tokens,
    Ul2,
)
from recordmill.transforms.text.tokenization import SPECIAL_TOKENS, Vocabulary

MIDDLES = ("<fim_prefix>", "<fim_suffix>", "<fim_middle>")
VOCABULARY = Vocabulary((*SPECIAL_TOKENS, *MIDDLES, *(f"w{i}" for i in range(992))))
PAD, CLS, SEP, MASK = 0, 2, 3, 4  # the end of text of a BERT vocabulary is [SEP]
SEED, LENGTH = 3, 24
FORMS = ("cerebras", "maxtext", "seqio")


def corpus(count: int = 80, seed: int = 0) -> list[list[list[int]]]:
    """Documents of lines of ids: some shorter than a row, some longer than a chunk."""
    rng = np.random.default_rng(seed)
    sizes = [*rng.integers(1, 60, count), 900, 1800]
    documents = []
    for size in sizes:
        ids = rng.integers(20, 1000, size).tolist()
        cut = int(rng.integers(0, size))
        documents.append([part for part in (ids[:cut], ids[cut:]) if part])
    return documents


def chunks_of(objective: Objective, documents: list[list[list[int]]]) -> Chunks:
    """Cuts documents as scatter does."""
    lines = [line for document in documents for line in document]
    tokens = Tokens(
        np.array([i for line in lines for i in line], np.int32),
        np.cumsum([0] + [len(line) for line in lines]).astype(np.int64),
    )
    keys = (np.arange(1, len(documents) + 1) * 7919).astype(np.uint64)
    numbers = np.repeat(np.arange(len(documents)), [len(d) for d in documents])
    batch = DocumentBatch(Lines.from_list([b""] * len(lines)), numbers, keys, keys)
    cutter = ChunkCutter(objective.cut, seed_for(SEED, CHUNK_PURPOSE))
    return cutter.cut(batch, tokens, goes_on=False)[0]


def bound(spec: AnyObjective, row: RowSpec | None = None) -> Objective:
    return bind(spec, VOCABULARY, SEED, row or RowSpec())


def gpt(form: str = "cerebras", packing: str = "best_fit", **options: Any) -> Objective:
    row = options.pop("row", None)
    spec: Any = Gpt(max_seq_length=LENGTH, format=form, packing=packing, **options)
    return bound(spec, row)


def t5(
    name: str = "t5", packing: str = "none", form: str = "seqio", copies: int = 1,
    modes: tuple[str, ...] = (), start_id: int | None = None,
) -> Objective:  # fmt: skip
    options: dict[str, Any] = {"max_seq_length": LENGTH, "packing": packing}
    if name == "ul2":  # several spans in a row of this length
        first = "0.25:2:1" if modes else "0.3:2:1"
        options |= {"denoisers": f"{first},0.5:3:1,0.2:99:1", "mode_tokens": ",".join(modes)}
    else:
        options |= {"noise_density": 0.3, "mean_noise_span_length": 2}
    if name == "t5_tokens":
        return bound(T5Tokens(**options))
    kind = Ul2 if name == "ul2" else T5
    return bound(kind(format=form, dupe_factor=copies, decoder_start_id=start_id, **options))


def batches_of(
    objective: Objective, documents: list[list[list[int]]], copies: int = 1
) -> list[ExampleBatch]:
    """All examples, which must be what their schema says."""
    chunks = chunks_of(objective, documents)
    chosen = np.tile(np.arange(len(chunks)), copies)
    of_copy = np.repeat(np.arange(copies), len(chunks))
    batches = list(objective.examples(chunks, chosen, of_copy))
    for batch in batches:
        assert len(encode_batch(objective.schema, batch.columns).offsets) == len(batch.lengths) + 1
    assert objective.estimate_output_bytes(chunks).shape == (len(chunks),)
    return batches


def unpacked(data: Any) -> list[int]:
    """The varints of some bytes."""
    ends = np.flatnonzero(data < 128) + 1
    words = np.split(data & 127, ends[:-1])
    return [sum(int(part) << (7 * i) for i, part in enumerate(word)) for word in words]


def rows_of(values: Any) -> list[list[int]]:
    if isinstance(values, Ragged):
        ends = values.row_splits.tolist()
        return [values.values[a:b].tolist() for a, b in itertools.pairwise(ends)]
    if isinstance(values, Packed):
        spans = zip(values.starts.tolist(), values.lengths.tolist(), strict=True)
        return [unpacked(values.pool[start : start + length]) for start, length in spans]
    return [row.tolist() for row in np.asarray(values)]


def column(batches: list[ExampleBatch], name: str) -> list[list[int]]:
    return [row for batch in batches for row in rows_of(batch.columns[name])]


def count(batches: list[ExampleBatch], name: str) -> int:
    return sum(batch.counts.get(name, 0) for batch in batches)


def tokens_in(documents: list[list[list[int]]], *ends: int) -> Counter[int]:
    """The tokens of the documents, and what stands behind each."""
    found = Counter(token for document in documents for line in document for token in line)
    for end in ends:
        found[end] += len(documents)
    return found


def assert_is_whole(
    found: Counter[int], expected: Counter[int], batches: list[ExampleBatch]
) -> None:
    """Checks that all tokens are there, but those of rows that are too short for a span."""
    missing = expected - found
    assert not found - expected
    assert missing.total() == count(batches, "rows_too_short")


def rows_of_gpt(batches: list[ExampleBatch], form: str) -> list[list[int]]:
    """The rows that examples were made of: inputs, and the label that is no input."""
    if form == "seqio":
        return column(batches, "targets")
    first, labels = ("inputs", "targets") if form == "maxtext" else ("input_ids", "labels")
    lengths = [int(n) for batch in batches for n in batch.lengths]
    return [
        [*inputs, targets[-1]][:length]
        for inputs, targets, length in zip(
            column(batches, first), column(batches, labels), lengths, strict=True
        )
    ]


@pytest.mark.parametrize("packing", ["none", "concat", "best_fit"])
@pytest.mark.parametrize("form", FORMS)
def test_gpt_has_every_token_once(form: str, packing: str) -> None:
    documents = corpus()
    batches = batches_of(gpt(form, packing), documents)
    rows = rows_of_gpt(batches, form)
    assert Counter(token for row in rows for token in row) == tokens_in(documents, SEP)
    assert count(batches, "documents_in_rows") == len(documents)
    whole = LENGTH + (form == "cerebras")
    cut = sum(sum(map(len, document)) + 1 > whole for document in documents)
    if packing == "concat":
        assert count(batches, "documents_cut") > cut
    else:
        assert count(batches, "documents_cut") == cut
        # A document that fits is in one row, with its end.
        texts = {tuple(t for line in d for t in line) for d in documents}
        short = {text for text in texts if len(text) < whole}
        parts = set()
        for row in rows:
            begin = 0
            for i, token in enumerate(row):
                if token == SEP:
                    parts.add(tuple(row[begin:i]))
                    begin = i + 1
        assert short <= parts
    fill = sum(map(len, rows)) / (len(rows) * whole)
    assert fill > (0.98 if packing == "concat" else 0.93 if packing == "best_fit" else 0.4)


@pytest.mark.parametrize("packing", ["none", "concat", "best_fit"])
def test_gpt_fields_are_those_of_plain_python(packing: str) -> None:
    documents = corpus()[:-2]  # each is one chunk
    plain = batches_of(gpt("cerebras", packing), documents)
    marked = batches_of(
        gpt("cerebras", packing, use_segment_ids=True, use_position_id=True), documents
    )
    maxtext = batches_of(gpt("maxtext", packing), documents)
    for i, row in enumerate(rows_of_gpt(plain, "cerebras")):
        padded = row + [PAD] * (LENGTH + 1 - len(row))
        assert column(plain, "input_ids")[i] == padded[:-1]
        assert column(plain, "labels")[i] == padded[1:]
        assert column(plain, "input_mask")[i] == [j < len(row) - 1 for j in range(LENGTH)]
    # Where documents are told apart no label is of another one.
    ends = 0
    for i, row in enumerate(rows_of_gpt(marked, "cerebras")):
        padding = [PAD] * (LENGTH - len(row))
        segment, position, at, number = [], [], 0, 1
        for token in row:
            segment.append(number)
            position.append(at)
            at += 1
            if token == SEP:
                number, at, ends = number + 1, 0, ends + 1
        own = [j + 1 < len(row) and row[j] != SEP for j in range(LENGTH)]
        labels = [row[j + 1] if own[j] else PAD for j in range(LENGTH)]
        expected = {
            "input_ids": row + padding, "labels": labels, "input_mask": own,
            "segment_ids": segment + padding, "position_ids": position + padding,
        }  # fmt: skip
        for name, values in expected.items():
            assert column(marked, name)[i] == values
        expected = {
            "inputs": row + padding, "targets": labels,
            "inputs_segmentation": segment + padding, "inputs_position": position + padding,
            "targets_segmentation": [n * own[j] for j, n in enumerate(segment + padding)],
            "targets_position": [n * own[j] for j, n in enumerate(position + padding)],
        }  # fmt: skip
        for name, values in expected.items():
            assert column(maxtext, name)[i] == values
    assert ends == len(documents)


@pytest.mark.parametrize("rate", [0.0, 1.0])
def test_documents_that_are_joined_have_an_end_between_them(rate: float) -> None:
    tokens = 32 * (LENGTH + 1)  # of a chunk
    sizes = (2 * tokens + 9, 5, tokens - 1, tokens, 30, 3 * tokens, 11)
    documents = [[[20 + i] * size] for i, size in enumerate(sizes)]
    objective = gpt("cerebras", "concat", fim_rate=rate)
    for row in rows_of_gpt(batches_of(objective, documents), "cerebras"):
        for token, following in itertools.pairwise(t for t in row if t >= 20 or t == SEP):
            assert token in (following, SEP) or following == SEP
    objective = gpt("cerebras", "concat")
    rows = rows_of_gpt(batches_of(objective, documents), "cerebras")
    assert sum(len(row) < LENGTH + 1 for row in rows) <= 1


def test_a_tail_of_one_token_is_written() -> None:
    batches = batches_of(gpt("cerebras", "none"), [[[20] * (LENGTH + 1)]])
    rows = rows_of_gpt(batches, "cerebras")
    assert sorted(rows) == sorted([[20] * (LENGTH + 1), [SEP]])


def test_prompts_have_no_labels_and_answers_all() -> None:
    rng = np.random.default_rng(1)
    documents = [
        [rng.integers(20, 500, rng.integers(0, 40)).tolist(), rng.integers(500, 999, n).tolist()]
        for n in rng.integers(1, 60, 50)
    ]  # prompts are below 500
    row = RowSpec(prompt_field="question")
    for packing in ("none", "concat", "best_fit"):
        batches = batches_of(
            gpt("cerebras", packing, row=row, loss_mask=True, prompts=True), documents
        )
        masks, labels = column(batches, "input_mask"), column(batches, "labels")
        for row_mask, row_labels in zip(masks, labels, strict=True):
            for known, label in zip(row_mask, row_labels, strict=True):
                assert known == (label >= 500 or label == SEP)
        rows = rows_of_gpt(batches, "cerebras")
        assert Counter(t for r in rows for t in r) == tokens_in(documents, SEP)
        assert count(batches, "labels") == sum(map(sum, masks))


@pytest.mark.parametrize("packing", ["none", "concat", "best_fit"])
def test_middles_are_moved_within_rows(packing: str) -> None:
    documents = corpus()
    batches = batches_of(gpt("seqio", packing, fim_rate=0.7), documents)
    rows = rows_of_gpt(batches, "seqio")
    found = Counter(token for row in rows for token in row)
    prefix, suffix, middle = (VOCABULARY.ids[token] for token in MIDDLES)
    parts = count(batches, "fim_parts")
    assert [found.pop(token) for token in (prefix, suffix, middle)] == [parts] * 3
    assert found == tokens_in(documents, SEP)
    assert 0 < count(batches, "fim_spm") < parts
    assert 0.5 < count(batches, "fim_documents") / len(documents) < 0.9
    if packing != "concat":
        for row in rows:
            assert row.count(prefix) == row.count(suffix) == row.count(middle)


@pytest.mark.parametrize("crosses", [False, True])
@pytest.mark.parametrize("kind", [Mlm, MlmTokens])
def test_what_windows_repeat_is_counted(kind: Any, crosses: bool) -> None:
    objective = bound(kind(max_seq_length=LENGTH, allow_cross_document_examples=crosses))
    documents = corpus()
    batches = batches_of(objective, documents, copies=2)
    num_chunks = len(chunks_of(objective, documents))
    assert num_chunks > len(documents)
    tokens = sum(int(n) - 2 for batch in batches for n in batch.lengths)  # [CLS] and [SEP]
    ends = num_chunks - 1 if crosses else 0
    repeated = count(batches, "repeated_tokens")
    assert tokens - repeated == 2 * (tokens_in(documents).total() + ends)
    assert 0.1 < repeated / tokens < 0.5


def restored(inputs: list[int], targets: list[int]) -> list[int]:
    """A row from input and target, whose sentinels are behind the vocabulary."""
    spans: dict[int, list[int]] = {}
    sentinel = -1
    for token in targets:
        if token >= len(VOCABULARY):
            sentinel = token
            spans[sentinel] = []
        else:
            spans[sentinel].append(token)
    return [t for token in inputs for t in spans.get(token, [token])]


@pytest.mark.parametrize("name", ["t5", "ul2", "t5_tokens"])
def test_rows_of_one_token_which_have_no_span_are_left_out_and_counted(name: str) -> None:
    objective: Any = t5(name)
    documents = [[[20] * (objective.spec.row_tokens + 1)], [[21]], [[22, 23]]]
    batches = batches_of(objective, documents)
    assert sum(len(batch.lengths) for batch in batches) == 2
    assert count(batches, "rows_too_short") == 2
    assert count(batches, "documents_in_rows") == 3
    if name != "t5_tokens":
        sentinels = [[t for t in row if t >= len(VOCABULARY)] for row in column(batches, "inputs")]
        assert all(sentinels)
    [only] = batches_of(objective, [[[20]], [[21]]])
    assert (len(only.lengths), only.counts["rows_too_short"]) == (0, 2)


@pytest.mark.parametrize("packing", ["none", "concat", "best_fit"])
@pytest.mark.parametrize("name", ["t5", "ul2"])
def test_span_corruption_has_every_token_once_in_each_copy(name: str, packing: str) -> None:
    documents = corpus()
    objective = t5(name, packing, copies=2)
    batches = batches_of(objective, documents, copies=2)
    found: Counter[int] = Counter()
    inputs, targets = column(batches, "inputs"), column(batches, "targets")
    for row_inputs, row_targets in zip(inputs, targets, strict=True):
        assert row_inputs[-1] == row_targets[-1] == SEP
        assert len(row_inputs) <= LENGTH
        found.update(restored(row_inputs[:-1], row_targets[:-1]))
    expected = tokens_in(documents, *(() if packing == "none" else (SEP,)))
    assert_is_whole(found, Counter({token: 2 * n for token, n in expected.items()}), batches)
    assert len({tuple(row) for row in inputs}) > 0.7 * len(inputs)  # copies differ
    tokens = sum(int(n) for batch in batches for n in batch.lengths)
    assert tokens == found.total()
    if name == "t5":
        assert abs(count(batches, "noise_tokens") / tokens - 0.3) < 0.05
    else:
        parts = [count(batches, f"denoiser_{i}_examples") for i in range(3)]
        assert sum(parts) == len(inputs)
        assert min(parts) > 0.2 * len(inputs)


def test_modes_of_denoisers_are_those_of_the_paper() -> None:
    """Tay et al. 2022: R (3 or 8, 0.15), S (prefix), X (spans of 12 or more, or 30 % or more)."""
    assert Ul2().corruption.modes == (0, 0, 1, 2, 2, 2, 2)
    denoisers = (Denoiser(0.15, 11.9), Denoiser(0.15, 12), Denoiser(0.29, 3), Denoiser(0.3, 3))
    assert CorruptionSpec(512, denoisers).modes == (0, 2, 0, 2)


@pytest.mark.parametrize("packing", ["none", "concat", "best_fit"])
@pytest.mark.parametrize("form", ["seqio", "cerebras"])
def test_inputs_begin_with_the_mode_of_their_denoiser(form: str, packing: str) -> None:
    documents, ids = corpus(), (MIDDLES[2], MIDDLES[0], "9")
    modes = [VOCABULARY.ids[MIDDLES[2]], VOCABULARY.ids[MIDDLES[0]], 9]
    batches = batches_of(t5("ul2", packing, form, modes=ids), documents)
    names = ("inputs", "targets") if form == "seqio" else ("encoder_input_ids", "labels")
    found: Counter[int] = Counter()
    tokens: Counter[int] = Counter()
    for inputs, targets in zip(*(column(batches, name) for name in names), strict=True):
        assert len(inputs) <= LENGTH
        found[inputs[0]] += 1
        body, labels = ([i for i in row if i != PAD] for row in (inputs[1:], targets))
        assert labels.pop() == SEP
        if form == "seqio":
            assert body.pop() == SEP
        tokens.update(restored(body, labels))
    expected = tokens_in(documents, *(() if packing == "none" else (SEP,)))
    assert_is_whole(tokens, expected, batches)
    # The first denoiser is regular, the second extreme, and the last sequential.
    counts = [count(batches, f"denoiser_{i}_examples") for i in range(3)]
    assert [found[mode] for mode in modes] == [counts[0], counts[2], counts[1]]
    if form == "cerebras":
        lengths = np.concatenate([b.columns["encoder_input_length"] for b in batches])
        sizes = [sum(i != PAD for i in row) for row in column(batches, "encoder_input_ids")]
        assert lengths.tolist() == sizes
        masks = column(batches, "encoder_mask")
        assert [row.count(False) for row in masks] == sizes


def test_decoders_begin_as_asked_for() -> None:
    batches = batches_of(t5("t5", "best_fit", "cerebras", start_id=77), corpus())
    plain = batches_of(t5("t5", "best_fit", "cerebras"), corpus())
    found, usual = (column(each, "decoder_input_ids") for each in (batches, plain))
    assert {row[0] for row in found} == {77}
    assert [row[1:] for row in found] == [row[1:] for row in usual]


def test_cerebras_fields_hold_the_same_rows() -> None:
    documents = corpus()
    seqio = batches_of(t5("t5", "best_fit"), documents)
    cerebras = batches_of(t5("t5", "best_fit", "cerebras"), documents)
    inputs, targets = column(seqio, "inputs"), column(seqio, "targets")
    for i in range(len(inputs)):
        encoder = column(cerebras, "encoder_input_ids")[i]
        size = int(np.concatenate([b.columns["encoder_input_length"] for b in cerebras])[i])
        assert encoder == inputs[i][:-1] + [PAD] * (LENGTH - size)
        assert size == len(inputs[i]) - 1  # Cerebras' inputs have no end
        assert column(cerebras, "encoder_mask")[i] == [j >= size for j in range(LENGTH)]
        labels = column(cerebras, "labels")[i]
        width = len(labels)
        assert labels == targets[i] + [PAD] * (width - len(targets[i]))
        decoder = column(cerebras, "decoder_input_ids")[i]
        assert decoder == [PAD, *targets[i][:-1], *[PAD] * (width - len(targets[i]))]
        scale = np.concatenate([b.columns["loss_scale"] for b in cerebras])[i]
        assert scale.dtype == np.float32
        np.testing.assert_allclose(scale, 1 / len(targets[i]))


def test_rows_for_the_reader_are_the_rows_that_are_corrupted() -> None:
    documents = corpus()
    for packing in ("none", "concat", "best_fit"):
        made = batches_of(t5("t5", packing), documents)
        rows = [
            restored(inputs[:-1], targets[:-1])
            for inputs, targets in zip(column(made, "inputs"), column(made, "targets"), strict=True)
        ]
        found = column(batches_of(t5("t5_tokens", packing), documents), "targets")
        assert found == rows
        ends = () if packing == "none" else (SEP,)
        tokens = Counter(token for row in found for token in row)
        assert_is_whole(tokens, tokens_in(documents, *ends), made)


@pytest.mark.parametrize("packing", ["concat", "best_fit"])
def test_packed_mlm_has_every_token_once(packing: str) -> None:
    documents = corpus()
    spec: Any = Mlm(
        max_seq_length=LENGTH, packing=packing, max_predictions_per_seq=6, use_segment_ids=True,
        use_position_id=True, dupe_factor=1,
    )  # fmt: skip
    objective = bound(spec)
    batches = batches_of(objective, documents)
    found: Counter[int] = Counter()
    for i, ids in enumerate(column(batches, "input_ids")):
        row = np.array(ids)
        positions = np.array(column(batches, "masked_lm_positions")[i])
        weights = np.array(column(batches, "masked_lm_weights")[i])
        real = weights > 0
        row[positions[real]] = np.array(column(batches, "masked_lm_ids")[i])[real]
        length = sum(column(batches, "input_mask")[i])
        row = row[:length]
        found.update(row.tolist())
        segments = np.array(column(batches, "segment_ids")[i])
        for segment in range(1, segments.max() + 1):
            own = row[segments[:length] == segment]
            assert own[0] == CLS
            assert own[-1] == SEP
            assert not np.isin(own[1:-1], [CLS, SEP]).any()
            place = np.array(column(batches, "position_ids")[i])[segments == segment]
            assert place.tolist() == list(range(len(own)))
    assert found.pop(CLS) == found.pop(SEP)
    assert found == tokens_in(documents)


class TestSecondSegments:
    def bert(self, **options: bool) -> Objective:
        return bound(
            Bert(
                max_seq_length=LENGTH, short_seq_prob=0, max_predictions_per_seq=6,
                dupe_factor=1, **options,
            )
        )  # fmt: skip

    def examples(self, second: str) -> tuple[Objective, list[ExampleBatch]]:
        objective = self.bert(sentence_order=second == "order", no_nsp=second == "none")
        documents = [[[20 + 10 * d + j] * 4 for j in range(9)] for d in range(60)]
        return objective, batches_of(objective, documents)

    def unmasked(self, batches: list[ExampleBatch]) -> list[tuple[list[int], list[int]]]:
        pairs = []
        for i, ids in enumerate(column(batches, "input_ids")):
            row = np.array(ids)
            weights = np.array(column(batches, "masked_lm_weights")[i]) > 0
            positions = np.array(column(batches, "masked_lm_positions")[i])[weights]
            row[positions] = np.array(column(batches, "masked_lm_ids")[i])[weights]
            first = row.tolist().index(SEP)
            second = row.tolist().index(SEP, first + 1)
            pairs.append((row[1:first].tolist(), row[first + 1 : second].tolist()))
        return pairs

    def test_order_is_told_and_half_of_the_pairs_are_swapped(self) -> None:
        objective, batches = self.examples("order")
        assert not objective.wants_partners
        labels = [label for row in column(batches, "next_sentence_labels") for label in row]
        assert 0.35 < sum(labels) / len(labels) < 0.65
        assert count(batches, "swapped_segments") == sum(labels)
        for (first, second), swapped in zip(self.unmasked(batches), labels, strict=True):
            assert second
            assert ((first[-1], second[0]) > (second[0], first[-1])) == bool(swapped)
            assert abs(first[0] - second[0]) < 10  # of one document

    def test_without_labels_segments_follow_each_other(self) -> None:
        objective, batches = self.examples("none")
        assert "next_sentence_labels" not in {f.name for f in objective.schema.features}
        assert all(first[-1] <= second[0] for first, second in self.unmasked(batches))

    def test_a_sentence_alone_is_cut(self) -> None:
        objective = self.bert(sentence_order=True)
        batches = batches_of(objective, [[[50 + i for i in range(12)]], [[70]]])
        lengths = [len(first) + len(second) for first, second in self.unmasked(batches)]
        assert sorted(lengths) == [1, 12]
        labels = dict(
            zip(lengths, (row[0] for row in column(batches, "next_sentence_labels")), strict=True)
        )
        assert labels[1] == 0  # there is nothing to swap


def test_documents_of_several_batches_are_cut_and_ended_alike() -> None:
    """Ends of documents do not show how a file was read."""
    spec = gpt("seqio", "none").cut
    lines = [[20], [21, 22], [23], [24], [25, 26], [27]]
    of_document = [0, 0, 0, 1, 1, 2]
    whole: list[list[int]] = []
    for cuts in ([], [1], [2], [3], [4], [1, 2, 4], [1, 2, 3, 4, 5]):
        cutter = ChunkCutter(spec, 5)
        bounds = [0, *cuts, len(lines)]
        found: list[tuple[int, list[int]]] = []
        for begin, end in itertools.pairwise(bounds):
            first = of_document[begin]
            numbers = np.array(of_document[begin:end]) - first
            keys = np.arange(first + 1, of_document[end - 1] + 2).astype(np.uint64)
            goes_on = end < len(lines) and of_document[end] == of_document[end - 1]
            continues = begin > 0 and of_document[begin] == of_document[begin - 1]
            part = lines[begin:end]
            tokens = Tokens(
                np.array([i for line in part for i in line], np.int32),
                np.cumsum([0] + [len(line) for line in part]).astype(np.int64),
            )
            batch = DocumentBatch(
                Lines.from_list([b""] * len(part)), numbers, keys, keys, continues=continues
            )
            chunks, _ = cutter.cut(batch, tokens, goes_on=goes_on)
            for i, start in enumerate(chunks.token_starts.tolist()):
                size = int(chunks.token_counts[i])
                found.append((int(chunks.documents[i]), chunks.ids[start : start + size].tolist()))
        texts = [ids for _, ids in sorted(found)]
        whole = whole or texts
        assert texts == whole == [
            [20, 21, 22, 23, SEP], [24, 25, 26, SEP], [27, SEP]
        ]  # fmt: skip
        assert cutter.documents == 3


def test_special_ids_are_asked_for() -> None:
    plain = Vocabulary((*SPECIAL_TOKENS, "a"))
    with pytest.raises(UsageError, match="--fim_rate needs a tokenizer with <fim_prefix>"):
        bind(Gpt(fim_rate=0.5), plain, SEED, RowSpec())


@pytest.mark.parametrize("positions", [False, True])
def test_labels_that_cross_documents_are_packed_with_the_ids(positions: bool) -> None:
    """Bytes are those of ids and labels as two arrays, whatever the ids and the padding."""
    spec = Gpt(max_seq_length=LENGTH, use_position_id=positions)
    objective = gpt(use_position_id=positions)
    lengths = np.array([1, 2, LENGTH, LENGTH + 1, 7], np.int32)
    rng = np.random.default_rng(0)
    shape = len(lengths), LENGTH + 1
    for most in (128, 1 << 14, 1 << 21, (1 << 31) - 1):
        ids = rng.integers(0, most, shape).astype(np.int32)
        ids[np.arange(LENGTH + 1) >= lengths[:, None]] = PAD
        places = rng.integers(0, LENGTH, shape).astype(np.int32)
        rows = FilledRows(ids, places, places, lengths, np.zeros(shape, np.bool_))
        packed = packed_columns(rows, spec)
        plain, _ = causal_columns(rows, spec, PAD)
        assert isinstance(packed["labels"], Packed)
        found, expected = (encode_batch(objective.schema, each) for each in (packed, plain))
        assert found.buffer.tobytes() == expected.buffer.tobytes()
        assert found.offsets.tolist() == expected.offsets.tolist()
