"""Run the service: this package alone owns sockets, timers and processes."""
