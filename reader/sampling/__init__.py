"""Which records an epoch draws: mixtures of datasets, class balance, length buckets."""
