"""Nothing is read for a peer before there is a connection to it, and those that had trouble are tried at a limited rate."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections import Counter
from datetime import datetime, timedelta, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
import uvloop
from hostile_peers import Peers
from kit import bodies, commit, outgoing, rows_to, until
from test_connections import OK, REQUEST, Told, with_peer

from srmp_spark.queue_manager.sender.http import connections as module
from srmp_spark.queue_manager.sender.http.connections import Wire
from srmp_spark.queue_manager.sender.http.places import ConnectionPlaces
from srmp_spark.queue_manager.sender.store_thread import TURNS, StoreThread
from srmp_spark.srmp.sending.outgoing_effects import Load, QueueKey, Send
from srmp_spark.testing.queue_manager import RunningQueueManager


@pytest.fixture(autouse=True)
def _short_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Wire, "request", lambda self, send: REQUEST)


def load_of(key: QueueKey, after: int = 0) -> Load:
    return Load(key, after, 9, 1, 1, 1)


def nobody_listens() -> QueueKey:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    return QueueKey(f"http://127.0.0.1:{port}/msmq/private$/in", "stream")


async def _answers(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while await reader.read(1000):
        writer.write(OK)
    writer.close()


def test_a_load_is_told_when_there_is_a_connection_and_what_it_read_goes_over_it() -> None:
    async def body(told: Told, send: object) -> None:
        message = cast("Send", send(1))  # type: ignore[operator]
        connections = told.connections
        assert not connections.is_reached(message.key)
        connections.reach(load_of(message.key))
        assert await told.next() == ("reached", 0)
        assert connections.is_reached(message.key)
        connections.post(message)
        assert await told.next() == ("answer", 1, 200)
        assert len(connections) == 1

    with_peer(_answers, body)


def test_a_load_is_told_that_nobody_listens() -> None:
    async def run() -> None:
        told, key = Told(), nobody_listens()
        for after in range(3):
            told.connections.reach(load_of(key, after))
            what, which, why = await told.next()
            assert (what, which) == ("not reached", after)
            assert f"{key.destination.split('/')[2]}: " in why
        await told.connections.stop()

    uvloop.run(run())


def test_a_newer_load_takes_the_place_of_one_that_waits() -> None:
    async def body(told: Told, send: object) -> None:
        key = cast("Send", send(1)).key  # type: ignore[operator]
        told.connections.reach(load_of(key, 0))
        told.connections.reach(load_of(key, 5))
        assert await told.next() == ("reached", 5)
        await asyncio.sleep(0.05)
        assert told.ends.empty()

    with_peer(_answers, body)


def test_what_was_read_earlier_and_a_load_share_one_connection() -> None:
    async def body(told: Told, send: object) -> None:
        message = cast("Send", send(1))  # type: ignore[operator]
        told.connections.post(message)
        told.connections.reach(load_of(message.key, 1))
        assert {await told.next(), await told.next()} == {("reached", 1), ("answer", 1, 200)}
        assert len(told.connections) == 1

    with_peer(_answers, body)


def test_where_both_fail_the_message_is_told_first() -> None:
    """It began a pass, so the load behind it is outdated then."""

    async def run() -> None:
        told, key = Told(), nobody_listens()
        told.connections.post(cast("Send", SimpleNamespace(key=key, serial=1)))
        told.connections.reach(load_of(key, 1))
        assert [(await told.next())[:2], (await told.next())[:2]] == [
            ("failure", 1),
            ("not reached", 1),
        ]
        await told.connections.stop()

    uvloop.run(run())


def test_a_connection_that_is_given_up_tells_its_load() -> None:
    """An operator pauses the queue before there is a connection."""

    async def run() -> None:
        told, key = Told(), nobody_listens()
        told.connections.reach(load_of(key))
        told.connections.close(key)
        assert await told.next() == ("not reached", 0, "we closed the connection")
        await asyncio.sleep(0.05)
        assert told.ends.empty()
        await told.connections.stop()

    uvloop.run(run())


def test_those_that_had_trouble_are_tried_at_a_limited_rate(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """200 queues of a peer that is down, with a short Retransmission Timer, took the whole core."""
    monkeypatch.setattr(module, "TROUBLED_ATTEMPTS_PER_SECOND", 50)
    monkeypatch.setattr(module, "ATTEMPTS_AT_ONCE", 5)
    seconds, tried = 1.0, Counter[str]()

    async def run() -> None:
        told, down = Told(), nobody_listens()
        keys = [QueueKey(f"{down.destination}{n}", "stream") for n in range(20)]
        told.connections.on_not_reached = lambda load, why: again(load)

        def again(load: Load) -> None:
            tried[load.key.destination] += 1
            told.connections.reach(load)

        for key in keys:
            told.connections.reach(load_of(key))
        await asyncio.sleep(seconds)
        await told.connections.stop()

    uvloop.run(run())
    assert len(tried) == 20
    assert 40 <= sum(tried.values()) <= 20 + 5 + 2 * 50 * seconds
    assert max(tried.values()) - min(tried.values()) <= 2, "queues take turns"


def test_whoever_is_told_of_an_end_may_want_a_connection_and_there_is_one_timer_all_the_same() -> (
    None
):
    """Each time there was one timer more, as long as anybody waited."""

    async def run() -> int:
        connections, looks = Told().connections, 0
        victim = SimpleNamespace(
            make_way=connections._grant
        )  # as the end of a connection does, if a message is posted then

        def admit(slow_most: int) -> list[Wire]:
            nonlocal looks
            looks += 1
            return []

        connections._places = cast("ConnectionPlaces[Wire]", SimpleNamespace(
            admit=admit, somebody_waits=True, make_way=lambda standing: [victim] if looks < 20 else []
        ))  # fmt: skip
        connections._grant()
        await asyncio.sleep(10 * module.LOOK_SECONDS)
        looks = 20
        await asyncio.sleep(10 * module.LOOK_SECONDS)
        await connections.stop()
        return looks - 20

    assert uvloop.run(run()) <= 11


def test_what_waits_for_a_peer_that_is_never_reached_becomes_dead_letters_in_time(
    tmp_path: Path,
) -> None:
    with (
        Peers() as peers,
        RunningQueueManager(tmp_path / "qm", retransmission_timeout=0.2) as running,
    ):
        destination = f"{peers.refusing()}/in"
        until_then = datetime.now(timezone.utc) + timedelta(seconds=1)
        commit(
            running.api, "1", rows_to(destination, bodies(0, 600), time_to_reach_queue=until_then)
        )
        commit(running.api, "2", rows_to(destination, bodies(600, 605)))
        until(lambda: outgoing(running, destination)["queued"] == 5, "600 are dead")
        assert "reason=expired" in running.stderr()


def test_steps_of_a_commit_get_their_turns_where_the_first_line_never_ends() -> None:
    """Destinations that fail and are tried again without a pause stopped every commit."""

    async def run() -> None:
        store, order = StoreThread(asyncio.get_running_loop(), lambda error: None), list[str]()
        is_held, may_go_on = threading.Event(), threading.Event()

        def hold() -> None:
            is_held.set()
            may_go_on.wait(20)

        jobs: list[asyncio.Future[object]] = [store.run(hold)]
        assert is_held.wait(20)
        jobs += [store.run(lambda: order.append("read")) for _ in range(3 * TURNS)]
        jobs += [store.run(lambda: order.append("step"), later=True) for _ in range(3)]
        may_go_on.set()
        await asyncio.gather(*jobs)
        places = [place for place, what in enumerate(order) if what == "step"]
        assert places == [TURNS - 1, 2 * TURNS - 1, 3 * TURNS - 1]

    asyncio.run(run())
