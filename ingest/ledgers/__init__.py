"""What a lake remembers: books, decisions, statements, rejects, mirrors, epochs, and what follows from them."""
