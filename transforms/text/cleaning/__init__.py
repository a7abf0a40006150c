"""Clean a corpus: normalize its text, and drop documents that repeat others, or are too short."""
