"""What a worker is about to hand to native code, where the launching process sees it.

A library that meets a file it was not made for may end the process: no error tells which file it
was. So a worker notes it before, in memory that it shares with the process that waits for it. On an
engine, whose workers are elsewhere, the note is a file of the run, while the file is read.
"""

from __future__ import annotations

import ctypes
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing.context import BaseContext
from typing import Any

from recordmill.records.errors import RunError
from recordmill.transforms.dataset.workspace import Workspace
from recordmill.transforms.storage import files

_NOTE_BYTES = 1024
_note: Any = None
_workspace: Workspace | None = None


def make_note(context: BaseContext) -> Any:
    """Returns memory for the note of a worker, which is given to it when it is started."""
    return context.RawArray(ctypes.c_char, _NOTE_BYTES)


def use_note(made: Any) -> None:
    """Notes of this process go to memory that the process that waits for it has made."""
    global _note
    _note = made


def note(path: str) -> None:
    """Notes a file, until the next one is noted; "" for none. Costs a microsecond."""
    if _note is not None:
        _note.value = path.encode("utf-8", "backslashreplace")[: _NOTE_BYTES - 1]


def read_note(made: Any) -> str:
    """Returns the file that a worker has noted, "" for none."""
    return bytes(made.value).decode("utf-8", "ignore")


@contextmanager
def notes_in(workspace: Workspace) -> Iterator[None]:
    """Notes of this process that are made by `noted` go to files of a run, meanwhile."""
    global _workspace
    before, _workspace = _workspace, workspace
    try:
        yield
    finally:
        _workspace = before


@contextmanager
def noted(path: str) -> Iterator[None]:
    """Notes a file while it is read."""
    note(path)
    written = []
    if _workspace:
        with suppress(RunError, OSError):  # reading it matters more
            _workspace.check_own()  # a folder that was deleted meanwhile must not come back
            written = [files.join(_workspace.notes_folder, f"{uuid.uuid4().hex}.txt")]
            files.write_bytes(written[0], path.encode("utf-8", "backslashreplace"))
    try:
        yield
    finally:
        note("")
        files.delete_quietly(written)


def left_notes(workspace: Workspace) -> list[str]:
    """Returns the files that workers of a run noted and did not finish, in order."""
    found = set()
    with suppress(RunError, OSError):
        for path in files.list_files(workspace.notes_folder):
            found.add(files.read_bytes(path, 0, _NOTE_BYTES).decode("utf-8", "ignore"))
    return sorted(found)
