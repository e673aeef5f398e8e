"""Negotiate by pyspnego, as far as that goes without a KDC: with NTLM inside, both sides over a connection of DCE/RPC."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import spnego
from rpc_kit import OPNUMS, Link

from srmp_spark.errors import ConfigurationError
from srmp_spark.mqrr.ndr.methods import NoParameters, PortResponse
from srmp_spark.mqrr.ndr.transfer_syntax import NDR
from srmp_spark.mqrr.remote_host import parse_remote_host
from srmp_spark.mqrr.rpc.binding import REMOTE_READ
from srmp_spark.mqrr.rpc.client_connection import (
    Bound,
    CallAnswered,
    ClientConnectionClosed,
    ClientSettings,
)
from srmp_spark.mqrr.rpc.pdu import AuthLevel
from srmp_spark.mqrr.rpc.security import SecurityError
from srmp_spark.mqrr.rpc.server_connection import ServerSettings
from srmp_spark.signing_in import credentials as module
from srmp_spark.signing_in.credentials import credentials
from srmp_spark.signing_in.negotiated import NegotiatedInitiator

FAR = parse_remote_host("x", "windows.example:2103")
GIVEN = {"level": None, "protocol": "negotiate", "user": None, "password": None, "domain": None}


class Acceptor:
    """pyspnego's other half: what we may compare ourselves with."""

    auth_type, supports_header_signing, odd_legs, token_size = 9, True, False, 16

    def __init__(self) -> None:
        self.context: Any = spnego.server(
            hostname="windows.example",
            service="host",
            protocol="negotiate",
            options=spnego.NegotiateOptions.use_negotiate,
        )

    @property
    def complete(self) -> bool:
        return bool(self.context.complete)

    @property
    def identity(self) -> str | None:
        return self.context.client_principal

    def step(self, token: bytes) -> bytes:
        try:
            return self.context.step(token) or b""
        except spnego.exceptions.SpnegoError as error:
            raise SecurityError(str(error)) from None

    def protect(
        self, header: bytes, body: bytes, trailer: bytes, *, sign_header: bool
    ) -> tuple[bytes, bytes]:
        kinds = spnego.iov.BufferType
        pieces = [
            (kinds.sign_only, header),
            (kinds.data, body),
            (kinds.sign_only, trailer),
            kinds.header,
        ]
        found = self.context.wrap_iov(pieces).buffers
        return found[1].data, found[3].data

    def unprotect(
        self, header: bytes, body: bytes, trailer: bytes, token: bytes, *, sign_header: bool
    ) -> bytes:
        kinds = spnego.iov.BufferType
        pieces = [
            (kinds.sign_only, header),
            (kinds.data, body),
            (kinds.sign_only, trailer),
            (kinds.header, token),
        ]
        try:
            return self.context.unwrap_iov(pieces).buffers[1].data
        except spnego.exceptions.SpnegoError as error:
            raise SecurityError(str(error)) from None


@pytest.fixture(autouse=True)
def account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "accounts"
    path.write_text("EXAMPLE:reader:right and proper\n")
    monkeypatch.setenv("NTLM_USER_FILE", str(path))
    monkeypatch.setenv("KRB5_CONFIG", str(tmp_path / "none"))


def link(level: int, password: str = "right and proper") -> Link:
    server = ServerSettings(
        interfaces={REMOTE_READ: OPNUMS}, port=2103, min_auth_level=level,
        accept_security=lambda kind, wanted, peer: Acceptor() if kind == 9 else None,
    )  # fmt: skip
    client = NegotiatedInitiator(
        "negotiate", level, "reader", password, "EXAMPLE", "windows.example"
    )
    return Link(ClientSettings(auth_level=level, security=client), server)


@pytest.mark.parametrize("level", [AuthLevel.CONNECT, AuthLevel.PKT_PRIVACY])
def test_negotiate_signs_in_and_is_understood(level):
    connection = link(level)
    connection.client.bind(0.0)
    connection.pump()
    assert isinstance(connection.results.pop(), Bound)
    for number in range(3):
        call = connection.call(0, NoParameters().encode(NDR))
        assert call.identity == "EXAMPLE\\reader"
        connection.server.respond(
            call.call_id, PortResponse(2103).encode(NDR) + b"x" * 9_000 * number
        )
        connection.pump()
        answer = connection.results.pop()
        assert isinstance(answer, CallAnswered)
        assert answer.stub[:4] == (2103).to_bytes(4, "little")


def test_privacy_shows_nothing_of_a_call():
    connection = link(AuthLevel.PKT_PRIVACY)
    connection.client.bind(0.0)
    connection.pump()
    connection.client.call(0, b"a secret that is long enough to be seen", 0.0)
    sent = connection.client.data_to_send()
    assert b"secret" not in sent
    connection.client._out.append(sent)
    connection.pump()
    assert connection.calls.pop().stub.startswith(b"a secret")


def test_a_wrong_password_is_refused():
    connection = link(AuthLevel.PKT_PRIVACY, "wrong")
    connection.client.bind(0.0)
    connection.pump()
    assert any(isinstance(each, ClientConnectionClosed) for each in connection.results)


def test_kerberos_without_a_ticket_says_so():
    with pytest.raises(SecurityError, match="signing in failed"):
        NegotiatedInitiator("kerberos", AuthLevel.PKT_PRIVACY, "", "", "", "windows.example")


def test_credentials_of_kerberos_and_negotiate(monkeypatch):
    """Without a user: the tickets of the machine's cache."""
    found = credentials("x", FAR, **GIVEN)
    assert (found.protocol, found.level, found.user) == ("negotiate", "privacy", "")
    with pytest.raises(ConfigurationError, match="privacy or connect, got integrity"):
        credentials("x", FAR, **{**GIVEN, "level": "integrity"})
    with pytest.raises(ConfigurationError, match="give a user and a password"):
        credentials("x", FAR, **{**GIVEN, "user": "reader"})
    monkeypatch.setattr(module, "is_installed", lambda: False)
    with pytest.raises(ConfigurationError, match=r"pip install 'srmp-spark\[kerberos\]'"):
        credentials("x", FAR, **{**GIVEN, "protocol": "Kerberos"})
