"""The gateway of remote read: its death closes connections and nothing else, and neither its readers nor it fill any memory."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import itertools
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest
import requests
from remote_kit import Served, bodies, opened

from srmp_spark.client.remote_queue import RemoteMachine, RemoteQueue
from srmp_spark.client.walking import shown
from srmp_spark.errors import RemoteLostError, SrmpSparkError
from srmp_spark.mqrr.actions import Action
from srmp_spark.mqrr.ndr.methods import ACCESS_PEEK, METHODS, SHARE_DENY_NONE, OpenRequest
from srmp_spark.mqrr.ndr.receive import StartReceiveRequest, StartReceiveResponse
from srmp_spark.mqrr.ndr.transfer_syntax import NDR
from srmp_spark.mqrr.packets.sections import ALL
from srmp_spark.mqrr.queue_format import queue_format_for
from srmp_spark.mqrr.rpc.binding import REMOTE_READ, Bind
from srmp_spark.mqrr.rpc.calls import encode_cancel, request_pieces
from srmp_spark.mqrr.rpc.limits import FRAGMENT_MAX, LATE_PDUS_MAX
from srmp_spark.mqrr.rpc.negotiation import offers
from srmp_spark.mqrr.rpc.pdu import CONCURRENT_MULTIPLEXING, WHOLE, PduStream, PduType, encode_pdu
from srmp_spark.mqrr.status import Status
from srmp_spark.queue_manager.remote_read.endpoint import HELD_MAX, RpcConnection, RpcEndpoint
from srmp_spark.testing.foreign.messages import ForeignMessage, post

PATIENCE = 60.0
GATEWAY_BYTES = 200_000_000
"""What the gateway has beside untaken answers: Python, 240 connections, and one answer that is being made."""
LINEAGE = "0a0b0c0d-7777-4777-8777-0a0b0c0d0e0f"
SENDER_SECONDS = 1.0
"""What a good message of SRMP may take beside a flood; alone it takes some milliseconds, the sync of its commit."""


@pytest.fixture
def mine(tmp_path: Path) -> Iterator[Served]:
    """A queue manager whose gateway may be killed."""
    with Served(tmp_path / "data", rpc_endpoint_mapper="127.0.0.1:0") as served:
        yield served


def gateway_of(served: Served) -> int:
    """Return the process id of the gateway."""
    return child_of(served, b"remote_read.gateway")


def child_of(served: Served, module: bytes) -> int:
    """Return the process id of the child that runs ``module``."""
    children = Path(f"/proc/{served.pid}/task/{served.pid}/children").read_text().split()
    for pid in children:
        with contextlib.suppress(OSError):  # it ended while we looked
            if module in Path(f"/proc/{pid}/cmdline").read_bytes():
                return int(pid)
    raise AssertionError(f"{module!r} does not run")


def memory_of(process: int) -> int:
    return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def connected_again(served: Served) -> RemoteMachine:
    """Connect to the next gateway; whoever was in the backlog of the one before may have been reset."""
    end = time.monotonic() + PATIENCE
    while True:
        try:
            return served.machine()
        except SrmpSparkError:
            assert time.monotonic() < end, "the port did not open again"
            time.sleep(0.05)


def received(served: Served, queue: str) -> str:
    """Receive the next message of ``queue``, over a connection of its own, and acknowledge it."""
    with connected_again(served) as machine, opened(machine, queue, receive=True) as there:
        request, answer = there.start(Action.RECEIVE, wait_s=30)
        assert answer.status == Status.MQ_OK
        there.end(request)
    return f"{answer.status} {request}"


# --- death --------------------------------------------------------------------------------------------------------------


def test_what_a_reader_had_locked_is_there_for_the_next_one_when_the_gateway_is_killed(
    mine: Served,
) -> None:
    queue = mine.queue()
    mine.send(queue, 3, 3, 3)
    sender = http.client.HTTPConnection(*mine.endpoint, timeout=PATIENCE)
    sender.connect()
    reader = mine.machine()
    there = opened(reader, queue, receive=True).__enter__()
    first, _ = there.start(Action.RECEIVE)
    there.end(first)  # answered: it is stored
    _, answer = there.start(Action.RECEIVE)
    assert answer.status == Status.MQ_OK
    with mine.machine() as other, opened(other, queue) as peeked:
        assert bodies(peeked) == ["body 3"], "one is received, one is locked"

    os.kill(gateway_of(mine), signal.SIGKILL)

    with pytest.raises(SrmpSparkError):
        there.peek()
    with connected_again(mine) as machine, opened(machine, queue, receive=True) as again:
        assert bodies(again) == ["body 2", "body 3"], (
            "the locked one is there again, and the received one is not"
        )
        for _ in range(2):
            request, answer = again.start(Action.RECEIVE, wait_s=30)
            assert answer.status == Status.MQ_OK
            again.end(request)
        assert bodies(again) == []
    assert mine.waiting(queue) == 0
    sender.request("POST", f"/msmq/{queue}", b"", {"Content-Type": "text/xml"})
    assert sender.getresponse().status == 400, "its connection never noticed"
    sender.close()
    assert "Traceback" not in mine.stderr()


def test_receives_through_kills_of_the_gateway_lose_and_double_none(mine: Served) -> None:
    """An acknowledged message never comes again; one whose acknowledgement was cut off is gone, or there again."""
    queue, count = mine.queue(), 200
    mine.send(queue, *[3] * count)
    acknowledged: list[str] = []
    unsure: set[str] = set()
    came: list[str] = []
    is_over = threading.Event()

    def kill() -> None:
        for wanted in (20, 60, 110):
            while len(acknowledged) < wanted and not is_over.wait(0.001):
                pass
            os.kill(gateway_of(mine), signal.SIGKILL)

    def receive_all(there: RemoteQueue) -> None:
        while True:
            request, answer = there.start(Action.RECEIVE)
            if answer.status != Status.MQ_OK:
                return
            body = body_of(answer)
            came.append(body)
            unsure.add(body)
            there.end(request)
            unsure.discard(body)
            acknowledged.append(body)

    killer = threading.Thread(target=kill)
    killer.start()
    end = time.monotonic() + 120
    while mine.waiting(queue) and time.monotonic() < end:
        with (
            contextlib.suppress(SrmpSparkError),
            mine.machine() as machine,
            opened(machine, queue, receive=True) as there,
        ):
            receive_all(there)
    is_over.set()
    killer.join(PATIENCE)
    assert len(acknowledged) == len(set(acknowledged)), "an acknowledged message came again"
    assert set(acknowledged) | unsure == {f"body {number}" for number in range(1, count + 1)}, (
        "lost"
    )
    assert len(came) <= count + 3, "one message at most is there again for each kill"
    assert mine.waiting(queue) == 0
    assert mine.stderr().count("mqrr.connections_lost") == 3, "each kill met a reader"


def body_of(answer: StartReceiveResponse) -> str:
    return shown(answer).packet.body.decode()


def test_both_ports_open_again_within_seconds(mine: Served) -> None:
    for _ in range(2):
        os.kill(gateway_of(mine), signal.SIGKILL)
        began = time.monotonic()
        queue = mine.queue()
        mine.send(queue, 3)
        received(mine, queue)
        assert time.monotonic() - began < 20, "a start of Python on a machine with other work"


def test_a_queue_manager_that_stops_ends_its_readers_and_its_gateway(
    start: Callable[..., Served],
) -> None:
    served = start()
    queue, gateway = served.queue(), gateway_of(served)
    with (
        contextlib.suppress(RemoteLostError),
        served.machine() as machine,
        opened(machine, queue, receive=True) as there,
    ):
        stopping = threading.Thread(target=served.stop)
        stopping.start()
        with pytest.raises(RemoteLostError):
            there.start(Action.RECEIVE, wait_s=30)
    stopping.join(PATIENCE)
    with pytest.raises(ProcessLookupError):
        os.kill(gateway, 0)
    assert "rpc.died" not in served.stderr()
    assert "process.stopped" in served.stderr()


# --- memory -------------------------------------------------------------------------------------------------------------


def test_readers_that_take_no_answers_fill_neither_process(mine: Served) -> None:
    queue = mine.queue()
    mine.send(queue, 3, body=b"x" * 4_000_000)
    main, gateway = mine.pid, gateway_of(mine)
    assert main is not None
    before = memory_of(main), memory_of(gateway)
    worst = [0, 0]
    with contextlib.ExitStack() as stack:
        for _ in range(10):
            machine = stack.enter_context(mine.machine())
            peeked = stack.enter_context(opened(machine, queue))
            for number in range(1, 51):
                asked = StartReceiveRequest(
                    peeked.handle, action=Action.PEEK_CURRENT, request_id=number, max_body_size=ALL,
                    max_compound_message_size=ALL,
                )  # fmt: skip
                machine.begin(7, asked, more=number < 50)
        ends = time.monotonic() + 5
        while time.monotonic() < ends:
            worst = [
                max(worst[0], memory_of(main) - before[0]),
                max(worst[1], memory_of(gateway) - before[1]),
            ]
            time.sleep(0.05)
        with mine.machine() as machine, opened(machine, mine.queue()) as other:
            assert other.peek() is None, "another reader is served all the while"
    assert max(worst) < 250_000_000, f"{worst} of 2,000,000,000 bytes that were asked for"
    assert gateway_of(mine) == gateway


def test_readers_that_take_no_answer_make_way_and_nobody_else_waits_for_them(mine: Served) -> None:
    """Answers of 4 MB for 240 readers are more than the gateway keeps; a good reader gets its own all the while.

    How many messages the main process reads before it hears that nobody takes them is a matter of moments: so the memory is
    judged, and which reader makes way is a test of its own.
    """
    queue, readers = mine.queue(), 240
    mine.send(queue, 3, body=b"x" * 4_000_000)
    gateway = gateway_of(mine)
    worst = 0
    session = requests.Session()
    latest = 0.0
    with contextlib.ExitStack() as stack:
        stalled = [
            stack.enter_context(socket.create_connection(mine.rpc, timeout=PATIENCE))
            for _ in range(readers)
        ]
        asked = [asks_for_all(each, queue) for each in stalled]
        reader = child_of(mine, b"queue_manager.reader")
        os.kill(reader, signal.SIGSTOP)  # all of them wait for the message when it comes
        for each, stub in zip(stalled, asked, strict=True):
            each.sendall(request(3, 7, stub))
        time.sleep(1.0)
        os.kill(reader, signal.SIGCONT)
        ends = time.monotonic() + 8
        while time.monotonic() < ends:
            began = time.monotonic()
            assert session.get(f"{mine.api}/healthz", timeout=PATIENCE).status_code == 200
            latest = max(latest, time.monotonic() - began)
            worst = max(worst, memory_of(gateway))
        with mine.machine() as machine, opened(machine, queue) as good:
            assert len(bodies(good)[0]) == 4_000_000
    assert gateway_of(mine) == gateway, "it has not died of them"
    assert worst < HELD_MAX + GATEWAY_BYTES, f"{worst / 1e6:.0f} MB"
    assert latest < 0.5, f"/healthz took {latest * 1000:.0f} ms"
    print(f"gateway {worst / 1e6:.0f} MB, /healthz {latest * 1000:.0f} ms")


def test_above_held_max_the_reader_that_has_taken_nothing_for_longest_makes_way() -> None:
    class Reader:
        """What the endpoint knows of a connection."""

        def __init__(self, endpoint: RpcEndpoint, held: int, taken_at: float) -> None:
            self.endpoint, self.held, self.taken_at, self.why = endpoint, held, taken_at, ""
            endpoint.connections[cast(RpcConnection, self)] = None
            endpoint.held += held

        def count_taken(self) -> None:
            """Nothing was taken since."""

        def drop(self, why: str) -> None:
            self.why, self.endpoint.held = why, self.endpoint.held - self.held

    async def test() -> None:
        endpoint = RpcEndpoint(cast(Any, None), cast(Any, None))
        third = HELD_MAX // 3
        first, idle, last, second = (
            Reader(endpoint, *each) for each in ((third, 1.0), (0, 0.0), (third, 9.0), (third, 5.0))
        )
        endpoint.make_room()
        assert not any(each.why for each in (first, idle, last, second)), (
            "it is as much as may be untaken"
        )
        newest = Reader(endpoint, third, 10.0)
        endpoint.make_room()
        assert "HELD_MAX" in first.why
        assert not any(each.why for each in (idle, last, second, newest))
        endpoint.connections.clear()
        await endpoint.close()

    asyncio.run(test())


def narrow(address: tuple[str, int]) -> socket.socket:
    """Connect with a small window: the kernel keeps little of what is not read."""
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    connection.settimeout(PATIENCE)
    connection.connect(address)
    return connection


def bind() -> bytes:
    body = Bind(FRAGMENT_MAX, FRAGMENT_MAX, 0, tuple(offers(REMOTE_READ, (NDR,), 3))).encode()
    return encode_pdu(PduType.BIND, WHOLE | CONCURRENT_MULTIPLEXING, 1, body)


def request(call_id: int, opnum: int, stub: bytes) -> bytes:
    (piece,) = request_pieces(0, opnum, stub, fragment=65_535)
    return encode_pdu(PduType.REQUEST, WHOLE, call_id, piece.body)


def asks_for_all(connection: socket.socket, queue: str) -> bytes:
    """Bind and open ``queue``; return the stub of a call that asks for its first message whole."""
    connection.sendall(bind())
    connection.sendall(
        request(
            2,
            2,
            OpenRequest(queue_format_for("host1", queue), ACCESS_PEEK, SHARE_DENY_NONE).encode(NDR),
        )
    )
    stream, found = PduStream(), list[bytes]()
    while len(found) < 2:
        found += [bytes(raw) for raw in stream.receive(connection.recv(4_096))]
    handle = METHODS[2].decode_response(found[1][24:], NDR).handle
    return StartReceiveRequest(
        handle,
        action=Action.PEEK_CURRENT,
        request_id=1,
        max_body_size=ALL,
        max_compound_message_size=ALL,
    ).encode(NDR)


# --- floods -------------------------------------------------------------------------------------------------------------

FLOOD = """
import socket, sys, threading, time
from test_rpc_gateway import PDUS_OF_A_PIECE, bind, pieces
address, ends, sent = (sys.argv[1], int(sys.argv[2])), time.monotonic() + float(sys.argv[3]), [0] * 4
def forget(connection):
    try:
        while connection.recv(1 << 20):
            pass
    except OSError:
        pass
