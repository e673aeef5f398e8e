"""A client and a server without a network between them, and a security provider that anybody can look through."""

from __future__ import annotations

import itertools
from typing import Any

from srmp_spark.mqrr.ndr.transfer_syntax import NDR, NDR64
from srmp_spark.mqrr.rpc.associations import Associations
from srmp_spark.mqrr.rpc.binding import REMOTE_READ, Bind, Context
from srmp_spark.mqrr.rpc.calls import request_pieces
from srmp_spark.mqrr.rpc.client_connection import Bound, ClientConnection, ClientSettings
from srmp_spark.mqrr.rpc.limits import FRAGMENT_MAX
from srmp_spark.mqrr.rpc.negotiation import offers
from srmp_spark.mqrr.rpc.pdu import (
    CONCURRENT_MULTIPLEXING,
    WHOLE,
    Pdu,
    PduStream,
    PduType,
    encode_pdu,
    parse_pdu,
)
from srmp_spark.mqrr.rpc.security import SecurityError
from srmp_spark.mqrr.rpc.server_connection import ServerConnection, ServerSettings

OPNUMS = frozenset({0, *range(2, 16)})
PEER = "192.0.2.7"
SERVER = ServerSettings(interfaces={REMOTE_READ: OPNUMS}, port=2103)


def encode_shutdown() -> bytes:
    """The server asks the client to close the connection (C706 12.6.4.11). Ours never does."""
    return encode_pdu(PduType.SHUTDOWN, WHOLE, 0, b"")


def associations() -> Associations[Any]:
    ids, uuids = itertools.count(0x1001), itertools.count(1)
    return Associations(new_id=lambda: next(ids), new_uuid=lambda: next(uuids).to_bytes(16, "big"))


class Server(ServerConnection):
    """The engine at a time that stands still unless a test moves it."""

    def __init__(self, settings, groups, peer, now: float = 0.0) -> None:
        super().__init__(settings, groups, peer, now)

    def receive(self, data: bytes, now: float = 0.0) -> list[Any]:
        return super().receive(data, now)


class Link:
    """Both ends of one connection. ``pump`` carries what waits to the other side, in pieces of ``step`` bytes."""

    def __init__(self, client=None, server=SERVER, groups=None, peer=PEER, step=None):
        self.client = ClientConnection(client or ClientSettings())
        self.groups = associations() if groups is None else groups
        self.server = Server(server, self.groups, peer)
        self.step = step
        self.calls: list[Any] = []
        self.results: list[Any] = []
        self.to_server = self.to_client = b""

    def pump(self) -> None:
        while True:
            out, back = self.client.data_to_send(), self.server.data_to_send()
            if not out and not back:
                return
            self.to_server += out
            self.to_client += back
            for piece in self._pieces(out):
                self.calls += self.server.receive(piece)
            for piece in self._pieces(back):
                self.results += self.client.receive(piece)

    def _pieces(self, data: bytes) -> list[bytes]:
        step = self.step or max(len(data), 1)
        return [data[at : at + step] for at in range(0, len(data), step)]

    def bound(self, group_id: int = 0) -> Link:
        self.client.bind(0.0, group_id=group_id)
        self.pump()
        assert isinstance(self.results.pop(), Bound), self.results
        return self

    def call(self, opnum: int, stub: bytes) -> Any:
        """The call as the server got it."""
        self.client.call(opnum, stub, 0.0)
        self.pump()
        return self.calls.pop()


def pdus(data: bytes) -> list[Pdu]:
    return [parse_pdu(raw) for raw in PduStream().receive(data)]


def bind(
    *contexts: Context,
    flags: int = WHOLE | CONCURRENT_MULTIPLEXING,
    group_id: int = 0,
    kind: int = PduType.BIND,
) -> bytes:
    """A raw bind, of what Windows offers unless told otherwise."""
    offered = contexts or offers(REMOTE_READ, (NDR, NDR64), 3)
    return encode_pdu(
        kind, flags, 1, Bind(FRAGMENT_MAX, FRAGMENT_MAX, group_id, tuple(offered)).encode()
    )


def request(
    call_id: int, stub: bytes = b"stub", *, opnum: int = 7, context_id: int = 1, flags: int = WHOLE
) -> bytes:
    (piece,) = request_pieces(context_id, opnum, stub, fragment=65_535)
    return encode_pdu(PduType.REQUEST, flags, call_id, piece.body)


class GlassProvider:
    """Three legs, XOR for privacy, a sum for a signature: everything it was given can be seen."""

    auth_type = 10
    odd_legs = True
    token_size = 16

    def __init__(
        self, *, server: bool, header_signing: bool = True, legs: int = 3, wrong: bool = False
    ) -> None:
        self.server, self.wrong = server, wrong
        self.supports_header_signing = header_signing
        self.legs = legs
        self.odd_legs = legs % 2 == 1
        self.leg = 0
        self.complete = False
        self.identity: str | None = None
        self.privacy = False

    def step(self, token: bytes) -> bytes:
        first = 1 if self.server else 0
        expected = b"" if not first and not self.leg else b"leg%d" % (2 * self.leg + first)
        if token != expected or self.wrong:
            raise SecurityError(f"{token!r} is not {expected!r}")
        self.leg += 1
        answer = 2 * self.leg if self.server else 2 * self.leg - 1
        self.complete = answer >= self.legs
        if self.complete and self.server:
            self.identity = "EXAMPLE\\user"
        return b"leg%d" % answer if answer <= self.legs else b""

    def _sum(self, *pieces: bytes) -> bytes:
        return (
            sum(sum(piece) * (number + 1) for number, piece in enumerate(pieces)) % 2**64
        ).to_bytes(16, "big")

    def protect(self, header, body, trailer, *, sign_header):
        signed = (header, body, trailer) if sign_header else (body,)
        return bytes(byte ^ 0x55 for byte in body) if self.privacy else body, self._sum(*signed)

    def unprotect(self, header, body, trailer, token, *, sign_header):
        plain = bytes(byte ^ 0x55 for byte in body) if self.privacy else body
        if token != self._sum(*((header, plain, trailer) if sign_header else (plain,))):
            raise SecurityError("the signature does not hold")
        return plain
