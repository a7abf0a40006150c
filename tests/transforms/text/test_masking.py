from __future__ import annotations

import itertools
from bisect import bisect
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recordmill.transforms.text.masking import TokenKinds, mask_tokens
from recordmill.transforms.text.text_spec import Mlm

from ..splitmix import SplitMix64

CLS, SEP, MASK_ID, SEED = 1, 2, 3, 77
VOCAB_SIZE = 50
FIRST_CONTINUATION = 35  # ids from here on are chunks within a word


def token_kinds(vocab_size: int = VOCAB_SIZE) -> TokenKinds:
    never = np.zeros(vocab_size, np.bool_)
    never[[CLS, SEP]] = True
    return TokenKinds(MASK_ID, vocab_size, never, np.arange(vocab_size) >= FIRST_CONTINUATION)


@dataclass
class Masked:
    ids: list[int]
    positions: list[int]
    labels: list[int]


def words_of(tokens: list[int], *, whole_word: bool) -> list[list[int]]:
    """The positions that are masked together.

    google-research/bert joins a "##x" to the word before it even across a [SEP], where a segment
    begins with the rest of a word; Model Garden's _tokens_to_grams does not, and neither do we.
    """
    words: list[list[int]] = []
    for i, token in enumerate(tokens):
        if token in (CLS, SEP):
            continue
        joins = whole_word and words and token >= FIRST_CONTINUATION and words[-1][-1] == i - 1
        if joins:
            words[-1].append(i)
        else:
            words.append([i])
    return words


def bert_choice(rng: SplitMix64, words: list[list[int]], wanted: int) -> list[list[int]]:
    """create_masked_lm_predictions of google-research/bert."""
    words = list(words)
    rng.shuffle(words)
    chosen: list[list[int]] = []
    masked = 0
    for word in words:
        if masked >= wanted:
            break
        if masked + len(word) > wanted:
            continue
        chosen.append(word)
        masked += len(word)
    return chosen


def ngram_choice(
    rng: SplitMix64, words: list[list[int]], wanted: int, most: int
) -> list[list[int]]:
    """_masking_ngrams of TensorFlow Model Garden, whose sizes come from random.choices."""
    ngrams: dict[int, list[list[int]]] = {}
    for n in range(1, most + 1):
        windows = [words[i : i + n] for i in range(len(words) - n + 1)]
        flat = [[i for word in window for i in word] for window in windows]
        ngrams[n] = [gram for gram in flat if gram[-1] - gram[0] == len(gram) - 1]
        rng.shuffle(ngrams[n])
    cumulative = list(itertools.accumulate(1 / n for n in range(1, most + 1)))
    masked: set[int] = set()
    chosen = []
    while len(masked) < wanted and sum(map(len, ngrams.values())):
        n = 1 + bisect(cumulative, rng.unit() * cumulative[-1], 0, most - 1)
        if len(masked) + n > wanted:
            ngrams[n].clear()
            continue
        if not ngrams[n]:
            continue
        gram = ngrams[n].pop()
        if len(masked) + len(gram) > wanted or masked & set(gram):
            continue
        masked |= set(gram)
        chosen.append(gram)
    return chosen


def mask_reference(
    tokens: list[int], key: int, spec: Mlm, seed: int = SEED, vocab_size: int = VOCAB_SIZE
) -> Masked:
    rng = SplitMix64(seed, key, 0)
    wanted = min(spec.most_predictions, max(1, round(len(tokens) * spec.masked_lm_prob)))
    words = words_of(tokens, whole_word=spec.do_whole_word_mask)
    if spec.max_ngram_size > 1:
        chosen = ngram_choice(rng, words, wanted, spec.max_ngram_size)
    else:
        chosen = bert_choice(rng, words, wanted)
    ids = list(tokens)
    for word in chosen:
        action = ""
        for at in word:
            if not (spec.replacement == "per_word" and action):
                if rng.unit() < 0.8:
                    action = "mask"
                else:
                    action = "keep" if rng.unit() < 0.5 else "replace"
            if action == "mask":
                ids[at] = MASK_ID
            elif action == "replace":
                ids[at] = rng.below(vocab_size)
    positions = sorted(at for word in chosen for at in word)
    return Masked(ids, positions, [tokens[at] for at in positions])


