"""Decide what makes two rows the same: hashes of keys and contents, and source positions."""
