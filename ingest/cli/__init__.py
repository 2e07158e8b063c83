"""The command ``ingest``: one module per group of verbs, imported when one of its verbs is called."""
