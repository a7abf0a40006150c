"""Vocabularies: word counts in bounded memory, and what learns from them."""
