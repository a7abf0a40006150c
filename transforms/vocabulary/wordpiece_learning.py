"""WordPieces from word counts, by tensorflow_text's learner, in bounded time and memory.

The learner keeps a count of every substring of every word that it is given, a hundred bytes each,
and goes through all of them four times for each frequency threshold that it tries. Two things bound
it: the list of words ends where its substrings exceed a budget, most frequent words first; and the
threshold is searched from where the counts suggest it, in about 3 tries where the learner's own
bisection needs 15.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from recordmill.records.errors import UsageError, at_least
from recordmill.transforms.text.tokenization import SPECIAL_TOKENS

MAX_PIECE_CHARS = 50
_MAX_UNIQUE_CHARS = 1000  # the learner's own default, which keeps rare ideographs from filling it
_SLACK = 0.05  # the learner's own: a vocabulary that is so much smaller will do
_FIRST_GUESS = 0.65  # whole words among the tokens of a vocabulary; English novels have about that


def check_special_tokens(tokens: Sequence[str]) -> None:
    """Checks the special tokens of a vocabulary of any kind.

    Raises:
      UsageError: one is empty, has white space, or is there twice.
    """
    for i, token in enumerate(tokens):
        if not token or len(token.split()) != 1 or token != token.strip():
            raise UsageError(
                f"--special_tokens must be words without white space between commas, got {token!r}"
            )
        if token in tokens[:i]:
            raise UsageError(f"--special_tokens contains {token} twice; remove one")


def check_size(vocab_size: int, least: int, parts: str) -> None:
    """Checks the size of a vocabulary.

    Args:
      vocab_size: that is asked for.
      least: that it needs.
      parts: what these tokens are, for people.

    Raises:
      UsageError: it is too small.
    """
    if vocab_size < least:
        raise UsageError(f"--vocab_size must be at least {least}: {parts}; got {vocab_size}")


def at_least_one(**flags: int) -> None:
    """Checks values by the names of their flags.

    Raises:
      UsageError: one is below 1.
    """
    for name, value in flags.items():
        at_least(f"--{name}", value, 1)


@dataclass(frozen=True, slots=True)
class LearnSpec:
    """The vocabulary wanted.

    Attributes:
      vocab_size: the most tokens.
      special_tokens: the first of them, in this order.
      min_count: pieces that occur less often are no tokens, single characters excepted.
      max_unique_chars: the most single characters; words with others are not learned from.
      min_substrings, substrings_per_token: the budget for the learner's words, in substrings, is
        the larger of the first and the second times `vocab_size`.

    Raises:
      UsageError: a value is not valid, or a special token that BERT needs is missing.
    """

    vocab_size: int
    special_tokens: tuple[str, ...] = SPECIAL_TOKENS
    min_count: int = 2
    max_unique_chars: int = _MAX_UNIQUE_CHARS
    min_substrings: int = 2_000_000
    substrings_per_token: int = 150

    def __post_init__(self) -> None:
        missing = [token for token in SPECIAL_TOKENS if token not in self.special_tokens]
        if missing:
            raise UsageError(
                f"--special_tokens must contain {','.join(SPECIAL_TOKENS)}; it lacks "
                f"{','.join(missing)}"
            )
        check_special_tokens(self.special_tokens)
        check_size(
            self.vocab_size, len(self.special_tokens) + 2,
            "the special tokens and one character, alone and within a word",
        )  # fmt: skip
        at_least_one(min_count=self.min_count, max_unique_chars=self.max_unique_chars)

    @property
    def substrings(self) -> int:
        """The budget for the learner's words, in substrings."""
        return max(self.min_substrings, self.substrings_per_token * self.vocab_size)

    @property
    def most_words(self) -> int:
        """About how many words the budget holds: those of English have some 36 substrings."""
        return self.substrings // 36

    @property
    def characters(self) -> int:
        """The most single characters, each of which takes two tokens; a quarter is left."""
        room = self.vocab_size - len(self.special_tokens)
        return max(1, min(self.max_unique_chars, room * 3 // 8))


def choose_words(
    words: dict[str, int], characters: dict[str, int], spec: LearnSpec
) -> list[tuple[str, int]]:
    """Returns what the learner is given: (word, count), by count, then word.

    They are the most frequent words within the budget, and the characters that none of these has.
    """
    ordered = sorted(
        ((word, count) for word, count in words.items() if len(word) <= MAX_PIECE_CHARS),
        key=lambda item: (-item[1], item[0]),
    )
    chosen: list[tuple[str, int]] = []
    budget = spec.substrings
    for word, count in ordered:
        budget -= len(word) * (len(word) + 1) // 2
        if budget < 0:
            break
        chosen.append((word, count))
    covered = set().union(*(word for word, _ in chosen))
    alone = [item for item in characters.items() if item[0] not in covered]
    return sorted(chosen + alone, key=lambda item: (-item[1], item[0]))


def learn_vocabulary(counts: list[tuple[str, int]], spec: LearnSpec) -> list[str]:
    """Returns the tokens: special ones first, then characters, then pieces by their count.

    Args:
      counts: (word, count), from `choose_words`; at least one.
      spec: the vocabulary wanted.
    """
    from tensorflow_text.tools.wordpiece_vocab import wordpiece_tokenizer_learner_lib as library

    def learn(threshold: int) -> list[str]:
        tokens: list[str] = library.learn(
            counts, spec.vocab_size, list(spec.special_tokens), upper_thresh=threshold,
            lower_thresh=threshold, max_token_length=MAX_PIECE_CHARS,
            max_unique_chars=spec.characters,
        )  # fmt: skip
        return tokens

    return _without_surplus(_search(learn, counts, spec), spec)


def _thresholds(counts: list[tuple[str, int]], spec: LearnSpec) -> tuple[int, int]:
    """Returns the smallest and the largest threshold worth a try."""
    least = max(spec.min_count, counts[-1][1])
    return least, max(least, counts[0][1])


def _search(
    learn: Callable[[int], list[str]], counts: list[tuple[str, int]], spec: LearnSpec
) -> list[str]:
    """Returns the vocabulary of a threshold that fits with little slack, or the nearest below."""
    low, high = _thresholds(counts, spec)
    characters = min(len(set().union(*(word for word, _ in counts))), spec.characters)
    fixed = len(spec.special_tokens) + 2 * characters
    wanted = max((1 - _SLACK / 2) * spec.vocab_size - fixed, 1)
    rank = min(int(_FIRST_GUESS * wanted), len(counts) - 1)
    threshold = min(max(counts[rank][1], low), high)
    best: list[str] | None = None
    too_many: tuple[int, int] | None = None
    too_few: tuple[int, int] | None = None
    while True:
        tokens = learn(threshold)
        size = len(tokens)
        if size <= spec.vocab_size:
            best = tokens
            if size >= (1 - _SLACK) * spec.vocab_size or threshold <= low:
                return best
            too_few, high = (threshold, size - fixed), threshold - 1
        else:
            too_many, low = (threshold, size - fixed), threshold + 1
        if low > high:
            return best or tokens
        threshold = min(max(_next(too_many, too_few, wanted), low), high)


def _next(too_many: tuple[int, int] | None, too_few: tuple[int, int] | None, wanted: float) -> int:
    """Returns the threshold between two, or beyond one, where the number of pieces may be right.

    The logarithm of that number falls about linearly with the threshold's. A guess keeps away from
    what was tried, so that the range shrinks whatever the numbers are.

    Args:
      too_many: a threshold and its number of pieces that are no single characters.
      too_few: another, which is larger.
      wanted: how many there should be.
    """
    aim = math.log(wanted)
    if too_many and too_few:
        (a, pieces_a), (b, pieces_b) = too_many, too_few
        fall = math.log(max(pieces_a, 1)) - math.log(max(pieces_b, 1))
        share = (math.log(max(pieces_a, 1)) - aim) / max(fall, 1e-9)
        return round(a * (b / a) ** min(max(share, 0.1), 0.9))
    if too_many:
        return round(too_many[0] * min(max(1.3 * too_many[1] / wanted, 1.5), 16.0))
    if too_few:
        return round(too_few[0] * min(max(too_few[1] / wanted / 1.3, 1 / 16), 1 / 1.5))
    raise ValueError("nothing was tried yet")


def _without_surplus(tokens: list[str], spec: LearnSpec) -> list[str]:
    """Drops the rarest pieces, never a special token or a character, where there are too many."""
    surplus = len(tokens) - spec.vocab_size
    if surplus <= 0:
        return tokens
    special = len(spec.special_tokens)
    pieces = [
        i for i, token in enumerate(tokens) if i >= special and len(token.removeprefix("##")) > 1
    ]
    dropped = set(pieces[len(pieces) - surplus :])
    return [token for i, token in enumerate(tokens) if i not in dropped]
