"""Messages between the main process and the gateway of WS-ReliableMessaging.

See :mod:`srmp_spark.queue_manager.gateway` for the channel that carries the messages::

    gateway                                main process
    ─────── Asked: a large request ──────▶ gate, writer, queue
    ◀────────────── Admitted ─────────────
    ─────── SoapArrived: decoded ────────▶ sequences, rows, one transaction
    ◀────── SoapResponse, or SoapRefused ─

A request has a number that its gateway never uses twice. An answer to a request whose connection is
closed is dropped, like an answer that the network lost. The client then repeats its message.
"""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from typing import Literal

import msgspec

from srmp_spark.queue_manager.gateway.control import GatewaySettings
from srmp_spark.wsrm.codec.elements import SoapMessage


@dataclass(frozen=True, slots=True)
class WsrmTls:
    """The files by which the port identifies itself, and checks its clients."""

    cert: str
    key: str
    client_ca: str | None
    require_client_cert: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class WsrmSettings(GatewaySettings):
    """The settings of the gateway of WS-ReliableMessaging."""

    tls: WsrmTls | None
    connections_max: int


class Client(msgspec.Struct, frozen=True, array_like=True):
    """The client that sent a request, as far as it is known."""

    peer: str
    """Address of the client, as ``host:port``."""
    sender_name: str | None
    """The authenticated name of a client certificate, or ``None`` without one."""
    scheme: Literal["http", "https"]
    authorization: bytes
    """The value of the Authorization field, which is not stored."""


class Asked(msgspec.Struct, tag=True, frozen=True):
    """Asks the main process whether a large request may be parsed.

    The answer is :class:`Admitted` or :class:`SoapRefused`.
    """

    request: int
    queue: str
    client: Client


class SoapArrived(msgspec.Struct, tag=True, frozen=True):
    """A whole, decoded request. The gateway sends it to the main process.

    The answer is :class:`SoapResponse` or :class:`SoapRefused`.
    """

    request: int
    queue: str
    client: Client
    post: bytes
    """The request as it is stored: without credentials."""
    head_length: int
    message: bytes
    """The message in pickled form, for :func:`message_of`.

    The gateway pickles the message, so no client controls these bytes.
    """


class Counted(msgspec.Struct, tag=True, frozen=True):
    """Tells the main process that the gateway refused a request by itself, for the metrics."""

    status: int
    reason: str


class HandshakeRefused(msgspec.Struct, tag=True, frozen=True):
    """Tells the main process that a TLS handshake failed, for the metrics."""

    why: str


class Drained(msgspec.Struct, tag=True, frozen=True):
    """Answers :class:`Drain`: the gateway has no connection any longer."""


class Admitted(msgspec.Struct, tag=True, frozen=True):
    """Answers :class:`Asked`: the request may be parsed."""

    request: int


class SoapResponse(msgspec.Struct, tag=True, frozen=True):
    """Orders the gateway to answer a request with SOAP, or with 202 without a body."""

    request: int
    status: int
    fields: dict[str, str]
    content: bytes


class SoapRefused(msgspec.Struct, tag=True, frozen=True):
    """Orders the gateway to answer a request with an HTTP status, without SOAP."""

    request: int
    status: int
    reason: str
    section: str
    retry_after: int | None


class Drain(msgspec.Struct, tag=True, frozen=True):
    """Orders the gateway to accept no connections and to finish its requests.

    The gateway answers :class:`Drained` when that is done.
    """


ToMain = Asked | SoapArrived | Counted | HandshakeRefused | Drained
ToGateway = Admitted | SoapResponse | SoapRefused | Drain


def packed(message: SoapMessage) -> bytes:
    """Return ``message`` in pickled form, for :attr:`SoapArrived.message`."""
    return pickle.dumps(message, pickle.HIGHEST_PROTOCOL)


def message_of(arrived: SoapArrived) -> SoapMessage:
    """Return the message that the gateway decoded, from its pickled form.

    Raises :class:`TypeError` if the bytes hold anything but a :class:`SoapMessage`.
    """
    # Our own child process wrote these bytes, over a socket that no other process has.
    message = pickle.loads(arrived.message)  # noqa: S301
    if not isinstance(message, SoapMessage):
        raise TypeError(f"the gateway sent {type(message).__name__}")
    return message
