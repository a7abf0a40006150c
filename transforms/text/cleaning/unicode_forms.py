"""Bring lines to one Unicode form before they are tokenized, compared or counted."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from dataclasses import replace
from typing import Literal, cast

import numpy as np

from recordmill.records.arrays import Bools, Bytes, Int64s
from recordmill.records.codec.jit import kernel
from recordmill.records.errors import UsageError
from recordmill.transforms.sources.lines import Lines

_Form = Literal["NFC", "NFKC"]
_FORMS: dict[str, _Form] = {"nfc": "NFC", "nfkc": "NFKC"}


def ftfy_version() -> str:
    """Returns the version of ftfy, which decides what it repairs.

    Raises:
      UsageError: it is not installed.
    """
    try:
        import ftfy
    except ImportError as error:
        raise UsageError(
            "--normalize=ftfy needs the package ftfy on every worker; run pip install "
            "'recordmill[ftfy]', or give --normalize=nfc"
        ) from error
    return str(ftfy.__version__)


def _ftfy() -> Callable[[str], str]:
    ftfy_version()
    import ftfy

    return cast("Callable[[str], str]", ftfy.fix_text)


class LineNormalizer:
    """Lines -> the same lines in a Unicode form.

    A line alone gives what it gives within its document: no form joins characters over white space.
    A whole text keeps its line ends.
    ASCII is already in NFC and NFKC; ftfy is asked about it where it has an HTML entity or a
    control character.

    Args:
      form: of `CleanSpec.normalize`, but "none".
      whole_texts: a line may be a whole text, whose line ends stay.

    Raises:
      UsageError: ftfy is wanted and is not installed.
    """

    def __init__(self, form: str, *, whole_texts: bool = False) -> None:
        self._whole_texts = whole_texts
        self._form = _FORMS.get(form)
        self._fix = _ftfy() if form == "ftfy" else None

    def __call__(self, lines: Lines) -> Lines:
        """Returns as many lines; one may be empty where all of it was dropped."""
        doubtful = lines.non_ascii
        if self._fix:
            doubtful = doubtful.copy()
            _find_marked(lines.buffer, lines.starts, lines.ends, self._whole_texts, doubtful)
        changed: dict[int, bytes] = {}
        for i in np.flatnonzero(doubtful).tolist():
            before = lines[i]
            text = before.decode("utf-8")
            if self._form and unicodedata.is_normalized(self._form, text):
                continue
            after = self._normalize(text).encode("utf-8", "replace")
            if after != before:
                changed[i] = after
        if not changed:
            return lines
        non_ascii = lines.non_ascii.copy()
        for i, line in changed.items():
            non_ascii[i] = not line.isascii()
        return replace(lines.replace(changed), non_ascii=non_ascii)

    def _normalize(self, text: str) -> str:
        if self._fix:
            fixed = self._fix(text)  # makes line ends of U+2028 and "\r", too
            return fixed if self._whole_texts else fixed.replace("\n", " ")
        return unicodedata.normalize(self._form or "NFC", text)


@kernel
def _find_marked(
    buffer: Bytes, starts: Int64s, ends: Int64s, whole_texts: bool, marked: Bools
) -> None:
    for i in range(starts.shape[0]):
        for at in range(starts[i], ends[i]):
            byte = buffer[at]
            if (
                byte == 38
                or byte == 127
                or (byte < 32 and byte != 9 and not (whole_texts and byte == 10))
            ):
                marked[i] = True
                break
