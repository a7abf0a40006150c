"""What workers of this machine share with the process that they are forked from; without Beam."""

from __future__ import annotations

import os
import signal
import tempfile
from multiprocessing import util

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)  # they reach all processes of a terminal
_MOST_FOLDER_BYTES = 60


def socket_folder() -> str:
    """Returns the private folder of the socket by which Python reaches the process to fork from.

    Python removes it when the program ends, but not where it is killed, or ends by `os._exit`.
    """
    before = tempfile.tempdir
    if len(os.fsencode(tempfile.gettempdir())) > _MOST_FOLDER_BYTES:
        tempfile.tempdir = "/tmp"  # a socket's path may have some hundred bytes
    try:
        folder: str = util.get_temp_dir()
    finally:
        tempfile.tempdir = before
    # Python makes it once in a process, and somebody may have tidied up since.
    os.makedirs(folder, mode=0o700, exist_ok=True)
    return folder
