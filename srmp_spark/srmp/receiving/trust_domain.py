"""The key under which MessageIdHistoryTable stores a lineage: to whom an identifier belongs.

See [MC-MQSRM] 3.1.1.1.5. Theory of operation. 3.1.5.1.11 discards a message whose identifier was
received before, and its sender is answered 200. An identifier is no secret, and every client of the
SRMP port can write any identifier into a POST to any queue. With a single history, an
unauthenticated client could send a message with the next identifier of another sender. The message
of that sender would then be answered 200, be covered by the stream receipt, and become no row. The
identifiers of a lineage are therefore separated by who sent them, in three kinds of *trust domain*:

- **A sender without a name:** the key is the lineage itself, because plain HTTP cannot distinguish
  senders.
- **A sender with an authenticated name:** the key is the lineage and a digest of the name.
- **Messages that this queue manager created** (``send`` to a queue of this host, dead letters): the
  key is the lineage and a mark for this.

A message is a repeat of a message *in its own domain*, in any queue and on any connection. The MUST
of 3.1.5.1.11 holds only within a domain; the specification has no domains because it does not
consider hostile senders. This has a cost: a sender that appears under another name than before
(from HTTP to HTTPS, or with another subject) is another sender. A message that it repeats across
this change becomes a second row. This does not protect senders without a name from each other: they
can forge each other's identifiers.

A lineage that is received is a GUID and has no slash, so no client can write the key of another
domain.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache

from srmp_spark.message import Transport

_MADE_HERE = "api"
_DIGEST_BYTES = 16
"""Bytes of SHA-256 that are kept.

Two names with the same digest cannot be found by trying. A digest is used because a subject may
have thousands of characters.
"""
_KEYS_REMEMBERED = 4_096
"""Number of pairs of lineage and name whose keys are cached."""
SEPARATOR = "/"
"""Separates the lineage from the domain in a key."""


def lineage_key(lineage: str, transport: Transport | None, sender_name: str | None) -> str:
    """Return the key of ``lineage`` (a GUID) for a message.

    The message arrived by ``transport`` from ``sender_name``, which is the authenticated name.
    """
    if sender_name is not None:
        return _named(lineage, sender_name)
    return f"{lineage}{SEPARATOR}{_MADE_HERE}" if transport == "api" else lineage


def lineage_of(key: str) -> str:
    """Return the lineage (a GUID) in a ``key`` that :func:`lineage_key` returned."""
    return key.partition(SEPARATOR)[0]


@lru_cache(_KEYS_REMEMBERED)
def _named(lineage: str, sender_name: str) -> str:
    digest = hashlib.sha256(sender_name.encode("utf-8", "surrogatepass")).digest()[:_DIGEST_BYTES]
    return f"{lineage}{SEPARATOR}{digest.hex()}"
