"""What is to do for a mirror: its work, its lanes, its statements, its schema; imports no Spark."""
