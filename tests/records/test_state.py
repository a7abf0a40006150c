"""JSON as typed values."""

from __future__ import annotations

import subprocess
import sys

import pytest

from recordmill.records.state import FormatError, convert, decode

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
