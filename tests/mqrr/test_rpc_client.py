"""A client alone, and with a server that breaks the rules ([MS-RPCE] 3.3.2)."""

from __future__ import annotations

import pytest
from rpc_kit import PEER, SERVER, Link, Server, associations, bind, encode_shutdown, pdus

from srmp_spark.errors import LocalProtocolError
from srmp_spark.mqrr.ndr.transfer_syntax import NDR
from srmp_spark.mqrr.rpc import client_connection
from srmp_spark.mqrr.rpc.binding import NDR64_ID, REMOTE_READ, Context, parse_bind_ack
from srmp_spark.mqrr.rpc.client_connection import (
    CallAnswered,
    ClientConnectionClosed,
    ClientSettings,
    ShutdownAsked,
)
from srmp_spark.mqrr.rpc.client_states import ClientState
from srmp_spark.mqrr.rpc.limits import CALL_ID_MAX, CALL_TIMEOUT_S
from srmp_spark.mqrr.rpc.pdu import FIRST_FRAGMENT, LAST_FRAGMENT, WHOLE, PduType, encode_pdu
from srmp_spark.mqrr.rpc.server_events import CallCancelled, CallOrphaned


def test_calls_need_a_bound_connection():
    link = Link()
    with pytest.raises(
        LocalProtocolError, match="CALL cannot happen to a connection that is ESTABLISHED"
    ):
        link.client.call(7, b"", 0.0)


def test_call_identifiers_end_and_are_not_used_again():
    link = Link().bound()
    link.client._call_id = CALL_ID_MAX - 1
    assert link.client.calls_left == 1
    link.call(7, b"")
    with pytest.raises(LocalProtocolError, match="make another one of its group"):
        link.client.call(7, b"", 0.0)


def test_a_server_sends_no_larger_fragments_than_its_client_takes():
    link = Link(ClientSettings(fragment=2000)).bound()
    ack = parse_bind_ack(pdus(link.to_client)[0].body)
    assert (ack.max_transmit, ack.max_receive) == (2000, 5840)


def test_an_answer_in_time_and_one_that_does_not_come():
    link = Link().bound()
    assert link.client.timer() is None
    call = link.call(7, b"")
    slow = link.client.call(7, b"", 10.0, timeout_s=60.0)
    assert link.client.timer() == 70.0
    link.server.respond(call.call_id, b"")
    link.pump()
    assert link.client.handle_timer(69.9) == []
    assert link.client.handle_timer(70.0) == [
        ClientConnectionClosed("the server did not answer in time", (slow,))
    ]
    assert link.client.timer() is None


def test_what_a_server_sends_is_worked_off_in_slices():
    link = Link().bound()
    call = link.call(7, b"")
    header = bytes(4) + link.client._context_id.to_bytes(2, "little") + bytes(2)
    empty = encode_pdu(PduType.RESPONSE, 0, call.call_id, header)
    first = encode_pdu(PduType.RESPONSE, FIRST_FRAGMENT, call.call_id, header)
    last = encode_pdu(PduType.RESPONSE, LAST_FRAGMENT, call.call_id, header + b"stub")
    assert link.client.receive(first + 9 * empty + last, 4) == []
    assert link.client.is_behind
    assert link.client.receive(b"", 4) == []
    assert link.client.is_behind
    assert link.client.receive(b"", 4) == [CallAnswered(call.call_id, b"stub")]
    assert not link.client.is_behind


def test_a_shutdown_is_asked_for_once():
    link = Link().bound()
    assert link.client.receive(encode_shutdown()) == [ShutdownAsked()]
    (closed,) = link.client.receive(encode_shutdown())
    assert "a second shutdown" in closed.reason


def test_a_bind_that_is_not_answered():
    link = Link()
    link.client.bind(5.0)
    assert link.client.timer() == 5.0 + CALL_TIMEOUT_S
    (closed,) = link.client.handle_timer(5.0 + CALL_TIMEOUT_S)
    assert isinstance(closed, ClientConnectionClosed)


def test_what_was_under_way_when_the_connection_went_is_named():
    link = Link().bound()
    ids = tuple(link.client.call(7, b"", 0.0) for _ in range(2))
    assert link.client.connection_lost() == [
        ClientConnectionClosed("the transport connection is gone", ids)
    ]
    assert link.client.connection_lost() == []
    assert link.server.connection_lost()[0].calls == ()


def test_cancel_and_orphan_as_the_client_sends_them():
    link = Link().bound()
    call = link.call(7, b"")
    link.client.cancel(call.call_id)
    link.client.cancel(99)
    link.pump()
    assert link.calls == [CallCancelled(call.call_id)]
    link.client.orphan(call.call_id)
    link.pump()
    assert link.calls[1:] == [CallOrphaned(call.call_id)]
    assert link.client.state is ClientState.CLOSED


def test_a_response_has_a_limit(monkeypatch):
    monkeypatch.setattr(client_connection, "RESPONSE_MAX", 10_000)
    link = Link().bound()
    for size in (10_000, 10_001):
        link.server.respond(link.call(7, b"").call_id, bytes(size))
        link.pump()
    assert isinstance(link.results[0], CallAnswered)
    assert "RESPONSE_MAX is 10000, got 10001" in link.results[1].reason


def test_a_server_that_asks_to_close():
    link = Link().bound()
    assert link.client.receive(encode_shutdown()) == [ShutdownAsked()]
    assert link.client.state is ClientState.CONTEXT_NEGOTIATED


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (encode_pdu(PduType.RESPONSE, WHOLE, 77, bytes(8)), "was not made"),
        (encode_pdu(PduType.FAULT, WHOLE, 77, bytes(16)), "was not made"),
        (
            encode_pdu(PduType.RESPONSE, WHOLE, 2, bytes.fromhex("00000000 0900 0000")),
            "another context",
        ),
        (
            encode_pdu(PduType.RESPONSE, LAST_FRAGMENT, 2, bytes.fromhex("00000000 0100 0000")),
            "out of order",
        ),
        (encode_pdu(PduType.REQUEST, WHOLE, 2, bytes(8)), "type 0 while"),
        (
            b"HTTP/1.1 400 Bad Request\r\n",
            "this is an HTTP server, and has no remote read; give the RPC port",
        ),
    ],
)
def test_an_answer_that_breaks_the_rules_closes_the_client(data, error):
    link = Link().bound()
    call_id = link.client.call(7, b"", 0.0)
    assert call_id == 2
    (closed,) = link.client.receive(data)
    assert isinstance(closed, ClientConnectionClosed)
    assert error in closed.reason
    assert closed.calls == (call_id,)


def test_a_syntax_that_was_not_offered_is_no_acceptance():
    link = Link(ClientSettings(syntaxes=(NDR,), offer_features=False))
    link.client.bind(0.0)
    link.client.data_to_send()
    other = Server(SERVER, associations(), PEER)
    other.receive(bind(Context(0, REMOTE_READ, (NDR64_ID,))))
    (closed,) = link.client.receive(other.data_to_send())
    assert "not offered" in closed.reason


def test_what_a_connection_looks_like_in_a_log():
    link = Link().bound()
    link.call(7, b"")
    association = "<Association 4097 of 192.0.2.7: 1 connections, 0 handles>"
    assert (
        repr(link.server)
        == f"<ServerConnection from 192.0.2.7 CONTEXT_NEGOTIATED calls=[2] {association}>"
    )
    assert repr(link.client) == "<ClientConnection CONTEXT_NEGOTIATED group=4097 calls=[2]>"
