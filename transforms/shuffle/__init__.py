"""Shuffling on disk: sorted run files, the merge tree, and where shards are cut."""
