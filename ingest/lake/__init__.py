"""Everything that touches Spark and Delta Lake: Java, jars, the session, names, schemas, progress, lock."""
