"""Work that is done in a thread, while the caller prepares the next of it."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Generic, TypeVar

_Value = TypeVar("_Value")


class OneBehind(Generic[_Value]):
    """Calls a function for one value after the other, in their order, in a thread.

    It holds one value at most. Kernels and writing need no GIL, so two cores work where the other
    workers have nothing to do.

    Args:
      function: called for each value.
    """

    def __init__(self, function: Callable[[_Value], None]) -> None:
        self._function = function
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="one_behind")
        self._last: Future[None] | None = None

    def __enter__(self) -> OneBehind[_Value]:
        return self

    def add(self, value: _Value) -> None:
        """Waits for the value before, and starts with this one.

        Raises:
          Exception: what the function raised for the value before.
        """
        self._wait()
        self._last = self._pool.submit(self._function, value)

    def _wait(self) -> None:
        last, self._last = self._last, None
        if last:
            last.result()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Waits for the last value.

        Raises:
          Exception: what the function raised for it, unless there is an error already.
        """
        try:
            if error is None:
                self._wait()
        finally:
            self._pool.shutdown()
