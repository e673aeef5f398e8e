"""The name under which an incoming stream is known.

The name is not the queue that holds the rows of the stream.

[MC-MQSRM] 3.1.1.1.6 keeps a stream for each queue. A redirection or store-and-forward leads a
message elsewhere, and two destinations of one sender are two streams, wherever both are led. A
stream is therefore known by the name in ``<to>``. For most streams this is the queue of their rows
too, so the two are easily confused. The name has a type of its own for this reason, and only the
functions of this module create names.

**Messages that this queue manager creates** (``srmp-spark send`` to a queue of this host, dead
letters of an application) were never sent over a connection. Their streams carry the GUID of this
queue manager, which is in every receipt that it sends. Their names cannot be written in any
``<to>``. Whoever sends a ``<start>`` with this GUID therefore gets a separate stream: an
unauthenticated client, or the own sender process that calls the own port.
"""

from __future__ import annotations

from typing import NewType

StreamName = NewType("StreamName", str)
"""Canonical name of the queue of this host in ``<to>``, or the whole canonical URL otherwise.

Streams of messages that this queue manager creates have the prefix :data:`_HOUSE`.
"""

_HOUSE = "api/"
"""Prefix of the names of streams whose messages this queue manager creates.

The name of a queue has at most one slash, after ``private$`` ([MS-MQMQ] 2.1.2), so no queue name
begins with this prefix.
"""


def name_of_queue(queue: str) -> StreamName:
    """Return the name of streams whose ``<to>`` names ``queue`` of this host.

    ``queue`` is canonical. It does not matter in which queue the rows are stored.
    """
    return StreamName(queue)


def name_of_foreign_queue(canonical_url: str) -> StreamName:
    """Return the name of streams that are forwarded to a queue of another host."""
    return StreamName(canonical_url)


def name_of_house_stream(queue: str) -> StreamName:
    """Return the name of the stream of messages that this queue manager creates for ``queue``.

    ``queue`` is canonical. No connection carries these messages; they have the transport ``api``.
    """
    return StreamName(_HOUSE + queue)


def shown_queue(name: StreamName) -> str:
    """Return the queue in ``name``, for people.

    The prefix :data:`_HOUSE` is removed.
    """
    return name.removeprefix(_HOUSE)


def is_foreign(name: StreamName) -> bool:
    """Return whether ``name`` is the name of a stream to a queue of another host."""
    return "://" in name
