"""Imported by the process that workers are forked from: loads once what all of them need.

An error is no affair of this process: whoever plans or does the job meets it, and says it.
"""

import gc
import importlib
import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterable
from contextlib import suppress

from recordmill.pipelines.engines.preloading import PRELOADED, WARM_UP
from recordmill.transforms.dataset.fork_server import SIGNALS

_LOOK_EVERY_SECONDS = 0.01


def _load(modules: Iterable[str]) -> None:
    for name in modules:
        module = importlib.import_module(name)
        if "recordmill.records.codec.jit" in sys.modules:
            sys.modules["recordmill.records.codec.jit"].load()
        getattr(module, "load_kernels", lambda: None)()


def _warm_up(folder: str, parent: int) -> None:
    from recordmill.transforms.dataset.function_bytes import function_of

    path = os.path.join(folder, WARM_UP)
    while not os.path.exists(path):
        if os.getppid() != parent:
            os._exit(1)
        if not os.path.isdir(folder):  # the job ended; another one may use this process
            return
        time.sleep(_LOOK_EVERY_SECONDS)
    with open(path, "rb") as handle:
        function = function_of(handle.read())
    if function:
        # The driver removes the folder, and what is made meanwhile with it, also where it kills
        # this process.
        tempfile.tempdir, before = folder, tempfile.tempdir
        try:
            function()
        finally:
            tempfile.tempdir = before


if PRELOADED in os.environ:
    _parent = os.getppid()
    for _each in SIGNALS:
        signal.signal(_each, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    _folder, *_modules = os.environ.pop(PRELOADED).split(" ")
    gc.disable()  # what is loaded stays
    with suppress(Exception):
        _load(_modules)
    with suppress(Exception):
        _warm_up(_folder, _parent)
    # A collection would write into pages that all workers share.
    gc.freeze()
    gc.enable()
