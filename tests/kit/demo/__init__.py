"""``make demo``: the whole of srmp-spark in about four minutes.

The processes that carry the messages are killed in the middle of the transfer. The demo does not
know the right result in advance. Both ends of each transfer are read afterwards, and the closing
table compares the ends. The modules in the order of reading:

- :mod:`.run`: the command; it prepares a folder and then runs both transfers;
- :mod:`.way_in`: foreign senders send over a bad network to the queue manager, and Spark
  (:mod:`.query`) writes the messages to a Delta table;
- :mod:`.way_out`: rows of that table are sent over a bad network (:mod:`.lossy_proxy`) to a second
  queue manager;
- :mod:`.two_ends`: compares the messages of an application with those in the peer's queue;
- :mod:`.results`: the closing table, and which of its figures are wrong;
- :mod:`.console`: the lines that are printed meanwhile.

``jobs/demo.py`` starts the demo. The foreign senders keep the ledger of the first transfer; these
senders are in :mod:`tests.kit.foreign`.
"""