def mask(examples: list[list[int]], keys: list[int], spec: Mlm) -> list[Masked]:
    """`mask_tokens` on a padded batch; checks the padding of what it returns."""
    width = max(map(len, examples)) + 3
    ids = np.zeros((len(examples), width), np.int32)
    for row, tokens in zip(ids, examples, strict=True):
        row[: len(tokens)] = tokens
    lengths = np.array([len(tokens) for tokens in examples], np.int32)
    found = mask_tokens(
        ids, lengths, np.array(keys, np.uint64), kinds=token_kinds(), spec=spec, seed=SEED
    )
    shape = (len(examples), spec.most_predictions)
    assert found.positions.shape == found.ids.shape == found.weights.shape == shape
    assert found.weights.dtype == np.float32
    result = []
    for row, tokens in enumerate(examples):
        count = int(found.weights[row].sum())
        assert found.weights[row].tolist() == [1.0] * count + [0.0] * (shape[1] - count)
        assert not found.positions[row, count:].any()
        assert not found.ids[row, count:].any()
        assert not ids[row, len(tokens) :].any()
        result.append(
            Masked(
                ids[row, : len(tokens)].tolist(),
                found.positions[row, :count].tolist(),
                found.ids[row, :count].tolist(),
            )
        )
    return result


tokens_of_segment = st.lists(st.integers(4, VOCAB_SIZE - 1), max_size=24)
examples = st.one_of(
    tokens_of_segment.map(lambda a: [CLS, *a, SEP]),
    st.tuples(tokens_of_segment, tokens_of_segment).map(lambda ab: [CLS, *ab[0], SEP, *ab[1], SEP]),
)
keys = st.integers(0, (1 << 64) - 1)


@settings(max_examples=400, deadline=None)
@given(
    batch=st.lists(st.tuples(examples, keys), min_size=1, max_size=5),
    prob=st.one_of(st.sampled_from([0.001, 0.15, 0.5, 0.999]), st.floats(0.01, 0.99)),
    most=st.sampled_from([1, 2, 5, 20, 60]),
    whole_word=st.booleans(),
    ngram=st.integers(1, 4),
    replace_words=st.booleans(),
)
def test_equals_the_references_given_their_draws(
    batch, prob, most, whole_word, ngram, replace_words
):
    by_word = replace_words and (whole_word or ngram > 1)
    spec = Mlm(
        masked_lm_prob=prob, max_predictions_per_seq=most, do_whole_word_mask=whole_word,
        max_ngram_size=ngram, replacement="per_word" if by_word else "per_token",
    )  # fmt: skip
    found = mask([tokens for tokens, _ in batch], [key for _, key in batch], spec)
    assert found == [mask_reference(tokens, key, spec) for tokens, key in batch]


@pytest.mark.parametrize("ngram", [1, 2, 16])
@pytest.mark.parametrize("whole_word", [True, False])
def test_long_examples(ngram, whole_word):
    rng = np.random.default_rng(3)
    batch = [[CLS, *rng.integers(4, VOCAB_SIZE, 400).tolist(), SEP] for _ in range(20)]
    spec = Mlm(max_predictions_per_seq=76, max_ngram_size=ngram, do_whole_word_mask=whole_word)
    found = mask(batch, list(range(20)), spec)
    assert found == [mask_reference(tokens, key, spec) for key, tokens in enumerate(batch)]


@pytest.mark.parametrize("ngram", [1, 3])
def test_masks_depend_on_seed_and_key_only(ngram):
    spec = Mlm(max_ngram_size=ngram)
    tokens = [CLS, *range(4, 44), SEP]
    alone = mask([tokens], [5], spec)[0]
    assert mask([tokens[:20], tokens, tokens], [4, 5, 6], spec)[1] == alone
    assert mask([tokens], [6], spec)[0] != alone
    assert mask_reference(tokens, 5, spec, seed=SEED + 1) != alone


def test_nothing_to_mask():
    assert mask([[CLS, SEP], [CLS, SEP, SEP]], [1, 2], Mlm()) == [
        Masked([CLS, SEP], [], []),
        Masked([CLS, SEP, SEP], [], []),
    ]


def test_a_word_longer_than_its_share_is_never_masked():
    tokens = [CLS, 10, *range(FIRST_CONTINUATION, FIRST_CONTINUATION + 8), SEP]
    spec = Mlm(masked_lm_prob=0.15, do_whole_word_mask=True)
    assert [found.positions for found in mask([tokens] * 50, list(range(50)), spec)] == [[]] * 50
    assert mask([tokens], [0], Mlm(masked_lm_prob=0.9, do_whole_word_mask=True))[0].positions == [
        *range(1, 10)
    ]


def test_a_segment_that_begins_within_a_word_is_a_word_of_its_own():
    tokens = [CLS, 10, SEP, FIRST_CONTINUATION, FIRST_CONTINUATION + 1, 11, SEP]
    spec = Mlm(masked_lm_prob=0.3, max_predictions_per_seq=2, do_whole_word_mask=True)
    seen = {tuple(found.positions) for found in mask([tokens] * 200, list(range(200)), spec)}
    assert seen == {(3, 4), (1, 5)}


