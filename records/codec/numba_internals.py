"""Everything private of numba and llvmlite that recordmill uses.

A release of either may change what is here without notice; `tests/records/codec/test_compat.py`
fails then, with the name of what changed.
"""

from __future__ import annotations

import fcntl
import os
import pickle
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from hashlib import blake2b
from typing import Any

import numba
from llvmlite import binding, ir
from numba.core.caching import IndexDataCacheFile
from numba.extending import intrinsic

_CHECKSUM_BYTES = 16
_MOST_WAIT_SECONDS = 60.0  # for another process that compiles
_LOOK_EVERY_SECONDS = 0.01


@contextmanager
def cache_folder(path: str) -> Iterator[None]:
    """Makes functions that are decorated in the block keep their machine code in `path`.

    numba reads the folder when a function is decorated, and has no argument for it.
    """
    before = numba.config.CACHE_DIR
    numba.config.CACHE_DIR = path
    try:
        yield
    finally:
        numba.config.CACHE_DIR = before


class _CheckedFile(IndexDataCacheFile):
    """numba's cache of a function with a checksum behind each part: what is damaged is not there.

    Without, an empty file, as a power loss leaves it, ends every run by an error of pickle, and a
    flipped bit is run as machine code. Who finds nothing compiles it, and others wait meanwhile.
    What a folder has that is shared with other users is read there.
    """

    _lock = -1
    _shared: _CheckedFile | None = None

    def share(self, folder: str) -> None:
        """Reads what is not in this user's folder in one that others wrote."""
        self._shared = shared = _CheckedFile.__new__(_CheckedFile)
        shared.__dict__.update(self.__dict__, _shared=None)
        shared._cache_path = os.path.join(folder, os.path.basename(self._cache_path))
        shared._index_path = os.path.join(shared._cache_path, self._index_name)

    def load(self, key: Any) -> Any:
        data = self._find(key)
        if data is not None or self._lock >= 0 or not self._wait():
            return data
        return self._find(key)

    def _find(self, key: Any) -> Any:
        data = super().load(key)
        return self._shared._find(key) if data is None and self._shared else data

    def _wait(self) -> bool:
        """Returns whether nobody else compiles the function now, who is alive and in time."""
        end = time.monotonic() + _MOST_WAIT_SECONDS
        try:
            os.makedirs(self._cache_path, mode=0o700, exist_ok=True)
            self._lock = os.open(f"{self._index_path}.lock", os.O_RDWR | os.O_CREAT, 0o600)
            while True:
                try:
                    fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    return True
                except BlockingIOError:
                    if time.monotonic() > end:
                        break
                time.sleep(_LOOK_EVERY_SECONDS)
        except OSError:  # a disk without locks
            pass
        self.unlock()
        return False

    def unlock(self) -> None:
        """Lets others compile the function, or load it."""
        lock, self._lock = self._lock, -1
        if lock >= 0:
            with suppress(OSError):
                os.close(lock)

    def _dump(self, content: Any) -> bytes:
        data: bytes = super()._dump(content)
        return data + _checksum(data)

    def _load_index(self) -> dict[Any, Any]:
        try:
            with open(self._index_path, "rb") as file:
                pickle.load(file)  # the version, which numba compares
                if _is_whole(file.read()):
                    index: dict[Any, Any] = super()._load_index()
                    return index
        except FileNotFoundError:
            pass
        except Exception:  # whatever pickle makes of it
            pass
        return {}

    def _load_data(self, name: str) -> Any:
        with open(self._data_path(name), "rb") as file:
            if not _is_whole(file.read()):
                raise OSError(f"{name} is damaged")  # as numba takes a missing file
        return super()._load_data(name)


def _checksum(data: bytes) -> bytes:
    return blake2b(data, digest_size=_CHECKSUM_BYTES).digest()


def _is_whole(data: bytes) -> bool:
    return _checksum(data[:-_CHECKSUM_BYTES]) == data[-_CHECKSUM_BYTES:]


