"""Subqueues that nobody declared: a remote reader makes them by opening them, and they go when they are empty and closed."""

from __future__ import annotations

import http.client
import itertools
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from remote_kit import Served, any_name, bodies, move, opened
from test_moving import until

from srmp_spark.client.remote_queue import RemoteMachine
from srmp_spark.errors import ApiError, RemoteReadError
from srmp_spark.mqrr.actions import Action
from srmp_spark.mqrr.lookup_identifier import rebuilt
from srmp_spark.mqrr.ndr.methods import (
    ACCESS_MOVE,
    ACCESS_PEEK,
    ACCESS_RECEIVE,
    HandleRequest,
    MoveMessageRequest,
    OpenRequest,
)
from srmp_spark.mqrr.ndr.receive import NO_TRANSACTION
from srmp_spark.mqrr.status import Status
from srmp_spark.names import base_of_subqueue
from srmp_spark.queue_manager.log_once import LINES_MAX
from srmp_spark.queue_manager.queues import subqueues as limits
from srmp_spark.queue_manager.trust.rpc_accounts import RpcAccount
from srmp_spark.signing_in.accounts import Account
from srmp_spark.spark.reading.logs import Logs
from srmp_spark.spark.settings.options import parse
from srmp_spark.testing.foreign.messages import ForeignMessage, post

_NUMBERS = itertools.count(1)
MISSING = Status.MQ_ERROR_QUEUE_NOT_FOUND


def is_there(served: Served, name: str) -> bool:
    try:
        served.client.queue(name)
    except ApiError as error:
        if error.status != 404:
            raise
        return False
    return True


def under(served: Served, name: str) -> list[str]:
    """The subqueues in the entry of a queue."""
    return [each["name"] for each in served.client.queue(name)["subqueues"]]


def status_of_open(machine: RemoteMachine, name: str, *, receive: bool = False) -> int:
    with pytest.raises(RemoteReadError) as refused:
        machine.open(any_name(name), ACCESS_RECEIVE if receive else ACCESS_PEEK)
    return refused.value.status


def open_to_move(machine: RemoteMachine, name: str):
    return machine.call(11, OpenRequest(any_name(name), ACCESS_MOVE))


def receive_all(machine: RemoteMachine, name: str) -> list[str]:
    found = []
    with opened(machine, name, receive=True) as queue:
        while (started := queue.start(Action.RECEIVE))[1].status == Status.MQ_OK:
            found.append(started[0])
            queue.end(started[0])
    return found


def entries(served: Served) -> list[tuple[str, bool]]:
    """(name, whether it is deleted) of each subqueue in the store."""
    with sqlite3.connect(f"file:{served.data_dir / 'store.db'}?mode=ro", uri=True) as store:
        found = store.execute(
            "SELECT name, deleted_at FROM queues WHERE name LIKE '%;%' ORDER BY name"
        ).fetchall()
    return [(name, deleted_at is not None) for name, deleted_at in found]


def test_a_move_makes_it_and_it_goes_when_it_is_received_and_closed(served: Served):
    name = served.queue()
    retry = f"{name};retry"
    served.send(name, 3, 7)
    with served.machine() as machine:
        with opened(machine, name, receive=True) as queue:
            assert move(queue, retry, lookup_id=rebuilt(2, priority=7)) == Status.MQ_OK
        assert (served.waiting(name), served.waiting(retry)) == (1, 1)
        assert under(served, name) == [retry]
        (entry,) = served.client.status(queues=retry)["queues"]
        assert (entry["name"], entry["waiting"]) == (retry, 1)
        totals = served.client.status_summary()["totals"]["queues"]
        assert totals["waiting"] == sum(
            each["waiting"] for of in served.client.queues() for each in (of, *of["subqueues"])
        )
        with opened(machine, retry, receive=True) as other:
            assert bodies(other) == ["body 2"]
            request, _ = other.start(Action.RECEIVE)
            other.end(request)
            assert is_there(served, retry), "somebody has it open"
        until(lambda: not is_there(served, retry))
        assert under(served, name) == []
        with opened(machine, name) as queue:
            assert bodies(queue) == ["body 1"]


