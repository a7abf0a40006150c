"""Choose the records of an epoch: mixtures of datasets, class balance, length buckets."""
