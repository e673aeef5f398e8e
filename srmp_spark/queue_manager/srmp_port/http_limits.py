"""Name the limits of the SRMP port, each with its reason.

A change of a limit changes what an unauthenticated client can cost the queue manager.
"""

from __future__ import annotations

from typing import NamedTuple

from srmp_spark.srmp.limits import CONTENT_MAX, TARGET_MAX

# These are the codec's own limits. More bytes can be no message.
__all__ = ["CONTENT_MAX", "TARGET_MAX"]

HEAD_MAX = 65_536
"""Most bytes of an HTTP head; more is answered 431. Windows writes about 300."""

HEAD_LINES_MAX = 100
"""Most lines of an HTTP head, request line included; more is answered 431. Windows writes six."""

CHUNK_LINE_MAX = 256
"""Most bytes of a chunk's size line with its extensions; more is answered 400."""

CHUNKS_FREE = 1_024
"""Chunks of one body that may have any size. A short message may arrive in pieces of one byte."""

CHUNK_MEAN_MIN = 64
"""Least mean bytes of a chunk after CHUNKS_FREE; less is answered 400.

Each chunk costs about 2 us of the loop, so one read of 256 KB costs it 8 ms at most. Chunks of one
byte cost 115 ms.
"""

CHUNK_TRAILERS_MAX = 8_192
"""Most bytes of trailers after the last chunk; more is answered 400. They are read and dropped."""

HEAD_SECONDS = 10.0
"""Longest time from the first byte of a head to its end, in seconds.

Then the answer is 408 and the connection is closed. Apache's mod_reqtimeout has the same value.
"""

BODY_SECONDS = 10.0
"""Seconds that any body may take before the minimum rate applies."""

BODY_RATE_MIN = 1_024
"""Least bytes per second of a body, on average after BODY_SECONDS.

A slower one is answered 408 and the connection is closed.
"""

IDLE_SECONDS = 300.0
"""Seconds without a request after which a connection is closed.

Windows keeps its connections open between messages.
"""

LINGER_SECONDS = 2.0
"""Seconds for which the rest of a request is read and dropped after an answer that closes the
connection. Otherwise a reset could destroy the answer.
"""

LINGER_BYTES_MAX = 16 * 1_048_576
"""Most bytes that are read and dropped after an answer that closes the connection.

After these the connection is aborted.
"""

SWEEP_SECONDS = 1.0
"""Seconds between two checks of the deadlines of all connections (sweeps).

One timer for all of them costs nothing per message.
"""

CONNECTIONS_MAX = 8_192
"""Most connections at once.

A further one replaces a connection that is not proved (no client certificate, no accepted message),
or is answered 503 and closed. An idle connection costs some 2 KB.
"""

SPARED_SECONDS = 10.0
"""Idle seconds after which a proved connection (client certificate, or an accepted message) can
lose its place in a full port.
"""

RANK_SECONDS = 0.1
"""Least seconds between two rankings of connections that can be evicted from a full port.

Each ranking sorts up to CONNECTIONS_MAX connections, some 3 ms, and a flood must not cause one for
each of its connections.
"""
RANKED_MIN = 64
"""Connections that were evicted by one ranking before the next one may be made early.

A flood that takes all of these places in less than RANK_SECONDS must not keep out the honest sender
that follows. Each place costs some 50 us at most then.
"""

REFUSED_MAX = 64
"""Most connections that were not admitted and are being answered 503.

More are closed without an answer, because they need descriptors beyond those of CONNECTIONS_MAX,
from the reserve of the process.
"""

PARTIAL_BYTES_MAX = 512 * 1_048_576
"""Most bytes of all unfinished requests together. A request that would need more is answered 503.
"""

SUBMITTED_BYTES_HIGH = 128 * 1_048_576
"""Bytes that wait for their commit from which on connections are not read (back-pressure)."""

SUBMITTED_BYTES_LOW = 64 * 1_048_576
"""Bytes that wait for their commit below which connections are read again."""

DRAIN_SECONDS = 5.0
"""Seconds that requests in progress get at SIGTERM to be finished, answered and closed."""


class PortBudget(NamedTuple):
    """Limits for the bytes of requests that one port keeps in memory."""

    partial: int
    """Most bytes of unfinished requests. A request that would need more is answered 503."""
    submitted_high: int
    """Bytes of requests that wait for their answer from which on no connection is read."""
    submitted_low: int
    """Bytes of requests that wait for their answer below which connections are read again."""


BUDGET = PortBudget(PARTIAL_BYTES_MAX, SUBMITTED_BYTES_HIGH, SUBMITTED_BYTES_LOW)
"""The limits of the SRMP port."""
