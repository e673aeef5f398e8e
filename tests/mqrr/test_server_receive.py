"""R_StartReceive, R_EndReceive, R_CancelReceive and what ends a lock ([MS-MQRR] 3.1.4.7 to 3.1.4.9, 3.1.5, 3.1.6)."""

from __future__ import annotations

import pytest
from server_kit import Box, World, lookup_id

from srmp_spark.mqrr.actions import RECEIVES, Action
from srmp_spark.mqrr.ndr.methods import (
    RR_ACK,
    RR_NACK,
    EndReceiveRequest,
    HandleNumberRequest,
    HandleRequest,
    MoveMessageRequest,
    NoParameters,
    SetClassRequest,
)
from srmp_spark.mqrr.ndr.receive import StartReceiveRequest
from srmp_spark.mqrr.ndr.stub import NULL_HANDLE
from srmp_spark.mqrr.packets.sections import SectionType
from srmp_spark.mqrr.server import remote_read
from srmp_spark.mqrr.server.effects import LookOn, Purge, ReadMessage, RemovalReason, Take
from srmp_spark.mqrr.status import Status

RECEIVED = RemovalReason.RECEIVED


def test_a_receive_locks_and_its_end_removes():
    world = World()
    world.came(3, 3)
    one = world.reader().opened()
    assert one.shown(one.start()) == (1, "body 1")
    assert world.taken == []
    assert one.end() == Status.MQ_OK
    assert world.reasons() == [(1, RECEIVED)]


def test_nothing_is_gone_or_answered_before_it_is_stored():
    world = World(hold=(Take,))
    world.came(3)
    one, two = world.reader("one").opened(), world.reader("two").opened()
    assert one.get() == 1
    assert one.end() is None, "answered before the disk holds it"
    assert two.get() == Status.MQ_ERROR_IO_TIMEOUT, (
        "given to a second reader before the first one's end was decided"
    )
    assert (
        two.get(Action.LOOKUP_PEEK_CURRENT, lookup_id=lookup_id(1))
        == Status.MQ_ERROR_TRANSACTION_USAGE
    )
    world.release()
    assert world.reasons() == [(1, RECEIVED)]
    assert (
        two.get(Action.LOOKUP_PEEK_CURRENT, lookup_id=lookup_id(1))
        == Status.MQ_ERROR_MESSAGE_NOT_FOUND
    )


def test_an_end_that_could_not_be_stored_is_told_and_the_message_is_there_again():
    world = World()
    world.came(3)
    world.refuse = Status.MQ_ERROR_QUEUE_NOT_AVAILABLE
    one = world.reader().opened()
    assert one.get() == 1
    assert one.end() == Status.MQ_ERROR_QUEUE_NOT_AVAILABLE
    world.refuse = None
    assert list(one.all()) == [1]


def test_the_order_is_priority_and_then_arrival():
    world = World()
    world.came(3, 7, 0, 3, 7, 5)
    assert list(world.reader().opened().all()) == [2, 5, 6, 1, 4, 3]


def test_a_message_of_higher_priority_that_comes_later_is_next():
    world = World()
    world.came(3, 3)
    one = world.reader().opened()
    assert one.receive() == 1
    world.came(7)
    assert list(one.all()) == [3, 2]


def test_nack_keeps_the_message_for_the_next_reader():
    world = World()
    world.came(3)
    one, two = world.reader("one").opened(), world.reader("two").opened()
    assert one.get() == 1
    assert two.get() == Status.MQ_ERROR_IO_TIMEOUT
    assert one.end(ack=RR_NACK) == Status.MQ_OK
    assert two.receive() == 1
    assert world.reasons() == [(1, RECEIVED)]


def test_a_nack_leaves_nothing_of_its_request():
    """3.1.4.9: the entry is removed, its cleanup timer is cancelled, and the message is as it was."""
    world = World()
    world.came(3)
    one, two = world.reader("one").opened(), world.reader("two").opened()
    assert one.get(request=1) == 1
    assert one.end(1, ack=RR_NACK) == Status.MQ_OK
    assert one.end(1) == Status.MQ_ERROR_INVALID_HANDLE
    assert world.server.timer() is None
    assert world.taken == []
    world.wait(200)
    assert two.get() == 1
    world.wait(200)
    assert one.get(request=1) == Status.MQ_ERROR_IO_TIMEOUT, "it is the other one's"
    assert two.end() == Status.MQ_OK
    assert world.reasons() == [(1, RECEIVED)]


