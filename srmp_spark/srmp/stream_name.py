"""The name that an incoming stream is counted by: it is not the queue that its rows are in.

[MC-MQSRM] 3.1.1.1.6 keeps a stream for each queue. A redirection or store-and-forward leads a message elsewhere, and two
destinations of one sender are two streams wherever both are led; so a stream counts by what ``<to>`` names. For most that is
the queue too, which makes the two easy to take for each other: hence a type, and these ways to it alone.

**What is made here** (``srmp-spark send`` to a queue of this host, dead letters of an application) never saw a wire, and its
streams bear our GUID, which stands in every receipt that we send. So they are counted by a name that no ``<to>`` can be:
whoever writes a ``<start>`` with our GUID, a stranger or our own sender process on its way to our own port, has a stream of
his own.
"""

from __future__ import annotations

from typing import NewType

StreamName = NewType("StreamName", str)
"""The canonical name of the queue of ours that ``<to>`` names, or the whole canonical URL if it is of another host; with
:data:`_HOUSE` in front for what was made here."""

_HOUSE = "api/"
"""The name of a queue has one slash at most, that behind ``private$`` ([MS-MQMQ] 2.1.2): no name begins like this."""


def name_of_queue(queue: str) -> StreamName:
    """Of streams whose ``<to>`` names ``queue`` (canonical) of this host, wherever their rows are led."""
    return StreamName(queue)


def name_of_foreign_queue(canonical_url: str) -> StreamName:
    """Of streams that are forwarded to a queue of another host."""
    return StreamName(canonical_url)


def name_of_house_stream(queue: str) -> StreamName:
    """Of our own stream into ``queue`` (canonical) that no wire leads to (transport ``api``)."""
    return StreamName(_HOUSE + queue)


def shown_queue(name: StreamName) -> str:
    """For people, who know the queue: ``name`` without what tells our own stream from others."""
    return name.removeprefix(_HOUSE)


def is_foreign(name: StreamName) -> bool:
    """Whether ``name`` is of a queue of another host."""
    return "://" in name
