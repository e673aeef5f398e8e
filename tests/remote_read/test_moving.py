"""Messages are moved to subqueues of a running queue manager: rows there, and nothing decided."""

from __future__ import annotations

import http.client
import sqlite3
import time
from itertools import pairwise
from types import SimpleNamespace

import pytest
from remote_kit import Served, bodies, move, opened

from srmp_spark.client.remote_queue import RemoteMachine
from srmp_spark.client.walking import shown
from srmp_spark.errors import ApiError
from srmp_spark.mqrr.actions import Action
from srmp_spark.mqrr.lookup_identifier import rebuilt
from srmp_spark.mqrr.message_of_packet import message_of
from srmp_spark.mqrr.ndr.methods import ACCESS_MOVE, OpenRequest
from srmp_spark.mqrr.queue_format import queue_format_for
from srmp_spark.mqrr.status import Status
from srmp_spark.queue_manager.admission.gate import Gate
from srmp_spark.queue_manager.remote_read.taking import _check_takes
from srmp_spark.testing.foreign.messages import ForeignMessage, post


def until(what, seconds: float = 120.0) -> None:
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline, "it took too long"
        time.sleep(0.02)


def undecided(served: Served) -> list[tuple[str, int]]:
    """(queue, sequence) of each row that asks to be told of its end."""
    with sqlite3.connect(f"file:{served.data_dir / 'store.db'}?mode=ro", uri=True) as store:
        return store.execute(
            "SELECT name, sequence FROM undecided JOIN queues ON queues.id = queue_id"
        ).fetchall()


def subqueue(served: Served, name: str) -> str:
    served.client.put_queue(
        f"{name};retry", transactional=served.client.queue(name)["transactional"]
    )
    return f"{name};retry"


def test_a_message_is_moved_to_a_subqueue_and_back(served: Served):
    name = served.queue()
    retry = subqueue(served, name)
    served.send(name, 3, 7, 3)
    with served.machine() as machine, opened(machine, name, receive=True) as queue:
        assert move(queue, retry, lookup_id=rebuilt(2, priority=7)) == Status.MQ_OK
        with opened(machine, retry, receive=True) as other:
            (there,) = other.walk()
            assert there.packet.trailers is not None
            assert there.packet.trailers.subqueue is not None
            assert there.packet.trailers.subqueue.subqueue_name == "retry"
            assert (served.waiting(name), served.waiting(retry)) == (2, 1)
            assert move(other, name, lookup_id=rebuilt(1, priority=7)) == Status.MQ_OK
        until(
            lambda: bodies(queue) == ["body 2", "body 1", "body 3"]
        )  # its priority is read from the log first
        back = next(iter(queue.walk())).packet.trailers
        assert back is not None
        assert back.subqueue is not None
        assert back.subqueue.subqueue_name == ""
    assert (served.waiting(name), served.waiting(retry)) == (3, 0)


def test_the_number_of_a_queue_for_moves_is_random(served: Served):
    """[MS-MQRR] 3.1.4.11, pMoveContext: 64 bits, of which the next one follows from none before."""
    asked = OpenRequest(queue_format_for("host1", served.queue()), ACCESS_MOVE)
    with served.machine() as machine:
        numbers = [machine.call(11, asked).move_context for _ in range(8)]
    assert len(set(numbers)) == 8
    assert max(numbers) >> 56, "eight numbers below 2⁵⁶ are no chance"
    assert len({after - before for before, after in pairwise(numbers)}) == 7


def test_a_move_decides_nothing_and_what_was_asked_goes_along(served: Served):
    """A message over HTTP that asks for a commitment receipt; nobody is told before it is received from the subqueue."""
    name = served.queue()
    retry = subqueue(served, name)
    host, port = served.endpoint
    message = ForeignMessage(
        to=f"http://{host}:{port}/msmq/{name}", lineage="aaaaaaaa-0000-4000-8000-000000000002", uniquifier=5,
        sent_at=1_790_000_000, body=b"asks", label="a label", commitment_receipt_to="http://127.0.0.1:9/msmq/receipts",
        positive_only=True,
    )  # fmt: skip
    written = post(message)
    connection = http.client.HTTPConnection(host, port, timeout=10)
    headers = {"Content-Type": written.content_type, "SOAPAction": '"MSMQMessage"'}
    connection.request("POST", written.target, written.content, headers)
    assert connection.getresponse().status == 200
    connection.close()
    assert undecided(served) == [(name, 1)]
    with served.machine() as machine, opened(machine, name, receive=True) as queue:
        assert move(queue, retry, lookup_id=rebuilt(1, priority=3)) == Status.MQ_OK
        assert undecided(served) == [(retry, 1)]
        with opened(machine, retry, receive=True) as other:
            request, answer = other.start(Action.RECEIVE)
            found = message_of(shown(answer).packet)
            assert (found.body, found.lineage, found.uniquifier) == (b"asks", message.lineage, 5)
            other.end(request)
    until(lambda: undecided(served) == [])  # now it is decided


