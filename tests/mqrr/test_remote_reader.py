"""One connection to a remote queue manager ([MS-MQRR] 3.2.3, 3.2.4): its steps, its calls, and what each failure means."""

from __future__ import annotations

import itertools

import pytest
from reader_playbook import (
    HOST,
    PORT,
    ReaderPlaybook,
    accepts,
    answers,
    call,
    connected,
    connects,
    disconnects,
    ends,
    fails,
    faults,
    lost,
    names,
    not_connected,
    not_sent,
    outcome,
    prepared,
    prepares,
    ready,
    receives,
    sends,
    tick,
)
from rpc_kit import GlassProvider

from srmp_spark.errors import LocalProtocolError, RemoteLostError, RemoteReadError
from srmp_spark.mqrr.actions import Action
from srmp_spark.mqrr.client.failures import NotSentError, UnreadableAnswerError
from srmp_spark.mqrr.client.queue_calls import Ended, QueueCalls, ended, open_queue
from srmp_spark.mqrr.client.reader_states import (
    ANSWER_SECONDS,
    TRANSITIONS,
    Connect,
    ReaderEvent,
    ReaderState,
)
from srmp_spark.mqrr.client.remote_reader import RemoteReader
from srmp_spark.mqrr.ndr.methods import (
    ACCESS_PEEK,
    ACCESS_RECEIVE,
    METHODS,
    SHARE_DENY_SHARE,
    CloseQueueResponse,
    CursorResponse,
    HandleRequest,
    StatusResponse,
)
from srmp_spark.mqrr.ndr.receive import failure
from srmp_spark.mqrr.ndr.stub import NULL_HANDLE, ContextHandle
from srmp_spark.mqrr.ndr.transfer_syntax import NDR
from srmp_spark.mqrr.next_steps import UNREACHABLE, refusal_text
from srmp_spark.mqrr.queue_format import queue_format_for
from srmp_spark.mqrr.rpc.client_connection import ClientSettings
from srmp_spark.mqrr.rpc.limits import CALL_ID_MAX
from srmp_spark.mqrr.rpc.pdu import AuthLevel
from srmp_spark.mqrr.rpc.security import SecurityError
from srmp_spark.mqrr.status import Status
from srmp_spark.transitions import next_state

QUEUE = queue_format_for(HOST, "private$\\orders")
HANDLE = ContextHandle(0, bytes(range(16)))
CALLS = QueueCalls(HANDLE)
EMPTY = failure(int(Status.MQ_ERROR_IO_TIMEOUT))
WHERE, MAPPER = f"{HOST}:{PORT}", f"{HOST}:135"


def unreachable(where: str, reason: str) -> str:
    return f"{where} cannot be reached: {reason}; {UNREACHABLE}"


def is_ready(**options: bool) -> ReaderPlaybook:
    playbook = ReaderPlaybook(**options)
    assert playbook >> connected() << sends("bind") >> accepts() << ready()
    return playbook


# --- the steps --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("state", "event"), list(itertools.product(ReaderState, ReaderEvent)))
def test_every_pair_of_a_state_and_an_event(state: ReaderState, event: ReaderEvent) -> None:
    target = TRANSITIONS.get((state, event))
    if target is not None:
        assert next_state(TRANSITIONS, state, event, "a reader") is target
        return
    with pytest.raises(
        LocalProtocolError, match=f"{event.name} cannot happen to a reader that is {state.name}"
    ):
        next_state(TRANSITIONS, state, event, "a reader")


def test_every_state_is_reached_and_nothing_leaves_the_last_one() -> None:
    reached = set(TRANSITIONS.values())
    assert reached == set(ReaderState) - {ReaderState.CONNECTING_TO_MAPPER}
    assert {to for (state, _), to in TRANSITIONS.items() if state is ReaderState.CLOSED} == {
        ReaderState.CLOSED
    }


