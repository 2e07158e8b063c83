"""The lake's Delta tables without Spark: their logs, commits, files, columns and rows."""
