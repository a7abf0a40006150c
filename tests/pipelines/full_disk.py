"""A disk that is filled to its last byte: a file system in memory, which takes root to mount."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def small_disk(size: str) -> Iterator[Path | None]:
    """A disk of its own of that size, such as 200m; None where this process may not mount one.

    Its path is short, as sockets need it.
    """
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        line = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder]
        try:
            mounted = not subprocess.run(line, capture_output=True).returncode
        except FileNotFoundError:
            mounted = False
        if not mounted:
            yield None
            return
        try:
            yield Path(folder)
        finally:
            subprocess.run(["umount", "--lazy", folder], check=True)


def fill(disk: Path) -> None:
    """Takes all room that is left, to the last byte."""
    with open(disk / "filler", "ab", buffering=0) as handle:
        for size in (1 << 20, 1 << 12, 1):
            with suppress(OSError):
                while True:
                    handle.write(b"x" * size)
