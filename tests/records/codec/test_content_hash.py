from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recordmill.records.codec.content_hash import hash_contents

# Of the reference implementation, seed 0.
XXH64 = {
    b"": 0xEF46DB3751D8E999,
    b"a": 0xD24EC4F1A98C6E5B,
    b"abc": 0x44BC2CF5AD770999,
    b"Nobody inspects the spammish repetition": 0xFBCEA83C8A378BF1,
}


def hash_of(data: bytes, before: int = 0) -> tuple[int, int]:
    array = np.frombuffer(b"x" * before + data, np.uint8)
    begin, end = np.array([before]), np.array([before + len(data)])
    first, second = hash_contents(array, begin, end)[0].tolist()
    return first, second


@pytest.mark.parametrize("data", XXH64)
def test_the_first_half_is_xxh64(data: bytes) -> None:
    assert hash_of(data)[0] == XXH64[data]


@settings(max_examples=200, deadline=None)
@given(data=st.binary(max_size=200), before=st.integers(0, 9), at=st.integers(0, 199))
def test_both_halves_depend_on_every_byte_and_on_nothing_else(
    data: bytes, before: int, at: int
) -> None:
    assert hash_of(data, before) == hash_of(data)
    if data:
        other = bytearray(data)
        other[at % len(data)] ^= 1
        changed = hash_of(bytes(other))
        assert changed[0] != hash_of(data)[0]
        assert changed[1] != hash_of(data)[1]
    assert hash_of(data + b"\0")[1] != hash_of(data)[1]
