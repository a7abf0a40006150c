"""`--map`: functions of users' own, found and read before anything starts."""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import os
import sys
import sysconfig
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from typing import Any

from recordmill.pipelines.code_digest import digest_of_function
from recordmill.records.errors import UsageError, did_you_mean
from recordmill.transforms.dataset.function_bytes import function_bytes
from recordmill.transforms.dataset.output_spec import MapOptions
from recordmill.transforms.dataset.user_functions import (
    MapSpec,
    ShippedModule,
    UserFunction,
    find_function,
)
from recordmill.transforms.dataset.writable import reason
from recordmill.transforms.storage import files

_MOST_BYTES = 1 << 20  # of source that travels with each stage of a job
_FORMS = "FILE.py:FUNCTION or package.module:function"


def map_spec(options: MapOptions, given: Sequence[UserFunction] = ()) -> MapSpec:
    """Finds the functions, reads their source and checks that they can be called.

    Args:
      options: of a job.
      given: functions that a program or notebook gives instead of the flag.

    Raises:
      UsageError: one line: a function is not there, or cannot be used; or --map_errors has no
        effect.
    """
    functions = tuple(given) or tuple(map(user_function, options.map))
    if options.map_errors != "reject" and not functions:
        raise UsageError(
            f"--map_errors={options.map_errors} has no effect without --map; add it, or leave this "
            "out"
        )
    return MapSpec(functions, options.map_errors)


def user_function(name: str) -> UserFunction:
    """Returns the function of a name.

    Raises:
      UsageError: one line: what is wrong with it.
    """
    place, colon, attribute = name.rpartition(":")
    is_file = place.endswith(".py")
    if not colon or not attribute or not (is_file or place.replace(".", "").isidentifier()):
        raise UsageError(f"--map must be {_FORMS}, got {name!r}")
    if not all(part.isidentifier() for part in attribute.split(".")):
        raise UsageError(f"--map must be {_FORMS}; {attribute!r} is no name of a function")
    function = _of_file(place, attribute) if is_file else _of_module(place, attribute)
    find_function(function)
    return function


def function_from_object(given: Callable[[Any], Any]) -> UserFunction:
    """Returns a function that a program or notebook gives as an object.

    One at the top of a module that can be imported travels as source; any other, with what it
    refers to, as cloudpickle has it.

    Raises:
      UsageError: it cannot be called, or what it refers to cannot travel.
    """
    if not callable(given):
        raise UsageError(
            f"map must be a function, its name as {_FORMS}, or a list of these, got "
            f"{type(given).__name__}"
        )
    module, name = getattr(given, "__module__", None), getattr(given, "__qualname__", "")
    known: Any = sys.modules.get(module or "")
    is_top = name.isidentifier() and getattr(known, name, None) is given
    if is_top and module != "__main__" and getattr(known, "__file__", None):
        function = _of_module(str(module), name)
        find_function(function)
        return function
    try:
        pickled = function_bytes(given)
    except Exception as error:
        raise UsageError(
            f"map: the function {name or given!r} cannot be sent to workers, because of what it "
            f"refers to: {' '.join(str(error).split())[:200]}; open files and locks inside of it"
        ) from error
    _check_size(name, len(pickled))
    digest = digest_of_function(given)
    function = UserFunction(f"{module}:{name or type(given).__name__}", "", "", digest, (), pickled)
    find_function(function)
    return function


def _check_size(name: str, size: int) -> None:
    if size > _MOST_BYTES:
        raise UsageError(
            f"--map {name}: {size} bytes would have to travel with each stage, more than "
            f"{_MOST_BYTES}; put the function into a file of its own, load large data inside of "
            "it, or install the package on every worker"
        )


def _of_file(path: str, attribute: str) -> UserFunction:
    name = f"{path.rpartition('/')[2]}:{attribute}"
    text = _read(path, f"--map {path}:{attribute}")
    _check_size(name, len(text))
    shipped = ShippedModule("", path.rpartition("/")[2], text)
    digest = _digest([shipped])
    return UserFunction(name, "", attribute, digest, (shipped,))


