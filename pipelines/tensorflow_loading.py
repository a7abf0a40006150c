"""TensorFlow in the process that plans: as quietly as it can be, and with the user's own Keras."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def _standard_error_closed() -> Iterator[None]:
    """Drops what TensorFlow prints while it loads, about graphics cards that nobody asked for."""
    sys.stderr.flush()
    before, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(before, 2)
        os.close(before)
        os.close(nowhere)


def load_tensorflow(*modules: str) -> None:
    """Imports tensorflow_transform, and other modules that need TensorFlow."""
    # tensorflow_transform switches the whole process, and its workers, to Keras 2 where it may.
    os.environ.setdefault("TF_USE_LEGACY_KERAS", "0")
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    from absl import logging

    logging.set_verbosity(logging.ERROR)
    with _standard_error_closed():
        for module in (*modules, "tensorflow_transform.beam"):
            importlib.import_module(module)
