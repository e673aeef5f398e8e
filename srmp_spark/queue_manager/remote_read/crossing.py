"""Define the messages between the main process and the gateway of remote read.

:mod:`srmp_spark.queue_manager.gateway` describes gateways.

    gateway                                              main process
    ─────── Called: a whole, well-formed call ─────────▶ rights, queues, cursors, locks, marks
    ─────── CallWasCancelled, CallWasOrphaned ─────────▶
    ◀───────── Responded, or RespondedWithFault ────────
    ─────── AnswersTaken: bytes that were sent ────────▶ messages that waited for the reader
    ─────── ConnectionEnded, AssociationEnded ─────────▶ ends calls; runs down handles
    ◀───────────────────── ClosePort ───────────────────
    ─────── PortClosed ────────────────────────────────▶

A connection and an association are numbers of the gateway. The main process learns of either with
its first call, so a client that never calls costs the main process nothing. The context handles of
an association are values of the main process, which reads them from the stubs of calls and writes
them into the stubs of answers. The gateway knows only how many there are. The numbers mean nothing
to the next gateway. The main process ends every connection and every association of a gateway that
died.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from srmp_spark.queue_manager.gateway.control import GatewaySettings


@dataclass(frozen=True, slots=True, kw_only=True)
class RpcSettings(GatewaySettings):
    """The settings of the gateway of remote read."""

    accounts: dict[str, str]
    """The NT hash of each account in hexadecimal digits, by name."""
    min_auth_level: int
    connections_max: int
    mapper_connections_max: int


class Called(msgspec.Struct, tag=True, frozen=True):
    """Tells the main process that a client has made a whole call.

    The stub of the call can be decoded, which the gateway has checked.
    """

    connection: int
    peer: str
    """IP address of the caller."""
    association: int
    call_id: int
    is_ndr64: bool
    """Whether the transfer syntax of the call and of its answer is NDR64, not NDR."""
    opnum: int
    stub: bytes
    identity: str | None
    """Account that signed in; ``None`` if no sign-in is required."""
    auth_level: int
    bytes_taken: int
    """Bytes of answers that the reader has taken, as in :class:`AnswersTaken`."""


class CallWasCancelled(msgspec.Struct, tag=True, frozen=True):
    """Tells the main process that a caller no longer wants to wait.

    The call is answered nevertheless.
    """

    connection: int
    call_id: int


class CallWasOrphaned(msgspec.Struct, tag=True, frozen=True):
    """Tells the main process that a caller no longer waits, so that no answer is sent."""

    connection: int
    call_id: int


class AnswersTaken(msgspec.Struct, tag=True, frozen=True):
    """Tells the main process how many bytes of answers a reader has taken."""

    connection: int
    bytes_taken: int
    """Bytes of all stubs of this connection that were sent to the reader so far."""


class ConnectionEnded(msgspec.Struct, tag=True, frozen=True):
    """Tells the main process that a connection is gone, so that its calls need no answers."""

    connection: int


class AssociationEnded(msgspec.Struct, tag=True, frozen=True):
    """Tells the main process that the last connection of an association is gone.

    The main process must run down the handles of the association: close them and unlock their
    messages.
    """

    association: int


class PortClosed(msgspec.Struct, tag=True, frozen=True):
    """Tells the main process that all connections are closed, as :class:`ClosePort` requested."""


class Responded(msgspec.Struct, tag=True, frozen=True):
    """Requests that the gateway sends the answer of a call."""

    connection: int
    call_id: int
    stub: bytes
    handles: int
    """Number of open handles of the connection's association."""


class RespondedWithFault(msgspec.Struct, tag=True, frozen=True):
    """Requests that the gateway answers a call with the RPC fault ``status``."""

    connection: int
    call_id: int
    status: int


class ClosePort(msgspec.Struct, tag=True, frozen=True):
    """Requests that the gateway accepts no connection, sends all answers, and closes.

    When all connections are closed, the gateway sends :class:`PortClosed`. A reader that is slow
    loses its answers (:data:`.endpoint.CLOSE_SECONDS`).
    """


ToMain = (
    Called
    | CallWasCancelled
    | CallWasOrphaned
    | AnswersTaken
    | ConnectionEnded
    | AssociationEnded
    | PortClosed
)
ToGateway = Responded | RespondedWithFault | ClosePort
