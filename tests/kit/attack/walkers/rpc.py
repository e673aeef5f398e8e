"""Walks at the RPC port and the endpoint mapper.

The walks have PDUs in any order, calls that do not exist, fragments, and answers that are not read.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Iterable, Iterator, Sequence
from random import Random
from typing import Any

from srmp_spark.client.remote_queue import RemoteMachine
from srmp_spark.errors import SrmpSparkError
from srmp_spark.mqrr.actions import Action
from srmp_spark.mqrr.ndr.methods import ACCESS_PEEK, SHARE_DENY_NONE
from srmp_spark.mqrr.ndr.receive import StartReceiveRequest
from srmp_spark.mqrr.ndr.transfer_syntax import NDR, NDR64
from srmp_spark.mqrr.packets.sections import ALL
from srmp_spark.mqrr.queue_format import queue_format_for
from srmp_spark.mqrr.rpc.binding import REMOTE_READ, Bind
from srmp_spark.mqrr.rpc.calls import encode_cancel, encode_orphaned, request_pieces
from srmp_spark.mqrr.rpc.limits import FRAGMENT_MAX
from srmp_spark.mqrr.rpc.negotiation import offers
from srmp_spark.mqrr.rpc.pdu import (
    CONCURRENT_MULTIPLEXING,
    FIRST_FRAGMENT,
    LAST_FRAGMENT,
    WHOLE,
    AuthTrailer,
    PduType,
    encode_pdu,
)
from tests.kit.attack.judge import OPTIONAL_MAX
from tests.kit.attack.scene import OWN, Scene
from tests.kit.attack.steps import Step
from tests.kit.attack.walkers import subqueues
from tests.kit.attack.walkers.playing import ADDRESSES, MUTATOR
from tests.kit.attack.wire import ClosedError, Connection, cut

PDUS = (
    "bind",
    "request",
    "request",
    "first",
    "middle",
    "last",
    "cancel",
    "orphaned",
    "alter",
    "auth3",
    "octets",
)
PEEKS = 60
"""Calls that a reader has in progress at the same time. The limit CALLS_MAX is 64."""
IDLE_MAX = 2_300
"""Most connections that one step opens: more than the port has room for."""
LINES = (0, 1, 8, 40)
"""Numbers of connections to draw from for one flood, each after a bind.

With 0 the flood is sent over a connection of the walk.
"""
TOGETHER = 64
"""Most PDUs of a flood that are written together, as one piece."""
FLOOD_BYTES = 32_000_000
"""Most bytes of one flood over one connection: about 2 million cancels."""
FLOODS_BYTES = 320_000_000
"""Most bytes of one flood over all its connections."""
FLOOD_SECONDS = OPTIONAL_MAX + 5.0
"""Longest time, in seconds, of a flood over separate connections.

