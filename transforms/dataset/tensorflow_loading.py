"""Load TensorFlow quietly, without a change of the user's Keras version."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from recordmill.records.errors import RunError
from recordmill.transforms.dataset.limits import TENSORFLOW_BYTES, check_memory


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
    """Imports tensorflow_transform, and other modules that need TensorFlow.

    Raises:
      RunError: Python was started without docstrings, or there is not enough memory.
    """
    if sys.flags.optimize > 1:
        raise RunError(
            "tensorflow_transform needs docstrings, which PYTHONOPTIMIZE=2 leaves out; unset it, "
            "and run the same command again"
        )
    # tensorflow_transform switches the process and its workers to Keras 2 unless this is set.
    os.environ.setdefault("TF_USE_LEGACY_KERAS", "0")
    load_quietly(*modules, "tensorflow_transform.beam")


def load_quietly(*modules: str) -> None:
    """Imports TensorFlow, or modules that need it, without its notes about this machine.

    They say that there is no graphics card (cuInit), and how TensorFlow was built; a user of a
    command can do nothing about either. A TF_CPP_MIN_LOG_LEVEL of the user's own stays.

    Raises:
      RunError: there is not enough memory for TensorFlow, which would end the process.
    """
    if "tensorflow" not in sys.modules:
        check_memory(TENSORFLOW_BYTES)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    from absl import logging

    logging.set_verbosity(logging.ERROR)
    with _standard_error_discarded():
        for module in modules:
            importlib.import_module(module)
