"""Represent sets of sequences (row numbers of a queue), such as the rows that were received.

A *sequence* is the number of a row in its queue, counted from 1. (A sequence of
WS-ReliableMessaging is something else, and is always named with that word.) A *closed range* or
*run* is a pair of sequences, both included. The package does no I/O. Every other package may import
it.
"""
