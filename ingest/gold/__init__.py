"""Gold: exact mirrors of the source tables, each the fold of its own changes."""
