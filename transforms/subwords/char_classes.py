"""Letters, numbers and white space, as the regular expressions of `tokenizers` know them.

The classes are asked of the library itself, so that they are of its release of Unicode and not of
Python's: an id must not depend on that.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from tokenizers import Regex, pre_tokenizers

from recordmill.records.arrays import Bytes

OTHER, LETTER, NUMBER, SPACE = 0, 1, 2, 3
_PATTERNS = ((r"\p{L}+", LETTER), (r"\p{N}+", NUMBER), (r"\s+", SPACE))
_CODES = 0x110000
_ASSIGNED = 0x33500  # no letter, number or space is behind: a test says when one will be
_FIRST_SURROGATE, _END_SURROGATES = 0xD800, 0xE000


@cache
def char_classes() -> Bytes:
    """Returns the class of each code point, `[1114112] uint8`."""
    text = "".join(map(chr, (*range(_FIRST_SURROGATE), *range(_END_SURROGATES, _ASSIGNED))))
    classes = np.zeros(len(text), np.uint8)
    for pattern, number in _PATTERNS:
        split = pre_tokenizers.Split(Regex(pattern), "removed", invert=True)
        for _, (begin, end) in split.pre_tokenize_str(text):
            classes[begin:end] = number
    whole = np.zeros(_CODES, np.uint8)
    whole[:_FIRST_SURROGATE] = classes[:_FIRST_SURROGATE]
    whole[_END_SURROGATES:_ASSIGNED] = classes[_FIRST_SURROGATE:]
    return whole


@cache
def white_space() -> Bytes:
    """Returns the class of each code point, of which only `SPACE` is told: as words are split."""
    spaces = np.zeros(_CODES, np.uint8)
    split = pre_tokenizers.WhitespaceSplit()
    for code in (*range(0x250), *range(0x1600, 0x1900), *range(0x2000, 0x3100), 0xFEFF):
        if not split.pre_tokenize_str(chr(code)):
            spaces[code] = SPACE
    return spaces