def test_peeks_lock_nothing_and_pass_over_what_is_locked():
    world = World()
    world.came(3, 3)
    one, two = world.reader("one").opened(), world.reader("two").peeking()
    assert two.get(Action.PEEK_CURRENT) == two.get(Action.PEEK_CURRENT) == 1
    assert one.get() == 1
    assert two.get(Action.PEEK_CURRENT) == 2


@pytest.mark.parametrize("action", sorted(RECEIVES))
def test_a_peek_handle_does_not_receive(action):
    world = World()
    world.came(3, 3)
    anchor = {} if action is Action.RECEIVE else {"lookup_id": lookup_id(1)}
    assert world.reader().peeking().get(action, **anchor) == Status.MQ_ERROR_ACCESS_DENIED


# --- waiting -----------------------------------------------------------------------------------------------------------------


def test_an_empty_queue_is_a_time_out_at_once_or_after_ul_timeout_milliseconds():
    """T17, T18: [MS-MQDMPR] counts seconds where ulTimeout has milliseconds."""
    world = World()
    one = world.reader().opened()
    assert one.get() == Status.MQ_ERROR_IO_TIMEOUT
    call = one.start(timeout_ms=2_500)
    world.wait(2.4)
    assert one.shown(call) is None
    world.wait(0.2)
    assert one.shown(call) == Status.MQ_ERROR_IO_TIMEOUT


def test_who_waits_gets_what_comes_the_longest_waiting_first_and_every_peek():
    world = World()
    first, second, looker = (world.reader(name).opened() for name in ("first", "second", "looker"))
    a, b = first.start(timeout_ms=60_000), second.start(timeout_ms=60_000)
    c = looker.start(Action.PEEK_CURRENT, timeout_ms=60_000)
    world.came(3)
    assert first.shown(a) == (1, "body 1")
    assert second.shown(b) is None
    assert looker.shown(c) is None, "what a receive has locked is not shown"
    world.came(3)
    assert second.shown(b) == (2, "body 2")
    assert first.end(ack=RR_NACK) == Status.MQ_OK
    assert looker.shown(c) == (1, "body 1"), "a message that was given back is one that came"


@pytest.mark.parametrize("comes", [True, False])
def test_who_does_not_wait_waits_for_what_is_in_the_queue_and_not_told_yet(comes):
    """Who sent a message and has its 200 finds it."""
    world = World()
    one = world.reader().opened()
    world.box.behind = True
    call = one.start()
    world.wait(1)
    assert one.shown(call) is None
    world.box.behind = False
    world.came(*[3] * comes)
    assert one.shown(call) == ((1, "body 1") if comes else Status.MQ_ERROR_IO_TIMEOUT)


def test_and_not_for_ever():
    world = World()
    one = world.reader().opened()
    world.box.behind = True
    call = one.start(cursor=one.cursor())
    world.wait(11)
    assert one.shown(call) == Status.MQ_ERROR_MESSAGE_NOT_FOUND


def test_an_infinite_time_out_never_ends():
    world = World()
    one = world.reader().opened()
    call = one.start(timeout_ms=0xFFFFFFFF)
    assert world.server.timer() is None
    world.wait(10_000_000)
    world.came(3)
    assert one.shown(call) == (1, "body 1")


@pytest.mark.parametrize("action", [Action.RECEIVE, Action.PEEK_CURRENT])
def test_a_waiting_call_is_cancelled_over_another_connection(action):
    """Also a peek (T23): [MS-MQDMPR] gives peeks no tag, [MS-MQRR] 3.2.4.11 lets clients cancel them."""
    world = World()
    one = world.reader().opened()
    call = one.start(action, timeout_ms=60_000, request=77)
    assert one.cancel(78) == Status.STATUS_NOT_FOUND
    assert one.cancel(77) == Status.MQ_OK
    assert one.shown(call) == Status.MQ_ERROR_OPERATION_CANCELLED
    assert one.cancel(77) == Status.STATUS_NOT_FOUND
    world.came(3)
    assert one.receive() == 1


