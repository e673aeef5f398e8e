"""The destination of reliable sequences: one sequence in, acknowledgements out."""
