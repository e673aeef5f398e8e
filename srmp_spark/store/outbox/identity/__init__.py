"""Decide what makes two rows the same: hashes of keys and contents, and source positions.

A row has one *identity*: the hash of its ``key``; without a key its *source position* (queue
manager, epoch, queue, sequence of the row that it was read from); without both the *digest*, a hash
of its content. A *content mark* is a number of 8 bytes that stands for the content of a row. It
shows whether a key or a position is used again with other content.
"""