def _read(path: str, name: str) -> str:
    try:
        return files.read_limited(path, 64 * _MOST_BYTES).decode("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(f"{name} cannot be read: the file is no UTF-8") from error
    except OSError as error:
        near = _near_files(path)
        raise UsageError(f"{name} cannot be read: {reason(error)}{near}") from error


def _near_files(path: str) -> str:
    if not files.is_local(path):
        return ""
    folder = os.path.dirname(path) or "."
    names = [n for n in (os.listdir(folder) if os.path.isdir(folder) else []) if n.endswith(".py")]
    above, name = os.path.split(path)
    return did_you_mean(name, names, show=lambda near: os.path.join(above, near))


def _of_module(module: str, attribute: str) -> UserFunction:
    name = f"{module}:{attribute}"
    top = module.partition(".")[0]
    # The current folder is looked at first, as `python -m` does.
    spec = PathFinder.find_spec(top, [os.getcwd(), *sys.path]) or _installed_spec(top)
    if spec is None:
        raise UsageError(
            f"--map {name}: there is no module {top} in this folder and none is installed; give "
            "FILE.py:FUNCTION, or set PYTHONPATH"
        )
    if _is_installed(spec):
        return UserFunction(name, module, attribute, _digest_installed(module, name))
    shipped = _sources(spec, module, name)
    if not shipped or (module != top and not shipped[0].is_package):
        raise UsageError(f"--map {name}: {top} has no module {module}")
    _check_size(name, sum(len(each.text) for each in shipped))
    return UserFunction(name, module, attribute, _digest(shipped), tuple(shipped))


def _installed_spec(top: str) -> ModuleSpec | None:
    try:
        return importlib.util.find_spec(top)
    except (ImportError, ValueError):
        return None


def _is_installed(spec: ModuleSpec) -> bool:
    """Whether a module comes with Python or with a package, which workers have too."""
    if spec.origin in ("built-in", "frozen"):
        return True
    paths = sysconfig.get_paths()
    roots = [Path(paths[name]).resolve() for name in ("purelib", "platlib", "stdlib")]
    places = [spec.origin] if spec.origin else list(spec.submodule_search_locations or ())
    return any(Path(place).resolve().is_relative_to(root) for place in places for root in roots)


def _digest_installed(module: str, name: str) -> str:
    """Returns the checksum of an installed module's file."""
    try:
        spec = importlib.util.find_spec(module)
    except (Exception, SystemExit) as error:
        raise UsageError(
            f"--map {name} cannot be imported: {type(error).__name__}: {error}"
        ) from error
    if spec is None:
        raise UsageError(f"--map {name}: there is no module {module}")
    text = Path(spec.origin).read_bytes() if spec.origin and spec.has_location else b""
    return hashlib.blake2b(text, digest_size=16).hexdigest()


def _sources(spec: ModuleSpec, module: str, name: str) -> list[ShippedModule]:
    """Returns a module, and what it imports of its own package, and that in turn."""
    if spec.submodule_search_locations is None:
        origin = str(spec.origin)
        return [ShippedModule("", os.path.basename(origin), _read(origin, f"--map {name}"))]
    paths: dict[str, Path] = {}
    for root in spec.submodule_search_locations:
        for found_path in Path(root).rglob("*.py"):
            parts = [spec.name, *found_path.relative_to(root).with_suffix("").parts]
            paths[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = found_path
    found: dict[str, ShippedModule] = {}
    waiting = [module]
    while waiting:
        each = waiting.pop()
        if each in found or (each not in paths and not _has_modules(each, paths)):
            continue
        parent, path = each.rpartition(".")[0], paths.get(each)
        is_package = path is None or path.name == "__init__.py"
        shown = each.replace(".", "/") + ("/__init__.py" if is_package else ".py")
        text = _read(str(path), f"--map {name}") if path else ""  # a folder without __init__.py
        found[each] = ShippedModule(each, shown, text, is_package=is_package)
        waiting += [*([parent] if parent else []), *_imports(text, each if is_package else parent)]
    return [found[each] for each in sorted(found)]


def _has_modules(package: str, paths: Iterable[str]) -> bool:
    return any(each.startswith(f"{package}.") for each in paths)


def _imports(text: str, package: str) -> Iterator[str]:
    """Yields the names that a module imports, of which some are no modules.

    Args:
      text: its source.
      package: that relative imports begin in.
    """
    try:
        tree = ast.parse(text)
    except SyntaxError:  # importing it says where
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package.split(".")[: len(package.split(".")) - node.level + 1]
            module = ".".join([*(base if node.level else []), *filter(None, [node.module])])
            yield module
            yield from (f"{module}.{alias.name}" for alias in node.names)


def _digest(shipped: list[ShippedModule]) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for each in sorted(shipped, key=lambda module: module.name):
        digest.update(f"{each.name}\t{len(each.text)}\t{each.text}\n".encode())
    return digest.hexdigest()
