"""A remote queue manager for tests of the reader, written from the documents alone.

The remote queue manager injects faults, has other readers, and can be hostile.
"""
