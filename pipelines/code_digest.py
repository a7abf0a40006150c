"""A checksum of what a function of a notebook does: of its code, and of what that refers to.

The bytes of a pickle differ from session to session where the function is the same, and so could
not tell whether a run is the one to be finished.
"""

from __future__ import annotations

import hashlib
import pickle
import types
from typing import Any


def digest_of_function(function: Any) -> str:
    """Returns a checksum that is equal for equal code, constants and captured values."""
    digest = hashlib.blake2b(digest_size=16)
    _Walk(digest).add(function)
    return digest.hexdigest()


class _Walk:
    """Goes through a function and what it refers to, each object once."""

    def __init__(self, digest: hashlib.blake2b) -> None:
        self._digest = digest
        self._seen: set[int] = set()

    def add(self, value: Any) -> None:
        """Adds a value to the checksum."""
        if isinstance(value, types.CodeType):
            self._add_code(value)
        elif isinstance(value, types.FunctionType | types.MethodType | type):
            if id(value) in self._seen:
                return
            self._seen.add(id(value))
            self._add_definition(value)
        elif isinstance(value, types.ModuleType):
            self._text("module", value.__name__)
        elif isinstance(value, tuple | list):
            self._text(type(value).__name__, str(len(value)))
            for item in value:
                self.add(item)
        elif isinstance(value, set | frozenset):
            self._text("set", "\n".join(sorted(map(repr, value))))
        elif isinstance(value, dict):
            self._text("dict", str(len(value)))
            for key, item in value.items():
                self.add(key)
                self.add(item)
        else:
            self._add_object(value)

    def _add_code(self, code: types.CodeType) -> None:
        self._text("code", code.co_name, *code.co_names, *code.co_varnames, *code.co_freevars)
        self._digest.update(code.co_code)
        for constant in code.co_consts:
            self.add(constant)

    def _add_definition(self, value: Any) -> None:
        if isinstance(value, types.MethodType):
            self.add(value.__func__)
            self.add(value.__self__)
        elif isinstance(value, types.FunctionType):
            self.add(value.__code__)
            self.add((value.__defaults__, value.__kwdefaults__))
            for cell in value.__closure__ or ():
                self.add(cell.cell_contents)
            for name in sorted(_global_names(value.__code__)):
                if name in value.__globals__:
                    self._text("global", name)
                    self.add(value.__globals__[name])
        else:
            self._text("class", value.__module__, value.__qualname__)
            if value.__module__ == "__main__":
                for name, member in sorted(vars(value).items()):
                    if not name.startswith("__") or callable(member):
                        self._text("member", name)
                        self.add(member)

    def _add_object(self, value: Any) -> None:
        kind = type(value)
        self._text("object", kind.__module__, kind.__qualname__)
        try:
            self._digest.update(pickle.dumps(value, protocol=4))
        except Exception:
            self._text("opaque")
        if callable(value) and kind.__module__ == "__main__":
            self.add(kind)

    def _text(self, *texts: str) -> None:
        self._digest.update("\0".join((*texts, "\0")).encode())


def _global_names(code: types.CodeType) -> set[str]:
    """Returns the names that a function may look up, also in functions inside of it."""
    names = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names |= _global_names(constant)
    return names
