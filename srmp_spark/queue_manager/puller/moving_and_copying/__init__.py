"""Turn each message of a remote queue into one row, moved or copied."""
