"""The tables of ``store.db``, one module for each concept."""
