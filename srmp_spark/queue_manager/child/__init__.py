"""What the helper processes share: the reader and the sender are children of the queue manager, and this is what a child is.

``link`` is the main process's side (starts a child, keeps it running, sends commands, hands answers on); in the child,
``process`` starts up, ``commands`` takes commands and ``answer`` writes what is answered. ``packets`` says how the two talk.
Here is nothing of what a child is for: that is in ``queue_manager/reader`` and ``queue_manager/sender``. The main process loads
``link``, so nothing here may load Arrow.
"""
