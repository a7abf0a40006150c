"""`kernel`: numba's njit with a cache on disk that survives the process and never goes stale.

To compile takes seconds. So what only kernels call is a `subroutine`: it becomes machine code as
a part of them, and has no entrance for Python and no cache of its own. Of processes that need the
same kernel at the same time one compiles it, and the others wait for its file.

numba checks only the file of the function itself, so a kernel that calls another file's kernel
would keep running its old code; the cache folder is therefore named after the sources of all
kernels. It lies in the user's cache folder, because site-packages may be read-only, and should not
be littered; only this user may write to it. $RECORDMILL_KERNELS names a folder whose machine code
all users of a machine or an image share: who owns it writes it (`recordmill doctor --compile`),
others read there what their own cache does not hold.
"""

from __future__ import annotations

import os
import stat
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import Any, TypeVar

import numba

from recordmill.records.codec import numba_internals as compat
from recordmill.records.errors import UsageError

if numba.config.DISABLE_JIT:
    raise UsageError(
        "NUMBA_DISABLE_JIT is set, and without compiled code reading and writing records takes "
        "hours; unset it, and run the same command again"
    )

_Function = TypeVar("_Function", bound=Callable[..., Any])

_PACKAGE = Path(__file__).parents[2]


def kernel_digest(package: Path = _PACKAGE) -> str:
    """Returns a digest of numba's version and of every source that kernels are compiled from.

    Args:
      package: the folder with `records` and `transforms`, where all kernels are. Of `records` all
        sources count, because kernels anywhere may use its constants; of `transforms`, in which
        more is edited, those that define kernels.
    """
    digest = blake2b(numba.__version__.encode(), digest_size=8)
    for source in sorted((package / "records").rglob("*.py")):
        digest.update(source.read_bytes())
    for source in sorted((package / "transforms").rglob("*.py")):
        text = source.read_bytes()
        if b"recordmill.records.codec.jit" in text:
            digest.update(text)
    return digest.hexdigest()


def private_folder(path: Path) -> bool:
    """Makes a folder that only this user can write to; returns whether it is such a folder.

    numba unpickles the files of its cache, so a folder that another user can write to would run
    that user's code. Such a folder is not used, nor is a link.
    """
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = path.lstat()
    except OSError:
        return False
    ours = not hasattr(os, "geteuid") or status.st_uid == os.geteuid()
    others_write = status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return stat.S_ISDIR(status.st_mode) and ours and not others_write and os.access(path, os.W_OK)


def shared_folder(path: Path, digest: str) -> str:
    """Returns the folder for machine code below one that other users can only read, "" for none.

    It, and what is on the way to its files, belongs to this user or to root, and to nobody else.
    """
    folder = path / digest
    for part in (path, folder):
        try:
            status = part.lstat()
        except OSError:
            return ""
        known = not hasattr(os, "geteuid") or status.st_uid in (0, os.geteuid())
        others_write = status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        if not stat.S_ISDIR(status.st_mode) or others_write or not known:
            return ""
    return str(folder)


def cache_folder(bases: Sequence[Path], digest: str) -> str:
    """Returns the folder for machine code below the first base that can be private, "" for none."""
    for base in bases:
        if private_folder(base) and private_folder(base / digest):
            return str(base / digest)
    return ""


def _cache_bases() -> list[Path]:
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    user = os.geteuid() if hasattr(os, "geteuid") else 0
    return [Path(home) / "recordmill", Path(tempfile.gettempdir()) / f"recordmill-{user}"]


_DIGEST = kernel_digest()
_SHARED = Path(os.environ["RECORDMILL_KERNELS"]) if "RECORDMILL_KERNELS" in os.environ else None
_CACHE_FOLDER = os.environ.get("NUMBA_CACHE_DIR") or cache_folder(
    [*([_SHARED] if _SHARED else []), *_cache_bases()], _DIGEST
)
_SHARED_FOLDER = shared_folder(_SHARED, _DIGEST) if _SHARED else ""


def kernel(function: _Function) -> _Function:
    """Compiles `function` on first use, without the GIL, and caches the machine code on disk."""
    with suppress(RuntimeError):  # numba finds the folder not writable
        if _CACHE_FOLDER:
            with compat.cache_folder(_CACHE_FOLDER):
                cached: _Function = numba.njit(cache=True, nogil=True)(function)
                compat.check_cached_code(cached, _SHARED_FOLDER)
                compat.widen_literals(cached)
                return cached
    compiled: _Function = numba.njit(nogil=True)(function)  # in every process anew
    compat.widen_literals(compiled)
    return compiled


def subroutine(function: _Function) -> _Function:
    """Compiles `function` where kernels call it; Python must not, which would be the end of it."""
    compiled: _Function = numba.njit(no_cpython_wrapper=True, no_cfunc_wrapper=True)(function)
    compat.widen_literals(compiled)
    return compiled


def is_compiled(use: str) -> bool:
    """Returns whether `remember` was called with this name, by this release, on this machine.

    Where no cache is kept, each process compiles for itself, and there is nothing to share.
    """
    folders = filter(None, (_CACHE_FOLDER, _SHARED_FOLDER))
    return not _CACHE_FOLDER or any(os.path.exists(_stamp(folder, use)) for folder in folders)


def remember(use: str) -> None:
    """Says to all processes that the kernels of something were compiled, and are kept."""
    if _CACHE_FOLDER:
        with suppress(OSError):
            Path(_stamp(_CACHE_FOLDER, use)).touch()


def folder() -> str:
    """Returns the folder in which machine code is kept; "" where each process compiles anew."""
    return _CACHE_FOLDER


def _stamp(folder: str, use: str) -> str:
    machine = f"{sys.implementation.cache_tag}-{compat.processor()}-{_DIGEST}"
    return os.path.join(folder, f"{use}-{machine}.compiled")


def load() -> None:
    """Loads what numba otherwise loads when the first kernel is called: half a second."""
    compat.load_compiler()
