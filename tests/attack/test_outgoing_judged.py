"""What the attack judges of outgoing messages, stages and connections: each check is seen to find, and seen to be content."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pytest

from srmp_spark.queue_manager.sender.staging.stage_reader import (
    Question,
    ReadableStage,
    UnreadableStage,
    judge,
)
from tests.kit.attack import machine
from tests.kit.attack.arrow_stages import HOSTILE, stream_of
from tests.kit.attack.destinations import PLAIN, STREAM, Destinations
from tests.kit.attack.hostile_http import BEHAVIOURS, OK, HostileServer
from tests.kit.attack.judge import FoundError
from tests.kit.attack.walkers import playing
from tests.kit.attack.walkers.playing import check_open
from tests.kit.attack.wire import Connection

REQUEST = b"POST /msmq/private$/bad HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nab"
QUIET = {"silent", "slow", "unread", "away", "closes"}
"""Behaviours that answer nothing within a second, or nothing at all."""


@pytest.mark.parametrize(
    ("there", "kind"),
    [
        ([1, 2, 3], None), ([1, 2, 3, 4], None), ([1, 2], "stuck"), ([1, 2, 2, 3], "doubled"), ([1, 3, 2], "disordered"),
        ([1, 2, 3, 9], "astray"),
    ],
)  # fmt: skip
def test_what_arrives_is_judged(there: list[int], kind: str | None) -> None:
    """Three messages were taken, and a fourth may have been."""
    destinations = Destinations()
    destinations.taken(STREAM, destinations.ask(STREAM, 3))
    destinations.ask(STREAM, 1)
    arrived = {STREAM: [SimpleNamespace(body=b"%d" % number) for number in there]}
    destinations.good = cast("Any", SimpleNamespace(queues=arrived, violations=[]))
    found = destinations.problem()
    assert (found and found.kind) == kind


def test_order_is_judged_where_it_is_promised_and_a_followed_redirect_is_found() -> None:
    destinations = Destinations()
    destinations.taken(PLAIN, destinations.ask(PLAIN, 2))
    plain = [SimpleNamespace(body=b"2"), SimpleNamespace(body=b"1")]
    destinations.good = cast("Any", SimpleNamespace(queues={PLAIN: plain}, violations=[]))
    assert destinations.problem() is None
    destinations.good = cast(
        "Any", SimpleNamespace(queues={PLAIN: plain, "private$/astray": plain}, violations=[])
    )
    found = destinations.problem()
    assert found is not None
    assert found.kind == "astray"


@pytest.fixture
def hostile() -> Iterator[HostileServer]:
    server = HostileServer("http://127.0.0.1:1/msmq/private$/astray")
    server.start()
    yield server
    server.stop()


def _first_bytes(server: HostileServer) -> bytes:
    try:
        with socket.create_connection(("127.0.0.1", server.port), 1.0) as connection:
            connection.sendall(REQUEST)
            return connection.recv(65_536)
    except OSError:
        return b""


@pytest.mark.parametrize("what", BEHAVIOURS)
def test_a_hostile_server_is_hostile_and_then_honest(hostile: HostileServer, what: str) -> None:
    hostile.behave(what, 1)
    said = _first_bytes(hostile)
    if what in QUIET:
        assert said in (b"", OK, b"H", b"x")
    else:
        assert said
    hostile.behave("", 0)
    assert _first_bytes(hostile) == OK


@pytest.mark.parametrize("form", sorted(HOSTILE.keys() - {"bomb"}))
def test_a_hostile_stage_is_refused(form: str, tmp_path: Path) -> None:
    """``bomb`` takes gigabytes to be made: ``tests/sender/test_hostile_stages.py`` has one."""
    for seed in range(5):
        (tmp_path / "x.arrow").write_bytes(HOSTILE[form](Random(seed)))
        assert isinstance(judge(Question(str(tmp_path), "x.arrow", 0, False)), UnreadableStage)


@pytest.mark.parametrize("compression", [None, "zstd", "lz4"])
def test_a_good_stage_is_taken(compression: str | None, tmp_path: Path) -> None:
    (tmp_path / "x.arrow").write_bytes(stream_of([b"1", b"2"], compression=compression))
    verdict = judge(Question(str(tmp_path), "x.arrow", 0, False))
    assert isinstance(verdict, ReadableStage)
    assert verdict.rows == 2


class Opened:
    """A connection that may be closed later."""

    is_over = False

    async def is_closed(self, within: float) -> bool:
        await asyncio.sleep(within)
        return self.is_over


def test_connections_that_are_closed_late_are_no_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those in the backlog look open until the port accepts them."""
    monkeypatch.setattr(playing, "CLOSED_SECONDS", 1.0)

    async def run(after: float) -> None:
        opened = [Opened() for _ in range(40)]

        def close() -> None:
            for each in opened[10:]:
                each.is_over = True

        handle = asyncio.get_running_loop().call_later(after, close)
        try:
            await check_open("api", cast("list[Connection]", opened), 20)
        finally:
            handle.cancel()

    asyncio.run(run(0.4))
    with pytest.raises(FoundError, match="connections: api holds 40"):
        asyncio.run(run(5.0))


@pytest.mark.parametrize("how", ["answers and closes", "resets", "stays"])
def test_a_connection_is_closed_whatever_it_said_before(how: str) -> None:
    async def serve(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if how == "answers and closes":
            writer.write(OK)
            writer.close()
        elif how == "resets":
            writer.transport.abort()

    async def run() -> bool:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        connection = await Connection.open(server.sockets[0].getsockname())
        found = await connection.is_closed(0.5)
        connection.abort()
        server.close()
        return found

    assert asyncio.run(run()) == (how != "stays")


@pytest.mark.parametrize(("coreless", "is_over"), [(0.0, True), (0.5, False), (30.0, False)])
def test_time_without_a_core_is_no_patience(
    monkeypatch: pytest.MonkeyPatch, coreless: float, is_over: bool
) -> None:
    waits = iter([{1: 5.0}, {1: 5.0 + coreless, 2: 100.0}])
    monkeypatch.setattr(machine, "waits_of", lambda _: next(waits))
    clock = iter([0.0, 10.2, 10.2])
    monkeypatch.setattr(machine, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    assert machine.Patience(10.0).is_over is is_over


def test_patience_at_most_doubles(monkeypatch: pytest.MonkeyPatch) -> None:
    waits = iter([{1: 0.0}, {1: 1_000.0}])
    monkeypatch.setattr(machine, "waits_of", lambda _: next(waits))
    clock = iter([0.0, 20.0])
    monkeypatch.setattr(machine, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    assert machine.Patience(10.0).is_over
