"""Bytes of records as numba kernels: framing and index, Example encoding, checking, draws."""
