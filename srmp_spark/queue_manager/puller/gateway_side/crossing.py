"""Define the messages between the main process and the gateway of subscriptions.

:mod:`srmp_spark.queue_manager.gateway` describes gateways.

    main process                                     gateway
    ─────── OpenConnection: server, credentials ───▶ address, connection, sign-in
    ◀────── ConnectionOpened, or RemoteCallFailed ──
    ─────── OpenRemoteQueue, StartReceive, … ──────▶ one call to the server each
    ◀────── CallDone, MessageFound, NotThere, … ────
    ─────── CloseConnection ───────────────────────▶ the connection ends, and its locks with it

Each connection and each call has a number that is never used twice. A message for a number that no
caller waits for is dropped. The calls of one connection are made in the order in which they are
sent.

**Trust.** The gateway sends the bytes of a packet together with its reading of exactly these bytes,
in one frame. The main process stores the bytes and makes its row from that reading. So nothing is
stored that was not read as a whole packet. The body is sent once, as a part of the packet.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from srmp_spark.errors import RemoteLostError, RemoteReadError, SrmpSparkError
from srmp_spark.message import Message
from srmp_spark.mqrr.client.failures import NotSentError
from srmp_spark.mqrr.client.queue_calls import Ended
from srmp_spark.mqrr.pulled_states import PulledState
from srmp_spark.mqrr.queue_format import QueueFormat
from srmp_spark.mqrr.remote_host import RemoteHost
from srmp_spark.queue_manager.puller.gateway_side.pulled import Pulled, PulledKey
from srmp_spark.signing_in.credentials import Credentials

OPENING = 0
"""The call number in :class:`RemoteCallFailed` that stands for :class:`OpenConnection`."""


# --- to the gateway -------------------------------------------------------------------------------


class OpenConnection(msgspec.Struct, tag=True, frozen=True):
    """Requests that the gateway connects to a server and signs in.

    The answer is :class:`ConnectionOpened` or :class:`RemoteCallFailed`.
    """

    connection: int
    host: RemoteHost
    credentials: Credentials
    """The user's credentials with the password.

    No log shows the password, and the gateway forgets it with the connection.
    """


class OpenRemoteQueue(msgspec.Struct, tag=True, frozen=True):
    """Requests to open the one queue of a connection. The answer is :class:`CallDone`."""

    connection: int
    call: int
    format: QueueFormat
    receive: bool
    exclusive: bool = False
    """Whether no other reader may have the queue open to receive (MQ_DENY_SHARE)."""


class StartReceive(msgspec.Struct, tag=True, frozen=True):
    """Requests the call R_StartReceive, which reads one message.

    The answer is :class:`MessageFound`, :class:`MessageUnreadable` or :class:`NotThere`. ``wait_s``
    is in seconds.
    """

    connection: int
    call: int
    action: int
    wait_s: float
    lookup_id: int
    cursor: int


class EndReceive(msgspec.Struct, tag=True, frozen=True):
    """Requests the call R_EndReceive, which removes or unlocks a locked message.

    The answer is :class:`EndAnswered`. ``request`` names the lock.
    """

    connection: int
    call: int
    request: int
    keep: bool


class MakeCursor(msgspec.Struct, tag=True, frozen=True):
    """Requests the call R_CreateCursor. The answer is :class:`CursorMade`."""

    connection: int
    call: int


class CloseCursor(msgspec.Struct, tag=True, frozen=True):
    """Requests the call R_CloseCursor. The answer is :class:`CallDone`."""

    connection: int
    call: int
    cursor: int


class CloseConnection(msgspec.Struct, tag=True, frozen=True):
    """Requests to end a connection at once, or the attempt to make it. There is no answer."""

    connection: int


# --- to the main process --------------------------------------------------------------------------


class ConnectionOpened(msgspec.Struct, tag=True, frozen=True):
    """Answers :class:`OpenConnection`: the server has accepted the connection and the sign-in."""

    connection: int
    address: tuple[str, int]
    """The IP address and the port that the connection reached."""
    calls_at_once: int


class CallDone(msgspec.Struct, tag=True, frozen=True):
    """Answers a call without a result: it was carried out."""

    connection: int
    call: int


class MessageFound(msgspec.Struct, tag=True, frozen=True):
    """Answers :class:`StartReceive` with a whole message.

    :func:`pulled_of_found` returns the message.
    """

    connection: int
    call: int
    request: int
    key: PulledKey
    packet: bytes
    message: Message
    """The message that was parsed from ``packet``. Its body is left out if ``body_at`` is not -1.
    """
    body_at: int
    """Offset of the body in ``packet``, or -1 if the body is in ``message``."""
    body_size: int


class MessageUnreadable(msgspec.Struct, tag=True, frozen=True):
    """Answers :class:`StartReceive`: the message was read, and its parts do not fit together."""

    connection: int
    call: int
    request: int
    reason: str


class NotThere(msgspec.Struct, tag=True, frozen=True):
    """Answers :class:`StartReceive`: there is no message. ``status`` is the server's HRESULT."""

    connection: int
    call: int
    status: int


