"""Read-only views: the state of a lake, its rows and its history, read without Spark."""
