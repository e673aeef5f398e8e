"""The walkers: one module for each port, and one for each place where the process talks to strangers by itself."""
