"""A remote queue manager for tests of the reader, written from the documents alone.

The remote queue manager injects faults, has other readers, and can be hostile. *The reader* is the
code under test, which receives over [MS-MQRR]. A *request* is a number that the reader chooses for
one receive. *End* is the call R_EndReceive (operation 9), which removes a message or releases its
lock.
"""
