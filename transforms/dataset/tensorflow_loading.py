"""Load TensorFlow quietly, without a change of the user's Keras version."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def _standard_error_discarded() -> Iterator[None]:
    """Drops what TensorFlow prints about graphics cards while it loads."""
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
    # tensorflow_transform switches the process and its workers to Keras 2 unless this is set.
    os.environ.setdefault("TF_USE_LEGACY_KERAS", "0")
    load_quietly(*modules, "tensorflow_transform.beam")


def load_quietly(*modules: str) -> None:
    """Imports TensorFlow, or modules that need it, without its notes about this machine.

    They say that there is no graphics card (cuInit), and how TensorFlow was built; a user of a
    command can do nothing about either. A TF_CPP_MIN_LOG_LEVEL of the user's own stays.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    from absl import logging

    logging.set_verbosity(logging.ERROR)
    with _standard_error_discarded():
        for module in modules:
            importlib.import_module(module)
