"""An entrance for Python into what only kernels call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba


def entrance(subroutine: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a function of Python that calls a subroutine of kernels."""
    function: Callable[..., Any] = numba.njit(lambda *given: subroutine(*given))
    return function
