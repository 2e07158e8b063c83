"""Outcomes to commits: by files, or by Delta's MERGE."""