class EndAnswered(msgspec.Struct, tag=True, frozen=True):
    """Answers :class:`EndReceive` with its result."""

    connection: int
    call: int
    ended: Ended


class CursorMade(msgspec.Struct, tag=True, frozen=True):
    """Answers :class:`MakeCursor` with the number of the new cursor."""

    connection: int
    call: int
    cursor: int


class RemoteCallFailed(msgspec.Struct, tag=True, frozen=True):
    """Answers that a call failed, or that the connection could not be made.

    :func:`error_of` returns the error to raise.
    """

    connection: int
    call: int
    """Number of the call, or :data:`OPENING` if the connection could not be made."""
    kind: Literal["refused", "lost", "not-sent", "other"]
    text: str
    """Text of the error."""
    status: int = 0
    perhaps_done: bool = False


ToGateway = (
    OpenConnection
    | OpenRemoteQueue
    | StartReceive
    | EndReceive
    | MakeCursor
    | CloseCursor
    | CloseConnection
)
Call = OpenRemoteQueue | StartReceive | EndReceive | MakeCursor | CloseCursor
Answer = CallDone | MessageFound | MessageUnreadable | NotThere | EndAnswered | CursorMade
ToMain = ConnectionOpened | Answer | RemoteCallFailed


# --- values that cross in parts -------------------------------------------------------------------


def found_of(connection: int, call: int, pulled: Pulled) -> MessageFound:
    """Return the answer :class:`MessageFound` for the message ``pulled``.

    If the packet contains the body as it is, the body is sent once, as a part of the packet.
    """
    message = pulled.message
    at = pulled.raw.find(message.body) if message.body else -1
    if at >= 0:
        message = message._replace(body=b"")
    return MessageFound(
        connection,
        call,
        pulled.request,
        pulled.key,
        pulled.raw,
        message,
        at,
        len(pulled.message.body),
    )


def pulled_of_found(found: MessageFound) -> Pulled:
    """Return the message of a :class:`MessageFound`, as locked or peeked just now."""
    message, packet = found.message, found.packet
    if found.body_at >= 0:
        message = message._replace(body=packet[found.body_at : found.body_at + found.body_size])
    return Pulled(found.key, packet, message, PulledState.HANDED, found.request)


def failed_of(connection: int, call: int, error: Exception) -> RemoteCallFailed:
    """Return the answer :class:`RemoteCallFailed` that carries ``error`` to the main process."""
    text = crossable(str(error))
    if isinstance(error, RemoteReadError):
        return RemoteCallFailed(connection, call, "refused", text, error.status, error.perhaps_done)
    kind: Literal["lost", "not-sent", "other"] = "other"
    if isinstance(error, RemoteLostError):
        kind = "not-sent" if isinstance(error, NotSentError) else "lost"
    return RemoteCallFailed(connection, call, kind, text)


def error_of(failed: RemoteCallFailed) -> SrmpSparkError:
    """Return the exception that an answer :class:`RemoteCallFailed` carries.

    The caller raises it.
    """
    if failed.kind == "refused":
        return RemoteReadError(failed.text, failed.status, perhaps_done=failed.perhaps_done)
    kinds = {"lost": RemoteLostError, "not-sent": NotSentError}
    return kinds.get(failed.kind, SrmpSparkError)(failed.text)


def crossable(text: str) -> str:
    """Return ``text`` with escapes in place of the characters that UTF-8 cannot encode.

    A server may send halves of surrogate pairs.
    """
    return text.encode("utf-8", "backslashreplace").decode()
