"""Static masks for masked language modelling (Devlin et al. 2019, arXiv:1810.04805, section 3.1).

`mask_tokens` is google-research/bert's create_masked_lm_predictions for many examples at once:
given the same draws it gives the same masks, which a reference in plain Python in the tests shows.
N-grams follow TensorFlow Model Garden's _masking_ngrams. Draws come from `randomness.py`, by
example, so that the masks of one example depend on nothing but the seed and its key.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from recordmill.records.arrays import Bools
from recordmill.records.codec.jit import kernel, subroutine
from recordmill.records.codec.randomness import Generator, next_below, next_unit, start
from recordmill.records.hashing import U64
from recordmill.transforms.subwords.tokenizer import Ids
from recordmill.transforms.text.text_spec import Masked

_MASKED, _KEPT, _RANDOM = range(3)  # the results for a token to predict


@dataclass(frozen=True, slots=True)
class TokenKinds:
    """The properties of each id of the vocabulary, for masking.

    Attributes:
      mask_id: the id of [MASK].
      vocab_size: random replacements are drawn from `[0, vocab_size)`, special tokens included, as
        BERT does.
      never_masked: `[vocab_size] bool`: [CLS], [SEP] and other separators.
      continues_word: `[vocab_size] bool`: tokens within a word ("##x").
    """

    mask_id: int
    vocab_size: int
    never_masked: Bools
    continues_word: Bools


@dataclass(frozen=True, slots=True)
class Predictions:
    """The masked positions of a batch, in ascending order, padded with 0.

    Attributes:
      positions, ids: `[num_examples, max_predictions_per_seq] int32`; `ids` are those before
        masking.
      weights: the same shape, float32: 1.0 on predictions.
    """

    positions: Ids
    ids: Ids
    weights: npt.NDArray[np.float32]


class _Kinds(NamedTuple):
    """`TokenKinds`, for kernels."""

    mask_id: int
    vocab_size: int
    never_masked: Bools
    continues_word: Bools


class _MaskOptions(NamedTuple):
    """The options of masking and the seed, for kernels."""

    seed: np.uint64
    masked_lm_prob: float
    max_predictions: int
    whole_word: bool
    max_ngram_size: int
    replace_words: bool


class _PredictionColumns(NamedTuple):
    """`Predictions`, for kernels."""

    positions: Ids
    ids: Ids
    weights: npt.NDArray[np.float32]


class _Ngrams(NamedTuple):
    """The n-grams of an example that have not been drawn yet.

    Attributes:
      first_words: `[max_ngram_size, max_seq_length]`: row n - 1 begins with the first word of each
        n-gram, as a row of `words`; of which there are
      counts: `[max_ngram_size]`.
      covered: `[max_seq_length] bool`: tokens of those that were chosen.
    """

    first_words: Ids
    counts: Ids
    covered: Bools


# Loops read arrays from local names: to take an array out of a named tuple counts references.


@subroutine
def _shuffle(rng: Generator, items: Ids, count: int) -> None:
    """Fisher and Yates, from the end, as Python's random.shuffle."""
    for i in range(count - 1, 0, -1):
        j = next_below(rng, i + 1)
        items[i], items[j] = items[j], items[i]


@subroutine
def _find_words(row: Ids, length: int, kinds: _Kinds, whole_word: bool, words: Ids) -> int:
    """Fills `words` with begin and end of what is masked together; returns their number."""
    _, _, never_masked, continues_word = kinds
    count = 0
    for i in range(length):
        if never_masked[row[i]]:
            continue
        # A "##x" behind a [SEP] begins a word: the word before it ends in the other segment.
        joins = whole_word and count > 0 and continues_word[row[i]] and words[count - 1, 1] == i
        if joins:
            words[count - 1, 1] = i + 1
        else:
            words[count, 0] = i
            words[count, 1] = i + 1
            count += 1
    return count


@subroutine
def _choose_words(
    rng: Generator, words: Ids, count: int, wanted: int, order: Ids, chosen: Ids
) -> int:
    """BERT: walk the shuffled words and take those that still fit; returns how many it took."""
    for i in range(count):
        order[i] = i
    _shuffle(rng, order, count)
    masked = 0
    taken = 0
    for k in range(count):
        if masked >= wanted:
            break
        begin, end = words[order[k], 0], words[order[k], 1]
        if masked + end - begin > wanted:
            continue
        chosen[taken, 0] = begin
        chosen[taken, 1] = end
        taken += 1
        masked += end - begin
    return taken


@subroutine
def _list_ngrams(rng: Generator, words: Ids, count: int, most: int, ngrams: _Ngrams) -> int:
    """Lists the n-grams of neighbouring words, each size shuffled; returns how many there are."""
    first_words, counts, _ = ngrams
    total = 0
    for n in range(1, most + 1):
        listed = 0
        for i in range(count - n + 1):
            neighbours = True
            for j in range(i + 1, i + n):
                if words[j, 0] != words[j - 1, 1]:
                    neighbours = False
                    break
            if neighbours:
                first_words[n - 1, listed] = i
                listed += 1
        counts[n - 1] = listed
        _shuffle(rng, first_words[n - 1], listed)
        total += listed
    return total