VOCAB, LENGTH, ROWS = 500, 102, 20_000


@pytest.fixture(
    scope="module",
    params=[(1, False, False), (1, True, False), (3, False, True)],
    ids=["bert", "whole_word", "ngrams"],
)
def masked(request):
    """Ids before and after masking, and the predictions."""
    ngram, whole_word, replace_words = request.param
    rng = np.random.default_rng(8)
    ids = rng.integers(4, VOCAB, (ROWS, LENGTH)).astype(np.int32)
    ids[:, 0], ids[:, -1] = CLS, SEP
    never = np.zeros(VOCAB, np.bool_)
    never[[CLS, SEP]] = True
    kinds = TokenKinds(MASK_ID, VOCAB, never, np.arange(VOCAB) >= 400)
    spec = Mlm(
        max_predictions_per_seq=20, do_whole_word_mask=whole_word, max_ngram_size=ngram,
        replacement="per_word" if replace_words else "per_token",
    )  # fmt: skip
    after = ids.copy()
    lengths = np.full(ROWS, LENGTH, np.int32)
    keys = np.arange(ROWS).astype(np.uint64)
    return ids, after, mask_tokens(after, lengths, keys, kinds=kinds, spec=spec, seed=1)


class TestStatistics:
    """Over many examples; bounds are about 5 standard deviations wide."""

    def test_rate(self, masked):
        _, _, found = masked
        per_example = found.weights.sum(axis=1)
        assert per_example.max() == 15  # round(102 * 0.15)
        assert per_example.mean() > 14.9

    def test_80_10_10(self, masked):
        ids, after, found = masked
        rows = np.repeat(np.arange(ROWS), 20).reshape(ROWS, 20)
        real = found.weights > 0
        labels, now = found.ids[real], after[rows[real], found.positions[real]]
        assert np.array_equal(labels, ids[rows[real], found.positions[real]])
        count = len(labels)
        # Draws of one n-gram are shared, which widens the distribution by less than three.
        width = 5 * 3**0.5 * (0.25 / count) ** 0.5
        assert abs((now == MASK_ID).mean() - 0.8 - 0.1 / VOCAB) < width
        assert abs((now == labels).mean() - 0.1 - 0.1 / VOCAB) < width
        untouched = np.ones(ids.shape, np.bool_)
        untouched[rows[real], found.positions[real]] = False
        assert np.array_equal(ids[untouched], after[untouched])

    def test_positions_are_uniform(self, masked):
        _, _, found = masked
        counts = np.bincount(found.positions[found.weights > 0], minlength=LENGTH)
        assert counts[0] == counts[-1] == 0
        # Words and n-grams reach less often to the edges; in the middle all positions are alike.
        middle = counts[10:-10]
        expected = middle.mean()
        chi_square = ((middle - expected) ** 2 / expected).sum()
        degrees = len(middle) - 1
        assert chi_square < degrees + 6 * (2 * degrees) ** 0.5

    def test_replacements_are_uniform_over_the_vocabulary(self, masked):
        _, after, found = masked
        rows = np.repeat(np.arange(ROWS), 20).reshape(ROWS, 20)
        real = found.weights > 0
        labels, now = found.ids[real], after[rows[real], found.positions[real]]
        replaced = now[(now != MASK_ID) & (now != labels)]
        counts = np.delete(np.bincount(replaced, minlength=VOCAB), MASK_ID)
        assert counts.min() > 0  # special tokens too, as in BERT
        expected = counts.mean()
        chi_square = ((counts - expected) ** 2 / expected).sum()
        degrees = len(counts) - 1
        assert abs(chi_square - degrees) < 6 * (2 * degrees) ** 0.5

    def test_sizes_of_ngrams_fall_as_their_weights(self):
        words = np.arange(4, 44)
        spec = Mlm(masked_lm_prob=0.07, max_predictions_per_seq=3, max_ngram_size=3)
        runs = [0, 0, 0]
        for found in mask([[CLS, *words.tolist(), SEP]] * 4000, list(range(4000)), spec):
            assert len(found.positions) == 3
            gaps = np.diff(found.positions).tolist()
            runs[2 - gaps.count(1)] += 1
        # A trigram is drawn first with (1/3) / (1 + 1/2 + 1/3) = 2 in 11, and is then all there is.
        assert runs[0] / 4000 > 2 / 11 - 0.03
        assert runs[1] > runs[0]
        assert min(runs) > 300
