"""Bronze: messages as received, with receipts of what was read, in one commit a batch."""