def test_a_message_moves_back_and_what_is_left_empty_goes(served: Served):
    name = served.queue()
    retry = f"{name};retry"
    served.send(name, 3)
    with served.machine() as machine:
        with opened(machine, name, receive=True) as queue:
            assert move(queue, retry, lookup_id=rebuilt(1, priority=3)) == Status.MQ_OK
            with opened(machine, retry, receive=True) as other:
                assert move(other, name, lookup_id=rebuilt(1, priority=3)) == Status.MQ_OK
            until(lambda: bodies(queue) == ["body 1"])
        until(lambda: not is_there(served, retry))
        with opened(machine, name, receive=True) as queue:
            assert move(queue, retry, lookup_id=rebuilt(2, priority=3)) == Status.MQ_OK
        entry = served.client.queue(retry)
        assert (entry["waiting"], entry["last"]) == (1, 2), "made again it goes on counting"
        with opened(machine, retry, receive=True) as other:
            other.purge()
    until(lambda: not is_there(served, retry))


@pytest.mark.parametrize("receive", [False, True], ids=["peek", "receive"])
def test_an_open_makes_it_of_the_kind_of_its_queue_and_a_close_removes_it(
    served: Served, receive: bool
):
    name = served.queue(transactional=True)
    with served.machine() as machine, opened(machine, f"{name};a", receive=receive) as queue:
        assert queue.peek() is None
        assert served.client.queue(f"{name};a")["transactional"] is True
        assert f"{name};a" not in [each["name"] for each in served.client.queues()], (
            "it is in no list"
        )
        with opened(machine, f"{name};a", receive=receive):
            pass
        assert is_there(served, f"{name};a"), "one of two handles is closed"
    until(lambda: not is_there(served, f"{name};a"))


def test_a_connection_that_is_gone_has_nothing_open(served: Served):
    name = served.queue()
    machine = served.machine()
    opened(machine, f"{name};a", receive=True)
    assert is_there(served, f"{name};a")
    machine.close()
    until(lambda: not is_there(served, f"{name};a"))


def test_there_is_none_of_what_is_no_queue_and_none_by_a_name_that_it_cannot_have(served: Served):
    name = served.queue(journal=True)
    with served.machine() as machine, opened(machine, f"{name};{'x' * 31}"):
        for wrong in ("private$/nowhere;a", f"{name};a;b", f"{name};{'x' * 32}", f"{name};a b", f"{name};a,b", f"{name};a+b",
                      "private$/order_queue$;a", f"{name};a;journal"):  # fmt: skip
            assert status_of_open(machine, wrong) == MISSING, wrong
            assert status_of_open(machine, wrong, receive=True) == MISSING, wrong
            with pytest.raises(RemoteReadError) as refused:
                open_to_move(machine, wrong)
            assert refused.value.status == MISSING, wrong
        assert under(served, name) == [f"{name};{'x' * 31}"]
    assert [
        base_of_subqueue(each) for each in ("a;b", "private$/;b", ";b", "a;", "a", "a;journal")
    ] == ["a", *[None] * 5]


def status_of_post(served: Served, name: str) -> int:
    """Send a message over HTTP."""
    host, port = served.endpoint
    message = ForeignMessage(
        to=f"http://{host}:{port}/msmq/{name}", lineage="aaaaaaaa-0000-4000-8000-000000000003", uniquifier=next(_NUMBERS),
        sent_at=1_790_000_000, body=b"x", label="",
    )  # fmt: skip
    written = post(message)
    connection = http.client.HTTPConnection(host, port, timeout=10)
    headers = {"Content-Type": written.content_type, "SOAPAction": '"MSMQMessage"'}
    connection.request("POST", written.target, written.content, headers)
    status = connection.getresponse().status
    connection.close()
    return status