@subroutine
def _draw_ngram_size(rng: Generator, most: int, total_weight: float) -> int:
    """Draws n in [1, most] with weight 1 / n, of which `total_weight` is the sum."""
    draw = next_unit(rng) * total_weight
    n = 1
    reached = 1.0
    while n < most and draw >= reached:
        n += 1
        reached += 1.0 / n
    return n


@subroutine
def _choose_ngrams(
    rng: Generator, words: Ids, count: int, wanted: int, most: int, ngrams: _Ngrams, chosen: Ids
) -> int:
    """Model Garden: draw a size, then take the next n-gram of that size; returns how many."""
    left = _list_ngrams(rng, words, count, most, ngrams)
    first_words, counts, covered = ngrams
    covered[:] = False
    total_weight = 0.0
    for n in range(1, most + 1):
        total_weight += 1.0 / n
    masked = 0
    taken = 0
    while masked < wanted and left > 0:
        n = _draw_ngram_size(rng, most, total_weight)
        if masked + n > wanted:  # none of this size will ever fit
            left -= counts[n - 1]
            counts[n - 1] = 0
            continue
        if counts[n - 1] == 0:
            continue
        counts[n - 1] -= 1
        left -= 1
        first = first_words[n - 1, counts[n - 1]]
        begin, end = words[first, 0], words[first + n - 1, 1]
        if masked + end - begin > wanted or covered[begin:end].any():
            continue
        covered[begin:end] = True
        chosen[taken, 0] = begin
        chosen[taken, 1] = end
        taken += 1
        masked += end - begin
    return taken


@subroutine
def _draw_replacements(
    rng: Generator, row: Ids, chosen: Ids, kinds: _Kinds, replace_words: bool, replacements: Ids
) -> None:
    """80 % of what was chosen becomes [MASK], 10 % stays, 10 % becomes a random id."""
    mask_id, vocab_size, _, _ = kinds
    for k in range(chosen.shape[0]):
        choice = _MASKED
        for position in range(chosen[k, 0], chosen[k, 1]):
            if position == chosen[k, 0] or not replace_words:
                choice = _MASKED
                if next_unit(rng) >= 0.8:
                    choice = _KEPT if next_unit(rng) < 0.5 else _RANDOM
            if choice == _MASKED:
                replacements[position] = mask_id
            elif choice == _KEPT:
                replacements[position] = row[position]
            else:
                replacements[position] = next_below(rng, vocab_size)


@kernel
def _mask(
    ids: Ids, lengths: Ids, keys: U64, kinds: _Kinds, options: _MaskOptions,
    predictions: _PredictionColumns,
) -> None:  # fmt: skip
    positions, labels, weights = predictions
    most, width = options.max_ngram_size, ids.shape[1]
    words, chosen = np.empty((width, 2), np.int32), np.empty((width, 2), np.int32)
    order, replacements = np.empty(width, np.int32), np.empty(width, np.int32)
    ngrams = _Ngrams(
        np.empty((most, width), np.int32), np.empty(most, np.int32), np.empty(width, np.bool_)
    )
    rng = np.empty(1, np.uint64)
    for row in range(ids.shape[0]):
        start(rng, options.seed, keys[row], 0)
        length = lengths[row]
        share = max(1, int(np.rint(length * options.masked_lm_prob)))
        wanted = min(options.max_predictions, share)
        count = _find_words(ids[row], length, kinds, options.whole_word, words)
        if most > 1:
            taken = _choose_ngrams(rng, words, count, wanted, most, ngrams, chosen)
        else:
            taken = _choose_words(rng, words, count, wanted, order, chosen)
        replacements[:length] = -1
        _draw_replacements(
            rng, ids[row], chosen[:taken], kinds, options.replace_words, replacements
        )
        slot = 0
        for position in range(length):
            if replacements[position] >= 0:
                positions[row, slot] = position
                labels[row, slot] = ids[row, position]
                weights[row, slot] = 1.0
                ids[row, position] = replacements[position]
                slot += 1


def mask_tokens(
    ids: Ids, lengths: Ids, keys: U64, *, kinds: TokenKinds, spec: Masked, seed: int
) -> Predictions:
    """Masks examples in place.

    Args:
      ids: `[num_examples, max_seq_length] int32`, [CLS] and [SEP] in their positions; changed.
      lengths: `[num_examples] int32`: the tokens in each row.
      keys: `[num_examples] uint64`: of the examples.
      kinds: of the vocabulary's ids.
      spec: how to mask.
      seed: of this purpose, from `hashing.seed_for`.

    Returns:
      What to predict. An example whose words are all longer than its share has none.
    """
    shape = (len(ids), spec.most_predictions)
    predictions = _PredictionColumns(
        np.zeros(shape, np.int32), np.zeros(shape, np.int32), np.zeros(shape, np.float32)
    )
    options = _MaskOptions(
        np.uint64(seed), spec.masked_lm_prob, spec.most_predictions,
        spec.do_whole_word_mask, spec.max_ngram_size, spec.replacement == "per_word",
    )  # fmt: skip
    columns = _Kinds(kinds.mask_id, kinds.vocab_size, kinds.never_masked, kinds.continues_word)
    _mask(ids, lengths, keys, columns, options, predictions)
    return Predictions(*predictions)
