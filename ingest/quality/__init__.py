"""Quality: check every mirror and source, store the verdicts, and render the report."""