def test_the_endpoint_mapper_names_the_port_and_the_sign_in_is_prepared_then() -> None:
    """[MS-MQRR] 3.2.3, [MS-RPCE] 3.3.2.1.1.2: who waits for a Kerberos ticket waits for a host that is there."""
    playbook = ReaderPlaybook(None)
    assert playbook.reader.effect == Connect(135)
    assert (
        playbook
        >> connected()
        << sends("bind")
        >> accepts()
        << sends("ept_map")
        >> names(PORT)
        << disconnects()
        >> lost()
        << prepares()
        >> prepared()
        << connects(PORT)
        >> connected()
        << sends("bind")
        >> accepts()
        << ready()
    )
    assert playbook.reader.port == PORT


def test_a_port_that_is_given_is_not_asked_for() -> None:
    reader = RemoteReader(HOST, 4711)
    assert reader.state is ReaderState.PREPARING
    reader.prepared(ClientSettings())
    assert reader.effect == Connect(4711)


def test_a_second_reader_joins_the_association_of_the_first_one() -> None:
    """[MS-RPCE] 3.3.2.4.1: a handle of one connection can be used over the other one."""
    first = is_ready()
    reader = RemoteReader(HOST, PORT, group_id=first.reader.group_id)
    reader.prepared(ClientSettings())
    reader.connected(0.0)
    assert first.reader.group_id.to_bytes(4, "little") == reader.data_to_send()[20:24]


# --- failures before calls can be made --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("port", "where"), [(PORT, WHERE), (None, MAPPER)])
def test_nobody_is_there(port: int | None, where: str) -> None:
    refused = "[Errno 111] Connection refused"
    for reason, told in ((refused, refused), ("", "no answer in time")):
        assert (
            ReaderPlaybook(port)
            >> not_connected(reason)
            << ends(RemoteLostError, unreachable(where, told))
        )


@pytest.mark.parametrize(("port", "where"), [(PORT, WHERE), (None, MAPPER)])
def test_a_bind_that_is_not_answered(port: int | None, where: str) -> None:
    assert (
        ReaderPlaybook(port)
        >> connected()
        << sends("bind")
        >> tick(ANSWER_SECONDS - 1)
        >> tick(1)
        << ends(RemoteLostError, unreachable(where, "no answer in time"))
    )


@pytest.mark.parametrize(("port", "where"), [(PORT, WHERE), (None, MAPPER)])
def test_a_connection_that_is_lost_before_it_is_bound(port: int | None, where: str) -> None:
    assert (
        ReaderPlaybook(port)
        >> connected()
        << sends("bind")
        >> lost("reset")
        << ends(RemoteLostError, f"{where}: reset")
        >> lost("again")
        >> tick(ANSWER_SECONDS)
    )


def asked_mapper() -> ReaderPlaybook:
    playbook = ReaderPlaybook(None)
    assert playbook >> connected() << sends("bind") >> accepts() << sends("ept_map")
    return playbook


def test_an_endpoint_mapper_that_knows_no_remote_read() -> None:
    why = (
        f"{HOST} serves no remote read: the endpoint mapper knows no RemoteRead on this host; "
        "is Message Queuing installed and running there?: status 0x16C9A0D6"
    )
    assert asked_mapper() >> names(None) << ends(RemoteReadError, why)


def test_an_endpoint_mapper_that_refuses_does_not_answer_or_answers_nonsense() -> None:
    refused = refusal_text(f"{MAPPER}: ept_map", Status.ERROR_ACCESS_DENIED)
    assert asked_mapper() >> faults(5) << ends(RemoteReadError, refused)
    silent = unreachable(MAPPER, "no answer in time")
    assert asked_mapper() >> tick(ANSWER_SECONDS) << ends(RemoteLostError, silent)
    assert asked_mapper() >> lost() << ends(RemoteLostError, f"{MAPPER}: reset")
    playbook = asked_mapper()
    playbook.step(answers(b"stub"))
    failed = playbook.reader.failure
    assert isinstance(failed, RemoteReadError)
    assert failed.status == Status.RPC_X_BAD_STUB_DATA
    assert str(failed).startswith(f"{HOST}, endpoint mapper: ")


