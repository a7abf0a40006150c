"""Beam stages and the pure functions they call, by subject: see `ARCHITECTURE.md`.

The public PTransforms and what they take are imported where they are first used; `__init__.pyi`
lists them.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
