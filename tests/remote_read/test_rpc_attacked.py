"""The RPC port under attack: connections that never sign in, only cancel, or never read, at a running process."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
from remote_kit import Served, opened

from srmp_spark.mqrr.actions import Action
from srmp_spark.mqrr.ndr.receive import StartReceiveRequest
from srmp_spark.mqrr.ndr.transfer_syntax import NDR
from srmp_spark.mqrr.packets.sections import ALL
from srmp_spark.mqrr.rpc.binding import REMOTE_READ, Bind
from srmp_spark.mqrr.rpc.calls import encode_cancel, request_pieces
from srmp_spark.mqrr.rpc.limits import FRAGMENT_MAX, LATE_PDUS_MAX
from srmp_spark.mqrr.rpc.negotiation import offers
from srmp_spark.mqrr.rpc.pdu import (
    CONCURRENT_MULTIPLEXING,
    FIRST_FRAGMENT,
    WHOLE,
    PduStream,
    PduType,
    encode_pdu,
)
from srmp_spark.queue_manager.remote_read.gateway import REQUEST_MAX
from srmp_spark.queue_manager.srmp_port.port_limits import RPC_CONNECTIONS_MAX
from tests.kit.stalls import MachineStalls

PATIENCE = 30.0
HEALTH_SECONDS = 0.25
"""What a stranger may cost the others."""


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Of itself, which asks nobody who he is: loopback."""
    with Served(tmp_path_factory.mktemp("attacked") / "data") as served:
        yield served


def bind() -> bytes:
    contexts = tuple(offers(REMOTE_READ, (NDR,), 3))
    body = Bind(FRAGMENT_MAX, FRAGMENT_MAX, 0, contexts).encode()
    return encode_pdu(PduType.BIND, WHOLE | CONCURRENT_MULTIPLEXING, 1, body)


def request(call_id: int, stub: bytes, *, flags: int = WHOLE, opnum: int = 14) -> bytes:
    (piece,) = request_pieces(0, opnum, stub, fragment=65_535)
    return encode_pdu(PduType.REQUEST, flags, call_id, piece.body)


class Stranger:
    """A connection that writes PDUs as it likes."""

    def __init__(self, served: Served) -> None:
        self.socket = socket.create_connection(served.rpc, timeout=PATIENCE)

    def bound(self) -> Stranger:
        self.socket.sendall(bind())
        assert self.next() == PduType.BIND_ACK
        return self

    def next(self) -> int | None:
        """The type of the next PDU; ``None``: the connection was closed."""
        stream = PduStream()
        try:
            while data := self.socket.recv(4_096):
                for raw in stream.receive(data):
                    return raw[2]
        except ConnectionError:
            pass
        return None

    def says(self, data: bytes) -> None:
        with contextlib.suppress(ConnectionError):
            self.socket.sendall(data)

    def close(self) -> None:
        self.socket.close()


@contextlib.contextmanager
def healthy(served: Served) -> Iterator[list[float]]:
    """Ask how it is all the while; seconds of each answer, without those that the machine took."""
    seconds: list[float] = []
    ended = threading.Event()

    def ask() -> None:
        while not ended.is_set():
            began = time.monotonic()
            assert requests.get(f"{served.api}/healthz", timeout=PATIENCE).status_code == 200
            seconds.append(time.monotonic() - began)
            ended.wait(0.02)

    asker = threading.Thread(target=ask)
    asker.start()
    stalls = MachineStalls()
    try:
        with stalls:
            yield seconds
    finally:
        ended.set()
        asker.join(PATIENCE)
        seconds[:] = [each - stalls.allowance for each in seconds]


def memory_of(process: int) -> int:
    return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class TestSigningIn:
    def test_a_bind_below_the_level_that_is_demanded_ends_the_connection(
        self, start: Callable[..., Served], tmp_path: Path
    ) -> None:
        accounts = tmp_path / "accounts"
        accounts.write_text("EXAMPLE\\reader:a pass word\n")
        accounts.chmod(0o600)
        served = start(rpc_accounts=accounts, rpc_min_auth="privacy")
        stranger = Stranger(served)
        stranger.says(bind())
        assert stranger.next() == PduType.BIND_NAK
        assert stranger.next() is None
        with healthy(served) as seconds:
            for _ in range(
                8
            ):  # cancels of calls that never were: once 16 bytes each that cost a turn of the loop together
                stranger = Stranger(served)
                stranger.says(bind() + encode_cancel(7) * 60_000)
                stranger.close()
        assert max(seconds) < HEALTH_SECONDS

    def test_connections_that_hold_nothing_make_way(self, attacked: Served) -> None:
        queue = attacked.queue()
        attacked.send(queue, 3)
        with (
            attacked.machine() as kept,
            opened(kept, queue, receive=True) as mine,
            contextlib.ExitStack() as stack,
        ):
            for number in range(RPC_CONNECTIONS_MAX + 100):
                stranger = Stranger(attacked)
                stack.callback(stranger.close)
                if number % 2:
                    stranger.says(bind())
            with attacked.machine() as machine, opened(machine, queue) as other:
                assert other.peek() is not None
            assert mine.peek() is not None, "a reader that has a queue open keeps its place"
            assert requests.get(f"{attacked.api}/healthz", timeout=PATIENCE).status_code == 200


