"""Sources of documents: list input files, cut them into work items, and read them."""