def test_what_a_mapper_sends_after_its_answer_does_no_harm() -> None:
    playbook = asked_mapper()
    assert (
        playbook >> names(PORT) << disconnects() >> receives(b"HTTP/1.1 ") >> lost() << prepares()
    )


def test_a_port_of_another_protocol() -> None:
    playbook = ReaderPlaybook()
    playbook.step(connected())
    playbook.step(receives(b"HTTP/1.1 400 Bad Request\r\n\r\n"))
    assert isinstance(playbook.reader.failure, RemoteLostError)
    assert "this is an HTTP server" in str(playbook.reader.failure)


def test_a_sign_in_that_cannot_begin_ends_the_connection_with_its_error() -> None:
    provider = GlassProvider(server=False, wrong=True)
    reader = RemoteReader(HOST, PORT)
    reader.prepared(ClientSettings(auth_level=AuthLevel.PKT_PRIVACY, security=provider))
    reader.connected(0.0)
    with pytest.raises(SecurityError):
        _ = reader.effect
    assert reader.data_to_send() == b""


# --- calls ------------------------------------------------------------------------------------------------------------------


def test_a_queue_is_opened_read_and_closed() -> None:
    """The order of [MS-MQRR] 3.2.4: open, cursor, peek, receive and its end, close."""
    calls = QueueCalls(HANDLE)
    gone = StatusResponse(0)
    assert (
        is_ready()
        >> call(*open_queue(QUEUE, ACCESS_PEEK))
        << sends("R_OpenQueue")
        >> answers(HandleRequest(HANDLE))
        << outcome(2, HandleRequest(HANDLE))
        >> call(*calls.create_cursor())
        << sends("R_CreateCursor")
        >> answers(CursorResponse(9, 0))
        << outcome(3, CursorResponse(9, 0))
        >> call(*calls.start(Action.PEEK_CURRENT, cursor=9))
        << sends("R_StartReceive")
        >> answers(EMPTY)
        << outcome(4, EMPTY)
        >> call(*calls.close_cursor(9))
        << sends("R_CloseCursor")
        >> answers(gone)
        << outcome(5, gone)
        >> call(*calls.end(1, keep=True))
        << sends("R_EndReceive")
        >> answers(gone)
        << outcome(6, gone)
        >> call(*calls.purge())
        << sends("R_PurgeQueue")
        >> answers(gone)
        << outcome(7, gone)
        >> call(*calls.close())
        << sends("R_CloseQueue")
        >> answers(CloseQueueResponse(HANDLE, 0))
        << outcome(8, CloseQueueResponse(HANDLE, 0))
    )


def test_the_calls_to_a_queue_as_they_are_sent() -> None:
    calls = QueueCalls(HANDLE)
    sent = [
        calls.start(Action.RECEIVE, wait_s=1.5),
        calls.start(Action.LOOKUP_PEEK_NEXT, lookup_id=7, max_body=10),
        calls.end(1, keep=False),
        calls.end(2, keep=True),
    ]
    decoded = [METHODS[opnum].decode_request(asked.encode(NDR), NDR) for opnum, asked in sent]
    assert decoded == [asked for _, asked in sent]
    first, second = sent[0][1], sent[1][1]
    assert (first.request_id, first.timeout_ms, first.action) == (1, 1500, Action.RECEIVE)
    assert (second.request_id, second.lookup_id) == (2, 7)
    assert (second.max_body_size, second.max_compound_message_size) == (10, 10)
    assert [(each.ack, each.request_id) for _, each in sent[2:]] == [(2, 1), (1, 2)]


