"""Named limits of the SRMP port, each with its reason. Changing one is changing what a stranger can cost us."""

from __future__ import annotations

from typing import NamedTuple

from srmp_spark.srmp.limits import CONTENT_MAX, TARGET_MAX

__all__ = ["CONTENT_MAX", "TARGET_MAX"]  # the codec's own: more can be no message

HEAD_MAX = 65_536
"""Bytes of an HTTP head: more is 431. Windows writes about 300."""

HEAD_LINES_MAX = 100
"""Lines of an HTTP head, request line included: more is 431. Windows writes six."""

CHUNK_LINE_MAX = 256
"""Bytes of a chunk's size line with its extensions."""

CHUNKS_FREE = 1_024
"""Chunks of one body that may have any size: a short message may arrive in pieces of one byte."""

CHUNK_MEAN_MIN = 64
"""Mean bytes of a chunk after CHUNKS_FREE: smaller is 400. Each chunk costs about 2 us of the loop, so one read of
256 KB costs it 8 ms at most; of chunks of one byte it cost 115 ms."""

CHUNK_TRAILERS_MAX = 8_192
"""Bytes of trailers after the last chunk; they are read and dropped."""

HEAD_SECONDS = 10.0
"""From the first byte of a head to its end: 408 and close (the value that Apache's mod_reqtimeout ships with)."""

BODY_SECONDS = 10.0
"""What any body may take, before the minimum rate counts."""

BODY_RATE_MIN = 1_024
"""Bytes per second that a body must keep up on average after BODY_SECONDS: slower is 408 and close."""

IDLE_SECONDS = 300.0
"""A connection without a request is closed after this. Windows keeps its connections open between messages."""

LINGER_SECONDS = 2.0
"""After an answer that closes, how long the rest is read and dropped, so that the answer is not lost to a reset."""

LINGER_BYTES_MAX = 16 * 1_048_576
"""And how many bytes of it."""

SWEEP_SECONDS = 1.0
"""How often the deadlines of all connections are looked at: one timer for all costs nothing per message."""

CONNECTIONS_MAX = 8_192
"""Connections at once. A further one takes the place of one that has proved nothing, or is answered 503 and closed.
An idle one costs some 2 KB."""

SPARED_SECONDS = 10.0
"""A connection that had a message accepted keeps its place in a full port until it has been idle for that long."""

RANK_SECONDS = 0.1
"""Least time between two looks at who makes way in a full port: each sorts up to CONNECTIONS_MAX connections, some 3 ms,
and a flood must not cause one for each of its own."""
RANKED_MIN = 64
"""Places that such a look gives before the next one may come early: a flood that takes all of them in less than RANK_SECONDS
must not keep the honest sender out that comes behind it. Each place costs some 50 us at most then."""

REFUSED_MAX = 64
"""Connections that were not admitted and are being answered 503. More are closed without an answer: they hold
descriptors beyond those of CONNECTIONS_MAX, from the reserve of the process."""

PARTIAL_BYTES_MAX = 512 * 1_048_576
"""Bytes of all unfinished requests together: a request that would need more is answered 503."""

SUBMITTED_BYTES_HIGH = 128 * 1_048_576
"""Bytes that wait for their commit: above it connections are not read (back-pressure) …"""

SUBMITTED_BYTES_LOW = 64 * 1_048_576
"""… until they are below this again."""

DRAIN_SECONDS = 5.0
"""At SIGTERM: how long a request that is under way may take to be finished, answered and closed."""

RETRY_AFTER_SECONDS = 30
"""``Retry-After`` of a 503 that does not say more: Windows' own first resend interval ([MC-MQSRM] appendix A <16>)."""


class PortBudget(NamedTuple):
    """Bytes of requests that a port holds."""

    partial: int
    """Of unfinished requests: one that would need more is answered 503."""
    submitted_high: int
    """Of requests that wait for their answer: above it no connection is read …"""
    submitted_low: int
    """… until there are fewer than this."""


BUDGET = PortBudget(PARTIAL_BYTES_MAX, SUBMITTED_BYTES_HIGH, SUBMITTED_BYTES_LOW)
"""Of the SRMP port."""