class TestPdus:
    def test_a_cancel_of_a_call_that_never_was_ends_the_connection(self, attacked: Served) -> None:
        stranger = Stranger(attacked).bound()
        stranger.says(encode_cancel(9))
        assert stranger.next() == PduType.FAULT
        assert stranger.next() is None

    def test_cancels_of_calls_that_are_over_are_counted(self, attacked: Served) -> None:
        stranger = Stranger(attacked).bound()
        stranger.says(request(2, b""))
        assert stranger.next() == PduType.FAULT  # whatever it says, the call is over
        stranger.says(encode_cancel(2) * LATE_PDUS_MAX)
        stranger.says(request(3, b""))
        assert stranger.next() == PduType.FAULT
        stranger.says(encode_cancel(3) * (LATE_PDUS_MAX + 1))
        assert stranger.next() == PduType.FAULT
        assert stranger.next() is None

    def test_fragments_are_not_gathered_beyond_what_a_request_needs(self, attacked: Served) -> None:
        stranger = Stranger(attacked).bound()
        for number in range(REQUEST_MAX // 5_000 + 1):
            stranger.says(request(2, bytes(5_000), flags=0 if number else FIRST_FRAGMENT))
        assert stranger.next() == PduType.FAULT
        assert stranger.next() is None

    def test_requests_without_end_leave_the_others_their_turns(self, attacked: Served) -> None:
        def flood() -> None:
            stranger = Stranger(attacked).bound()
            number = 1
            while time.monotonic() < ends:
                several = memoryview(b"".join(request(number + n, b"") for n in range(1, 1_001)))
                number += 1_000
                while several and time.monotonic() < ends:
                    readable, writable, _ = select.select(
                        [stranger.socket], [stranger.socket], [], 0.1
                    )
                    if readable:
                        stranger.socket.recv(1 << 20)
                    if writable:
                        several = several[stranger.socket.send(several[:16_384]) :]
            stranger.close()

        ends = time.monotonic() + 4
        floods = [threading.Thread(target=flood) for _ in range(4)]
        with healthy(attacked) as seconds:
            for each in floods:
                each.start()
            for each in floods:
                each.join(PATIENCE)
        assert sorted(seconds)[len(seconds) // 2] < 0.1
        assert max(seconds) < 2 * HEALTH_SECONDS, (
            "this process floods and asks with one interpreter"
        )


class TestAnswers:
    def test_a_reader_that_does_not_read_costs_one_message_and_not_all_of_them(
        self, attacked: Served
    ) -> None:
        queue = attacked.queue()
        attacked.send(queue, 3, body=b"x" * 4_000_000)
        assert attacked.pid is not None
        before = memory_of(attacked.pid)
        with contextlib.ExitStack() as stack:
            readers = [stack.enter_context(attacked.machine()) for _ in range(10)]
            asked: list[list[Callable[[], Any]]] = []
            for machine in readers:
                peeked = stack.enter_context(opened(machine, queue))
                calls = [
                    machine.begin(
                        7,
                        StartReceiveRequest(
                            peeked.handle, action=Action.PEEK_CURRENT, request_id=number, max_body_size=ALL,
                            max_compound_message_size=ALL,
                        ),
                        more=number < 30,
                    )
                    for number in range(1, 31)
                ]  # fmt: skip
                asked.append(calls)
            worst = 0
            for _ in range(30):
                worst = max(worst, memory_of(attacked.pid) - before)
                time.sleep(0.1)
            assert worst < 350_000_000, "of 1,200,000,000 bytes that were asked for"
            small = attacked.queue()
            attacked.send(small, 3)
            with attacked.machine() as machine, opened(machine, small) as other:
                assert other.peek() is not None
            for each in asked[0]:  # who reads gets all that he asked for
                assert each().status == 0
