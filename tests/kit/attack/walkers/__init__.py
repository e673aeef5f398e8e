"""The walkers: one module for each port, and for each server to which the process connects."""
