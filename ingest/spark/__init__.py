"""Spark: Java, jars, the session, and its settings for the size of the work."""
