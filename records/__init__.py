"""The contract between writer and trainer: how records look, are named, hashed and listed.

Nothing in this folder knows of Beam, of TensorFlow or of where the data came from; only `codec`
needs numba. Names are imported where they are first used; `__init__.pyi` lists them.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
