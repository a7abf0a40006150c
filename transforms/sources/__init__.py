"""Where documents come from: input files, listed, cut into work items, and read."""
