"""`CleanSpec`: its options are given by name, as several are of one type."""

from __future__ import annotations

from typing import Any

import pytest

from recordmill.transforms.text.text_spec import CleanSpec


def test_options_are_given_by_name() -> None:
    options: tuple[Any, ...] = ("nfc", 1, 5)
    with pytest.raises(TypeError, match="positional"):
        CleanSpec(*options)
    assert CleanSpec(normalize="nfc", min_tokens=1, max_tokens=5).max_tokens == 5
