"""Reading a source database itself: first loads during a running stream, and rows read again."""
