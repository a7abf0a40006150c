"""What can lie in the place of a file, and is none that may be read."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path

KINDS: dict[str, Callable[[Path], object]] = {
    "fifo": os.mkfifo,
    "endless device": lambda path: path.symlink_to("/dev/zero"),
    "file of the kernel": lambda path: path.symlink_to("/proc/self/environ"),
    "socket": lambda path: os.mknod(path, stat.S_IFSOCK | 0o600),
    "folder": Path.mkdir,
    "link to nothing": lambda path: path.symlink_to("nowhere"),
    "link to itself": lambda path: path.symlink_to(path.name),
}


def put(path: Path, kind: str) -> None:
    """Puts something odd in the place of what lies at a path."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    KINDS[kind](path)


def places(folder: Path) -> list[str]:
    """Returns all files and folders below a folder, relative to it."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))