def test_a_cancel_is_for_the_requests_of_its_own_handle():
    """Request identifiers of two clients may be alike; [MS-MQDMPR] 3.1.7.1.17 would cancel whichever comes first."""
    world = World()
    one, two = world.reader("one").opened(), world.reader("two").opened()
    call = one.start(timeout_ms=60_000, request=5)
    assert two.cancel(5) == Status.STATUS_NOT_FOUND
    assert one.shown(call) is None


def test_a_message_that_is_handed_over_is_not_cancelled():
    world = World()
    world.came(3)
    one = world.reader().opened()
    assert one.get(request=5) == 1
    assert one.cancel(5) == Status.STATUS_NOT_FOUND
    assert one.end(5) == Status.MQ_OK


# --- the end -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("opnum", [9, 15])
def test_an_end_without_a_request_is_an_invalid_handle_and_with_another_one_an_invalid_parameter(
    opnum,
):
    world = World()
    world.came(3, 3)
    one = world.reader().opened()
    assert one.end(1, opnum=opnum) == Status.MQ_ERROR_INVALID_HANDLE
    assert one.get(request=1) == 1
    assert one.end(2, opnum=opnum) == Status.MQ_ERROR_INVALID_PARAMETER
    assert one.get(request=2) == 2
    assert one.end(1, opnum=opnum) == Status.MQ_OK
    assert world.reasons() == [(1, RECEIVED)]
    assert one.end(2, opnum=opnum, ack=RR_NACK) == Status.MQ_OK
    assert one.end(1, opnum=opnum) == Status.MQ_ERROR_INVALID_HANDLE


def test_an_end_of_a_peek_or_of_a_call_that_waits_is_refused():
    world = World()
    one = world.reader().opened()
    call = one.start(timeout_ms=1_000, request=1)
    assert one.end(1) == Status.MQ_ERROR_INVALID_PARAMETER
    assert one.shown(call) is None


def test_a_request_identifier_is_used_once_at_a_time():
    world = World()
    world.came(3, 3)
    one = world.reader().opened()
    assert one.get(request=1) == 1
    assert one.get(request=1) == Status.MQ_ERROR_INVALID_PARAMETER
    assert one.end(1) == Status.MQ_OK
    assert one.get(request=1) == 2


def test_every_kind_of_receive_can_be_ended():
    """T19: 3.1.4.7 makes an entry for MQ_ACTION_RECEIVE alone."""
    world = World()
    world.came(3, 3, 3)
    one = world.reader().opened()
    assert one.get(Action.LOOKUP_RECEIVE_CURRENT, lookup_id=lookup_id(2)) == 2
    assert one.end() == Status.MQ_OK
    assert one.get(Action.LOOKUP_RECEIVE_NEXT, lookup_id=lookup_id(1)) == 3
    assert one.end() == Status.MQ_OK
    assert world.reasons() == [(2, RECEIVED), (3, RECEIVED)]


def test_a_message_that_an_operator_took_away_meanwhile_is_not_found():
    world = World()
    world.came(3)
    one = world.reader().opened()
    assert one.get() == 1
    world.box.left.add(1)
    assert one.end() == Status.MQ_ERROR_MESSAGE_NOT_FOUND
    assert world.taken == []


# --- what else ends a lock ---------------------------------------------------------------------------------------------------


def test_a_killed_client_frees_its_locks():
    """T33, by rundown."""
    world = World()
    world.came(3)
    one, two = world.reader("one").opened(), world.reader("two").opened()
    assert one.get() == 1
    call = two.start(timeout_ms=60_000)
    one.gone()
    assert two.shown(call) == (1, "body 1")


def test_a_reader_that_says_nothing_for_five_minutes_loses_its_lock():
    """T33, by the cleanup timer."""
    world = World()
    world.came(3)
    one, two = world.reader("one").opened(), world.reader("two").opened()
    assert one.get() == 1
    world.wait(299)
    assert two.get() == Status.MQ_ERROR_IO_TIMEOUT
    world.wait(2)
    assert two.get() == 1
    assert one.end() == Status.MQ_ERROR_INVALID_HANDLE, "the request is not there any more"


