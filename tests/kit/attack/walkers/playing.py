"""The common part of all walkers and players.

The module draws steps, keeps connections by name, and sends requests of HTTP.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from random import Random
from typing import Any, Protocol

from tests.kit.attack.judge import ANSWER_MAX, Finding, FoundError, check_status
from tests.kit.attack.scene import Scene
from tests.kit.attack.steps import Step
from tests.kit.attack.wire import Answer, ClosedError, Connection, SilentError, cut
from tests.kit.fuzz.mutators import HTTP, JSON, MARKUP, Mutator

ADDRESSES = ("127.0.0.2", "127.0.0.3", "127.0.0.4")
"""Loopback addresses of the attackers.

Good clients have other addresses (:mod:`tests.kit.attack.witness`).
"""
EVICTED_SECONDS = 3.0
"""Shortest time, in seconds, after which a step counts the idle connections that it keeps.

By then the port should have closed the excess connections.
"""
CLOSED_SECONDS = 10.0
"""Seconds within which a full port must have closed the excess connections.

A connection in the kernel's backlog looks open until the port accepts it. A port that other walkers
attack accepts late.
"""
CLOSED_POLL_SECONDS = 0.25
IDLE_MAX = 1_500
"""Most connections that one step opens and leaves idle."""
MUTANT_SECONDS = 0.3
"""Seconds to wait for the answer to a mutated request.

The length in a mutated request may be larger than the content. Then the port sends no answer.
"""
MUTATOR = Mutator([b"<a/>", b'{"a":1}', b"POST / HTTP/1.1\r\n"], [*MARKUP, *HTTP, *JSON])


class Player(Protocol):
    """Plays the steps of one walk."""

    async def play(self, step: Step) -> None:
        """Play one step. Raises :class:`FoundError` for an event that must not happen."""

    async def close(self) -> None:
        """Close every connection of the player."""


class Walker(Protocol):
    """Plans walks for one port."""

    port: str
    """The walker's name in the summary, in files of findings, and for ``--port``."""
    at_once: int
    """Number of this walker's walks that are played at the same time."""
    is_awaited: bool
    """Whether the walks wait for effects in the target. The other walks continue meanwhile."""

    def plan(self, rng: Random) -> Sequence[Step]:
        """Return the steps of a walk, which depend only on ``rng``."""

    def player(self, scene: Scene) -> Player:
        """Return a new player for one walk of this walker, at the target of ``scene``."""


def how(rng: Random) -> dict[str, Any]:
    """Draw how a request is sent, as values of :attr:`.Step.given`.

    The values name the source address, the connection and the pieces, and say whether the answer is
    read.
    """
    drawn: dict[str, Any] = {"conn": rng.choice("abc"), "who": rng.choice(ADDRESSES)}
    if rng.random() < 0.2:
        drawn["cut"] = rng.randrange(1 << 30)
        drawn["pause"] = rng.choice((0.0, 0.0, 0.001, 0.05))
    if rng.random() < 0.06:
        drawn["only"] = round(rng.random(), 3)
    if rng.random() < 0.08:
        drawn["ignore"] = True
    if rng.random() < 0.1:
        drawn["new"] = True
    return drawn


