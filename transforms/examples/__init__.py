"""Existing records: shuffled, resharded, merged, and their schema inferred."""
