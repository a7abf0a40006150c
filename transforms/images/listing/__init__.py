"""List the images of an input with their annotations, layout by layout."""
