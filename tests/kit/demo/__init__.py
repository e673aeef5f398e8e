"""``make demo``: the whole of srmp-spark in about four minutes, with what carries the messages killed on the way.

Nothing here knows what should come out: each end of each way is read afterwards, and the closing table compares the two.
In the order of reading:

- :mod:`.run`: the command; it prepares a folder, goes one way and then the other;
- :mod:`.way_in`: foreign senders over a bad network into the queue manager and by Spark (:mod:`.query`) into a Delta table;
- :mod:`.way_out`: rows of that table through a bad network (:mod:`.lossy_proxy`) to a second queue manager;
- :mod:`.two_ends`: what an application handed over against what lies in the peer's queue;
- :mod:`.results`: the closing table, and which of its figures are wrong;
- :mod:`.console`: the lines that are printed meanwhile.

``jobs/demo.py`` starts it. The foreign senders, who keep the ledger of the way in, are :mod:`tests.kit.foreign`.
"""
