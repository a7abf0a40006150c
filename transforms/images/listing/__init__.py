"""Which images an input holds and what is known of them, layout by layout."""