The time is longer than a good client waits.
"""
CUT_PIECES = 64
"""Number of pieces at the beginning of a flood that may be cut into smaller ones."""
HELD_FRAGMENT = 60_000
"""Bytes of each fragment of a request whose last fragment is never sent."""
UNREAD_SECONDS = 1.5
"""Seconds for which a reader sends requests and reads no answers."""


class RpcWalker:
    """Plans walks at one port of DCE/RPC."""

    at_once = 1
    is_awaited = False

    def __init__(self, port: str) -> None:
        """Make the walker for ``port``: ``rpc`` or ``mapper``."""
        self.port = port

    def plan(self, rng: Random) -> Sequence[Step]:
        """Return steps with PDUs on a few connections; most walks begin with a bind."""
        steps = [self._pdu(rng, "bind")] if rng.random() < 0.9 else []
        return steps + [self._step(rng) for _ in range(rng.choice((3, 10, 40)))]

    def _step(self, rng: Random) -> Step:
        calls = (2, 4) if self.port == "rpc" else (0, 0)
        kind = rng.choices(
            ("pdu", "flood", "idle", "hold", "unread", "subqueues"), (100, 6, 5, 3, *calls)
        )[0]
        if kind == "idle":
            given = {
                "count": rng.choice((5, 100, 600, IDLE_MAX, IDLE_MAX)),
                "bound": rng.random() < 0.5,
                "seconds": rng.choice((0.0, 0.5, 2.0, 15.0, 15.0, 15.0)),
                "who": rng.choice(ADDRESSES),
            }
            return Step("idle", given)
        if kind == "unread":
            return Step("unread", {"count": rng.choice((1, 4, 8)), "peeks": PEEKS})
        if kind == "subqueues":
            return Step("subqueues", subqueues.drawn(rng))
        if kind == "hold":
            return Step(
                "hold",
                {
                    "count": rng.choice((4, 40, 400, 400)),
                    "bytes": rng.choice((60_000, 1_000_000, 4_000_000, 4_000_000)),
                    "seconds": rng.choice((0.0, 2.0)),
                    "who": rng.choice(ADDRESSES),
                },
            )
        step = self._pdu(rng, rng.choice(PDUS))
        if kind == "flood":
            if rng.random() < 0.3:
                return Step(
                    "flood",
                    {**step.given, "what": "cancel", "count": 1_000_000, "lines": LINES[-1]},
                )
            what = rng.choice((*PDUS, "cancel", "cancel"))
            count, lines = rng.choice((200, 5_000, 40_000, 1_000_000)), rng.choice(LINES)
            return Step("flood", {**step.given, "what": what, "count": count, "lines": lines})
        return step

    def _pdu(self, rng: Random, what: str) -> Step:
        given: dict[str, Any] = {
            "conn": rng.choice("ab"),
            "who": rng.choice(ADDRESSES),
            "what": what,
            "call": rng.choice((1, 1, 2, 3, 4, 9, 2**31 - 1)),
            "opnum": rng.randrange(20),
            "context": rng.choice((0, 0, 0, 1, 7)),
            "size": rng.choice((0, 20, 200, 5_000, 60_000)),
            "read": rng.random() < 0.5,
            "level": rng.choice((0, 0, 0, 0, 2, 5, 6, 99)),
            "auth": rng.choice((9, 10, 16, 255)),
        }
        if rng.random() < 0.2:
            given["cut"] = rng.randrange(1 << 30)
        if rng.random() < 0.2:
            given["mutated"] = rng.randrange(1 << 30)
        return Step("pdu", given)

    def player(self, scene: Scene) -> RpcPlayer:
        """Return a player for one walk."""
        return RpcPlayer(scene, self.port)


class RpcPlayer:
    """Plays walks at one port of DCE/RPC."""

    def __init__(self, scene: Scene, port: str) -> None:
        self.scene = scene
        self._port = port
        self._connections: dict[str, Connection] = {}
        self._calls = 1

    async def close(self) -> None:
        """Close every connection of the player."""
        for each in self._connections.values():
            each.abort()
        self._connections.clear()

    async def play(self, step: Step) -> None:
        """Play one step of the walk. Refusals and closed connections are no finding."""
        given = step.given
        if step.kind == "idle":
            await self._idle(given)
        elif step.kind == "hold":
            await self._hold(given)
        elif step.kind == "unread":
            await asyncio.gather(
                *(asyncio.to_thread(self._unread, given["peeks"]) for _ in range(given["count"]))
            )
        elif step.kind == "subqueues":
            read = functools.partial(
                subqueues.read, self.scene.ports["rpc"], given, count=self._count
            )
            await asyncio.gather(
                *(asyncio.to_thread(read, reader=number) for number in range(given["readers"]))
            )
        elif given.get("lines"):
            await asyncio.gather(*(self._flood(given) for _ in range(given["lines"])))
        else:
            count = given.get("count", 1)
            together = min(count, TOGETHER)
            raw = b"".join(self._raw(given) for _ in range(together))
            await self._say(given, _flood_of(raw, count, FLOOD_BYTES), together)

    def _count(self) -> None:
        self.scene.requests["rpc"] += 1

    async def _idle(self, given: Any) -> None:  # noqa: ANN401  # a mapping of JSON values
        opened: list[Connection] = []
        with contextlib.suppress(ClosedError):
            for _ in range(given["count"]):
                self.scene.requests[self._port] += 1
                connection = await Connection.open(self.scene.ports[self._port], given["who"])
                opened.append(connection)
                if given["bound"]:
                    await connection.send([bind_pdu(0, 10)])
        await asyncio.sleep(given["seconds"])
        for each in opened:
            each.abort()

    async def _hold(self, given: Any) -> None:  # noqa: ANN401  # a mapping of JSON values
        """Send fragments of one request on each of many connections, but never the last fragment.

        The connections stay open for a while and are then closed.
        """
        opened: list[Connection] = []
        (piece,) = request_pieces(0, 1, bytes(HELD_FRAGMENT), fragment=65_535)
        middle = piece.body
        with contextlib.suppress(ClosedError):
            for _ in range(given["count"]):
                connection = await Connection.open(self.scene.ports[self._port], given["who"])
                opened.append(connection)
                await connection.send(
                    [bind_pdu(0, 10), encode_pdu(PduType.REQUEST, FIRST_FRAGMENT, 2, middle)]
                )
        rest = encode_pdu(PduType.REQUEST, 0, 2, middle)
        for _ in range(given["bytes"] // HELD_FRAGMENT):
            for each in opened:
                self.scene.requests[self._port] += 1
                with contextlib.suppress(ClosedError):
                    await each.send([rest])
        await asyncio.sleep(given["seconds"])
        for each in opened:
            each.abort()

    async def _flood(self, given: Any) -> None:  # noqa: ANN401  # a mapping of JSON values
        """Send one PDU again and again over a separate connection, after a bind."""
        count = given["count"]
        together = min(count, TOGETHER)
        piece = self._raw(given) * together
        most = min(FLOOD_BYTES, FLOODS_BYTES // given["lines"])
        with contextlib.suppress(ClosedError, asyncio.TimeoutError):
            connection = await Connection.open(self.scene.ports[self._port], given["who"])
            try:
                await connection.send([bind_pdu(0, 10)])
                pieces = self._counted(_flood_of(piece, count, most), together)
                await asyncio.wait_for(connection.send(pieces), FLOOD_SECONDS)
            finally:
                connection.abort()

    def _counted(self, pieces: Iterable[bytes], together: int) -> Iterator[bytes]:
        """Yield ``pieces`` and count the PDUs that are really written, ``together`` in each piece.

        Most connections end before the flood does.
        """
        for piece in pieces:
            self.scene.requests[self._port] += together
            yield piece

    async def _say(self, given: Any, pieces: list[bytes], together: int) -> None:  # noqa: ANN401  # a mapping of JSON values
        name = f"{given['conn']} {given['who']}"
        if "mutated" in given:
            pieces = [MUTATOR.mutate(pieces[0], Random(given["mutated"]))]
        said: Iterator[bytes] = self._counted(pieces, together)
        if "cut" in given:
            said = (
                part
                for number, piece in enumerate(said)
                for part in (cut(piece, Random(given["cut"])) if number < CUT_PIECES else (piece,))
            )
        try:
            connection = self._connections.get(name)
            if connection is None:
                connection = self._connections[name] = await Connection.open(
                    self.scene.ports[self._port], given["who"]
                )
            await asyncio.wait_for(connection.send(said), 10.0)
            if given["read"] and await connection.is_closed(0.05):
                self._connections.pop(name).abort()
        except (ClosedError, asyncio.TimeoutError):
            found = self._connections.pop(name, None)
            if found is not None:
                found.abort()

    def _raw(self, given: Any) -> bytes:  # noqa: ANN401  # a mapping of JSON values
        what, call = given["what"], given["call"]
        if what == "bind":
            return bind_pdu(given["level"], given["auth"])
        if what == "alter":
            return bind_pdu(given["level"], given["auth"], PduType.ALTER_CONTEXT)
        if what == "cancel":
            return encode_cancel(call)
        if what == "orphaned":
            return encode_orphaned(call)
        if what == "auth3":
            trailer = AuthTrailer(
                given["auth"], given["level"], 0, b"t" * (1 + given["size"] % 3_000)
            )
            return encode_pdu(PduType.AUTH3, WHOLE, call, bytes(4), trailer)
        if what == "octets":
            return Random(call).randbytes(given["size"])
        flags = {"request": WHOLE, "first": FIRST_FRAGMENT, "middle": 0, "last": LAST_FRAGMENT}[
            what
        ]
        if what in ("request", "first"):
            self._calls += 1
            call = self._calls
        (piece,) = request_pieces(
            given["context"], given["opnum"], bytes(given["size"]), fragment=65_535
        )
        return encode_pdu(PduType.REQUEST, flags, call, piece.body)

    def _unread(self, peeks: int) -> None:
        """Request a large message ``peeks`` times on one connection, and read no answer.

        The connection is closed after :data:`UNREAD_SECONDS`. The call blocks its thread.
        """
        import time

        with (
            contextlib.suppress(SrmpSparkError),
            RemoteMachine.connect(*self.scene.ports["rpc"]) as machine,
        ):
            queue = machine.open(queue_format_for("127.0.0.1", OWN), ACCESS_PEEK, SHARE_DENY_NONE)
            for number in range(1, peeks + 1):
                self.scene.requests["rpc"] += 1
                machine.begin(
                    7,
                    StartReceiveRequest(
                        queue.handle,
                        action=Action.PEEK_CURRENT,
                        request_id=number,
                        max_body_size=ALL,
                        max_compound_message_size=ALL,
                    ),
                    more=number < peeks,
                )
            time.sleep(UNREAD_SECONDS)


def _flood_of(raw: bytes, count: int, most: int) -> list[bytes]:
    """Return the pieces of a flood of ``count`` PDUs; each piece is ``raw``.

    ``raw`` holds up to TOGETHER PDUs. The flood is shorter if it would exceed ``most`` bytes, but
    has at least one piece.
    """
    return [raw] * max(1, min(count // TOGETHER, most // max(1, len(raw))))


def bind_pdu(level: int, auth: int, kind: PduType = PduType.BIND) -> bytes:
    """Return the bytes of a bind PDU for remote read.

    If ``level`` is not 0, the bind has an invalid sign-in token of the type ``auth``, else no
    token.
    """
    contexts = tuple(offers(REMOTE_READ, (NDR, NDR64), 3))
    trailer = AuthTrailer(auth, level, 0, b"NTLMSSP\0" + bytes(24)) if level else None
    body = Bind(FRAGMENT_MAX, FRAGMENT_MAX, 0, contexts).encode()
    return encode_pdu(kind, WHOLE | CONCURRENT_MULTIPLEXING, 1, body, trailer)
