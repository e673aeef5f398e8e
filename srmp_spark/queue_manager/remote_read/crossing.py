"""Messages between the main process and the gateway of remote read (:mod:`srmp_spark.queue_manager.gateway`).

    gateway                                              main process
    ─────── Called: a whole, well-formed call ─────────▶ rights, queues, cursors, locks, marks
    ─────── CallWasCancelled, CallWasOrphaned ─────────▶
    ◀─────────────── Responded, or Failed ──────────────
    ─────── AnswersTaken: bytes that have left ────────▶ messages that waited for the reader
    ─────── ConnectionEnded, AssociationEnded ─────────▶ calls are given up; handles are run down
    ◀─────────────────────── Close ─────────────────────
    ─────── Closed ────────────────────────────────────▶

A connection and an association cross as numbers of the gateway. The main process learns of either with the first
call: a client that never calls costs the main process nothing. The context handles of an association are values
of the main process, which reads them from the stubs of calls and writes them into the stubs of answers; the gateway
knows only how many there are. Numbers mean nothing to the next gateway: the main process ends each connection and
each association of a gateway that died.
"""

from __future__ import annotations

import msgspec


class Called(msgspec.Struct, tag=True, frozen=True):
    """A whole call. Its stub can be decoded; the gateway has tried."""

    connection: int
    peer: str
    """The IP address of the caller."""
    association: int
    call_id: int
    is_ndr64: bool
    """The transfer syntax of the call and of its answer: NDR64, or NDR."""
    opnum: int
    stub: bytes
    identity: str | None
    """The account that signed in; ``None`` where nobody need sign in."""
    auth_level: int
    taken: int
    """As in :class:`AnswersTaken`."""


class CallWasCancelled(msgspec.Struct, tag=True, frozen=True):
    """The caller does not want to wait for an answer, and gets one all the same."""

    connection: int
    call_id: int


class CallWasOrphaned(msgspec.Struct, tag=True, frozen=True):
    """The caller does not wait for an answer, and none is sent."""

    connection: int
    call_id: int


class AnswersTaken(msgspec.Struct, tag=True, frozen=True):
    """The reader has taken answers."""

    connection: int
    taken: int
    """Bytes of all stubs of this connection that have left the gateway, since the connection began."""


class ConnectionEnded(msgspec.Struct, tag=True, frozen=True):
    """The connection is gone: nobody waits for its answers."""

    connection: int


class AssociationEnded(msgspec.Struct, tag=True, frozen=True):
    """The last connection of an association is gone: its handles are to be run down."""

    association: int


class Closed(msgspec.Struct, tag=True, frozen=True):
    """All connections are closed, after :class:`Close`."""


class Responded(msgspec.Struct, tag=True, frozen=True):
    """The answer of a call."""

    connection: int
    call_id: int
    stub: bytes
    handles: int
    """Open handles of the association of this connection."""


class Failed(msgspec.Struct, tag=True, frozen=True):
    """The fault of a call."""

    connection: int
    call_id: int
    status: int


class Close(msgspec.Struct, tag=True, frozen=True):
    """Accept no further connection, send the answers that were given, close every connection, then send :class:`Closed`."""


ToMain = (
    Called
    | CallWasCancelled
    | CallWasOrphaned
    | AnswersTaken
    | ConnectionEnded
    | AssociationEnded
    | Closed
)
ToGateway = Responded | Failed | Close