def test_each_call_names_the_queue_its_cursor_and_its_method() -> None:
    """3.2.4: phContext of every call, hCursor, and the opnum."""
    calls = QueueCalls(HANDLE)
    at_cursor = calls.start(Action.PEEK_NEXT, cursor=9)
    assert (at_cursor[1].action, at_cursor[1].cursor) == (Action.PEEK_NEXT, 9)
    cursor_closed = calls.close_cursor(9)
    assert cursor_closed[1].number == 9
    sent = [
        at_cursor, calls.start(Action.RECEIVE), calls.end(1, keep=True), calls.create_cursor(), cursor_closed,
        calls.purge(), calls.close(),
    ]  # fmt: skip
    assert [opnum for opnum, _ in sent] == [7, 7, 9, 4, 5, 6, 3]
    assert {asked.handle for _, asked in sent} == {HANDLE}
    opnum, asked = open_queue(QUEUE, ACCESS_RECEIVE, SHARE_DENY_SHARE)
    assert (opnum, asked.queue, asked.access, asked.share) == (
        2,
        QUEUE,
        ACCESS_RECEIVE,
        SHARE_DENY_SHARE,
    )


def test_a_closed_queue_makes_no_call() -> None:
    """3.2.4.13: its handle is forgotten, and no call names it again."""
    calls = QueueCalls(HANDLE)
    calls.close()
    for make in (
        lambda: calls.start(Action.RECEIVE),
        lambda: calls.end(1, keep=False),
        calls.create_cursor,
        lambda: calls.close_cursor(9),
        calls.purge,
        calls.close,
    ):
        with pytest.raises(LocalProtocolError, match="was closed; open it again"):
            make()


def test_a_server_that_opens_a_queue_without_a_handle() -> None:
    """3.2.4: "This value MUST NOT be NULL", of the handle in each call."""
    playbook = is_ready()
    playbook.step(call(*open_queue(QUEUE, ACCESS_PEEK)))
    (failed,) = playbook.step(answers(HandleRequest(NULL_HANDLE)))
    assert str(failed).startswith(
        f"call 2: UnreadableAnswerError: {WHERE}: the answer to R_OpenQueue cannot be read: "
        "its handle is NULL"
    )
    closed = CloseQueueResponse(NULL_HANDLE, 0)
    assert (
        playbook
        >> call(*QueueCalls(HANDLE).close())
        << sends("R_CloseQueue")
        >> answers(closed)
        << outcome(3, closed)
    )


def test_calls_that_are_in_flight_together_are_answered_in_any_order() -> None:
    playbook = is_ready()
    assert playbook.reader.calls_at_once > 1
    assert (
        playbook
        >> call(*CALLS.purge())
        << sends("R_PurgeQueue")
        >> call(*CALLS.create_cursor())
        << sends("R_CreateCursor")
        >> answers(CursorResponse(1, 0), nth=1)
        << outcome(3, CursorResponse(1, 0))
        >> answers(StatusResponse(0))
        << outcome(2, StatusResponse(0))
    )


def test_without_multiplexing_a_second_call_is_not_sent() -> None:
    playbook = is_ready(multiplexing=False)
    assert playbook.reader.calls_at_once == 1
    why = f"{WHERE}: a call waits on this connection already; make another connection of its group"
    assert (
        playbook
        >> call(*CALLS.purge())
        << sends("R_PurgeQueue")
        >> call(*CALLS.purge())
        << not_sent(why)
        >> answers(StatusResponse(0))
        << outcome(2, StatusResponse(0))
    )


def test_the_numbers_of_calls_end_before_a_call_is_sent() -> None:
    playbook = is_ready()
    playbook.reader._engine._call_id = CALL_ID_MAX
    why = f"this connection made CALL_ID_MAX calls ({CALL_ID_MAX}); make another one of its group"
    assert playbook >> call(*CALLS.purge()) << not_sent(f"{WHERE}: {why}")


