"""Static masks for masked language modelling (Devlin et al. 2019, arXiv:1810.04805, section 3.1).

`mask_tokens` is google-research/bert's create_masked_lm_predictions for many examples at once:
given the same draws it gives the same masks, which a reference in plain Python in the tests shows.
N-grams follow TensorFlow Model Garden's _masking_ngrams. Draws come from `randomness.py`, by
example, so that the masks of one example depend on nothing but the seed and its key.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from recordmill.records.errors import UsageError
from recordmill.records.hashing import U64
from recordmill.records.jit import kernel
from recordmill.records.randomness import Generator, next_below, next_unit, start
from recordmill.transforms.lines import Bools
from recordmill.transforms.tokenization import Ids

MAX_NGRAM_SIZE = 16


@dataclass(frozen=True, slots=True)
class MaskSpec:
    """How to mask.

    Attributes:
      masked_lm_prob: the share of an example's tokens (special ones counted) to predict, in (0, 1).
      max_predictions_per_seq: the most predictions in an example.
      whole_word: mask all pieces of a word, or none.
      max_ngram_size: 1, or mask up to that many neighbouring words (tokens) at once; n words are
        drawn with a weight of 1 / n.
      replace_words: choose between [MASK], the token itself and a random one once for all tokens
        of a word or n-gram, as Model Garden does, and not token by token, as BERT does.
    """

    masked_lm_prob: float = 0.15
    max_predictions_per_seq: int = 20
    whole_word: bool = False
    max_ngram_size: int = 1
    replace_words: bool = False

    def __post_init__(self) -> None:
        if not 0 < self.masked_lm_prob < 1:
            raise UsageError(f"--masked_lm_prob must be in (0, 1), got {self.masked_lm_prob}")
        if self.max_predictions_per_seq < 1:
            raise UsageError(
                f"--max_predictions_per_seq must be at least 1, got {self.max_predictions_per_seq}"
            )
        if not 1 <= self.max_ngram_size <= MAX_NGRAM_SIZE:
            raise UsageError(
                f"--max_ngram_size must be in [1, {MAX_NGRAM_SIZE}], got {self.max_ngram_size}"
            )


@dataclass(frozen=True, slots=True)
class TokenKinds:
    """What the vocabulary says of its ids.

    Attributes:
      mask_id: of [MASK].
      vocab_size: random replacements are drawn from `[0, vocab_size)`, special tokens included, as
        BERT does.
      never_masked: `[vocab_size] bool`: [CLS], [SEP] and other separators.
      continues_word: `[vocab_size] bool`: pieces within a word.
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


@kernel
def _shuffle(rng: Generator, items: Ids, count: int) -> None:
    """Fisher and Yates, from the end, as Python's random.shuffle."""
    for i in range(count - 1, 0, -1):
        j = next_below(rng, i + 1)
        items[i], items[j] = items[j], items[i]


@kernel
def _find_words(row: Ids, length: int, kinds: Any, whole_word: bool, begins: Ids, ends: Ids) -> int:
    """Fills the spans that are masked together; returns their number."""
    _, _, never_masked, continues_word = kinds
    count = 0
    for i in range(length):
        if never_masked[row[i]]:
            continue
        joins = whole_word and count > 0 and continues_word[row[i]] and ends[count - 1] == i
        if joins:
            ends[count - 1] = i + 1
        else:
            begins[count] = i
            ends[count] = i + 1
            count += 1
    return count


@kernel
def _choose_words(
    rng: Generator, begins: Ids, ends: Ids, count: int, wanted: int, order: Ids, chosen: Ids
) -> int:
    """BERT: walk the shuffled words and take those that still fit."""
    for i in range(count):
        order[i] = i
    _shuffle(rng, order, count)
    masked = 0
    taken = 0
    for k in range(count):
        if masked >= wanted:
            break
        size = ends[order[k]] - begins[order[k]]
        if masked + size > wanted:
            continue
        chosen[2 * taken] = begins[order[k]]
        chosen[2 * taken + 1] = ends[order[k]]
        taken += 1
        masked += size
    return taken