def test_the_five_minutes_begin_when_the_message_is_locked():
    world = World()
    one, two = world.reader("one").opened(), world.reader("two").opened()
    call = one.start(timeout_ms=0xFFFFFFFF)
    world.wait(400)
    world.came(3)
    assert one.shown(call) == (1, "body 1")
    assert two.get() == Status.MQ_ERROR_IO_TIMEOUT
    assert one.end() == Status.MQ_OK


def test_closing_a_handle_ends_its_waits_and_locks_but_not_what_is_being_stored():
    world = World(hold=(Take,))
    world.came(3, 3)
    one, two = world.reader("one").opened(), world.reader("two").opened()
    assert one.get(request=1) == 1
    assert one.end(1) is None
    assert one.get(request=2) == 2
    waits = one.start(timeout_ms=60_000)
    assert one.close().status == Status.MQ_OK
    assert one.shown(waits) == Status.MQ_ERROR_OPERATION_CANCELLED
    assert two.get() == 2
    assert (world.box, True) in world.open
    assert len(world.open) == 2, "held for as long as something is being stored for it"
    world.release()
    assert world.reasons() == [(1, RECEIVED)]
    assert len(world.open) == 1


def test_a_caller_that_is_gone_while_its_message_is_read_gets_nothing():
    world = World(hold=(ReadMessage,))
    world.came(3)
    one, two = world.reader("one").opened(), world.reader("two").opened()
    call = one.start()
    world.do(world.server.calls_gone("one", [call]))
    world.hold = ()
    world.release()
    assert two.receive() == 1, "the association lives, and nothing is locked in it"


NO_TRANSACTION = bytes(16)
ON_A_HANDLE = {
    3: HandleRequest,
    4: HandleRequest,
    5: lambda handle: HandleNumberRequest(handle, 1),
    6: HandleRequest,
    7: lambda handle: StartReceiveRequest(handle, request_id=1),
    8: lambda handle: HandleNumberRequest(handle, 1),
    9: lambda handle: EndReceiveRequest(handle, RR_ACK, 1),
    10: lambda handle: MoveMessageRequest(handle, 0x5EED, lookup_id(1), NO_TRANSACTION),
    13: lambda handle: StartReceiveRequest(handle, request_id=1, transaction=NO_TRANSACTION),
    14: lambda handle: SetClassRequest(handle, lookup_id(1), 0),
    15: lambda handle: EndReceiveRequest(handle, RR_ACK, 1),
}
"""A call of each method that takes a context handle."""
EACH_ON_A_HANDLE = pytest.mark.parametrize("opnum", ON_A_HANDLE)


@EACH_ON_A_HANDLE
def test_a_closed_handle_is_no_handle(opnum):
    world = World()
    world.came(3)
    one = world.reader().opened()
    closed = one.close()
    assert closed.handle.is_null
    assert closed.status == Status.MQ_OK
    assert one.ask(opnum, ON_A_HANDLE[opnum](one.handle)) == Status.NCA_S_FAULT_CONTEXT_MISMATCH
    assert world.open == []


@EACH_ON_A_HANDLE
def test_a_handle_of_another_client_is_none(opnum):
    world = World()
    world.came(3)
    one, two = world.reader("one").opened(), world.reader("two")
    assert two.ask(opnum, ON_A_HANDLE[opnum](one.handle)) == Status.NCA_S_FAULT_CONTEXT_MISMATCH
    assert one.receive() == 1, "nothing was done to it"


@EACH_ON_A_HANDLE
def test_a_null_handle_is_none(opnum):
    """Also of a client that has one queue open, and can mean no other."""
    world = World()
    world.came(3)
    one = world.reader().opened()
    assert one.ask(opnum, ON_A_HANDLE[opnum](NULL_HANDLE)) == Status.NCA_S_FAULT_CONTEXT_MISMATCH
    assert one.receive() == 1, "nothing was done to the one that is open"


def test_a_message_that_leaves_while_it_is_read_is_passed_over():
    world = World(hold=(ReadMessage,))
    world.came(3, 3)
    one = world.reader().opened()
    call = one.start()
    world.box.left.add(1)
    world.hold = ()
    world.release()
    assert one.shown(call) == (2, "body 2")
    assert one.end() == Status.MQ_OK