@pytest.mark.parametrize(
    ("status", "perhaps_done"),
    [(Status.ERROR_ACCESS_DENIED, True), (Status.NCA_S_OP_RNG_ERROR, False)],
)
def test_a_fault_ends_its_call_alone(status: Status, *, perhaps_done: bool) -> None:
    """C706 12.6.3.1: unless the server says that nothing was carried out, it may have been."""
    playbook = is_ready()
    text = refusal_text(f"{WHERE}: R_PurgeQueue", status)
    assert (
        playbook
        >> call(*CALLS.purge())
        << sends("R_PurgeQueue")
        >> call(*QueueCalls(HANDLE).close())
        << sends("R_CloseQueue")
        >> faults(status)
        << fails(2, RemoteReadError, text)
        >> answers(CloseQueueResponse(HANDLE, 0))
        << outcome(3, CloseQueueResponse(HANDLE, 0))
    )
    playbook.reader.call(*CALLS.purge(), 0.0)
    playbook._pump()
    playbook._server.fail(playbook._received.pop().call_id, status)
    (failed,) = playbook.reader.receive(playbook._server.data_to_send(), 0.0)
    assert isinstance(failed.error, RemoteReadError)
    assert (failed.error.status, failed.error.perhaps_done) == (status, perhaps_done)


def test_an_answer_that_cannot_be_read_ends_its_call_alone() -> None:
    playbook = is_ready()
    playbook.step(call(*CALLS.create_cursor()))
    (failed,) = playbook.step(answers(b""))
    assert str(failed).startswith(
        f"call 2: UnreadableAnswerError: {WHERE}: the answer to R_CreateCursor cannot be read: "
    )
    assert issubclass(UnreadableAnswerError, RemoteReadError)
    assert (
        playbook
        >> call(*CALLS.purge())
        << sends("R_PurgeQueue")
        >> answers(StatusResponse(0))
        << outcome(3, StatusResponse(0))
    )


# --- loss and time ----------------------------------------------------------------------------------------------------------


def test_a_call_in_flight_may_have_been_carried_out_and_a_later_one_was_not_sent() -> None:
    why = f"{WHERE}: reset"
    assert issubclass(NotSentError, RemoteLostError)
    assert (
        is_ready()
        >> call(*CALLS.purge())
        << sends("R_PurgeQueue")
        >> call(*QueueCalls(HANDLE).close())
        << sends("R_CloseQueue")
        >> lost("reset")
        << fails(2, RemoteLostError, why)
        << fails(3, RemoteLostError, why)
        << ends(RemoteLostError, why)
        >> call(*QueueCalls(HANDLE).close())
        << not_sent(why)
    )


def test_no_call_is_sent_before_the_reader_is_ready() -> None:
    assert (
        ReaderPlaybook() >> call(*CALLS.purge()) << not_sent(f"{WHERE}: there is no connection yet")
    )


def test_a_silence_ends_the_connection_after_the_wait_that_the_call_requested() -> None:
    why = f"{WHERE}: the server did not answer in time"
    asked = CALLS.start(Action.RECEIVE, wait_s=30.0)
    assert (
        is_ready()
        >> call(*asked, 30.0)
        << sends("R_StartReceive")
        >> tick(30 + ANSWER_SECONDS - 1)
        >> tick(1)
        << fails(2, RemoteLostError, why)
        << ends(RemoteLostError, why)
    )


def test_a_server_that_breaks_the_protocol_loses_the_connection() -> None:
    playbook = is_ready()
    playbook.step(call(*CALLS.purge()))
    playbook.step(receives(bytes.fromhex("0500000310000000") + bytes(64)))
    assert isinstance(playbook.reader.failure, RemoteLostError)
    assert str(playbook.heard[0]).startswith(f"call 2: RemoteLostError: {WHERE}: ")


@pytest.mark.parametrize(
    ("status", "meaning"),
    [
        (Status.MQ_OK, Ended.CARRIED_OUT),
        (Status.MQ_ERROR_INVALID_HANDLE, Ended.NOT),
        (Status.MQ_ERROR_MESSAGE_NOT_FOUND, Ended.NOT),
        (Status.MQ_ERROR, Ended.UNCLEAR),
        (0x87654321, Ended.UNCLEAR),
    ],
)
def test_what_an_end_of_a_receive_did(status: int, meaning: Ended) -> None:
    assert ended(status) is meaning
