"""Report to others what is sent: to the main process, to ``status`` and to the Delta state."""
