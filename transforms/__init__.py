"""Beam stages and the pure functions they call: reading, tokenization, scatter, masking,
building."""
