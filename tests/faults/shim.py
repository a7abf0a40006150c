"""Steps of a command that change the disk, counted in its own process.

The command runs in a fork of the harness, in which the functions of Python that change the disk are
replaced: at a given step something happens, such as a kill or a disk that is full. What is written
with and without a sync is known, too: a power loss can be simulated.
"""

from __future__ import annotations

import builtins
import io
import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

_CALLS = ("rename", "replace", "unlink", "remove", "rmdir", "mkdir", "link", "symlink", "truncate")
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC


class Shim:
    """Counts the steps below a folder, and acts after one of them.

    Attributes:
      steps: how many there were.
      synced: inode -> (size, time of the last change) when it was last synced; what was there
        before the command is.
      pending: paths whose names were changed since their folder was last synced.
    """

    def __init__(self, root: Path, act_after: int, act: Callable[[Shim], None]) -> None:
        self.steps = 0
        self.synced: dict[tuple[int, int], tuple[int, int]] = {}
        self.pending: set[str] = set()
        self._root = f"{os.path.realpath(root)}/"
        self._act_after = act_after
        self._act = act
        self._lock = threading.RLock()

    def install(self) -> None:
        """Replaces the functions in this process."""
        for name in _CALLS:
            setattr(os, name, self._counted(getattr(os, name)))
        self._open, self._os_open = builtins.open, os.open
        builtins.open = io.open = self._opened  # type: ignore[assignment]
        os.open = self._os_opened
        for name in ("fsync", "fdatasync"):
            setattr(os, name, self._syncing(getattr(os, name)))
        for folder, _, names in os.walk(self._root):
            for name in names:
                self._note_synced(os.lstat(os.path.join(folder, name)))

    def _note_synced(self, status: os.stat_result) -> None:
        self.synced[status.st_dev, status.st_ino] = status.st_size, status.st_mtime_ns

    def _step(self) -> None:
        with self._lock:
            self.steps += 1
            if self.steps == self._act_after:
                self._act(self)

    def _is_ours(self, path: Any) -> bool:
        if not isinstance(path, (str, bytes, os.PathLike)):
            return False
        return os.path.abspath(os.fsdecode(path)).startswith(self._root)

    def _counted(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            result = function(*arguments, **options)
            paths = [a for a in arguments[:2] if self._is_ours(a)]
            if paths:
                self.pending.update(os.path.abspath(os.fsdecode(path)) for path in paths)
                self._step()
            return result

        return call

    def _opened(self, file: Any, mode: str = "r", *arguments: Any, **options: Any) -> Any:
        handle = self._open(file, mode, *arguments, **options)
        if set(mode) & set("wax+") and self._is_ours(file):
            self.pending.add(os.path.abspath(os.fsdecode(file)))
            self._step()
            write = handle.write

            def counted_write(data: Any) -> Any:
                written = write(data)
                self._step()
                return written

            handle.write = counted_write
        return handle

    def _os_opened(self, path: Any, flags: int, *arguments: Any, **options: Any) -> int:
        descriptor = self._os_open(path, flags, *arguments, **options)
        if flags & _WRITING and self._is_ours(path):
            self.pending.add(os.path.abspath(os.fsdecode(path)))
            self._step()
        return descriptor

    def _syncing(self, function: Callable[[int], None]) -> Callable[[Any], None]:
        def call(file: Any) -> None:
            function(file)
            descriptor = file if isinstance(file, int) else file.fileno()
            self._note_synced(os.fstat(descriptor))
            folder = os.readlink(f"/proc/self/fd/{descriptor}")
            if os.path.isdir(folder):
                self.pending = {p for p in self.pending if os.path.dirname(p) != folder}
            self._step()

        return call


class KillWhenThere(Shim):
    """Ends the process as `kill -9` does after the step behind which so many files are there."""

    def __init__(self, root: Path, pattern: str, count: int = 1) -> None:
        super().__init__(root, 0, kill)
        self._pattern, self._count = pattern, count

    def _step(self) -> None:
        with self._lock:
            if len(list(Path(self._root).glob(self._pattern))) >= self._count:
                kill(self)


def kill(_: Shim) -> None:
    """Ends this process as `kill -9` does."""
    os.kill(os.getpid(), signal.SIGKILL)


def lose_power(lost: str) -> Callable[[Shim], None]:
    """Returns what a power loss may do, and ends the process.

    Args:
      lost: "contents": files that were not synced are empty. "names": names that were made since
        their folder was synced are gone.
    """

    def act(shim: Shim) -> None:
        lose(shim, lost)
        kill(shim)

    return act


def lose(shim: Shim, lost: str) -> None:
    """Takes from the disk what a power loss may take."""
    for folder, _, names in os.walk(shim._root):
        for name in names:
            path = os.path.join(folder, name)
            status = os.lstat(path)
            kept = shim.synced.get((status.st_dev, status.st_ino))
            if lost == "contents" and kept != (status.st_size, status.st_mtime_ns):
                os.close(shim._os_open(path, os.O_WRONLY | os.O_TRUNC))
            elif lost == "names" and path in shim.pending:
                _unlink(path)


_unlink = os.unlink
