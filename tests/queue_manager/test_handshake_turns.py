"""TLS handshakes take turns: a few at once, address by address, and slow ones make way."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable

import pytest

from srmp_spark.queue_manager.srmp_port import handshake_turns
from srmp_spark.queue_manager.srmp_port.handshake_turns import HANDSHAKES_AT_ONCE, HandshakeTurns

HELLO = b"\x16\x03\x01\x02\x00" + bytes(512)
"""A first record."""
FLOOD, HONEST = "198.51.100.9", "203.0.113.7"


class Peers:
    """Connections whose other ends this test has."""

    def __init__(self, stack: contextlib.ExitStack) -> None:
        self._stack = stack
        self._listening = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        self.turns = HandshakeTurns()
        self.begun: list[str] = []
        self.slow: list[str] = []
        self.goes_on = asyncio.Event()

    def connect(
        self, host: str, *, speaks: bool = True
    ) -> tuple[asyncio.Task[None], socket.socket]:
        theirs = socket.create_connection(self._listening.getsockname())
        ours, _ = self._listening.accept()
        for each in (ours, theirs):
            self._stack.enter_context(each)
            each.setblocking(False)
        if speaks:
            theirs.send(HELLO)
        return asyncio.ensure_future(self._shake(ours, host)), theirs

    async def _shake(self, ours: socket.socket, host: str) -> None:
        async with self.turns.turn(ours, host) as seconds:
            assert 0 < seconds <= handshake_turns.HANDSHAKE_SECONDS
            self.begun.append(host)
            try:
                await self.goes_on.wait()
            except asyncio.CancelledError:
                if self.turns.was_slow():
                    self.slow.append(host)
                raise


def run(test: Callable[[Peers], Awaitable[None]]) -> None:
    async def main() -> None:
        with contextlib.ExitStack() as stack:
            peers = Peers(stack)
            await test(peers)
            rest = asyncio.all_tasks() - {asyncio.current_task()}
            for task in rest:
                task.cancel()
            await asyncio.gather(*rest, return_exceptions=True)

    asyncio.run(main())


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handshake_turns, "LOOK_SECONDS", 0.01)


def test_a_few_are_under_way_at_once() -> None:
    async def test(peers: Peers) -> None:
        tasks = [peers.connect(FLOOD)[0] for _ in range(3 * HANDSHAKES_AT_ONCE)]
        await asyncio.sleep(0.05)
        assert len(peers.begun) == HANDSHAKES_AT_ONCE
        peers.goes_on.set()
        await asyncio.gather(*tasks)
        assert len(peers.begun) == 3 * HANDSHAKES_AT_ONCE

    run(test)


def test_a_peer_that_says_nothing_keeps_nobody_waiting() -> None:
    async def test(peers: Peers) -> None:
        silent = [peers.connect(FLOOD, speaks=False) for _ in range(3 * HANDSHAKES_AT_ONCE)]
        await asyncio.sleep(0.02)
        peers.connect(HONEST)
        await asyncio.sleep(0.02)
        assert peers.begun == [HONEST]
        silent[5][1].send(HELLO[:3])
        await asyncio.sleep(0.02)
        silent[5][1].send(HELLO[3:-1])
        await asyncio.sleep(0.02)
        assert peers.begun == [HONEST], "its first record is not whole"
        silent[5][1].send(HELLO[-1:])
        await asyncio.sleep(0.02)
        assert peers.begun == [HONEST, FLOOD]

    run(test)


@pytest.mark.parametrize("said", [b"GET / HTTP/1.1", b"\x16\x03\x01\xff\xff", b""])
def test_what_can_be_no_record_fails_in_its_handshake(said: bytes) -> None:
    async def test(peers: Peers) -> None:
        _, theirs = peers.connect(HONEST, speaks=False)
        theirs.send(said)
        if not said:
            theirs.shutdown(socket.SHUT_WR)
        await asyncio.sleep(0.02)
        assert peers.begun == [HONEST]

    run(test)


def test_a_record_that_ends_half_way_fails_in_its_handshake() -> None:
    async def test(peers: Peers) -> None:
        _, theirs = peers.connect(HONEST, speaks=False)
        theirs.send(HELLO[:100])
        await asyncio.sleep(0.02)
        assert peers.begun == []
        theirs.shutdown(socket.SHUT_WR)
        await asyncio.sleep(0.02)
        assert peers.begun == [HONEST]

    run(test)


def test_one_that_says_nothing_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handshake_turns, "HANDSHAKE_SECONDS", 0.05)

    async def test(peers: Peers) -> None:
        task, _ = peers.connect(FLOOD, speaks=False)
        with pytest.raises(asyncio.TimeoutError):
            await task

    run(test)


def test_addresses_take_turns_and_slow_ones_make_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """An honest peer behind a flood waits for one handshake of it, and not for all."""
    monkeypatch.setattr(handshake_turns, "PATIENCE_SECONDS", 0.05)

    async def test(peers: Peers) -> None:
        for _ in range(20 * HANDSHAKES_AT_ONCE):
            peers.connect(FLOOD)
        await asyncio.sleep(0.01)
        peers.connect(HONEST)
        await asyncio.sleep(0.3)
        assert HONEST in peers.begun[: 2 * HANDSHAKES_AT_ONCE + 1]
        assert len(peers.slow) >= HANDSHAKES_AT_ONCE

    run(test)


def test_nobody_is_hurried_while_nobody_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handshake_turns, "PATIENCE_SECONDS", 0.02)

    async def test(peers: Peers) -> None:
        tasks = [peers.connect(FLOOD)[0] for _ in range(HANDSHAKES_AT_ONCE)]
        await asyncio.sleep(0.2)
        peers.goes_on.set()
        await asyncio.gather(*tasks)
        assert peers.slow == []

    run(test)


def test_a_turn_that_is_given_up_is_the_next_ones() -> None:
    async def test(peers: Peers) -> None:
        tasks = [peers.connect(FLOOD)[0] for _ in range(2 * HANDSHAKES_AT_ONCE)]
        await asyncio.sleep(0.02)
        for task in tasks[: HANDSHAKES_AT_ONCE + 4]:  # some that are under way, some that wait
            task.cancel()
        await asyncio.sleep(0.02)
        assert len(peers.begun) == 2 * HANDSHAKES_AT_ONCE - 4
        peers.goes_on.set()
        await asyncio.gather(*tasks, return_exceptions=True)
        peers.connect(HONEST)
        await asyncio.sleep(0.02)
        assert peers.begun[-1] == HONEST

    run(test)