def test_a_message_that_cannot_be_read_is_told_and_not_locked():
    world = World(hold=(ReadMessage,))
    world.came(3)
    one = world.reader().opened()
    call = one.start()
    world.do(
        world.server.not_read(world.held.popleft().reading, Status.MQ_ERROR_QUEUE_NOT_AVAILABLE)
    )
    assert one.shown(call) == Status.MQ_ERROR_QUEUE_NOT_AVAILABLE
    world.hold = ()
    assert one.receive() == 1


# --- purge -------------------------------------------------------------------------------------------------------------------


def test_a_purge_spares_what_is_locked_until_its_lock_ends():
    world = World()
    world.came(3, 3, 3, 3)
    one, two = world.reader("one").opened(), world.reader("two").opened()
    assert one.get(request=1) == 1
    assert one.get(request=2) == 2
    assert two.ask(6, HandleRequest(two.handle)).status == Status.MQ_OK
    assert world.box.left == {3, 4}
    assert one.end(1, ack=RR_NACK) == Status.MQ_OK
    assert one.end(2) == Status.MQ_OK
    assert world.reasons() == [(1, RemovalReason.PURGED), (2, RemovalReason.PURGED)], (
        "the reason of 3.1.7.1.12, also after an ACK"
    )
    world.came(3)
    assert list(two.all()) == [5]


def test_a_purge_looks_at_thousands_of_locks_a_slice_a_turn(monkeypatch: pytest.MonkeyPatch):
    """Other calls have their turn in between: what is given back by then is purged, and what is locked then is not spared."""
    monkeypatch.setattr(remote_read, "LOCKS_OF_A_TURN", 2)
    world = World(hold=(LookOn,))
    world.came(*[3] * 8)
    one, two = world.reader("one").opened(), world.reader("two").opened()
    assert [one.get(request=n) for n in range(1, 6)] == [1, 2, 3, 4, 5]
    call = two.call(6, HandleRequest(two.handle))
    assert [type(each) for each in world.held] == [LookOn]
    assert world.box.left == set()
    assert one.end(3, ack=RR_NACK) == Status.MQ_OK
    assert one.end(4) == Status.MQ_OK
    assert one.get(request=9) == 3
    assert one.get(request=10) == 6
    assert one.end(5, ack=RR_NACK) == Status.MQ_OK
    world.release()
    assert two.answer(call).status == Status.MQ_OK
    assert world.box.left == {4, 5, 6, 7, 8}
    assert [one.end(n) for n in (1, 2, 9)] == [Status.MQ_OK] * 3
    assert world.reasons() == [
        (4, RemovalReason.RECEIVED),
        (1, RemovalReason.PURGED),
        (2, RemovalReason.PURGED),
        (3, RemovalReason.PURGED),
    ]
    assert one.end(10) == Status.MQ_ERROR_MESSAGE_NOT_FOUND


@pytest.mark.parametrize(
    "other", ["none", "carried out before", "carried out meanwhile", "failed, too"]
)
def test_a_purge_that_fails_removes_nothing(other: str):
    """It answered so; what was locked meanwhile is there again when its lock ends. What another purge took is not."""
    world = World(hold=(Purge,))
    world.came(3, 3)
    one, two = world.reader("one").opened(), world.reader("two").opened()
    assert one.get() == 1
    if other == "carried out before":
        first = two.call(6, HandleRequest(two.handle))
        world.release()
        assert two.answer(first).status == Status.MQ_OK
    failing = two.call(6, HandleRequest(two.handle))
    (effect,) = world.held
    world.held.clear()
    if other in ("carried out meanwhile", "failed, too"):
        three = world.reader("three").opened()
        second = three.call(6, HandleRequest(three.handle))
        if other == "carried out meanwhile":
            world.release()
        else:
            world.do(
                world.server.purged(
                    world.held.popleft().purging, Status.MQ_ERROR_QUEUE_NOT_AVAILABLE
                )
            )
        three.answer(second)
    world.do(world.server.purged(effect.purging, Status.MQ_ERROR_QUEUE_NOT_AVAILABLE))
    assert two.answer(failing).status == Status.MQ_ERROR_QUEUE_NOT_AVAILABLE
    assert one.end(1, ack=RR_NACK) == Status.MQ_OK
    world.hold = ()
    left = [] if other.startswith("carried out") else [1, 2]
    assert list(two.all()) == left
    assert world.reasons()[: 0 if left else 1] == ([] if left else [(1, RemovalReason.PURGED)])