@kernel
def _choose_ngrams(
    rng: Generator,
    begins: Ids,
    ends: Ids,
    count: int,
    wanted: int,
    most: int,
    lists: Any,
    sizes: Ids,
    covered: Bools,
    chosen: Ids,
) -> int:
    """Model Garden: draw a size with weight 1 / n, then the next n-gram of that size."""
    for n in range(1, most + 1):
        found = 0
        for i in range(count - n + 1):
            together = True
            for j in range(i + 1, i + n):
                if begins[j] != ends[j - 1]:
                    together = False
                    break
            if together:
                lists[n - 1, found] = i
                found += 1
        sizes[n - 1] = found
        _shuffle(rng, lists[n - 1], found)
    covered[:] = False
    total_weight = 0.0
    left = 0
    for n in range(1, most + 1):
        total_weight += 1.0 / n
        left += sizes[n - 1]
    masked = 0
    taken = 0
    while masked < wanted and left > 0:
        draw = next_unit(rng) * total_weight
        n = 1
        reached = 1.0
        while n < most and draw >= reached:
            n += 1
            reached += 1.0 / n
        if masked + n > wanted:
            left -= sizes[n - 1]
            sizes[n - 1] = 0
            continue
        if sizes[n - 1] == 0:
            continue
        sizes[n - 1] -= 1
        left -= 1
        first = lists[n - 1, sizes[n - 1]]
        begin, end = begins[first], ends[first + n - 1]
        if masked + end - begin > wanted or covered[begin:end].any():
            continue
        covered[begin:end] = True
        chosen[2 * taken] = begin
        chosen[2 * taken + 1] = end
        taken += 1
        masked += end - begin
    return taken


@kernel
def _mask(
    ids: Any,
    lengths: Ids,
    keys: Any,
    kinds: Any,
    spec: Any,
    positions: Any,
    labels: Any,
    weights: Any,
) -> None:
    seed, prob, most_predictions, whole_word, ngram_size, replace_words = spec
    mask_id, vocab_size, _, _ = kinds
    width = ids.shape[1]
    begins, ends = np.empty(width, np.int32), np.empty(width, np.int32)
    order = np.empty(width, np.int32)
    chosen = np.empty(2 * width, np.int32)
    lists = np.empty((ngram_size, width), np.int32)
    sizes = np.empty(ngram_size, np.int32)
    covered = np.empty(width, np.bool_)
    replaced = np.empty(width, np.int32)
    rng = np.empty(1, np.uint64)
    for row in range(ids.shape[0]):
        start(rng, seed, keys[row], 0)
        length = lengths[row]
        wanted = min(most_predictions, max(1, int(np.rint(length * prob))))
        count = _find_words(ids[row], length, kinds, whole_word, begins, ends)
        if ngram_size > 1:
            taken = _choose_ngrams(
                rng, begins, ends, count, wanted, ngram_size, lists, sizes, covered, chosen
            )
        else:
            taken = _choose_words(rng, begins, ends, count, wanted, order, chosen)
        replaced[:length] = -1
        for k in range(taken):
            kind = 0
            for at in range(chosen[2 * k], chosen[2 * k + 1]):
                if at == chosen[2 * k] or not replace_words:
                    kind = 0
                    if next_unit(rng) >= 0.8:
                        kind = 1 if next_unit(rng) < 0.5 else 2
                if kind == 0:
                    replaced[at] = mask_id
                elif kind == 1:
                    replaced[at] = ids[row, at]
                else:
                    replaced[at] = next_below(rng, vocab_size)
        slot = 0
        for at in range(length):
            if replaced[at] >= 0:
                positions[row, slot] = at
                labels[row, slot] = ids[row, at]
                weights[row, slot] = 1.0
                ids[row, at] = replaced[at]
                slot += 1


def mask_tokens(
    ids: Ids, lengths: Ids, keys: U64, *, kinds: TokenKinds, spec: MaskSpec, seed: int
) -> Predictions:
    """Masks examples in place.

    Args:
      ids: `[num_examples, max_seq_length] int32`, [CLS] and [SEP] in place; changed.
      lengths: `[num_examples] int32`: the tokens in each row.
      keys: `[num_examples] uint64`: of the examples.
      kinds: of the vocabulary's ids.
      spec: how to mask.
      seed: of this purpose, from `hashing.seed_for`.

    Returns:
      What to predict. An example whose words are all longer than its share has none.
    """
    shape = (len(ids), spec.max_predictions_per_seq)
    predictions = Predictions(
        np.zeros(shape, np.int32), np.zeros(shape, np.int32), np.zeros(shape, np.float32)
    )
    _mask(
        ids,
        lengths,
        keys,
        (kinds.mask_id, kinds.vocab_size, kinds.never_masked, kinds.continues_word),
        (
            np.uint64(seed), spec.masked_lm_prob, spec.max_predictions_per_seq,
            spec.whole_word, spec.max_ngram_size, spec.replace_words,
        ),
        predictions.positions,
        predictions.ids,
        predictions.weights,
    )  # fmt: skip
    return predictions
