"""The data directory: one SQLite database that is synced before any 200, and the sealed segments beside it."""
