"""The service: the only part that owns sockets, timers and processes."""
