"""Everything that exists only for speed on a GPU."""
