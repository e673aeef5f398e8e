"""Share the code that the reader process and the sender process have in common as children.

Both are child processes of the main process. ``link`` is the main process's side: it starts a
child, keeps the child running, sends commands and hands answers on. In the child, ``process``
starts up, ``commands`` receives commands and ``answer`` writes the answers. ``packets`` defines how
the main process and a child talk, and ``encoding`` how their messages become bytes. The tasks of
each child are in ``queue_manager/reader`` and ``queue_manager/sender``. The main process loads
``link``, so no module that ``link`` imports may load Arrow.
"""
