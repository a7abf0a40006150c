"""`kernel`: numba's njit with a cache on disk that survives the process and never goes stale.

numba checks only the file of the function itself, so a kernel that calls another file's kernel
would keep running its old code; the cache folder is therefore named after the sources of all
kernels. It lies in the user's cache folder, because site-packages may be read-only and need no
litter.
"""

import os
import tempfile
from collections.abc import Callable
from hashlib import blake2b
from pathlib import Path
from typing import Any, TypeVar

import numba

_Function = TypeVar("_Function", bound=Callable[..., Any])


def _cache_folder() -> str:
    digest = blake2b(numba.__version__.encode(), digest_size=8)
    for folder in ("records", "transforms"):
        for source in sorted((Path(__file__).parents[1] / folder).glob("*.py")):
            text = source.read_bytes()
            if b"recordmill.records.jit" in text:
                digest.update(text)
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    path = Path(base) / "recordmill" / digest.hexdigest()
    try:
        path.mkdir(parents=True, exist_ok=True)
        usable = os.access(path, os.W_OK)
    except OSError:
        usable = False
    if not usable:
        uid = os.getuid() if hasattr(os, "getuid") else 0
        path = Path(tempfile.gettempdir()) / f"recordmill-{uid}" / digest.hexdigest()
    return str(path)


_CACHE_FOLDER = os.environ.get("NUMBA_CACHE_DIR") or _cache_folder()


def kernel(function: _Function) -> _Function:
    """Compiles `function` on first use, without the GIL, and caches the machine code on disk."""
    before = numba.config.CACHE_DIR
    numba.config.CACHE_DIR = _CACHE_FOLDER
    try:
        compiled: _Function = numba.njit(cache=True, nogil=True)(function)
    except RuntimeError:  # no writable folder at all: compile in every process
        compiled = numba.njit(nogil=True)(function)
    finally:
        numba.config.CACHE_DIR = before
    return compiled


def load() -> None:
    """Loads what numba otherwise loads when the first kernel is called: half a second."""
    target = numba.core.registry.cpu_target
    target.typing_context.refresh()
    target.target_context.refresh()