def test_to_a_sender_it_is_not_there(served: Served):
    name = served.queue()
    with served.machine() as machine, opened(machine, f"{name};a"):
        assert is_there(served, f"{name};a")
        assert status_of_post(served, f"{name};a") == 400
        with pytest.raises(ApiError, match="messages are moved there"):
            served.client.send(f"{name};a", [{"label": "x"}])
        assert served.waiting(f"{name};a") == 0


def test_who_declares_it_keeps_it_and_senders_find_it_then(served: Served):
    name = served.queue()
    with served.machine() as machine, opened(machine, f"{name};a"):
        # What a destination leads to is remembered
        assert status_of_post(served, f"{name};a") == 400
        served.client.put_queue(f"{name};a")
        assert status_of_post(served, f"{name};a") == 200
    assert served.waiting(f"{name};a") == 1
    assert f"{name};a" in [each["name"] for each in served.client.queues()]
    assert under(served, name) == []
    with served.machine() as machine:
        receive_all(machine, f"{name};a")
        with opened(machine, f"{name};b"):
            pass
    until(lambda: not is_there(served, f"{name};b"))
    assert is_there(served, f"{name};a"), "one that is declared stays"


def test_its_queue_takes_it_along(served: Served):
    name = served.queue()
    served.send(name, 3)
    with served.machine() as machine, opened(machine, f"{name};a", receive=True) as other:
        with opened(machine, name, receive=True) as queue:
            assert move(queue, f"{name};a", lookup_id=rebuilt(1, priority=3)) == Status.MQ_OK
        served.client.delete_queue(name)
        assert not is_there(served, f"{name};a")
        until(lambda: other.start(Action.PEEK_CURRENT)[1].status == Status.MQ_ERROR_QUEUE_DELETED)
    assert (f"{name};a", True) in entries(served)


def test_one_with_a_lease_stays_until_that_is_given_up(served: Served):
    name = served.queue()
    with served.machine() as machine:
        with opened(machine, f"{name};a"):
            served.client.register(f"{name};a", "audit", holder="a query")
        with opened(machine, f"{name};b"):
            pass
    until(lambda: not is_there(served, f"{name};b"))
    assert is_there(served, f"{name};a")
    served.client.release(f"{name};a", "audit", holder="a query")
    until(lambda: not is_there(served, f"{name};a"))  # without a close: maintenance looks


def test_a_query_reads_it_by_its_name_and_by_no_glob(served: Served):
    name = served.queue()
    served.send(name, 3)
    with served.machine() as machine, opened(machine, name, receive=True) as queue:
        assert move(queue, f"{name};a", lookup_id=rebuilt(1, priority=3)) == Status.MQ_OK

    def found(pattern: str) -> list[str]:
        options = parse({"queueManager": served.api, "queue": pattern})
        return [key.queue for key in Logs(options, (served.api,)).discover()]

    assert found(f"{name};a") == [f"{name};a"]
    assert found(f"{name}*") == [name]
    served.client.purge(f"{name};a")


def test_no_more_than_so_many_and_a_name_that_had_no_message_leaves_nothing(
    start: Callable[..., Served],
):
    served = start(queues=["private$/orders", "private$/others"])
    with served.machine() as machine:
        for n in range(20):
            with opened(machine, f"private$/orders;brief{n}"):
                pass
            until(lambda n=n: not is_there(served, f"private$/orders;brief{n}"))
        until(
            lambda: entries(served) == [("private$/orders;brief19", True)]
        )  # one entry for all of them
        for n in range(limits.SUBQUEUES_OF_A_QUEUE_MAX):
            opened(machine, f"private$/orders;s{n}")
        assert (
            status_of_open(machine, "private$/orders;more")
            == Status.MQ_ERROR_INSUFFICIENT_RESOURCES
        )
        with opened(machine, "private$/others;a"), opened(machine, "private$/orders;s0"):
            pass  # those of another queue, and those that are there
    until(lambda: under(served, "private$/orders") == [])
    assert len(entries(served)) <= limits.SUBQUEUES_OF_A_QUEUE_MAX + 1
    with served.machine() as machine, opened(machine, "private$/orders;more"):
        pass


