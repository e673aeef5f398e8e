"""``make scale``: what must not grow with the store, at 10,000,000 identifiers and 1,000,000 waiting rows; a day without Spark.

``messages.py`` what every message here looks like · ``prefill.py`` the fixture: a data directory, filled through the store's
own code · ``senders.py`` a fleet of SRMP senders with an exact ledger · ``flat.py`` big beside small · ``spark_down.py`` a
million messages while Spark is away, and its return.
"""
