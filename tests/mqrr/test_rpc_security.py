"""Security contexts over DCE/RPC: legs, levels, what is signed, and what is refused ([MS-RPCE] 2.2.2.11, 3.3.1.5.2)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from rpc_kit import SERVER, GlassProvider, Link, pdus

from srmp_spark.errors import LocalProtocolError
from srmp_spark.mqrr.rpc.binding import NakReason, parse_bind_nak
from srmp_spark.mqrr.rpc.calls import parse_fault
from srmp_spark.mqrr.rpc.client_connection import (
    Bound,
    CallAnswered,
    ClientConnection,
    ClientConnectionClosed,
    ClientSettings,
    Faulted,
)
from srmp_spark.mqrr.rpc.limits import FRAGMENT_MIN, SECURITY_LEGS_MAX
from srmp_spark.mqrr.rpc.pdu import SUPPORT_HEADER_SIGN, AuthLevel, PduType
from srmp_spark.mqrr.rpc.server_states import ServerState
from srmp_spark.mqrr.rpc.verification_trailer import SIGNATURE
from srmp_spark.mqrr.status import Status

CONNECT, INTEGRITY, PRIVACY = AuthLevel.CONNECT, AuthLevel.PKT_INTEGRITY, AuthLevel.PKT_PRIVACY
LEVELS = pytest.mark.parametrize(
    "level", [CONNECT, INTEGRITY, PRIVACY], ids=lambda level: level.name
)


def provider(level, *, server: bool, **more) -> GlassProvider:
    made = GlassProvider(server=server, **more)
    made.privacy = level == PRIVACY
    return made


def secured(level, *, client=None, server=None, settings=None, **more) -> Link:
    """A link whose both sides have a provider; ``client`` and ``server`` are their options."""
    accept = SERVER if settings is None else settings
    accept = replace(
        accept,
        accept_security=lambda _, level, peer: provider(level, server=True, **(server or {})),
    )
    wanted = ClientSettings(
        auth_level=level, security=provider(level, server=False, **(client or {}))
    )
    return Link(wanted, accept, **more)


@LEVELS
@pytest.mark.parametrize("legs", [2, 3, 4])
@pytest.mark.parametrize("header_signing", [True, False])
def test_a_call_at_each_level_with_each_number_of_legs(level, legs, header_signing):
    """Two legs: bind, bind_ack. Three: an auth3 is the last. Four: an alter_context and its answer."""
    options = {"legs": legs, "header_signing": header_signing}
    link = secured(
        level, client=options, server=options, settings=replace(SERVER, min_auth_level=level)
    ).bound()
    kinds = [pdu.type for pdu in pdus(link.to_server)]
    assert kinds == [PduType.BIND, *{2: [], 3: [PduType.AUTH3], 4: [PduType.ALTER_CONTEXT]}[legs]]
    stub = bytes(range(256)) * 40  # two fragments
    call = link.call(7, stub)
    assert call.stub[: len(stub)] == stub
    assert (call.identity, call.auth_level) == ("EXAMPLE\\user", level)
    link.server.respond(call.call_id, stub[::-1])
    link.pump()
    assert link.results == [CallAnswered(call.call_id, stub[::-1])]


def test_privacy_hides_the_stub_and_integrity_does_not():
    for level, seen in ((INTEGRITY, True), (PRIVACY, False)):
        link = secured(level).bound()
        link.call(7, b"in the clear")
        assert (b"in the clear" in link.to_server) is seen


@pytest.mark.parametrize(("client", "server"), [(True, True), (True, False), (False, True)])
def test_header_signing_is_what_both_sides_can(client, server):
    link = secured(
        INTEGRITY, client={"header_signing": client}, server={"header_signing": server}
    ).bound()
    (sent, *_), (answered, *_) = pdus(link.to_server), pdus(link.to_client)
    assert bool(sent.flags & SUPPORT_HEADER_SIGN) is client
    assert bool(answered.flags & SUPPORT_HEADER_SIGN) is (client and server)
    link.call(7, b"stub")
    request = pdus(link.to_server)[-1]
    assert (SIGNATURE in request.body) is not (
        client and server
    )  # what is not signed is said again in a trailer


@pytest.mark.parametrize("header_signing", [True, False])
def test_a_byte_that_was_changed_on_the_way(header_signing):
    """Of the opnum: the signature tells, or else the verification trailer."""
    options = {"header_signing": header_signing}
    link = secured(INTEGRITY, client=options, server=options).bound()
    link.client.call(7, b"stub", 0.0)
    data = bytearray(link.client.data_to_send())
    data[22] ^= 1
    events = link.server.receive(bytes(data))
    (pdu,) = pdus(link.server.data_to_send())
    assert parse_fault(pdu).status == Status.ERROR_ACCESS_DENIED
    assert [type(event).__name__ for event in events] == (
        ["ConnectionClosed"] if header_signing else []
    )


@pytest.mark.parametrize("level", [INTEGRITY, PRIVACY])
def test_a_stub_that_was_changed_on_the_way(level):
    link = secured(level).bound()
    call = link.call(7, b"stub")
    link.server.respond(call.call_id, b"the answer")
    data = bytearray(link.server.data_to_send())
    data[26] ^= 1
    (closed,) = link.client.receive(bytes(data))
    assert isinstance(closed, ClientConnectionClosed)
    assert "signature" in closed.reason


def test_fragments_leave_room_for_the_token():
    link = secured(PRIVACY).bound()
    call = link.call(7, b"x" * 20_000)
    assert call.stub[:20_000] == b"x" * 20_000
    link.server.respond(call.call_id, b"y" * 20_000)
    link.pump()
    sizes = [len(pdu.raw) for pdu in pdus(link.to_server) + pdus(link.to_client)]
    assert max(sizes) <= 5840
    assert max(sizes) > FRAGMENT_MIN


def test_a_type_that_is_not_set_up():
    link = Link(ClientSettings(auth_level=PRIVACY, security=provider(PRIVACY, server=False)))
    link.client.bind(0.0)
    link.pump()
    (closed,) = link.results
    assert isinstance(closed, ClientConnectionClosed)
    assert closed.reason.startswith(
        "the server refuses the bind: AUTHENTICATION_TYPE_NOT_RECOGNIZED; "
    ), "and what to do"
    assert "no security provider is set up" in link.calls[-1].reason


def test_a_first_leg_that_does_not_hold():
    link = secured(PRIVACY, server={"wrong": True})
    link.client.bind(0.0)
    link.pump()
    (pdu,) = pdus(link.to_client)
    assert parse_bind_nak(pdu.body).reason == NakReason.INVALID_CHECKSUM


def test_a_last_leg_that_does_not_hold_is_told_to_the_first_request():
    """Nobody answers an auth3."""
    link = secured(INTEGRITY).bound()
    link.server._security.failed = True
    call_id = link.client.call(7, b"", 0.0)
    link.pump()
    assert link.results == [Faulted(call_id, Status.ERROR_ACCESS_DENIED, not_executed=True)]
    assert link.server.state is ServerState.CLOSED


def test_a_wrong_last_leg():
    link = secured(INTEGRITY)
    link.client.bind(0.0)
    link.server.receive(link.client.data_to_send())
    link.client.receive(link.server.data_to_send())
    auth3 = link.client.data_to_send().replace(b"leg3", b"leg9")
    assert link.server.receive(auth3) == []
    assert link.server.data_to_send() == b""
    link.client.call(7, b"", 0.0)
    (closed,) = link.server.receive(link.client.data_to_send())
    assert "last leg" in closed.reason
    (pdu,) = pdus(link.server.data_to_send())
    assert parse_fault(pdu).status == Status.ERROR_ACCESS_DENIED


@pytest.mark.parametrize("level", [INTEGRITY, PRIVACY])
def test_a_request_without_the_token_that_was_agreed_on(level):
    plain, link = Link().bound(), secured(level).bound()
    plain.client.call(7, b"", 0.0)
    plain.client.call(7, b"", 0.0)
    (closed,) = link.server.receive(plain.client.data_to_send())
    assert "without the token" in closed.reason


def test_a_token_without_any_negotiation():
    plain, link = Link().bound(), secured(INTEGRITY).bound()
    link.client.call(7, b"", 0.0)
    (closed,) = plain.server.receive(link.client.data_to_send())
    assert "no security context was agreed on" in closed.reason


@pytest.mark.parametrize("level", [AuthLevel.CALL, AuthLevel.PKT])
def test_levels_that_promise_less_than_integrity(level):
    with pytest.raises(LocalProtocolError, match="use connect, integrity or privacy"):
        ClientConnection(ClientSettings(auth_level=level, security=provider(level, server=False)))
    link = secured(INTEGRITY)
    link.client.bind(0.0)
    data = link.client.data_to_send()
    at = len(data) - len(b"leg1") - 8 + 1
    link.server.receive(data[:at] + bytes([level]) + data[at + 1 :])
    (pdu,) = pdus(link.server.data_to_send())
    assert parse_bind_nak(pdu.body).reason == NakReason.AUTHENTICATION_TYPE_NOT_RECOGNIZED


def test_a_level_needs_a_provider():
    for settings in (
        ClientSettings(auth_level=PRIVACY),
        ClientSettings(security=provider(PRIVACY, server=False)),
    ):
        with pytest.raises(LocalProtocolError, match="needs a security provider"):
            ClientConnection(settings)


def test_a_server_that_ends_the_negotiation_too_early():
    link = Link(ClientSettings(auth_level=INTEGRITY, security=provider(INTEGRITY, server=False)))
    other = Link().bound()
    link.client.bind(0.0)
    (closed,) = link.client.receive(other.to_client)
    assert isinstance(closed, ClientConnectionClosed)
    assert "before the security provider does" in closed.reason


def test_a_bind_without_security_and_then_one_with_it():
    """[MS-RPCE] 3.3.1.5.2.1: after a bind the first leg is in an alter_context."""
    plain = Link(
        server=replace(SERVER, accept_security=lambda _, level, peer: provider(level, server=True))
    ).bound()
    link = secured(PRIVACY)
    link.client.bind(0.0)
    alter = bytearray(link.client.data_to_send())
    alter[2] = PduType.ALTER_CONTEXT
    assert plain.server.receive(bytes(alter)) == []
    assert plain.server.state is ServerState.NEGOTIATING_SECURITY
    (pdu,) = pdus(plain.server.data_to_send())
    assert (pdu.type, pdu.auth.token) == (PduType.ALTER_CONTEXT_RESP, b"leg2")


def test_a_second_security_context_was_never_agreed_on():
    link = secured(PRIVACY).bound()
    again = secured(PRIVACY)
    again.client.bind(0.0)
    alter = bytearray(again.client.data_to_send())
    alter[2] = PduType.ALTER_CONTEXT
    (closed,) = link.server.receive(bytes(alter))
    assert "second security context" in closed.reason


def test_a_negotiation_has_an_end():
    link = secured(PRIVACY, client={"legs": 100}, server={"legs": 100})
    link.client.bind(0.0)
    link.pump()
    assert "SECURITY_LEGS_MAX" in link.calls[-1].reason
    assert isinstance(link.results[-1], ClientConnectionClosed)
    assert [pdu.type for pdu in pdus(link.to_server)].count(
        PduType.ALTER_CONTEXT
    ) == SECURITY_LEGS_MAX


def test_bound_only_after_the_last_leg():
    link = secured(PRIVACY, client={"legs": 4}, server={"legs": 4})
    link.client.bind(0.0)
    link.server.receive(link.client.data_to_send())
    assert link.client.receive(link.server.data_to_send()) == []
    link.server.receive(link.client.data_to_send())
    assert [type(result) for result in link.client.receive(link.server.data_to_send())] == [Bound]
