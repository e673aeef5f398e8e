"""The data directory: an SQLite database, synced before any answer of 200, and sealed segments."""