def idle(rng: Random) -> Step:
    """Draw a step that opens up to :data:`IDLE_MAX` connections and keeps them for a while.

    The connections send nothing, or an incomplete request.
    """
    count = rng.choice((5, 50, 300, IDLE_MAX, IDLE_MAX))
    said = rng.choice(
        ("", "POST / HT", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9999\r\n\r\nx")
    )
    seconds = rng.choice((0.0, 0.5, EVICTED_SECONDS, EVICTED_SECONDS))
    return Step(
        "idle", {"count": count, "said": said, "seconds": seconds, "who": rng.choice(ADDRESSES)}
    )


async def check_open(port: str, opened: Sequence[Connection], most: int) -> None:
    """Wait until at most ``most`` of the connections ``opened`` are open.

    An eighth more is tolerated, for connections that are being opened or closed. Raises
    :class:`FoundError` if more are still open after :data:`CLOSED_SECONDS`. With ``most`` 0 nothing
    is checked.
    """
    ends_at = time.monotonic() + CLOSED_SECONDS
    while len(opened) > most + most // 8 and most:
        closed = await asyncio.gather(*(each.is_closed(CLOSED_POLL_SECONDS) for each in opened))
        if (count := closed.count(False)) <= most + most // 8:
            break
        if time.monotonic() > ends_at:
            raise FoundError(
                Finding(
                    "connections",
                    f"{port} holds {count} connections of one client, its limit is {most}",
                )
            )


class HttpPlayer:
    """A player with named connections to one port that speaks HTTP; the base of such players."""

    port = ""
    connections_max = 0
    """Most connections that the port holds; 0 if one step cannot exceed the limit."""
    allowed = frozenset(
        (200, 202, 400, 401, 403, 404, 405, 408, 411, 413, 414, 415, 417, 429, 431, 501, 503, 505)
    )
    """HTTP statuses that the port may answer; any other is a finding."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self._connections: dict[str, Connection] = {}
        self._idle: list[Connection] = []

    async def close(self) -> None:
        """Close every connection of the player."""
        for each in (*self._connections.values(), *self._idle):
            each.abort()
        self._connections.clear()
        self._idle.clear()

    async def stay_idle(self, given: Mapping[str, Any]) -> None:
        """Open connections that send nothing useful, keep them for a while, and close them.

        Raises :class:`FoundError` if the port keeps more connections than its limit.
        """
        address, said = self.scene.ports[self.port], str(given["said"]).encode()
        for _ in range(int(given["count"])):
            self.scene.requests[self.port] += 1
            try:
                connection = await Connection.open(address, given["who"])
                self._idle.append(connection)
                if said:
                    await connection.send([said])
            except ClosedError:
                break
        await asyncio.sleep(float(given["seconds"]))
        if given["seconds"] >= EVICTED_SECONDS:
            await check_open(self.port, self._idle, self.connections_max)
        for each in self._idle:
            each.abort()
        self._idle.clear()

    async def request(self, raw: bytes, given: Mapping[str, Any], sent: str) -> Answer | None:
        """Send a request in the way that ``given`` says (see :func:`how`), and return its answer.

        The result is ``None`` if the answer is not awaited, or if the connection ended. ``sent``
        describes the request in a finding. Raises :class:`FoundError` if the port stays silent or
        answers a status that is not allowed.
        """
        self.scene.requests[self.port] += 1
        name = f"{given['conn']} {given['who']}"
        if given.get("new") and name in self._connections:
            self._connections.pop(name).abort()
        is_part = "only" in given
        if is_part:
            raw = raw[: int(len(raw) * float(given["only"]))]
        pieces = cut(raw, Random(given["cut"])) if "cut" in given else [raw]
        try:
            connection = self._connections.get(name)
            if connection is None:
                connection = await Connection.open(self.scene.ports[self.port], given["who"])
                self._connections[name] = connection
            await connection.send(pieces, float(given.get("pause", 0.0)))
            if is_part or given.get("ignore"):
                # A later answer on this connection belongs to no step, so the connection is not
                # used again.
                await asyncio.sleep(0)
                self._connections.pop(name).abort()
                return None
            answer = await connection.answer(MUTANT_SECONDS if "mutated" in given else ANSWER_MAX)
        except ClosedError:
            self._drop(name)
            return None
        except SilentError as error:
            self._drop(name)
            if "mutated" in given:
                # The length in the mutated request is probably larger than its content.
                return None
            raise FoundError(Finding("silent", f"{self.port}: {error} to {sent}")) from None
        if "mutated" in given or answer.headers.get("connection", "").lower() == "close":
            # The length in a mutated request may be larger than its content. The next request on
            # the connection would become part of its body.
            self._drop(name)
        check_status(self.port, answer.status, self.allowed, sent)
        return answer

    def _drop(self, name: str) -> None:
        connection = self._connections.pop(name, None)
        if connection is not None:
            connection.abort()

    async def pipeline(
        self, raws: Sequence[bytes], given: Mapping[str, Any], *, reads: bool = True
    ) -> None:
        """Send requests one after the other on a separate connection, and close it.

        If ``reads`` is true, the answers are read meanwhile, else never. The call ends early if the
        connection ends or nothing more is accepted. Raises :class:`FoundError` for a status that is
        not allowed.
        """
        connection = await self._try_open(given["who"], reads=reads)
        if connection is None:
            return
        reading = asyncio.ensure_future(self._read_all(connection, len(raws))) if reads else None
        try:
            with contextlib.suppress(ClosedError):
                await asyncio.wait_for(connection.send(self._counted(raws)), 20.0)
            if reading is not None:
                await asyncio.wait_for(reading, 60.0)
            else:
                await asyncio.sleep(1.0)
        except asyncio.TimeoutError:
            pass
        finally:
            if reading is not None:
                reading.cancel()
            connection.abort()

    def _counted(self, raws: Sequence[bytes]) -> Iterator[bytes]:
        for raw in raws:
            self.scene.requests[self.port] += 1
            yield raw

    async def _try_open(self, who: str, *, reads: bool = True) -> Connection | None:
        try:
            return await Connection.open(self.scene.ports[self.port], who, reads=reads)
        except ClosedError:
            return None

    async def _read_all(self, connection: Connection, count: int) -> None:
        with contextlib.suppress(ClosedError, SilentError):
            for _ in range(count):
                answer = await connection.answer(20.0)
                check_status(
                    self.port, answer.status, self.allowed, "one of many requests behind each other"
                )


def http_request(method: str, target: str, content: bytes, headers: Mapping[str, str]) -> bytes:
    """Return the bytes of an HTTP request with the right Content-Length."""
    lines = [
        f"{method} {target} HTTP/1.1",
        *(f"{name}: {value}" for name, value in headers.items()),
    ]
    lines.append(f"Content-Length: {len(content)}")
    return "\r\n".join((*lines, "", "")).encode("latin-1", "replace") + content
