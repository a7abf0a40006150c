"""The common parts of all jobs: job, splits, shards, rejects, commit."""
