"""Client and server in dialogue, and each of them with a peer that breaks the rules ([MS-RPCE] 3.3)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from rpc_kit import PEER, SERVER, Link, Server, associations, bind, pdus, request

from srmp_spark.errors import LocalProtocolError
from srmp_spark.mqrr.ndr.transfer_syntax import NDR, NDR64
from srmp_spark.mqrr.rpc.binding import (
    NDR64_ID,
    NDR_ID,
    REMOTE_READ,
    BindNak,
    Context,
    NakReason,
    SyntaxId,
    parse_bind_ack,
    parse_bind_nak,
)
from srmp_spark.mqrr.rpc.calls import (
    encode_cancel,
    encode_orphaned,
    parse_fault,
    parse_response,
)
from srmp_spark.mqrr.rpc.client_connection import (
    Bound,
    CallAnswered,
    ClientConnectionClosed,
    ClientSettings,
    Faulted,
)
from srmp_spark.mqrr.rpc.client_states import ClientState
from srmp_spark.mqrr.rpc.limits import (
    CALLS_MAX,
    CONTEXTS_MAX,
    FRAGMENT_MIN,
    NEGOTIATION_TIMEOUT_S,
    REQUEST_TIMEOUT_S,
    STUB_MAX,
)
from srmp_spark.mqrr.rpc.pdu import (
    CONCURRENT_MULTIPLEXING,
    DID_NOT_EXECUTE,
    FIRST_FRAGMENT,
    LAST_FRAGMENT,
    WHOLE,
    PduType,
    encode_pdu,
)
from srmp_spark.mqrr.rpc.server_events import CallCancelled, CallOrphaned, ConnectionClosed, Rundown
from srmp_spark.mqrr.rpc.server_states import ServerState
from srmp_spark.mqrr.rpc.verification_trailer import VerificationTrailer, append_trailer
from srmp_spark.mqrr.status import Status


def server(groups=None, peer=PEER, settings=SERVER) -> Server:
    return Server(settings, associations() if groups is None else groups, peer)


def bound_server(**more) -> Server:
    connection = server(**more)
    assert connection.receive(bind()) == []
    assert pdus(connection.data_to_send())[0].type == PduType.BIND_ACK
    return connection


def fault_of(connection: Server) -> tuple[int, int]:
    """(status, flags) of the one fault that waits to be sent."""
    (pdu,) = pdus(connection.data_to_send())
    assert pdu.type == PduType.FAULT
    return parse_fault(pdu).status, pdu.flags


# --- bind -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("syntaxes", [(NDR,), (NDR64,), (NDR, NDR64), (NDR64, NDR)])
@pytest.mark.parametrize("step", [1, 7, None])
def test_bind_call_answer(syntaxes, step):
    link = Link(ClientSettings(syntaxes=syntaxes), step=step)
    link.client.bind(0.0)
    link.pump()
    assert link.results == [Bound(NDR64 if NDR64 in syntaxes else NDR, 0x1001)]
    call = link.call(7, b"question")
    assert (call.opnum, call.stub, call.syntax, call.interface) == (
        7,
        b"question",
        link.results[0].syntax,
        REMOTE_READ,
    )
    assert (call.identity, call.auth_level) == (None, 1)
    assert link.server.respond(call.call_id, b"an answer")
    link.pump()
    assert link.results[1:] == [CallAnswered(call.call_id, b"an answer")]


def test_a_bind_ack_has_a_result_for_each_context_in_their_order():
    connection = server()
    connection.receive(bind())
    (pdu,) = pdus(connection.data_to_send())
    ack = parse_bind_ack(pdu.body)
    assert [(result.result, result.reason) for result in ack.results] == [(2, 2), (0, 0), (3, 2)]
    assert (ack.secondary_address, ack.group_id, ack.max_receive) == ("2103", 0x1001, 5840)
    assert pdu.flags & CONCURRENT_MULTIPLEXING


def test_multiplexing_is_granted_to_those_who_ask():
    connection = server()
    connection.receive(bind(flags=WHOLE))
    assert not pdus(connection.data_to_send())[0].flags & CONCURRENT_MULTIPLEXING


def test_an_interface_that_nobody_serves_is_an_ack_without_acceptance():
    link = Link(ClientSettings(interface=SyntaxId("41208ee0-e970-11d1-9b9e-00e02c064c39", 1)))
    link.client.bind(0.0)
    link.pump()
    (closed,) = link.results
    assert "accepts neither the interface nor a transfer syntax" in closed.reason
    assert link.client.state is ClientState.CLOSED


def test_windows_may_ask_for_plain_ndr_afterwards():
    """[MS-RPCE] appendix B <106>: the context of each request decides how its stub is read."""
    connection = bound_server()
    connection.receive(bind(Context(5, REMOTE_READ, (NDR_ID,)), kind=PduType.ALTER_CONTEXT))
    (pdu,) = pdus(connection.data_to_send())
    assert pdu.type == PduType.ALTER_CONTEXT_RESP
    assert [result.result for result in parse_bind_ack(pdu.body).results] == [0]
    (ndr,) = connection.receive(request(1, context_id=5))
    (ndr64,) = connection.receive(request(2, context_id=1))
    assert (ndr.syntax, ndr64.syntax) == (NDR, NDR64)


def test_a_fragment_size_below_what_everybody_must_receive_is_taken_at_that():
    link = Link(ClientSettings(fragment=100)).bound()
    call = link.call(7, b"x" * 3000)
    assert call.stub == b"x" * 3000
    link.server.respond(call.call_id, b"y" * 3000)
    assert max(len(pdu.raw) for pdu in pdus(link.server.data_to_send())) <= FRAGMENT_MIN


def test_too_many_contexts_are_refused():
    connection = bound_server()  # one context is accepted
    connection.receive(bind(Context(5, REMOTE_READ, (NDR_ID,)), kind=PduType.ALTER_CONTEXT))  # two
    offered = tuple(Context(number, REMOTE_READ, (NDR_ID,)) for number in range(CONTEXTS_MAX - 1))
    (closed,) = connection.receive(bind(*offered, kind=PduType.ALTER_CONTEXT))
    assert f"CONTEXTS_MAX is {CONTEXTS_MAX}, got {CONTEXTS_MAX + 1}" in closed.reason


@pytest.mark.parametrize(
    ("reason", "next_step"),
    [
        (NakReason.LOCAL_LIMIT_EXCEEDED, "; the server has no room for another connection"),
        (
            NakReason.AUTHENTICATION_TYPE_NOT_RECOGNIZED,
            "; the server does not accept this kind of sign-in: give an account",
        ),
        (NakReason.REASON_NOT_SPECIFIED, ""),
    ],
)
def test_a_bind_nak_ends_the_client_and_says_what_to_do(reason, next_step):
    link = Link()
    link.client.bind(0.0)
    (closed,) = link.client.receive(
        encode_pdu(PduType.BIND_NAK, WHOLE, 1, BindNak(reason).encode())
    )
    said = f"the server refuses the bind: {reason.name}{next_step}"
    assert (
        closed.reason.startswith(said) if next_step else closed == ClientConnectionClosed(said, ())
    )


# --- associations -----------------------------------------------------------------------------------------------------------


def test_a_second_connection_of_the_group_uses_the_handles_of_the_first():
    """A read that waits holds its connection; R_CancelReceive comes on another one."""
    groups = associations()
    first = Link(groups=groups).bound()
    blocked = first.call(7, b"wait")
    handle = blocked.association.open("a queue")
    second = Link(groups=groups).bound(group_id=0x1001)
    cancel = second.call(8, b"cancel it")
    assert cancel.association.find(handle) == "a queue"
    other = Link(groups=groups).bound()
    assert other.call(8, b"x").association.find(handle) is None


def test_handles_outlive_their_connection_and_are_run_down_with_the_last_one():
    groups = associations()
    first, second = Link(groups=groups).bound(), None
    association = first.call(2, b"").association
    association.open("a queue")
    association.open("another")
    second = Link(groups=groups).bound(group_id=association.id)
    events = first.server.connection_lost()
    assert [type(event) for event in events] == [ConnectionClosed]
    assert len(association) == 2
    *_, rundown = second.server.connection_lost()
    assert rundown == Rundown(association, ("a queue", "another"))
    assert len(groups) == 0
    assert second.server.connection_lost() == []  # once


@pytest.mark.parametrize(
    ("group_id", "peer"),
    [(0x7777, PEER), (0x1001, "198.51.100.1")],
    ids=["unknown", "another host"],
)
def test_nobody_joins_an_association_that_is_not_theirs(group_id, peer):
    groups = associations()
    Link(groups=groups).bound()
    connection = server(groups, peer)
    (closed,) = connection.receive(bind(group_id=group_id))
    assert isinstance(closed, ConnectionClosed)
    (pdu,) = pdus(connection.data_to_send())
    assert (pdu.type, parse_bind_nak(pdu.body)) == (
        PduType.BIND_NAK,
        BindNak(NakReason.REASON_NOT_SPECIFIED),
    )


# --- calls ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 5839, 5840, 100_000])
def test_fragments_both_ways(size):
    link = Link(step=1000).bound()
    stub = bytes(number % 256 for number in range(size))
    call = link.call(12, stub)
    assert call.stub == stub
    link.server.respond(call.call_id, stub[::-1])
    link.pump()
    assert link.results == [CallAnswered(call.call_id, stub[::-1])]


def test_calls_are_answered_in_any_order():
    link = Link().bound()
    ids = [link.client.call(7, b"%d" % number, 0.0) for number in range(3)]
    link.pump()
    assert [call.stub for call in link.calls] == [b"0", b"1", b"2"]
    for call_id in reversed(ids):
        link.server.respond(call_id, b"%d" % call_id)
    link.pump()
    assert [result.call_id for result in link.results] == ids[::-1]


def test_a_void_method_fails_with_a_fault():
    link = Link().bound()
    call = link.call(2, b"")
    link.server.fail(call.call_id, Status.MQ_ERROR_QUEUE_NOT_FOUND)
    link.pump()
    assert link.results == [Faulted(call.call_id, 0xC00E0003)]


def test_a_status_that_no_server_may_send_leaves_the_call_open():
    link = Link().bound()
    call = link.call(2, b"")
    with pytest.raises(LocalProtocolError):
        link.server.fail(call.call_id, 0)
    assert link.server.fail(call.call_id, Status.MQ_ERROR)


@pytest.mark.parametrize("opnum", [1, 16, 65_535])
def test_an_opnum_out_of_range(opnum):
    link = Link().bound()
    link.client.call(opnum, b"", 0.0)
    link.pump()
    assert link.calls == []
    assert link.results == [
        Faulted(link.results[0].call_id, Status.NCA_S_OP_RNG_ERROR, not_executed=True)
    ]


def test_a_context_that_was_not_accepted():
    connection = bound_server()
    assert connection.receive(request(1, context_id=0)) == []
    assert fault_of(connection) == (Status.NCA_S_INVALID_PRES_CONTEXT_ID, WHOLE | DID_NOT_EXECUTE)
    assert connection.state is ServerState.CONTEXT_NEGOTIATED


def test_a_bind_below_the_level_that_is_demanded():
    """Nothing is held for who has not signed in: the connection ends with a bind_nak."""
    connection = Server(replace(SERVER, min_auth_level=6), associations(), PEER)
    (closed,) = connection.receive(bind())
    assert "at least PKT_PRIVACY is required" in closed.reason
    (nak,) = pdus(connection.data_to_send())
    assert nak.type == PduType.BIND_NAK
    assert connection.receive(request(1)) == []


def test_a_cancel_of_a_call_that_never_was_ends_the_connection():
    connection = bound_server()
    connection.receive(request(1))
    (closed,) = connection.receive(encode_cancel(9))
    assert closed.calls == (1,)
    assert connection.state is ServerState.CLOSED


def test_cancel_and_orphaned_of_a_call_that_waits():
    connection = bound_server()
    connection.receive(request(1) + request(2))
    assert connection.receive(encode_cancel(1)) == [CallCancelled(1)]
    assert connection.receive(encode_orphaned(2)) == [CallOrphaned(2)]
    assert not connection.respond(2, b"nobody waits")
    assert not connection.fail(2, 5)
    assert connection.respond(1, b"cancelled")
    (answer,) = pdus(connection.data_to_send())
    assert parse_response(answer).stub == b"cancelled"


def test_a_request_that_is_orphaned_halfway():
    connection = bound_server()
    connection.receive(request(1, flags=FIRST_FRAGMENT))
    assert connection.state is ServerState.RECV_PDU
    assert connection.receive(encode_cancel(1)) == []
    assert connection.receive(encode_orphaned(1)) == []
    (call,) = connection.receive(request(2))
    assert call.call_id == 2


def test_a_late_fragment_of_an_old_call_is_dropped():
    """[MS-RPCE] 3.3.3.5.6."""
    connection = bound_server()
    connection.receive(request(200))
    assert connection.receive(request(51, flags=LAST_FRAGMENT)) == []
    assert connection.data_to_send() == b""
    (closed,) = connection.receive(request(50, flags=LAST_FRAGMENT))
    assert "never began" in closed.reason


@pytest.mark.parametrize(
    ("sent", "error"),
    [
        ([request(5), request(5)], "call_id must increase"),
        ([request(5), request(4)], "call_id must increase"),
        ([request(1, flags=FIRST_FRAGMENT), request(2)], "inside of another"),
        ([request(1, flags=FIRST_FRAGMENT), request(2, flags=LAST_FRAGMENT)], "of another call"),
        (
            [request(1, flags=FIRST_FRAGMENT), request(1, opnum=8, flags=LAST_FRAGMENT)],
            "different methods",
        ),
        ([request(9, flags=LAST_FRAGMENT)], "never began"),
        ([bind()], "type 11 while CONTEXT_NEGOTIATED"),
        ([encode_pdu(PduType.RESPONSE, WHOLE, 1, bytes(8))], "type 2 while"),
        ([encode_pdu(PduType.AUTH3, WHOLE, 1, bytes(4))], "type 16 while"),
        ([encode_pdu(77, WHOLE, 1, b"")], "type 77 while"),
        ([request(1)[:-6].replace(b"\x1c\0\0\0\1", b"\x16\0\0\0\1", 1)], "with a body of"),
    ],
)
def test_a_protocol_error_is_told_and_ends_the_connection(sent, error):
    connection = bound_server()
    *_, closed = [event for data in sent for event in connection.receive(data)]
    assert isinstance(closed, ConnectionClosed)
    assert error in closed.reason
    last = pdus(connection.data_to_send())[-1]
    assert (last.type, parse_fault(last).status) == (PduType.FAULT, Status.NCA_S_PROTO_ERROR)
    assert connection.state is ServerState.CLOSED
    assert connection.receive(request(99)) == []


def test_a_request_before_any_bind():
    connection = server()
    (closed,) = connection.receive(request(1))
    assert "type 0 while ESTABLISHED" in closed.reason


def test_garbage_closes_the_connection_without_an_answer():
    connection = server()
    (closed,) = connection.receive(b"GET / HTTP/1.1\r\n\r\n")
    assert "RPC version 71" in closed.reason
    assert connection.data_to_send() == b""


def test_without_multiplexing_one_call_at_a_time():
    connection = server()
    connection.receive(bind(flags=WHOLE))
    connection.data_to_send()
    connection.receive(request(1))
    (closed,) = connection.receive(request(2))
    assert "without multiplexing" in closed.reason
    assert closed.calls == (1,)
    link = Link(ClientSettings(multiplexing=False)).bound()
    link.client.call(7, b"", 0.0)
    with pytest.raises(LocalProtocolError, match="a call waits"):
        link.client.call(7, b"", 0.0)


def test_calls_that_wait_have_a_limit():
    connection = bound_server()
    for number in range(CALLS_MAX):
        assert len(connection.receive(request(number + 1))) == 1
    assert connection.receive(request(CALLS_MAX + 1)) == []
    assert fault_of(connection)[0] == Status.NCA_S_SERVER_TOO_BUSY


def test_a_request_of_more_than_four_megabytes():
    connection = bound_server()
    piece = request(1, bytes(60_000), flags=FIRST_FRAGMENT)
    connection.receive(piece)
    events = []
    for _ in range(STUB_MAX // 60_000):
        events += connection.receive(request(1, bytes(60_000), flags=0))
    (closed,) = events
    assert "STUB_MAX" in closed.reason
    assert fault_of(connection)[0] == Status.ERROR_ACCESS_DENIED


def test_a_verification_trailer_is_compared_and_taken_off():
    connection = bound_server()
    said = VerificationTrailer(
        call_id=1, context_id=1, opnum=7, interface=REMOTE_READ, transfer_syntax=NDR64_ID
    )
    (call,) = connection.receive(request(1, append_trailer(b"12345", said)))
    assert call.stub == b"12345\0\0\0"
    assert connection.receive(request(2, append_trailer(b"12345", said))) == []  # it says call 1
    assert fault_of(connection)[0] == Status.ERROR_ACCESS_DENIED


# --- deadlines --------------------------------------------------------------------------------------------------------------


def test_a_client_that_says_nothing_is_not_waited_for():
    connection = server()
    assert connection.timer() == NEGOTIATION_TIMEOUT_S
    connection.receive(bind()[:50], 10.0)  # a beginning buys no time
    assert connection.handle_timer(NEGOTIATION_TIMEOUT_S - 0.1) == []
    (closed,) = connection.handle_timer(NEGOTIATION_TIMEOUT_S)
    assert closed.reason == "the negotiation did not end in time"
    assert connection.timer() is None


def test_a_request_must_end_and_an_idle_connection_may_wait_for_ever():
    connection = bound_server()
    assert connection.timer() is None
    connection.receive(request(1)[:20], 100.0)
    assert connection.timer() == 100.0 + REQUEST_TIMEOUT_S
    connection.receive(request(1)[20:], 110.0)
    assert connection.timer() is None  # it waits for its answer, which is our affair
    connection.receive(request(2, flags=FIRST_FRAGMENT), 200.0)
    connection.receive(request(2, flags=0), 230.0)
    assert connection.timer() == 200.0 + REQUEST_TIMEOUT_S
    (closed,) = connection.handle_timer(200.0 + REQUEST_TIMEOUT_S)
    assert (closed.reason, closed.calls) == ("the rest of a request was not received in time", (1,))
