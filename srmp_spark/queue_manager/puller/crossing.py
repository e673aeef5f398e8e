"""Messages between the main process and the gateway of subscriptions (:mod:`srmp_spark.queue_manager.gateway`).

    main process                                     gateway
    ─────── Open: a server, and as whom ───────────▶ address, connection, sign-in
    ◀────── Opened, or Failed ──────────────────────
    ─────── OpenQueue, Read, End, … ───────────────▶ one call to the server each
    ◀────── Done, Found, NotThere, …, or Failed ────
    ─────── Close ─────────────────────────────────▶ the connection ends, and its locks with it

A connection and a call have numbers that are never used twice. Whatever arrives for a number that nobody waits for any
more is dropped. Calls of one connection are made in the order in which they cross.

**What is trusted.** A message crosses as the bytes of its packet and as what the gateway read in exactly these bytes, in one
frame. The main process stores these bytes and makes its row of that reading, so nothing is stored that was not read as a
whole packet. The body crosses once: as a part of the packet.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from srmp_spark.errors import SrmpSparkError
from srmp_spark.message import Message
from srmp_spark.mqrr.pulled_states import PulledState
from srmp_spark.mqrr.queue_format import QueueFormat
from srmp_spark.mqrr.remote_host import RemoteHost
from srmp_spark.queue_manager.puller.answers import Ended, LostError, NotSentError, RefusedError
from srmp_spark.queue_manager.puller.pulled import Pulled, PulledKey
from srmp_spark.signing_in.credentials import Credentials

OPENING = 0
"""The number of a call that stands for :class:`Open` itself, in :class:`Failed`."""


# --- to the gateway -------------------------------------------------------------------------------


class Open(msgspec.Struct, tag=True, frozen=True):
    """Connect to a server and sign in."""

    connection: int
    host: RemoteHost
    credentials: Credentials
    """With the password, which no log shows and the gateway forgets with the connection."""


class OpenQueue(msgspec.Struct, tag=True, frozen=True):
    """Open the queue of a connection, which has one. Answered with :class:`Done`."""

    connection: int
    call: int
    format: QueueFormat
    receive: bool


class Read(msgspec.Struct, tag=True, frozen=True):
    """R_StartReceive. Answered with :class:`Found`, :class:`Unread` or :class:`NotThere`."""

    connection: int
    call: int
    action: int
    wait_s: float
    lookup_id: int
    cursor: int


class End(msgspec.Struct, tag=True, frozen=True):
    """R_EndReceive. Answered with :class:`EndAnswered`."""

    connection: int
    call: int
    request: int
    keep: bool


class MakeCursor(msgspec.Struct, tag=True, frozen=True):
    """R_CreateCursor. Answered with :class:`CursorMade`."""

    connection: int
    call: int


class CloseCursor(msgspec.Struct, tag=True, frozen=True):
    """R_CloseCursor. Answered with :class:`Done`."""

    connection: int
    call: int
    cursor: int


class Close(msgspec.Struct, tag=True, frozen=True):
    """End a connection, at once, or the attempt to make it. Nothing answers."""

    connection: int


# --- to the main process --------------------------------------------------------------------------


class Opened(msgspec.Struct, tag=True, frozen=True):
    """A server took the connection, and us."""

    connection: int
    address: tuple[str, int]
    """The address and the port that were reached."""
    calls_at_once: int


class Done(msgspec.Struct, tag=True, frozen=True):
    """A call was carried out, and there is nothing to say about it."""

    connection: int
    call: int


class Found(msgspec.Struct, tag=True, frozen=True):
    """A message, whole. Read by :func:`pulled_of_found`."""

    connection: int
    call: int
    request: int
    key: PulledKey
    packet: bytes
    message: Message
    """What was read in ``packet``, without its body where ``body_at`` says where the body is."""
    body_at: int
    """Where the body begins in ``packet``, or -1: it is in ``message``."""
    body_size: int


class Unread(msgspec.Struct, tag=True, frozen=True):
    """A message that does not hold together."""

    connection: int
    call: int
    request: int
    reason: str


class NotThere(msgspec.Struct, tag=True, frozen=True):
    """There is no message, and why."""

    connection: int
    call: int
    status: int


class EndAnswered(msgspec.Struct, tag=True, frozen=True):
    """What the server said to an End."""

    connection: int
    call: int
    ended: Ended


class CursorMade(msgspec.Struct, tag=True, frozen=True):
    """A cursor."""

    connection: int
    call: int
    cursor: int


class Failed(msgspec.Struct, tag=True, frozen=True):
    """A call failed, or the connection could not be made. Read by :func:`error_of`."""

    connection: int
    call: int
    """:data:`OPENING`: the connection could not be made."""
    kind: Literal["refused", "lost", "not-sent", "other"]
    text: str
    """Of a refusal: who refused what."""
    status: int = 0
    perhaps_done: bool = False


ToGateway = Open | OpenQueue | Read | End | MakeCursor | CloseCursor | Close
Call = OpenQueue | Read | End | MakeCursor | CloseCursor
Answer = Done | Found | Unread | NotThere | EndAnswered | CursorMade
ToMain = Opened | Answer | Failed


# --- values that cross in parts -------------------------------------------------------------------


def found_of(connection: int, call: int, pulled: Pulled) -> Found:
    """Return what crosses of a message. Read it with :func:`pulled_of_found`."""
    message = pulled.message
    at = pulled.raw.find(message.body) if message.body else -1
    if at >= 0:
        message = message._replace(body=b"")
    return Found(
        connection,
        call,
        pulled.request,
        pulled.key,
        pulled.raw,
        message,
        at,
        len(pulled.message.body),
    )


def pulled_of_found(found: Found) -> Pulled:
    """Return the message that the gateway read."""
    message, packet = found.message, found.packet
    if found.body_at >= 0:
        message = message._replace(body=packet[found.body_at : found.body_at + found.body_size])
    return Pulled(found.key, packet, message, PulledState.HANDED, found.request)


def failed_of(connection: int, call: int, error: Exception) -> Failed:
    """Return what crosses of an error. Read it with :func:`error_of`."""
    if isinstance(error, RefusedError):
        return Failed(
            connection, call, "refused", crossable(error.what), error.status, error.perhaps_done
        )
    kind: Literal["lost", "not-sent", "other"] = "other"
    if isinstance(error, LostError):
        kind = "not-sent" if isinstance(error, NotSentError) else "lost"
    return Failed(connection, call, kind, crossable(str(error)))


def error_of(failed: Failed) -> SrmpSparkError:
    """Return the error that the gateway met."""
    if failed.kind == "refused":
        return RefusedError(failed.status, failed.text, perhaps_done=failed.perhaps_done)
    kinds = {"lost": LostError, "not-sent": NotSentError}
    return kinds.get(failed.kind, SrmpSparkError)(failed.text)


def crossable(text: str) -> str:
    """Return ``text`` as UTF-8 can hold it: a server may have put halves of surrogate pairs into it."""
    return text.encode("utf-8", "backslashreplace").decode()
