"""Reading finished datasets with tf.data. Imports `recordmill.records` only: no Beam.

A name is imported where it is first used, so that TensorFlow is loaded by the first call that
needs it; `__init__.pyi` lists them.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
