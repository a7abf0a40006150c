"""Reading a finished dataset with tf.data. Imports `recordmill.records` only: no Beam, no numba.

TensorFlow is loaded by the first call, not by the import.
"""

from recordmill.reader.loading import load

__all__ = ["load"]
