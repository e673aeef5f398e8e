"""Send the receipts that a queue manager owes to the senders of its messages."""
