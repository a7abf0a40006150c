"""What the system must give a process, tried before libraries need it.

Where these get no thread or no memory they end the process, or send it SIGINT as OpenBLAS does, or
hang: no error could be told then. So it is tried, which limits of all kinds answer (`ulimit`, a
container's), also where other processes of the user have a share of them.
"""

from __future__ import annotations

import _thread
import mmap
import os
import resource
import threading
from contextlib import suppress
from warnings import catch_warnings, simplefilter

from recordmill.records.errors import RunError

# Of addresses. Each thread of a library takes an arena of malloc, and each library a thread a core.
_JOB_BYTES, _CHECK_BYTES, _CORE_BYTES = 800_000_000, 300_000_000, 64_000_000
_MOST_CORES = 64  # OpenBLAS begins no more threads
TENSORFLOW_BYTES = 2_400_000_000  # TensorFlow takes about as many
TOO_LITTLE_MEMORY = (
    "not enough memory; see the limits of this machine (ulimit -v), or use fewer workers, and run "
    "the same command again"
)
TOO_FEW_FILES = (
    "too many open files; raise their limit (ulimit -n), or use fewer workers, and start it again"
)
TOO_FEW_THREADS = (
    "no more threads or processes can be started; raise their limit (ulimit -u, -v, or that of the "
    "container), or use fewer workers, and start it again"
)


def check_limits(workers: int, cores: int, *, is_job: bool = True) -> None:
    """Checks that a command that loads kernels has what it takes, with some worker processes.

    The soft limit of open files is raised to the hard one: systems set it for programs of old.

    Args:
      workers: processes of this machine that may begin.
      cores: that this process may use; libraries start a thread for each.
      is_job: it loads the kernels of a job, not only those that check records.

    Raises:
      RunError: it has not; says which limit to raise.
    """
    files, threads = (12 if workers == 1 else 16 + 4 * workers), 32 + 4 * workers
    base = _JOB_BYTES if is_job else _CHECK_BYTES
    check_memory(base + _CORE_BYTES * min(cores, _MOST_CORES))
    with suppress(OSError, ValueError):  # a hard limit above what the kernel allows
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    opened: list[int] = []
    try:
        opened.extend(os.open(os.devnull, os.O_RDONLY) for _ in range(files))
    except OSError as error:
        raise RunError(f"fewer than {files} more files can be opened: {TOO_FEW_FILES}") from error
    finally:
        for each in opened:
            os.close(each)
    if not _has_threads(threads):
        raise RunError(f"fewer than {threads} threads can be started: {TOO_FEW_THREADS}")


def check_memory(size: int) -> None:
    """Checks that so many bytes of addresses can be had; no memory is taken for them.

    Raises:
      RunError: they cannot.
    """
    try:
        mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANON, mmap.PROT_READ).close()
    except OSError as error:
        raise RunError(f"{size / 1e9:.1f} GB more cannot be had: {TOO_LITTLE_MEMORY}") from error


def _has_threads(count: int) -> bool:
    """Tries it in a child: threads would leave their arenas of malloc in this process."""
    try:
        with catch_warnings():
            # Python warns where this process has threads: the child shares no lock with them.
            simplefilter("ignore", DeprecationWarning)
            child = os.fork()
    except OSError:
        return False
    if child:
        try:
            return os.waitpid(child, 0)[1] == 0
        except ChildProcessError:  # whoever started us ignores SIGCHLD: it cannot be told
            return True
    status = 1
    with suppress(BaseException):
        threading.stack_size(65536)
        held = _thread.allocate_lock()
        held.acquire()
        for _ in range(count):
            _thread.start_new_thread(held.acquire, ())
        status = 0
    os._exit(status)
