"""The lake: its tables, their logs and commits, names, schemas, progress, decisions, lock."""