def test_timers_of_locks_that_ended_are_not_kept_while_one_is_held():
    world = World()
    world.came(*[3] * 200)
    one = world.reader().opened()
    one.get(request=1)
    for request in range(2, 200):
        one.get(request=request)
        assert one.end(request) == Status.MQ_OK
        assert len(world.server._receiving._timers) == 1
    world.wait(300.0)
    assert one.get(request=500) == 1, "the timer of the one that was held is kept"


def test_a_purge_needs_receive_access():
    world = World()
    one = world.reader().peeking()
    assert one.ask(6, HandleRequest(one.handle)).status == Status.STATUS_ACCESS_DENIED


def test_a_killed_client_of_a_purged_message_does_not_bring_it_back():
    world = World()
    world.came(3)
    one, two = world.reader("one").opened(), world.reader("two").opened()
    assert one.get() == 1
    assert two.ask(6, HandleRequest(two.handle)).status == Status.MQ_OK
    one.gone()
    assert world.reasons() == [(1, RemovalReason.PURGED)]
    assert two.get() == Status.MQ_ERROR_IO_TIMEOUT
    assert world.open == [(world.box, True)]


# --- how much of a message ---------------------------------------------------------------------------------------------------


def test_less_than_the_body_is_sent_in_two_sections():
    world = World(hold=(ReadMessage,))
    world.came(3)
    one = world.reader().peeking()
    call = one.start(Action.PEEK_CURRENT, max_body_size=2)
    world.release()
    sections = one.answer(call).sections
    assert [each.type for each in sections] == [SectionType.BINARY_FIRST]
    assert sections[0].data.endswith(b"bo")
    assert sections[0].size_alloc - len(sections[0].data) == len("body 1") - 2


def test_the_server_port_is_the_interfaces_whoever_asks():
    """T38."""
    assert World().reader().ask(0, NoParameters()).port == 2103


def test_a_stub_that_cannot_be_read_is_a_fault():
    world = World()

    class Short:
        def encode(self, _syntax):
            return b"\x01\x02"

    assert world.reader().ask(7, Short()) == Status.RPC_X_BAD_STUB_DATA


def test_two_queues_are_two():
    world = World(Box(), Box("private$/other"))
    world.came(3)
    world.came(3, 3, box=world.boxes["private$\\other"])
    assert list(world.reader("one").opened(name="private$\\other").all()) == [1, 2]
    assert list(world.reader("two").opened().all()) == [1]


class TestPausedReaders:
    """An operator lets nobody receive from the queue (``queue pause --out``)."""

    def test_a_receive_waits_and_goes_on_when_the_pause_ends(self):
        world = World()
        world.came(3)
        one = world.reader().opened()
        world.box.holds = True
        assert one.get() == Status.MQ_ERROR_IO_TIMEOUT, "as in an empty queue"
        call = one.start(timeout_ms=60_000)
        assert one.answer(call) is None
        world.came(7)
        assert one.answer(call) is None, "nor does a new message end the wait"
        assert one.get(Action.PEEK_CURRENT) == 2, "who looks receives nothing"
        world.box.holds = False
        world.do(world.server.add_arrived(world.box, [], world.now))
        assert one.shown(call) == (2, "body 2")

    def test_who_names_the_message_does_not_take_it_for_received(self):
        world = World()
        world.came(3)
        one = world.reader().opened()
        world.box.holds = True
        assert one.get(cursor=one.cursor()) == Status.MQ_ERROR_SHARING_VIOLATION
        assert (
            one.get(Action.LOOKUP_RECEIVE_CURRENT, lookup_id=lookup_id(1))
            == Status.MQ_ERROR_SHARING_VIOLATION
        )
        assert one.get(Action.LOOKUP_PEEK_CURRENT, lookup_id=lookup_id(1)) == 1
        world.box.holds = False
        assert one.receive() == 1

    def test_a_message_that_was_given_out_before_may_be_ended(self):
        world = World()
        world.came(3)
        one = world.reader().opened()
        assert one.get() == 1
        world.box.holds = True
        assert one.end() == Status.MQ_OK
        assert world.reasons() == [(1, RECEIVED)]
