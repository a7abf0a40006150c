"""Reading finished datasets with tf.data. Imports `recordmill.records` only: no Beam.

A name is imported where it is first used, so that TensorFlow is loaded by the first call that
needs it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from recordmill.reader.arrays import RaggedArray, as_numpy
    from recordmill.reader.loading import Reader, load

_MODULES = {
    "RaggedArray": "arrays",
    "Reader": "loading",
    "as_numpy": "arrays",
    "load": "loading",
}

__all__ = ["RaggedArray", "Reader", "as_numpy", "load"]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"recordmill.reader.{_MODULES[name]}"), name)
