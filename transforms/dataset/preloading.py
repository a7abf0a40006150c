"""Imported by the process that workers are forked from: loads once what all of them need.

Loading Beam and kernels takes seconds. An error is no affair of this process: whoever plans or does
the job meets it, and says it.
"""

import importlib
import os
import signal
import sys
from contextlib import suppress

from recordmill.transforms.dataset.worker_pool import PRELOADED, SIGNALS
from recordmill.transforms.storage.beam_storage_internals import unpickle_function


def _load(path: str) -> None:
    with open(path, "rb") as handle:
        modules, warm_up = unpickle_function(handle.read())
    for module in modules:
        importlib.import_module(module)
    if "recordmill.records.codec.jit" in sys.modules:
        sys.modules["recordmill.records.codec.jit"].load()
    for module in modules:
        getattr(sys.modules[module], "load_kernels", lambda: None)()
    if warm_up:
        warm_up()


if PRELOADED in os.environ:
    for each in SIGNALS:
        signal.signal(each, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    with suppress(Exception):
        _load(os.environ.pop(PRELOADED))
