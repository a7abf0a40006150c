"""Functions of users' own, from `--map`: how they travel to workers, and how they are called.

A job carries the source of its functions, so a worker needs no file of the user's. A function is a
module's: of one file, of a package whose files travel all, or of a package that is installed on
every worker. One that is given as an object, in a notebook, travels as cloudpickle has it.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import inspect
import sys
import threading
import types
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from recordmill.records.errors import RunError, UsageError, one_of
from recordmill.transforms.dataset.function_bytes import function_of

ERRORS = ("reject", "fail")
_LOCK = threading.RLock()
_MOST_CHARACTERS = 160  # of an error's message

ElementT = TypeVar("ElementT")


@dataclass(frozen=True, slots=True)
class ShippedModule:
    """The source of a module.

    Attributes:
      name: as it is imported.
      path: as messages name the file.
      text: its source.
      is_package: it is the `__init__` of a package.
    """

    name: str
    path: str
    text: str
    is_package: bool = False


@dataclass(frozen=True, slots=True)
class UserFunction:
    """A function, or a class of which each worker makes one object that it calls.

    Attributes:
      name: as messages and the manifest show it, such as `cleaning.py:clean`.
      module: that has it; one that `shipped` does not have is installed on the worker. "" where
        the function is pickled.
      attribute: its name in the module.
      digest: of all of its source that travels, or of the file where it is installed.
      shipped: the modules that travel with it.
      pickled: the function as cloudpickle has it.
    """

    name: str
    module: str
    attribute: str
    digest: str
    shipped: tuple[ShippedModule, ...] = ()
    pickled: bytes = b""


@dataclass(frozen=True, slots=True)
class MapSpec:
    """What is done to each element before anything else looks at it.

    Attributes:
      functions: in the order in which they are called.
      errors: "reject" makes an element a reject for which a function raises, "fail" ends the run.

    Raises:
      UsageError: `errors` is none of these.
    """

    functions: tuple[UserFunction, ...] = ()
    errors: str = "reject"

    def __post_init__(self) -> None:
        one_of("--map_errors", self.errors, ERRORS)

    def __bool__(self) -> bool:
        return bool(self.functions)

    def fingerprint_options(self) -> list[str]:
        """Returns what decides the bytes: each function's name and the checksum of its source."""
        return [f"{each.name}@{each.digest}" for each in self.functions]

    def check_goes_on(self, error: ElementError, element: str) -> None:
        """Checks that an error of a function makes its element a reject.

        Args:
          error: of the function.
          element: that it was called for, such as "the image a.png".

        Raises:
          RunError: it ends the run; says what can be done.
        """
        if self.errors == "fail":
            raise RunError(
                f"--map {error}, for {element}; correct the function and start anew with "
                "--overwrite, or give --map_errors=reject"
            ) from error


class ElementError(Exception):
    """A function raised an error for an element, or returned what is none; says so in one line."""


class FunctionChain(Generic[ElementT]):
    """Calls the functions of a job one after the other.

    Args:
      spec: of the job.
      kinds: the types of elements.

    Raises:
      RunError: a function cannot be loaded on this worker.
    """

    def __init__(self, spec: MapSpec, *kinds: type[ElementT]) -> None:
        self._kinds = kinds
        self._functions = []
        for each in spec.functions:
            try:
                self._functions.append((each, load_function(each)))
            except UsageError as error:
                raise RunError(
                    f"on a worker: {error}; install there what it needs, and run the same command "
                    "again"
                ) from error

    def __call__(self, element: ElementT) -> list[ElementT]:
        """Returns what becomes of an element: nothing, itself, or several.

        Raises:
          ElementError: a function raised, or returned something else.
        """
        elements = [element]
        for described, function in self._functions:
            results: list[ElementT] = []
            try:
                for each in elements:
                    result = function(each)
                    if type(result) in self._kinds:
                        results.append(result)
                    elif result is not None:
                        results += self._several(result)
            except MemoryError:
                raise
            except (Exception, SystemExit) as error:
                raise ElementError(f"{described.name}: {_describe(error, described)}") from error
            elements = results
        return elements

    def _several(self, result: Any) -> Iterator[ElementT]:
        """Yields the elements of a list or generator.

        Raises:
          TypeError: it is something else, or one of its elements is.
        """
        name = " or ".join(kind.__name__ for kind in self._kinds)
        rule = f"the function must return {name}, None, or a list of {name}; it returned"
        if isinstance(result, str | bytes | dict | bool) or not isinstance(result, Iterable):
            raise TypeError(f"{rule} {type(result).__name__}")
        for item in result:
            if type(item) not in self._kinds:
                kind = type(result).__name__
                raise TypeError(f"{rule} a {kind} with {type(item).__name__}")
            yield item


def load_function(function: UserFunction) -> Callable[[Any], Any]:
    """Imports a function; of a class, makes an object.

    Raises:
      UsageError: one line: its source cannot be imported, or has no such function.
    """
    found = find_function(function)
    if not inspect.isclass(found):
        return found
    kind: Any = found
    try:
        made: Callable[[Any], Any] = kind()
    except (Exception, SystemExit) as error:
        raise UsageError(
            f"--map {function.name}: an object of the class cannot be made: "
            f"{_describe(error, function)}"
        ) from error
    return made


