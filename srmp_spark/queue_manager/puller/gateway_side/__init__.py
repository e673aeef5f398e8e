"""Connect to remote queue managers: the gateway process, and the main process's side of it."""
