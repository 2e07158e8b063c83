"""Silver: every message decoded into one table of changes, in one total order, with balanced books."""
