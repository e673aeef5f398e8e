"""Whose identifier it is: the key under which MessageIdHistoryTable knows the lineage of a message ([MC-MQSRM] 3.1.1.1.5).

Theory of operation. 3.1.5.1.11 discards a message whose identifier was received before, and its sender is answered 200. An
identifier is no secret, and whoever can reach the SRMP port can write any into a POST to any queue. If all that comes in were
one history, a stranger's message with the next identifier of somebody else would erase that one's message: 200, in the stream
receipt, and no row. So the identifiers of a lineage are kept apart by who brought them:

    without a name           the lineage itself: on plain HTTP nothing tells one sender from another
    of a named sender        the lineage, and a digest of its authenticated name
    made here                the lineage, and that it was made here (``send`` to a queue of this host, dead letters)

A message is a repeat of what came *in its own domain*, at whatever queue and however often the connection changed. Only within
a domain the MUST of 3.1.5.1.11 holds; the text knows none, for it knows no hostile senders. What that costs: a sender that
comes under another name than before (from HTTP to HTTPS, or with another subject) is another sender, and what it sends once
more across the change is a second row. What it cannot do: senders without a name can forge each other.

A lineage from the wire is a GUID, so it has no slash: nobody can write the key of another domain.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache

from srmp_spark.message import Transport

_MADE_HERE = "api"
_DIGEST_BYTES = 16
"""Of SHA-256: two names with one digest are not found by trying. A subject may have thousands of characters."""
_KEYS_REMEMBERED = 4_096
"""Pairs of lineage and name whose key is not made again for each message."""
SEPARATOR = "/"
"""Between the lineage and whose it is."""


def lineage_key(lineage: str, transport: Transport | None, sender_name: str | None) -> str:
    """The key of ``lineage`` (a GUID) for what came by ``transport`` from ``sender_name``, the authenticated name."""
    if sender_name is not None:
        return _named(lineage, sender_name)
    return f"{lineage}{SEPARATOR}{_MADE_HERE}" if transport == "api" else lineage


def lineage_of(key: str) -> str:
    """The lineage in ``key``."""
    return key.partition(SEPARATOR)[0]


@lru_cache(_KEYS_REMEMBERED)
def _named(lineage: str, sender_name: str) -> str:
    digest = hashlib.sha256(sender_name.encode("utf-8", "surrogatepass")).digest()[:_DIGEST_BYTES]
    return f"{lineage}{SEPARATOR}{digest.hex()}"
