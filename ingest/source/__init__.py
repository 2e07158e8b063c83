"""Reading a source database itself: first loads beside a running stream, and rows read again."""
