"""Structs as JSON: stable bytes, and one line that names what is wrong."""

from __future__ import annotations

import math
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import pytest

from recordmill.records.state import Count, FileSum, FormatError, Uint32, convert, decode, encode

# Each round has new classes: what is known of a class is found out at its first use.
_RACE = """
import sys
import threading
from dataclasses import make_dataclass
from recordmill.records.state import Count, convert

sys.setswitchinterval(1e-6)
content = {"x": {"a": 1, "b": ["c"]}, "y": [{"a": 1, "b": []}]}
for _ in range(300):
    inner = make_dataclass("Inner", [("a", Count), ("b", list[str])])
    outer = make_dataclass("Outer", [("x", inner), ("y", list[inner])])
    start = threading.Barrier(6)
    def use():
        start.wait()
        convert(content, outer)
    threads = [threading.Thread(target=use) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
"""


def test_threads_that_use_a_class_for_the_first_time_together() -> None:
    done = subprocess.run([sys.executable, "-c", _RACE], check=False, timeout=120)
    assert done.returncode == 0  # -11 is a segmentation fault


def test_a_kind_that_cannot_be_is_an_error_each_time() -> None:
    for _ in range(2):
        with pytest.raises(FormatError):
            convert({}, dict[int, set[object] | list[int]])


def test_half_of_a_surrogate_pair_is_no_text() -> None:
    with pytest.raises(FormatError, match="it has half of a surrogate pair, which no text has"):
        decode(b'{"a": ["\\uD800"]}', dict[str, list[str]])
    assert decode(b'{"a": "\\ud83d\\ude00 \\u00e9"}', dict[str, str]) == {"a": "\U0001f600 \xe9"}


class Inner(msgspec.Struct, frozen=True):
    size: Count
    crc32c: Uint32 = 0


class Whole(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    inner: tuple[Inner, ...] = ()
    sums: dict[Count, FileSum] = msgspec.field(default_factory=dict)
    counts: Counter[str] = msgspec.field(default_factory=Counter)
    share: float = 0.0
    anything: Any = None

    def __post_init__(self) -> None:
        if self.name == "x":
            raise ValueError("name must not be x")


@dataclass
class Old:
    part: Inner


WHOLE = Whole(
    name="é", inner=(Inner(5, 7),), sums={10: (1, 2), 9: (3, 4)}, counts=Counter(b=2, a=1),
    share=1e-05, anything={"f": np.float64(0.5)},
)  # fmt: skip


def test_equal_values_have_equal_bytes() -> None:
    text = encode({"b": 1, "a": ["é", Old(Inner(5))]}).decode()
    assert text.split("\n") == [
        "{",
        ' "a": [',
        '  "é",',
        "  {",
        '   "part": {',
        '    "crc32c": 0,',
        '    "size": 5',
        "   }",
        "  }",
        " ],",
        ' "b": 1',
        "}",
        "",
    ]
    line = encode(WHOLE, indent=None).decode()
    assert line.startswith('{"anything": {"f": 0.5}, "counts": {"a": 1, "b": 2}, "inner": [{"')
    assert line.endswith('"name": "é", "share": 1e-05, "sums": {"9": [3, 4], "10": [1, 2]}}\n')


@pytest.mark.parametrize("indent", [None, 1])
def test_what_was_encoded_is_decoded(indent: int | None) -> None:
    assert decode(encode(WHOLE, indent=indent), Whole) == WHOLE
    assert decode(encode(Old(Inner(1))), Old) == Old(Inner(1))


def test_nan_is_read_as_python_writes_it() -> None:
    found = decode(encode(Whole(name="a", share=math.nan, counts=Counter(a=1))), Whole)
    assert math.isnan(found.share)
    assert found.counts == Counter(a=1)


def test_releases_read_each_other() -> None:
    assert decode(b'{"name": "a", "later": [1]}', Whole) == Whole(name="a")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("{}", "name is missing"),
        ('{"name": 1}', "name must be text, and is an integer"),
        ('{"name": "x"}', "name must not be x"),
        ('{"name": "a", "inner": [{}]}', "inner[0].size is missing"),
        (
            '{"name": "a", "inner": [{"size": 1.0}]}',
            "inner[0].size must be an integer, ",
        ),
        ('{"name": "a", "inner": [{"size": -1}]}', "inner[0].size expected `int` >= 0"),
        (
            '{"name": "a", "inner": [{"size": 9223372036854775808}]}',
            "inner[0].size expected `int`",
        ),
        ('{"name": "a", "inner": [{"size": 1, "crc32c": 4294967296}]}', "inner[0].crc32c expected"),
        ('{"name": "a", "sums": {"x": [1, 2]}}', "a key of sums must be an integer, and is text"),
        ('{"name": "a", "sums": {"1": [1]}}', "sums[...] expected `array` of length 2"),
        ('{"name": "a", "counts": [1]}', "counts must be an object, and is a list"),
        ('{"name": "a", "counts": {"b": -1}}', "counts [...] expected `int` >= 0"),
        ('{"name": "a", "share": "NaN"}', "share must be a number, and is text"),
        ("[]", "the whole must be an object, and is a list"),
        ('{"name": "a"', "it is cut or no JSON: "),
        ('{"name": "a"} x', "it is cut or no JSON: "),
        ("", "it is cut or no JSON: "),
        ("[" * 100_000, "it is nested too deeply"),
    ],
)
def test_what_is_wrong_is_one_line(data: str, message: str) -> None:
    for content in (data, data.encode()):
        with pytest.raises(FormatError) as raised:
            decode(content, Whole)
        assert str(raised.value).startswith(message)
        assert "\n" not in str(raised.value)


def test_bytes_that_are_no_text() -> None:
    with pytest.raises(FormatError, match="it is cut or no JSON"):
        decode(b'{"name": "\xff"}', Whole)
