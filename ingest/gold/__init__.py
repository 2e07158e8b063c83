"""Gold: exact mirrors of the source tables; each mirror is the fold of its own changes."""
