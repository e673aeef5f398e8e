"""Destinations whose spelling an older version stored: version 0.1 kept IPv6 addresses as they were written.

A row under such a spelling could not be named by an operator any more, and new messages to the same queue would begin a second
stream beside it. So the outgoing queues, and what is known of keys and positions, get today's spelling at each open.
"""

from __future__ import annotations

import logging
import sqlite3

from srmp_spark.canonical_url import canonical_outgoing
from srmp_spark.errors import ConfigurationError

TABLES = ("queues", "scopes")
"""Tables in which a destination is looked up by its name."""

_log = logging.getLogger(__name__)


def respell(connection: sqlite3.Connection) -> None:
    """Give each destination today's spelling, in the caller's transaction.

    A destination that is there under both spellings keeps both: their messages have their places in two streams.
    """
    for table in TABLES:
        rows = connection.execute(f"SELECT id, destination FROM {table} WHERE destination LIKE '%://[%'").fetchall()  # noqa: S608  # our own names
        for number, destination in rows:
            try:
                spelled = canonical_outgoing(destination)
            except ConfigurationError:
                continue  # it stays as it is: nothing can be written to it
            if spelled == destination:
                continue
            done = connection.execute(f"UPDATE OR IGNORE {table} SET destination = ? WHERE id = ?", (spelled, number))  # noqa: S608  # our own names
            if table == "queues":
                outcome = "respelled" if done.rowcount else "kept beside the other spelling, which has messages of its own"
                _log.warning("outbox.respelled destination=%s to=%s: %s", destination, spelled, outcome)