def check_cached_code(function: Any, shared: str = "") -> None:
    """Makes a function that was decorated with `cache=True` use no damaged files of its cache.

    Args:
      function: by numba.
      shared: a folder with files of other users, to be read only; "" for none.
    """
    cache, compile_it = function._cache, function.compile
    checked = _CheckedFile.__new__(_CheckedFile)
    checked.__dict__.update(cache._cache_file.__dict__)
    if shared:
        checked.share(shared)
    cache._cache_file = checked

    def compile_alone(signature: Any) -> Any:
        try:
            return compile_it(signature)
        finally:
            checked.unlock()

    function.compile = compile_alone


def widen_literals(function: Any) -> None:
    """Makes a kernel that another one calls with the number 0 compile for any number alone.

    numba compiles it for a literal first, and again for what the variable becomes in a loop.
    """
    ask = function.get_call_template

    def get_call_template(args: Any, kws: Any) -> Any:
        widened = {name: numba.types.unliteral(kind) for name, kind in kws.items()}
        return ask(tuple(map(numba.types.unliteral, args)), widened)

    function.get_call_template = get_call_template


def load_compiler() -> None:
    """Loads what numba otherwise loads when the first kernel is called: half a second."""
    target = numba.core.registry.cpu_target
    target.typing_context.refresh()
    target.target_context.refresh()


def processor() -> str:
    """Returns the name of the processor that kernels are compiled for."""
    return str(numba.config.CPU_NAME or binding.get_host_cpu_name())


def has_crc32c_instruction() -> bool:
    """Returns whether kernels are compiled for a processor with an instruction for crc32c."""
    features, config = binding.get_host_cpu_features(), numba.config
    chosen = config.CPU_FEATURES  # None: those of this machine
    has_it = features.get("sse4.2") if chosen is None else "+crc32" in chosen.split(",")
    return bool(has_it) and "sse4.2" in features


@intrinsic
def crc32c_of_word(_: Any, crc: Any, data: Any, at: Any) -> Any:
    """Adds `data[at : at + 8]` to a crc32c, five times as fast as by tables.

    Only where `has_crc32c_instruction`. Kernels call it as `crc32c_of_word(crc, data, at)` with a
    uint64, a contiguous `[n] uint8` and an int64; it returns a uint64.
    """
    if data.layout != "C":
        return None  # numba says that there is no such function

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        before, array, offset = values
        content = context.make_array(signature.args[1])(context, builder, array).data
        uint64 = ir.IntType(64)
        pointer = builder.bitcast(builder.gep(content, [offset]), uint64.as_pointer())
        function = builder.module.declare_intrinsic(
            "llvm.x86.sse42.crc32.64.64", fnty=ir.FunctionType(uint64, [uint64, uint64])
        )
        return builder.call(function, [before, builder.load(pointer, align=1)])

    types = numba.types
    return types.uint64(types.uint64, data, types.int64), generate


@intrinsic
def word_at(_: Any, data: Any, at: Any) -> Any:
    """Returns `data[at : at + 8]` as a little-endian uint64, wherever it begins.

    Kernels call it as `word_at(data, at)` with a contiguous `[n] uint8` and an int64.
    """
    if data.layout != "C":
        return None  # numba says that there is no such function

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        array, offset = values
        content = context.make_array(signature.args[0])(context, builder, array).data
        pointer = builder.bitcast(builder.gep(content, [offset]), ir.IntType(64).as_pointer())
        return builder.load(pointer, align=1)

    types = numba.types
    return types.uint64(data, types.int64), generate


@intrinsic
def put_word_at(_: Any, data: Any, at: Any, word: Any) -> Any:
    """Writes a uint64 to `data[at : at + 8]`, or a uint32 to 4 bytes, little-endian, anywhere.

    Kernels call it as `put_word_at(data, at, word)` with a contiguous `[n] uint8` and an int64.
    """
    types = numba.types
    if data.layout != "C" or word not in (types.uint32, types.uint64):
        return None  # numba says that there is no such function

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        array, offset, content = values
        begin = context.make_array(signature.args[0])(context, builder, array).data
        pointer = builder.bitcast(builder.gep(begin, [offset]), content.type.as_pointer())
        builder.store(content, pointer, align=1)
        return context.get_dummy_value()

    return types.void(data, types.int64, word), generate