def find_function(function: UserFunction) -> Callable[[Any], Any]:
    """Imports a function or class, and checks that it takes one element.

    Raises:
      UsageError: as `load_function`.
    """
    try:
        module = _import(function)
    except SyntaxError as error:
        at = f"line {error.lineno}: " if error.lineno else ""
        raise UsageError(f"--map {function.name} has a syntax error: {at}{error.msg}") from error
    except MemoryError:
        raise
    except (Exception, SystemExit) as error:
        raise UsageError(
            f"--map {function.name} cannot be imported: {_describe(error, function)}"
        ) from error
    found = module if function.pickled else _attribute(module, function)
    _check_call(found, function)
    call: Callable[[Any], Any] = found
    return call


def _attribute(module: Any, function: UserFunction) -> Any:
    found = module
    for part in function.attribute.split("."):
        if not hasattr(found, part):
            names = [n for n, v in vars(module).items() if callable(v) and not n.startswith("_")]
            if not names:
                raise UsageError(
                    f"--map {function.name}: the module has no function, nor an __init__.py that "
                    "imports one"
                )
            one_of(f"--map {function.name}: the function", function.attribute, names)
        found = getattr(found, part)
    return found


def _check_call(found: Any, function: UserFunction) -> None:
    """Checks that something can be called with one element.

    Raises:
      UsageError: it cannot.
    """
    if not callable(found):
        raise UsageError(
            f"--map {function.name} must be a function that takes an element, and is of type "
            f"{type(found).__name__}"
        )
    called = found
    if inspect.isclass(found):
        if "__call__" not in {name for kind in found.__mro__[:-1] for name in vars(kind)}:
            raise UsageError(
                f"--map {function.name} is a class whose objects cannot be called; give it a "
                "__call__ that takes an element"
            )
        _check_bound(found, (), f"--map {function.name}: the class must need no argument")
        called = types.MethodType(found.__call__, object())
    if inspect.iscoroutinefunction(called):
        raise UsageError(f"--map {function.name} must be a plain function, and is async")
    _check_bound(called, (None,), f"--map {function.name} must take one argument, the element")


def _check_bound(called: Any, arguments: tuple[Any, ...], rule: str) -> None:
    try:
        inspect.signature(called).bind(*arguments)
    except TypeError as error:
        raise UsageError(f"{rule}: {error}") from error
    except ValueError:  # a builtin, whose signature is not known
        return


def _import(function: UserFunction) -> Any:
    if function.pickled:
        return function_of(function.pickled)
    with _LOCK:
        if not function.shipped:
            return importlib.import_module(function.module)
        if len(function.shipped) == 1 and not function.shipped[0].is_package:
            return _import_file(function)
        with _importing(function.shipped):
            return importlib.import_module(function.module)


def _import_file(function: UserFunction) -> types.ModuleType:
    """Executes a file as a module of a name that no other module has."""
    (shipped,) = function.shipped
    name = f"recordmill_map_{function.digest}"
    known = sys.modules.get(name)
    if known is not None:
        return known
    module = types.ModuleType(name)
    sys.modules[name] = module  # dataclasses look for their module there
    try:
        exec(compile(shipped.text, shipped.path, "exec"), module.__dict__)
    except BaseException:
        del sys.modules[name]
        raise
    return module


@contextmanager
def _importing(shipped: Sequence[ShippedModule]) -> Iterator[None]:
    """Lets modules that came with the job go before all others of their names.

    Afterwards the modules of the process are as before: a notebook may have imported another state
    of a package, and may do so later. What functions import when they are called comes from the job
    where it is nowhere else.
    """
    names = [each.name for each in shipped]
    before = {name: sys.modules.pop(name) for name in names if name in sys.modules}
    _FINDER.add(shipped)
    sys.meta_path.insert(0, _FINDER)
    try:
        yield
    finally:
        sys.meta_path[:] = [*(each for each in sys.meta_path if each is not _FINDER), _FINDER]
        for name in names:
            sys.modules.pop(name, None)
        sys.modules.update(before)


class _ShippedFinder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports modules whose source came with the job."""

    def __init__(self) -> None:
        self._modules: dict[str, ShippedModule] = {}

    def add(self, shipped: Iterable[ShippedModule]) -> None:
        """Adds modules; of those of one name the last one counts."""
        self._modules.update((each.name, each) for each in shipped)

    def find_spec(
        self, fullname: str, path: object = None, target: object = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Returns how to import a module, None for one that did not come with the job."""
        shipped = self._modules.get(fullname)
        if shipped is None:
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=shipped.is_package)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> None:
        """Leaves making the module to Python."""

    def exec_module(self, module: types.ModuleType) -> None:
        """Executes the source of a module."""
        shipped = self._modules[module.__name__]
        exec(compile(shipped.text, shipped.path, "exec"), module.__dict__)


_FINDER = _ShippedFinder()


def _describe(error: BaseException, function: UserFunction) -> str:
    """Returns an error in one line, with the line of the user's source where it was raised."""
    paths = {each.path: each.path for each in function.shipped}
    at = ""
    trace = error.__traceback__
    while trace is not None:
        path = paths.get(trace.tb_frame.f_code.co_filename)
        if path is not None:
            at = f" ({path}, line {trace.tb_lineno})"
        trace = trace.tb_next
    text = " ".join(str(error).split())
    if len(text) > _MOST_CHARACTERS:
        text = f"{text[:_MOST_CHARACTERS]}…"
    return f"{type(error).__name__}: {text}{at}" if text else f"{type(error).__name__}{at}"
