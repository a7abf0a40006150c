"""SQLite's own library, called by a kernel: its rows become columns without objects of Python.

It is the library that Python's sqlite3 module is linked with, so texts are the same. Where it is
part of Python, or compiling is switched off, there is none, and the module reads in its place.
"""

from __future__ import annotations

import ctypes
import importlib
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import numba
import numpy as np
import pyarrow as pa

from recordmill.records.arrays import Bools, Int64s
from recordmill.records.codec.compat import call_int, call_int_of, call_long_of, copy_from_address
from recordmill.records.codec.jit import kernel

_OK, _ROW, _DONE = 0, 100, 101
_FULL, _NOT_INTEGER = -1, -2  # of our own
_INTEGER, _NULL = 1, 5
_NO_MEMORY = 7
_READ_ONLY, _BY_URI = 0x1, 0x40
_BUSY_MSEC = 5000  # as Python's module waits
_FIRST_BYTES = 1 << 16
_POINTER, _NUMBER, _STRING = ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p
_SIGNATURES: dict[str, tuple[Any, ...]] = {
    "open_v2": (_NUMBER, _STRING, ctypes.POINTER(_POINTER), _NUMBER, _STRING),
    "close_v2": (_NUMBER, _POINTER),
    "busy_timeout": (_NUMBER, _POINTER, _NUMBER),
    "prepare_v2": (
        _NUMBER, _POINTER, _STRING, _NUMBER, ctypes.POINTER(_POINTER), _POINTER,
    ),
    "finalize": (_NUMBER, _POINTER),
    "errmsg": (_STRING, _POINTER),
    "step": (_NUMBER, _POINTER),
    "column_type": (_NUMBER, _POINTER, _NUMBER),
    "column_int64": (ctypes.c_int64, _POINTER, _NUMBER),
    "column_text": (_POINTER, _POINTER, _NUMBER),
    "column_bytes": (_NUMBER, _POINTER, _NUMBER),
}  # fmt: skip
_CALLED = ("step", "column_type", "column_int64", "column_text", "column_bytes")


class UnorderedError(Exception):
    """The order of rows is not that of whole numbers; those yielded before are in order."""


@cache
def sqlite_library() -> SqliteLibrary | None:
    """Returns the library; None where it cannot be called."""
    if numba.config.DISABLE_JIT:
        return None
    try:
        library = ctypes.CDLL(importlib.import_module("_sqlite3").__file__)
        return SqliteLibrary(library)
    except (ImportError, AttributeError, OSError, TypeError):
        return None


class SqliteLibrary:
    """The functions of SQLite's library.

    Raises:
      AttributeError: the library does not export them.
    """

    def __init__(self, library: ctypes.CDLL) -> None:
        self.functions: dict[str, Any] = {}
        for name, (result, *arguments) in _SIGNATURES.items():
            function = getattr(library, f"sqlite3_{name}")
            function.restype, function.argtypes = result, arguments
            self.functions[name] = function
        addresses = (ctypes.cast(self.functions[name], _POINTER).value or 0 for name in _CALLED)
        self.calls = np.array(list(addresses), np.int64)

    @contextmanager
    def connect(self, address: str) -> Iterator[SqliteRows]:
        """Opens a database to be read only, by URI.

        Raises:
          sqlite3.DatabaseError: as Python's module raises it, also for what is asked meanwhile.
        """
        handle = _POINTER()
        try:
            code = self.functions["open_v2"](
                address.encode(), ctypes.byref(handle), _READ_ONLY | _BY_URI, None
            )
            rows = SqliteRows(self, handle)
            rows.check(code)
            self.functions["busy_timeout"](handle, _BUSY_MSEC)
            yield rows
        finally:
            self.functions["close_v2"](handle)


class SqliteRows:
    """Answers of an open database."""

    def __init__(self, library: SqliteLibrary, handle: Any) -> None:
        self._library = library
        self._functions = library.functions
        self._handle = handle

    def check(self, code: int) -> None:
        """Raises the error that a code of SQLite stands for."""
        if code not in (_OK, _ROW, _DONE):
            message = self._functions["errmsg"](self._handle) or b"out of memory"
            raise sqlite3.DatabaseError(message.decode("utf-8", "replace"))

    def execute(self, statement: str) -> None:
        """Executes a statement without an answer."""
        with self._prepared(statement) as prepared:
            self.check(self._functions["step"](prepared))

    @contextmanager
    def _prepared(self, statement: str) -> Iterator[Any]:
        prepared = _POINTER()
        try:
            self.check(
                self._functions["prepare_v2"](
                    self._handle, statement.encode(), -1, ctypes.byref(prepared), None
                )
            )
            yield prepared
        finally:
            self._functions["finalize"](prepared)

    def texts(
        self, statement: str, columns: int, most_rows: int, most_bytes: int, *, ties: bool
    ) -> Iterator[tuple[Int64s, pa.Array]]:
        """Yields an answer in batches of about so many rows and bytes.

        Args:
          statement: whose answer has a number and then texts or nulls, in order of the numbers.
          columns: of text.
          most_rows: of a batch.
          most_bytes: of the texts of a batch, unless a single row has more.
          ties: rows of one number come in one batch.

        Yields:
          `[rows] int64` numbers, and `[rows * columns]` texts of type large_string, row by row.

        Raises:
          UnorderedError: where `ties`, a number is none, or its rows have more than a batch. All
            rows of numbers before were yielded.
        """
        with self._prepared(statement) as prepared:
            held = _Held(columns, most_rows)
            while True:
                code = held.fill(self._library.calls, prepared.value, most_bytes, ties)
                if code == _NOT_INTEGER:
                    raise UnorderedError
                self.check(code)
                ends = held.rows
                if ties and code != _DONE:
                    ends = held.last_number()
                if ends:
                    yield held.take(ends)
                if code == _DONE:
                    return
                if not ends and held.rows > 1:
                    raise UnorderedError


