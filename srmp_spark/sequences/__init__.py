"""Represent sets of sequences (row numbers of a queue), such as the rows that were received.

The package does no I/O. Every other package may import it.
"""
