"""What every job shares: job, splits, shards, rejects, commit."""