def test_a_kill_loses_no_message_and_leaves_no_empty_one(start: Callable[..., Served]):
    served = start(queues=["private$/orders"])
    served.send("private$/orders", 3, 3)
    machine = served.machine()
    queue = opened(machine, "private$/orders", receive=True)
    assert move(queue, "private$/orders;kept", lookup_id=rebuilt(1, priority=3)) == Status.MQ_OK
    opened(machine, "private$/orders;empty", receive=True)
    open_to_move(machine, "private$/orders;target")
    assert under(served, "private$/orders") == [
        f"private$/orders;{each}" for each in ("empty", "kept", "target")
    ]
    served.kill9()
    machine.close()
    assert [name for name, deleted in entries(served) if not deleted] == [
        f"private$/orders;{each}" for each in ("empty", "kept", "target")
    ]
    served.restart()
    assert under(served, "private$/orders") == ["private$/orders;kept"]
    with (
        served.machine() as machine,
        opened(machine, "private$/orders;kept", receive=True) as other,
    ):
        assert bodies(other) == ["body 1"]
        request, _ = other.start(Action.RECEIVE)
        other.end(request)
    until(lambda: not is_there(served, "private$/orders;kept"))


def test_no_message_is_lost_while_it_comes_and_goes(served: Served):
    """Two movers and a reader that closes it after each look: what is moved there is never in what is being removed."""
    name, count = served.queue(), 40
    served.send(name, *[3] * count)
    numbers, over = itertools.count(1), threading.Event()
    received: list[str] = []
    failed: list[str] = []

    def move_some() -> None:
        with served.machine() as machine, opened(machine, name, receive=True) as queue:
            while (number := next(numbers)) <= count:
                there = open_to_move(machine, f"{name};a")
                asked = MoveMessageRequest(
                    queue.handle, there.move_context, rebuilt(number, priority=3), NO_TRANSACTION
                )
                status = machine.call(10, asked).status
                machine.checked(3, HandleRequest(there.handle))
                if status != Status.MQ_OK:
                    failed.append(f"{number}: {status:#x}")

    def receive_some() -> None:
        with served.machine() as machine:
            while len(received) < count and not over.is_set():
                with opened(machine, f"{name};a", receive=True) as queue:
                    while (found := queue.start(Action.RECEIVE))[1].status == Status.MQ_OK:
                        queue.end(found[0])
                        received.append(str(found[1].sequence_id))

    threads = [threading.Thread(target=each) for each in (move_some, move_some, receive_some)]
    for each in threads:
        each.start()
    threads[2].join(60)
    over.set()
    for each in threads:
        each.join(60)
    assert failed == []
    assert sorted(map(int, received)) == list(range(1, count + 1)), (
        "each once, and sequences go on when it is made again"
    )
    assert served.waiting(name) == 0
    until(lambda: not is_there(served, f"{name};a"))


def test_a_subqueue_has_the_rights_of_its_queue():
    reader = Account(r"EXAMPLE\reader", b"0" * 16)
    account = RpcAccount(account=reader, queues=("private$/orders",), verbs=frozenset({"receive"}))
    assert account.allows("receive", "private$/orders;a")
    assert account.allows("peek", "private$/orders;a")
    assert not account.allows("purge", "private$/orders;a")
    for other in (
        "private$/others;a",
        "private$/orders;journal",
        "private$/orders;a;b",
        "private$/ordersx",
    ):
        assert not account.allows("peek", other), other


def test_a_reader_that_makes_hundreds_fills_no_log(tmp_path: Path):
    with Served(tmp_path / "data") as mine:
        name = mine.queue()
        with mine.machine() as machine:
            for number in range(60):
                opened(machine, f"{name};s{number}").close()
                status_of_open(machine, f"{name};s{number};of a subqueue")
        until(lambda: under(mine, name) == [])
        lines = mine.stderr().splitlines()
        for event in ("subqueue.made", "queue.deleted", "mqrr.not_opened"):
            assert 1 <= sum(event in line for line in lines) <= LINES_MAX, event