def in_order(numbers: Int64s, cells: pa.Array) -> pa.Array:
    """Returns texts with the rows of each number in order of their bytes; nulls come first.

    Args:
      numbers: `[rows] int64`, ascending.
      cells: `[rows * columns]` of type large_string, row by row.
    """
    changes = np.flatnonzero(numbers[1:] != numbers[:-1]) + 1
    bounds = np.concatenate([[0], changes, [len(numbers)]])
    tied = np.flatnonzero(np.diff(bounds) > 1)
    if not len(tied):
        return cells
    columns = len(cells) // len(numbers)
    values = cells.view(pa.large_binary())
    rows = np.arange(len(numbers))
    for begin, end in zip(bounds[tied].tolist(), bounds[tied + 1].tolist(), strict=True):
        texts = values.slice(begin * columns, (end - begin) * columns).to_pylist()
        keys = [
            [(text is not None, text or b"") for text in texts[at : at + columns]]
            for at in range(0, len(texts), columns)
        ]
        rows[begin:end] = begin + np.array(sorted(range(end - begin), key=keys.__getitem__))
    return cells.take(pa.array((rows[:, None] * columns + np.arange(columns)).reshape(-1)))


class _Held:
    """Rows that were read, and not yet given away."""

    def __init__(self, columns: int, most_rows: int) -> None:
        self._columns = columns
        self._most_rows = most_rows
        self._state = np.zeros(3, np.int64)  # rows, whether one is read but not held, bytes needed
        self._begin(_FIRST_BYTES)

    def _begin(self, size: int) -> None:
        cells = self._most_rows * self._columns
        self._numbers = np.empty(self._most_rows, np.int64)
        self._offsets = np.zeros(cells + 1, np.int64)
        self._nulls = np.zeros(cells, np.bool_)
        self._data = np.empty(size, np.uint8)

    @property
    def rows(self) -> int:
        return int(self._state[0])

    def last_number(self) -> int:
        """Returns at which row those of the last number begin."""
        numbers = self._numbers[: self.rows]
        return int(np.searchsorted(numbers, numbers[-1])) if len(numbers) else 0

    def fill(self, calls: Int64s, prepared: int, most_bytes: int, ties: bool) -> int:
        """Adds rows; returns SQLite's code, _ROW where a batch is full, or _NOT_INTEGER."""
        least = self.rows + 1  # behind those whose number may go on
        while True:
            code = _fill(
                calls, prepared, self._columns, (least, most_bytes), ties,
                self._numbers, self._nulls, (self._data, self._offsets), self._state,
            )  # fmt: skip
            if code != _FULL:
                return int(code)
            size = max(2 * len(self._data), int(self._state[2]))
            data = np.empty(size, np.uint8)
            used = int(self._offsets[self.rows * self._columns])
            data[:used] = self._data[:used]
            self._data = data

    def take(self, count: int) -> tuple[Int64s, pa.Array]:
        """Returns the first rows, and holds the others alone."""
        rows, cells = self.rows, count * self._columns
        numbers, offsets, data = self._numbers, self._offsets, self._data
        nulls = self._nulls
        ends = rows * self._columns
        self._begin(max(_FIRST_BYTES, int(offsets[ends])))
        rest = int(offsets[cells])
        self._numbers[: rows - count] = numbers[count:rows]
        self._offsets[: ends - cells + 1] = offsets[cells : ends + 1] - rest
        self._nulls[: ends - cells] = nulls[cells:ends]
        self._data[: int(offsets[ends]) - rest] = data[rest : int(offsets[ends])]
        self._state[0] = rows - count
        validity = None
        if nulls[:cells].any():
            validity = pa.py_buffer(np.packbits(~nulls[:cells], bitorder="little"))
        buffers = [validity, pa.py_buffer(offsets[: cells + 1]), pa.py_buffer(data)]
        return numbers[:count], pa.Array.from_buffers(pa.large_string(), cells, buffers)


@kernel
def _fill(
    calls: Int64s, prepared: int, columns: int, bounds: Any, ties: bool,
    numbers: Int64s, nulls: Bools, texts: Any, state: Int64s,
) -> int:  # fmt: skip
    """Reads rows up to a bound, the end of the answer or an error; returns which."""
    least, most_bytes = bounds
    data, offsets = texts
    step, kind, number, text, size = calls[0], calls[1], calls[2], calls[3], calls[4]
    rows = state[0]
    while rows < len(numbers) and (rows < least or offsets[rows * columns] < most_bytes):
        if state[1] == 0:
            code = call_int(step, prepared)
            if code != _ROW:
                return code
            state[1] = 1
        if ties and call_int_of(kind, prepared, 0) != _INTEGER:
            return _NOT_INTEGER
        numbers[rows] = call_long_of(number, prepared, 0)
        at = offsets[rows * columns]
        for column in range(columns):
            cell = rows * columns + column
            nulls[cell] = call_int_of(kind, prepared, 1 + column) == _NULL
            if not nulls[cell]:
                address = call_long_of(text, prepared, 1 + column)
                count = call_int_of(size, prepared, 1 + column)
                if address == 0:
                    return _NO_MEMORY
                if at + count > len(data):
                    state[2] = at + count
                    return _FULL
                copy_from_address(data, at, address, count)
                at += count
            offsets[cell + 1] = at
        state[1] = 0
        rows += 1
        state[0] = rows
    return _ROW
