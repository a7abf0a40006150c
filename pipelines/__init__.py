"""Jobs as commands: options, planning, engines, the command line.

The public names are imported where they are first used; `__init__.pyi` lists them.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
