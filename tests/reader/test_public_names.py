"""What `recordmill.reader` exports."""

from __future__ import annotations

import inspect
import subprocess
import sys

import pytest

import recordmill.reader as reader


def test_dir_shows_the_public_names_without_importing_them() -> None:
    code = (
        "import sys, recordmill.reader as r; assert set(r.__all__) <= set(dir(r)); "
        "assert 'tensorflow' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=100)


@pytest.mark.parametrize("name", reader.__all__)
def test_every_name_has_a_docstring(name: str) -> None:
    value = getattr(reader, name)
    text = inspect.getdoc(value) or ""
    first, _, rest = text.partition("\n")
    assert first.endswith((".", ":")), "a summary of one line"
    assert not rest or rest.startswith("\n"), "an empty line behind the summary"
    if inspect.isfunction(value) and "raise UsageError" in inspect.getsource(value):
        assert "Raises:" in text


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match=r"No recordmill\.reader attribute lode"):
        reader.lode  # noqa: B018