def test_nothing_is_moved_where_nothing_may_be(served: Served):
    name = served.queue(journal=True)
    served.send(name, 3)
    with served.machine() as machine, opened(machine, name, receive=True) as queue:
        assert (
            move(queue, served.queue(), lookup_id=rebuilt(1, priority=3))
            == Status.STATUS_INVALID_PARAMETER
        )
    assert served.waiting(name) == 1


def test_a_paused_subqueue_takes_nothing_and_the_message_stays(served: Served):
    name = served.queue()
    retry = subqueue(served, name)
    served.send(name, 3)
    served.client.pause(retry)
    with served.machine() as machine, opened(machine, name, receive=True) as queue:
        assert (
            move(queue, retry, lookup_id=rebuilt(1, priority=3))
            == Status.MQ_ERROR_QUEUE_NOT_AVAILABLE
        )
        assert bodies(queue) == ["body 1"]


def moves_of(machine: RemoteMachine, queue: str) -> list[tuple[str, int, int]]:
    """(body, MoveCounter, LastMoveTime) of each message, in order."""
    with opened(machine, queue) as there:
        headers = [(each.packet.body.decode(), each.packet.trailers) for each in there.walk()]
    found = []
    for body, trailers in headers:
        assert trailers is not None
        assert trailers.subqueue is not None
        found.append((body, trailers.subqueue.move_counter, trailers.subqueue.last_move_time))
    return found


def test_moves_are_counted_and_the_count_survives_a_kill(start):
    """[MS-MQRR] 2.2.5.3, MoveCounter and LastMoveTime, of the message wherever it is."""
    served = start()
    name = served.queue()
    retry = subqueue(served, name)
    served.send(name, 3, 3)
    before = time.time_ns() // 1_000_000
    with served.machine() as machine:
        assert moves_of(machine, name) == [("body 1", 0, 0), ("body 2", 0, 0)]
        with (
            opened(machine, name, receive=True) as queue,
            opened(machine, retry, receive=True) as other,
        ):
            assert move(queue, retry, lookup_id=rebuilt(1, priority=3)) == Status.MQ_OK
            ((_, count, first_time),) = moves_of(machine, retry)
            assert count == 1
            assert 0 <= first_time - before % 2**32 < 2**31, (
                "milliseconds since 1970, their low 32 bits"
            )
            assert move(other, name, lookup_id=rebuilt(1, priority=3)) == Status.MQ_OK
            until(lambda: len(moves_of(machine, name)) == 2)
    served.kill9()
    served.restart()
    with served.machine() as machine:
        (untouched, moved) = moves_of(machine, name)
        assert untouched == ("body 2", 0, 0)
        assert moved[:2] == ("body 1", 2)
        assert 0 <= moved[2] - first_time < 2**31
        with opened(machine, name, receive=True) as queue:
            assert move(queue, retry, lookup_id=rebuilt(3, priority=3)) == Status.MQ_OK
        assert [each[:2] for each in moves_of(machine, retry)] == [("body 1", 3)]
    served.client.delete_queue(retry)
    with sqlite3.connect(f"file:{served.data_dir / 'store.db'}?mode=ro", uri=True) as store:
        left = store.execute(
            "SELECT name FROM moves JOIN queues ON queues.id = queue_id"
        ).fetchall()
    assert set(left) <= {(name,)}, "they go with their queue"


def test_a_queue_that_is_being_deleted_takes_no_message_any_more():
    """The engine has forgotten it, and its deletion is not in a commit yet: a row would be dropped with the others."""
    queue = SimpleNamespace(name="private$/orders;retry", state=SimpleNamespace(paused=False))
    receiver = SimpleNamespace(queues={queue.name: queue.state})
    catalogue = SimpleNamespace(get={queue.name: queue}.get)
    manager = SimpleNamespace(catalogue=catalogue, receiver=receiver, gate=Gate())
    _check_takes(manager, queue)
    receiver.queues.clear()
    with pytest.raises(ApiError, match="was deleted"):
        _check_takes(manager, queue)
