"""WordPieces from word counts, by tensorflow_text's learner, in bounded time and memory.

The learner keeps a count of every substring of every word that it is given, a hundred bytes each,
and goes through all of them four times for each frequency threshold that it tries. Two things bound
it: the list of words ends where its substrings exceed a budget, most frequent words first; and the
threshold is searched from where the counts suggest it, in about 3 tries where the learner's own
bisection needs 15.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from typing import Any

from recordmill.transforms.vocabulary.vocab_spec import LearnSpec

_LEARNER = ("tools", "wordpiece_vocab", "wordpiece_tokenizer_learner_lib.py")
MAX_PIECE_CHARS = 50
_SLACK = 0.05  # the learner's own: a vocabulary that is so much smaller will do
_FIRST_GUESS = 0.65  # whole words among the tokens of a vocabulary; English novels have about that


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
    library = _learner()

    def learn(threshold: int) -> list[str]:
        tokens: list[str] = library.learn(
            counts, spec.vocab_size, list(spec.first_tokens), upper_thresh=threshold,
            lower_thresh=threshold, max_token_length=MAX_PIECE_CHARS,
            max_unique_chars=spec.characters,
        )  # fmt: skip
        return tokens

    return _without_surplus(_search(learn, counts, spec), spec)


@cache
def _learner() -> Any:
    """Loads the file of the learner, which needs numpy alone; its package would load TensorFlow.

    Raises:
      ImportError: this release of tensorflow_text has no such file.
    """
    package = find_spec("tensorflow_text")
    for folder in (package and package.submodule_search_locations) or ():
        path = os.path.join(folder, *_LEARNER)
        if os.path.exists(path):
            found = spec_from_file_location("wordpiece_tokenizer_learner", path)
            if found and found.loader:
                module = module_from_spec(found)
                found.loader.exec_module(module)
                return module
    raise ImportError(f"tensorflow_text has no {'/'.join(_LEARNER)}")


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
    fixed = len(spec.first_tokens) + 2 * characters
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
    special = len(spec.first_tokens)
    pieces = [
        i for i, token in enumerate(tokens) if i >= special and len(token.removeprefix("##")) > 1
    ]
    dropped = set(pieces[len(pieces) - surplus :])
    return [token for i, token in enumerate(tokens) if i not in dropped]
