"""Changes to outcomes: Arrow computes what `ingest.fold` defines; imports no Spark."""
