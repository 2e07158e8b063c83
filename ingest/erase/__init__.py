"""Rows removed from every table of a lake, its raw messages included, so that nothing brings them back."""
