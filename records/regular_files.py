"""Only regular files are read: what else a name can be, told before anything blocks.

A fifo without a writer blocks whoever opens it, a device can do anything when it is read, and files
of /proc and /sys are the kernel's: they end nowhere, or hold what is no input. All local files of
input and of datasets are opened here.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import IO

_MOUNTS = "/proc/self/mountinfo"
_KERNEL = {
    "bpf", "binfmt_misc", "cgroup", "cgroup2", "configfs", "debugfs", "devpts", "efivarfs",
    "fusectl", "mqueue", "nsfs", "proc", "pstore", "rpc_pipefs", "securityfs", "selinuxfs", "sysfs",
    "tracefs",
}  # fmt: skip
_KINDS = (
    (stat.S_ISFIFO, "a fifo"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


class NotRegularError(OSError):
    """What was opened is there, and is no regular file; `strerror` says what it is."""


def odd_kind(status: os.stat_result) -> str:
    """Returns what a file is that is neither regular nor a folder, such as "a fifo", else ""."""
    if stat.S_ISREG(status.st_mode):
        return "a file of the kernel" if status.st_dev in _kernel_devices() else ""
    return next((name for test, name in _KINDS if test(status.st_mode)), "")


def open_regular(path: str) -> IO[bytes]:
    """Opens a local file for reading; nothing else than a regular file, and without blocking.

    Raises:
      NotRegularError: it is a folder, a fifo, a socket, a device, a file of the kernel, or a link
        that leads to itself.
      OSError: as `open`.
    """
    return open(path, "rb", opener=_open)


@contextmanager
def opened_regular(path: str) -> Iterator[int]:
    """Opens a local file as `open_regular` does, without a buffer; gives its descriptor."""
    descriptor = _open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def not_regular(path: str, kind: str) -> NotRegularError:
    """Returns the error for a path that is of a kind that is not read."""
    return NotRegularError(errno.EINVAL, f"{kind}, and only regular files are read", path)


def _open(path: str, flags: int) -> int:
    try:
        # A fifo without a writer would wait for one here; regular files take no notice.
        descriptor = os.open(path, flags | os.O_NONBLOCK)
    except OSError as error:
        if error.errno == errno.ENXIO:  # a socket, or a device without a driver
            raise not_regular(path, "a socket or a device") from error
        if error.errno == errno.ELOOP:
            raise not_regular(path, "a link that leads to itself") from error
        raise
    status = os.fstat(descriptor)
    kind = "a folder" if stat.S_ISDIR(status.st_mode) else odd_kind(status)
    if kind:
        os.close(descriptor)
        raise not_regular(path, kind)
    return descriptor


@cache
def _kernel_devices() -> frozenset[int]:
    """Returns the device numbers of the kernel's own file systems; none where it names none."""
    devices = set()
    try:
        with open(_MOUNTS, encoding="utf-8", errors="replace") as mounts:
            for line in mounts:
                before, _, after = line.partition(" - ")
                if after.split(" ", 1)[0] in _KERNEL:
                    major, _, minor = before.split(" ")[2].partition(":")
                    devices.add(os.makedev(int(major), int(minor)))
    except (OSError, ValueError, IndexError):
        pass
    return frozenset(devices)
