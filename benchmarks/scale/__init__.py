"""``make scale``: measure what must not grow with the store.

The store has 10,000,000 identifiers and 1,000,000 waiting rows, or a day's messages without Spark.

- ``messages.py``: the layout of every message here;
- ``prefill.py``: the fixture, a data directory filled through the store's own code;
- ``senders.py``: a fleet of SRMP senders with an exact ledger;
- ``flat.py``: a big store compared with a small one;
- ``many_prefill.py`` and ``many.py``: many queues and streams at rest;
- ``spark_down.py``: a million messages while Spark is away, and its return.
"""
