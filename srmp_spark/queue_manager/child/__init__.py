"""Share the code that the reader process and the sender process have in common as children.

Both are child processes of the main process. ``link`` is the main process's side: it starts a
child, keeps the child running, sends commands and hands answers on. In the child, ``process``
starts up, ``commands`` receives commands and ``answer`` writes the answers. ``packets`` defines how
the main process and a child talk, and ``encoding`` how their messages become bytes. The tasks of
each child are in ``queue_manager/reader`` and ``queue_manager/sender``. The main process loads
``link``, so no module that ``link`` imports may load Arrow.

Words of this package. A *command* is a request of the main process to a child. Its *answer* is one
packet, or it *begins* and is followed by *data* and an *end*; or it is a *refusal*, which has an
HTTP status, a code, a message and a hint. An *event* is a packet that a child sends without a
command. The *caller* is the HTTP client for which the main process sends a command.
"""
