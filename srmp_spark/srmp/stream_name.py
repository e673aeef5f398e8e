"""The name that an incoming stream is counted by: it is not the queue that its rows are in.

[MC-MQSRM] 3.1.1.1.6 keeps a stream for each queue. A redirection or store-and-forward leads a message elsewhere, and two
destinations of one sender are two streams wherever both are led; so a stream counts by what ``<to>`` names. For most that is
the queue too, which makes the two easy to take for each other: hence a type, and these ways to it alone.
"""

from __future__ import annotations

from typing import NewType

StreamName = NewType("StreamName", str)
"""The canonical name of the queue of ours that ``<to>`` names, or the whole canonical URL if it is of another host."""


def name_of_queue(queue: str) -> StreamName:
    """Of streams whose ``<to>`` names ``queue`` (canonical) of this host, wherever their rows are led."""
    return StreamName(queue)


def name_of_foreign_queue(canonical_url: str) -> StreamName:
    """Of streams that are forwarded to a queue of another host."""
    return StreamName(canonical_url)


def is_foreign(name: StreamName) -> bool:
    """Whether ``name`` is of a queue of another host."""
    return "://" in name