def flood(number):
    with socket.create_connection(address, timeout=10) as connection:
        connection.sendall(bind())
        threading.Thread(target=forget, args=(connection,), daemon=True).start()
        for piece in pieces():
            if time.monotonic() > ends:
                break
            connection.sendall(piece)
            sent[number] += PDUS_OF_A_PIECE
threads = [threading.Thread(target=flood, args=(number,)) for number in range(len(sent))]
[each.start() for each in threads]
print("begins", flush=True)
[each.join() for each in threads]
print(sum(sent), flush=True)
"""
CALLS_OF_A_PIECE, CANCELS_OF_A_PIECE = 32, LATE_PDUS_MAX // 2
PDUS_OF_A_PIECE = CALLS_OF_A_PIECE + CANCELS_OF_A_PIECE


def pieces() -> Iterator[bytes]:
    """Yield requests that can be decoded, so that they cross to the main process, and cancels of the last one of them."""
    (piece,) = request_pieces(
        0, 4, bytes(20), fragment=65_535
    )  # R_CreateCursor, of a handle that nobody has
    for first in itertools.count(2, CALLS_OF_A_PIECE):
        calls = range(first, first + CALLS_OF_A_PIECE)
        yield b"".join(encode_pdu(PduType.REQUEST, WHOLE, each, piece.body) for each in calls) + (
            encode_cancel(calls[-1]) * CANCELS_OF_A_PIECE
        )


def test_a_flood_of_pdus_delays_no_sender_of_srmp(mine: Served) -> None:
    queue = mine.queue()
    connection = http.client.HTTPConnection(*mine.endpoint, timeout=PATIENCE)
    host, port = mine.endpoint
    seconds: list[float] = []
    with subprocess.Popen(
        [sys.executable, "-c", FLOOD, *map(str, mine.rpc), "6"], stdout=subprocess.PIPE, text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join((str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")))},
    ) as flood:  # fmt: skip
        assert flood.stdout is not None
        assert flood.stdout.readline() == "begins\n"
        number = 0
        while flood.poll() is None:
            number += 1
            message = ForeignMessage(
                to=f"http://{host}:{port}/msmq/{queue}", lineage=LINEAGE, uniquifier=number, sent_at=1_790_000_000,
                body=b"good",
            )  # fmt: skip
            written = post(message)
            began = time.monotonic()
            connection.request(
                "POST", written.target, written.content,
                {"Content-Type": written.content_type, "SOAPAction": '"MSMQMessage"'},
            )  # fmt: skip
            answer = connection.getresponse()
            answer.read()
            seconds.append(time.monotonic() - began)
            assert answer.status == 200
            time.sleep(0.01)
        pdus = int(flood.stdout.readline())
    connection.close()
    assert mine.waiting(queue) == len(seconds) > 20
    assert pdus > 20_000
    assert max(seconds) < SENDER_SECONDS, f"{max(seconds) * 1000:.0f} ms beside {pdus} PDUs"
    print(
        f"{pdus} PDUs; the slowest of {len(seconds)} good messages took "
        f"{max(seconds) * 1000:.0f} ms"
    )
    assert "Traceback" not in mine.stderr()
