"""Masks made while reading, against the same rules as a loop in plain Python."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from recordmill.reader import load
from recordmill.reader.transforms.masking import mask_tokens
from recordmill.records.errors import UsageError

from ..draws_reference import RecordDraws

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
TOKENS = [*SPECIAL, *(f"w{i}" for i in range(30)), *(f"##x{i}" for i in range(15))]
CLS, SEP, MASK_ID, FIRST_CONTINUATION = 2, 3, 4, 35
LENGTH, SEED = 24, 5


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("vocabulary") / "vocab.txt"
    path.write_text("\n".join(TOKENS) + "\n", encoding="utf-8")
    return str(path)


def keys_of(records: list[int], epoch: int = 0) -> tf.Tensor:
    return tf.constant([[epoch, record] for record in records], tf.int64)


def masker(vocabulary: str, **options: Any) -> Callable[..., dict[str, np.ndarray]]:
    """`mask_tokens` on lists of ids, traced once."""
    defaults = {"max_seq_length": LENGTH, "max_predictions_per_seq": 6, "seed": SEED}
    transform = mask_tokens(vocab_file=vocabulary, **{**defaults, **options})  # type: ignore[arg-type]
    ragged = tf.RaggedTensorSpec([None, None], tf.int32)
    keys = tf.TensorSpec([None, 2], tf.int64)
    traced = tf.function(
        lambda ids, keys: transform({"input_ids": ids}, keys), input_signature=[ragged, keys]
    )

    def run(rows: list[list[int]], records: list[int], epoch: int = 0) -> dict[str, np.ndarray]:
        found = traced(tf.ragged.constant(rows, tf.int32), keys_of(records, epoch))
        return {name: value.numpy() for name, value in found.items()}

    return run


def words_of(tokens: list[int], *, whole_word: bool) -> list[list[int]]:
    words: list[list[int]] = []
    for i, token in enumerate(tokens):
        if token in (CLS, SEP):
            continue
        if whole_word and words and token >= FIRST_CONTINUATION and words[-1][-1] == i - 1:
            words[-1].append(i)
        else:
            words.append([i])
    return words


def choose_words(drawn: RecordDraws, words: list[list[int]], wanted: int) -> list[list[int]]:
    words = sorted(words, key=lambda word: drawn.bits(word[0]) >> 31, reverse=True)
    chosen: list[list[int]] = []
    masked = 0
    for word in words:
        if masked + len(word) <= wanted:
            chosen.append(word)
            masked += len(word)
    return chosen


def choose_ngrams(
    drawn: RecordDraws, words: list[list[int]], wanted: int, most: int
) -> list[list[int]]:
    ngrams = {}
    for n in range(1, most + 1):
        windows = [words[i : i + n] for i in range(len(words) - n + 1)]
        flat = [[i for word in window for i in word] for window in windows]
        joined = [gram for gram in flat if gram[-1] - gram[0] == len(gram) - 1]
        stride = (n - 1) << 15
        ngrams[n] = sorted(joined, key=lambda g: drawn.bits(g[0] + stride) >> 31, reverse=True)
    shares = np.cumsum([1 / n for n in range(1, most + 1)])
    bounds = (shares / shares[-1]).astype(np.float32)[:-1]
    counter = 16 << 15
    masked: set[int] = set()
    chosen = []
    while len(masked) < wanted and any(ngrams.values()):
        n = 1 + int((drawn.unit(counter) >= bounds).sum())
        counter += 1
        if len(masked) + n > wanted:
            ngrams[n] = []
        elif ngrams[n]:
            gram = ngrams[n].pop()
            if len(masked) + len(gram) <= wanted and not masked & set(gram):
                masked |= set(gram)
                chosen.append(gram)
    return chosen


def mask_reference(
    tokens: list[int],
    record: int,
    *,
    whole_word: bool = False,
    max_ngram_size: int | None = None,
    replacement: str = "per_token",
    epoch: int = 0,
) -> tuple[list[int], list[int]]:
    """The ids after masking and the masked positions."""
    order = RecordDraws(seed=SEED, purpose="mask order", epoch=epoch, record=record)
    kinds = RecordDraws(seed=SEED, purpose="mask kind", epoch=epoch, record=record)
    wanted = min(6, max(1, round(len(tokens) * 0.15)))
    words = words_of(tokens, whole_word=whole_word)
    if max_ngram_size and max_ngram_size > 1:
        chosen = choose_ngrams(order, words, wanted, max_ngram_size)
    else:
        chosen = choose_words(order, words, wanted)
    ids = list(tokens)
    for word in chosen:
        for at in word:
            kind = kinds.unit(2 * (word[0] if replacement == "per_word" else at))
            if kind < np.float32(0.8):
                ids[at] = MASK_ID
            elif kind >= np.float32(0.9):
                ids[at] = kinds.below(2 * at + 1, len(TOKENS))
    return ids, sorted(at for word in chosen for at in word)


def check_against_reference(
    found: dict[str, np.ndarray], rows: list[list[int]], **options: Any
) -> None:
    for i, tokens in enumerate(rows):
        ids, positions = mask_reference(tokens, 100 + i, **options)
        count = len(positions)
        padding = [0] * (6 - count)
        assert found["input_ids"][i].tolist() == ids + [0] * (LENGTH - len(ids))
        assert found["input_mask"][i].tolist() == [1] * len(ids) + [0] * (LENGTH - len(ids))
        assert found["masked_lm_positions"][i].tolist() == positions + padding
        assert found["masked_lm_ids"][i].tolist() == [tokens[at] for at in positions] + padding
        assert found["masked_lm_weights"][i].tolist() == [1.0] * count + padding


WAYS: list[dict[str, Any]] = [
    {},
    {"whole_word": True},
    {"whole_word": True, "replacement": "per_word"},
    {"max_ngram_size": 3},
    {"whole_word": True, "max_ngram_size": 3, "replacement": "per_word"},
    {"whole_word": True, "max_ngram_size": 1},
]


@pytest.mark.parametrize("options", WAYS, ids=lambda options: "-".join(options) or "tokens")
def test_masks_are_those_of_the_reference(vocabulary: str, options: dict[str, Any]) -> None:
    run = masker(vocabulary, **options)

    @settings(deadline=None, max_examples=40)
    @given(
        rows=st.lists(
            st.lists(st.sampled_from([SEP, *range(5, 50)]), min_size=0, max_size=LENGTH - 2),
            min_size=1,
            max_size=6,
        )
    )
    def check(rows: list[list[int]]) -> None:
        rows = [[CLS, *row, SEP] for row in rows]
        found = run(rows, list(range(100, 100 + len(rows))))
        check_against_reference(found, rows, **options)

    check()


def sample_rows(count: int, seed: int = 0) -> list[list[int]]:
    rng = np.random.default_rng(seed)
    return [[CLS, *rng.integers(5, 50, rng.integers(3, LENGTH - 2)), SEP] for _ in range(count)]


@pytest.mark.parametrize("options", WAYS[1:4:2] + WAYS[4:5], ids=lambda options: "-".join(options))
def test_a_mask_depends_on_seed_epoch_and_record_alone(
    vocabulary: str, options: dict[str, Any]
) -> None:
    rows, records = sample_rows(64), list(range(64))
    run = masker(vocabulary, **options)
    whole = run(rows, records)
    for part in (slice(0, 1), slice(5, 40), slice(None, None, -1)):
        found = run(rows[part], records[part])
        for name, value in found.items():
            assert (value == whole[name][part]).all(), name
    again = masker(vocabulary, **options, seed=SEED + 1)(rows, records)
    for other in (run(rows, records, epoch=1), run(rows, records[::-1]), again):
        differs = other["masked_lm_positions"] != whole["masked_lm_positions"]
        assert differs.any(axis=1).mean() > 0.7


def test_tokens_become_mask_themselves_and_random_ones_at_80_10_10(vocabulary: str) -> None:
    rows = sample_rows(4000)
    found = masker(vocabulary)(rows, list(range(4000)))
    used = found["masked_lm_weights"] > 0
    now = np.take_along_axis(found["input_ids"], found["masked_lm_positions"], axis=1)[used]
    before = found["masked_lm_ids"][used]
    assert abs((now == MASK_ID).mean() - 0.8 - 0.1 / 50) < 0.02
    assert abs((now == before).mean() - 0.1 - 0.1 / 50) < 0.015
    lengths = np.array([len(row) for row in rows])
    assert (used.sum(1) == np.clip(np.rint(lengths * 0.15), 1, 6)).all()
    counts = np.bincount(found["masked_lm_positions"][used], minlength=LENGTH)
    assert counts[0] == 0
    assert counts[1:5].max() < 1.2 * counts[1:5].min()


def test_word_pieces_as_strings_and_padded_ids_give_the_same_masks(vocabulary: str) -> None:
    rows = sample_rows(16)
    transform = mask_tokens(
        vocab_file=vocabulary, max_seq_length=LENGTH, max_predictions_per_seq=6, segment_ids=True
    )
    ids = tf.ragged.constant(rows, tf.int32)
    padded = ids.to_tensor()
    mask = tf.sequence_mask(ids.row_lengths(), dtype=tf.int32)
    forms = [
        {"input_ids": ids},
        {"tokens": tf.ragged.map_flat_values(lambda i: tf.gather(TOKENS, i), ids)},
        {"input_word_ids": padded, "input_mask": mask},
        {"input_ids": padded},
    ]
    keys = keys_of(list(range(16)))
    expected, *others = [transform(form, keys) for form in forms]
    for found in others:
        assert found.keys() == expected.keys()
        for name in expected:
            assert (found[name].numpy() == expected[name].numpy()).all(), name
    assert expected["segment_ids"].shape == (16, LENGTH)
    first_sep = [row.index(SEP) for row in rows]
    for row, tokens, sep in zip(expected["segment_ids"].numpy(), rows, first_sep, strict=True):
        after = len(tokens) - sep - 1
        assert row.tolist() == [0] * (sep + 1) + [1] * after + [0] * (LENGTH - len(tokens))


def test_unknown_pieces_become_unk_and_other_features_pass(vocabulary: str) -> None:
    transform = mask_tokens(vocab_file=vocabulary, max_seq_length=8, max_predictions_per_seq=2)
    tokens = tf.ragged.constant([["[CLS]", "w1", "strange", "[SEP]"]])
    found = transform({"tokens": tokens, "label": tf.constant([7])}, keys_of([3]))
    before = found["input_ids"].numpy()[0]
    at = found["masked_lm_positions"].numpy()[0, 0]
    before[at] = found["masked_lm_ids"].numpy()[0, 0]
    assert before.tolist() == [CLS, 6, 1, SEP, 0, 0, 0, 0]
    assert found["label"].numpy().tolist() == [7]
    assert "tokens" not in found


@pytest.fixture(scope="module")
def token_dataset(write_dataset: Callable[..., Path]) -> Path:
    return write_dataset("--task=mlm_tokens", "--num_shards=2")


def test_what_the_pipeline_wrote_is_masked_in_the_graph(
    token_dataset: Path, vocab_file: str
) -> None:
    transform = mask_tokens(
        vocab_file=vocab_file, max_seq_length=64, max_predictions_per_seq=10, whole_word=True
    )
    unmasked = load(token_dataset, "train", batch_size=16, shuffle=False)
    keys = keys_of(list(range(16)))
    masked = unmasked.map(lambda features: transform(features, keys))
    spec = masked.element_spec
    assert {name: (tuple(s.shape), s.dtype) for name, s in spec.items()} == {
        "input_ids": ((16, 64), tf.int32),
        "input_mask": ((16, 64), tf.int32),
        "masked_lm_positions": ((16, 10), tf.int32),
        "masked_lm_ids": ((16, 10), tf.int32),
        "masked_lm_weights": ((16, 10), tf.float32),
    }
    vocabulary = Path(vocab_file).read_text(encoding="utf-8").splitlines()
    batch = next(iter(masked))
    tokens = next(iter(unmasked))["tokens"].to_list()
    for i, row in enumerate(tokens):
        ids = batch["input_ids"].numpy()[i].copy()
        count = int(batch["masked_lm_weights"].numpy()[i].sum())
        ids[batch["masked_lm_positions"].numpy()[i, :count]] = batch["masked_lm_ids"].numpy()[
            i, :count
        ]
        assert [vocabulary[j] for j in ids[: len(row)]] == [piece.decode() for piece in row]


@pytest.mark.slow
def test_masks_are_the_same_on_any_workers_after_a_restart_and_others_each_epoch(
    token_dataset: Path, vocab_file: str
) -> None:
    transform = mask_tokens(vocab_file=vocab_file, max_seq_length=64, max_predictions_per_seq=10)

    def masked(start: int, workers: int) -> list[np.ndarray]:
        parts = [
            load(
                token_dataset, "train[:200]", batch_size=24 // workers, epochs=2, start_step=start,
                num_workers=workers, worker_index=worker, transform=transform,
            ).as_numpy_iterator()
            for worker in range(workers)
        ]  # fmt: skip
        steps = zip(*parts, strict=True)
        return [np.concatenate([batch["input_ids"] for batch in step]) for step in steps]

    whole = masked(0, 1)
    assert len(whole) == 16
    assert np.array_equal(whole[5:], masked(5, 1))
    assert np.array_equal(whole[5:], masked(5, 3))
    epochs = [{row.tobytes() for step in part for row in step} for part in (whole[:8], whole[8:])]
    assert len(epochs[0] & epochs[1]) < 20


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"masked_lm_prob": 1.0}, r"masked_lm_prob must be in \(0, 1\), got 1.0"),
        ({"max_predictions_per_seq": 24}, "must be below max_seq_length=24, got 24"),
        ({"max_predictions_per_seq": 0}, "max_predictions_per_seq must be at least 1, got 0"),
        ({"max_ngram_size": 17}, "max_ngram_size must be from 1 to 16, got 17"),
        ({"max_seq_length": 1 << 15}, "max_seq_length must be from 2 to"),
        ({"replacement": "word"}, "replacement must be one of"),
        ({"never_masked": ("[END]",)}, r"must contain \[END\], which it lacks"),
        ({"vocab_file": "/nowhere"}, "vocab_file must be a UTF-8 text file, got /nowhere"),
    ],
)
def test_wrong_options(vocabulary: str, options: dict[str, Any], message: str) -> None:
    defaults = {"vocab_file": vocabulary, "max_seq_length": LENGTH, "max_predictions_per_seq": 6}
    with pytest.raises(UsageError, match=message) as error:
        mask_tokens(**{**defaults, **options})  # type: ignore[arg-type]
    assert "\n" not in str(error.value)


def test_wrong_records(vocabulary: str) -> None:
    transform = mask_tokens(vocab_file=vocabulary, max_seq_length=4, max_predictions_per_seq=2)
    row = tf.constant([[CLS, 7, SEP]])
    for features, message in [
        (
            {"words": row},
            "must have tokens in one of tokens, input_ids, input_word_ids, targets, and have words",
        ),
        ({"input_ids": row, "masked_lm_positions": row}, "needs unmasked records"),
    ]:
        with pytest.raises(UsageError, match=message):
            transform(features, keys_of([0]))
    long = tf.constant([[CLS, 7, 8, 9, SEP]])
    with pytest.raises(tf.errors.InvalidArgumentError, match="at most max_seq_length=4 tokens"):
        transform({"input_ids": long}, keys_of([0]))
