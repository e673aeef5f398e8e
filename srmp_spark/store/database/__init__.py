"""The files of a data directory: SQLite, syncs, locks, room on the volume."""
