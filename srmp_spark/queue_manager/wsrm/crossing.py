"""Messages between the main process and the gateway of WS-ReliableMessaging (:mod:`srmp_spark.queue_manager.gateway`).

    gateway                                main process
    ─────── Asked: a large request ──────▶ gate, writer, queue
    ◀────────────── Admitted ─────────────
    ─────── Arrived: a decoded message ──▶ sequences, rows, one transaction
    ◀────── Answered, or Refused ─────────

A request has a number that its gateway never uses twice. An answer to a request whose connection is gone is
dropped, as one that the network lost: its client repeats the message.
"""

from __future__ import annotations

import pickle
from typing import Literal

import msgspec

from srmp_spark.wsrm.elements import SoapMessage


class Client(msgspec.Struct, frozen=True, array_like=True):
    """Who sent a request."""

    peer: str
    """``host:port``."""
    sender_name: str | None
    """The authenticated name of a client certificate."""
    scheme: Literal["http", "https"]
    authorization: bytes
    """The value of the Authorization field, which is not stored."""


class Asked(msgspec.Struct, tag=True, frozen=True):
    """A request that is too large to be parsed before somebody wants it."""

    request: int
    queue: str
    client: Client


class Arrived(msgspec.Struct, tag=True, frozen=True):
    """A whole message, decoded."""

    request: int
    queue: str
    client: Client
    post: bytes
    """The request as it is stored: without credentials."""
    head_length: int
    message: bytes
    """Pickled by our own code, read by :func:`message_of`: no client has a say in these bytes."""


class Counted(msgspec.Struct, tag=True, frozen=True):
    """A request that the gateway refused by itself, for the metrics."""

    status: int
    reason: str


class HandshakeRefused(msgspec.Struct, tag=True, frozen=True):
    """A handshake that failed, for the metrics."""

    why: str


class Drained(msgspec.Struct, tag=True, frozen=True):
    """The gateway has no connection any more, after :class:`Drain`."""


class Admitted(msgspec.Struct, tag=True, frozen=True):
    """The request of an :class:`Asked` may be parsed."""

    request: int


class Answered(msgspec.Struct, tag=True, frozen=True):
    """An HTTP answer with SOAP, or 202 without a body."""

    request: int
    status: int
    fields: dict[str, str]
    content: bytes


class Refused(msgspec.Struct, tag=True, frozen=True):
    """An HTTP answer without SOAP."""

    request: int
    status: int
    reason: str
    section: str
    retry_after: int | None


class Drain(msgspec.Struct, tag=True, frozen=True):
    """Accept no further connection, finish what is in progress, and answer :class:`Drained`."""


ToMain = Asked | Arrived | Counted | HandshakeRefused | Drained
ToGateway = Admitted | Answered | Refused | Drain


def packed(message: SoapMessage) -> bytes:
    """Return ``message`` as bytes for :func:`message_of`."""
    return pickle.dumps(message, pickle.HIGHEST_PROTOCOL)


def message_of(arrived: Arrived) -> SoapMessage:
    """Return the message that the gateway decoded."""
    message = pickle.loads(arrived.message)  # noqa: S301  # our own child wrote it, over a socket that nobody else has
    if not isinstance(message, SoapMessage):
        raise TypeError(f"the gateway sent {type(message).__name__}")
    return message
