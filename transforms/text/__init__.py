"""Text to examples: tokenization, chunks, objectives, run files, shards."""
