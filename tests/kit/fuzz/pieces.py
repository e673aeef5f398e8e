"""Parsers that read a connection: however bytes are cut, they must give the same events.

The bytes are fed whole, one by one, and in random pieces. The real protocol objects run in a loop
of their own, with a transport that records all writes. The inbox answers later, as the journal
does. No socket is opened.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, cast

from srmp_spark.errors import RemoteProtocolError
from srmp_spark.queue_manager.admission.requester import SenderConnection
from srmp_spark.queue_manager.posting.http_answer import PeerAnswer
from srmp_spark.queue_manager.posting.http_client import StatusExchange
from srmp_spark.queue_manager.posting.http_exchange import Exchange, LostError
from srmp_spark.queue_manager.srmp_port.chunked import ChunkedBody
from srmp_spark.queue_manager.srmp_port.request_head import RequestHead
from srmp_spark.queue_manager.srmp_port.srmp_endpoint import SrmpEndpoint
from srmp_spark.srmp.codec.http_head import check_target
from tests.kit.fuzz.judge import Outcome, ViolationError

ONE_BY_ONE_MAX = 1_200
"""Most bytes of an input that is also fed byte by byte.

A longer input is fed in pieces only, which takes a hundredth of the time.
"""
TURNS_MAX = 20_000
"""Most turns of the loop for a connection that still has something to do.

At the limit the connection counts as hung.
"""
_STATUS = re.compile(rb"HTTP/1\.1 ([0-9]{3}) ")

Pieces = Sequence[bytes]


def cut(data: bytes, rng: Random) -> list[bytes]:
    """Return ``data`` cut at random places into at most eight pieces, none of them empty."""
    places = sorted(rng.randrange(len(data) + 1) for _ in range(rng.randrange(1, 8)))
    return [
        piece
        for begin, end in zip([0, *places], [*places, len(data)], strict=True)
        if (piece := data[begin:end])
    ]


def one_by_one(data: bytes) -> list[bytes]:
    """Return the single bytes of ``data``."""
    return [data[at : at + 1] for at in range(len(data))]


def check_pieces(
    read: Callable[[Pieces], Outcome], data: bytes, whole: Outcome, rng: Random
) -> None:
    """Check that every way to cut ``data`` gives the outcome ``whole``.

    ``read`` parses the pieces. Raises :class:`ViolationError` if an outcome differs.
    """
    ways = [cut(data, rng), cut(data, rng)]
    if len(data) <= ONE_BY_ONE_MAX:
        ways.append(one_by_one(data))
    for way in ways:
        found = read(way)
        if found != whole:
            shown = (
                "byte by byte"
                if len(way) == len(data)
                else f"cut at {[len(piece) for piece in way]}"
            )
            raise ViolationError(f"whole: {_shown(whole)}; {shown}: {_shown(found)}")


def _shown(outcome: Outcome) -> str:
    return repr(outcome.value)[:400]


# --- chunked bodies -------------------------------------------------------------------------------


def read_chunked(pieces: Pieces) -> Outcome:
    """Parse a chunked body. The outcome has its content and the offset of the bytes after it.

    The outcome of a refused body has the status. The outcome of an unfinished body, which is not
    accepted, has the content so far.
    """
    body = ChunkedBody()
    fed = 0
    try:
        for piece in pieces:
            fed += len(piece)
            rest = body.feed(piece)
            if rest is not None:
                return Outcome(True, (bytes(body.content), fed - len(rest)))
    except RemoteProtocolError as error:
        return Outcome(False, error.status_hint)
    return Outcome(False, ("unfinished", bytes(body.content)))


# --- the SRMP port --------------------------------------------------------------------------------


class _Transport:
    """Records all writes of a connection."""

    def __init__(self) -> None:
        self.written = bytearray()
        self.paused = False
        self.ended = False

    def get_extra_info(self, _name: str) -> tuple[str, int]:
        return "192.0.2.7", 4711

    def write(self, data: bytes) -> None:
        self.written += data

    def write_eof(self) -> None:
        pass

    def close(self) -> None:
        self.ended = True

    def abort(self) -> None:
        self.ended = True

    def is_closing(self) -> bool:
        return self.ended

    def pause_reading(self) -> None:
        self.paused = True

    def resume_reading(self) -> None:
        self.paused = False


class _Inbox:
    """Accepts what a queue manager without queues would accept.

    The inbox answers one turn of the loop later. A body that contains ``refuse`` is refused at
    once.
    """

    def __init__(self) -> None:
        self.posts: list[tuple[bytes, bytes, bytes, int]] = []
        self.waiting = 0

    def check_target(self, target: bytes) -> None:
        check_target(target)

    def accept(
        self, connection: SenderConnection, head: RequestHead, post: bytes, head_length: int
    ) -> None:
        self.posts.append((head.target, head.headers.get(b"content-type", b""), post, head_length))
        if b"refuse" in post[head_length:]:
            connection.refuse(400, "malformed", "the test")
            return
        self.waiting += 1
        asyncio.get_running_loop().call_soon(self._acknowledge, connection)

    def _acknowledge(self, connection: SenderConnection) -> None:
        self.waiting -= 1
        # The endpoint does not read the proof.
        connection.acknowledge(cast("Any", None))


class SrmpPort:
    """Runs connections of an SRMP endpoint, one after another."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._inbox = _Inbox()
        self._endpoint = self._loop.run_until_complete(self._make())

    async def _make(self) -> SrmpEndpoint:
        return SrmpEndpoint(
            self._inbox, count_refusal=lambda status, reason: None, utc_seconds=lambda: 0.0
        )

    def read(self, pieces: Pieces) -> Outcome:
        """Feed a connection with ``pieces``, one after the other, and return its outcome.

        The outcome has the POSTs that the endpoint passed on, and the statuses of the answers.
        Status 100 is left out, because it depends on how many bytes have arrived already. The
        outcome is accepted if an answer is 200. Raises :class:`ViolationError` if the endpoint
        keeps bytes or the connection afterwards.
        """
        return self._loop.run_until_complete(self._read(pieces))

    async def _read(self, pieces: Pieces) -> Outcome:
        inbox, transport = self._inbox, _Transport()
        inbox.posts = []
        connection = self._endpoint.connection()
        connection.connection_made(cast("asyncio.Transport", transport))
        for piece in pieces:
            # Without a pause the next piece arrives at once, before scheduled callbacks run,
            # because a peer may send at any time.
            if transport.paused:
                await self._settle(lambda: transport.paused and not transport.ended)
            if transport.ended:
                break
            connection.data_received(piece)
        await self._settle(
            lambda: bool(inbox.waiting) or (transport.paused and not transport.ended)
        )
        if not transport.ended:
            connection.eof_received()
            await self._settle(lambda: bool(inbox.waiting))
        connection.connection_lost(None)
        left = (
            self._endpoint.partial_bytes,
            self._endpoint.submitted_bytes,
            len(self._endpoint.connections),
        )
        if left != (0, 0, 0):
            raise ViolationError(
                f"left behind (partial bytes, submitted bytes, connections): {left}"
            )
        statuses = tuple(
            int(status) for status in _STATUS.findall(bytes(transport.written)) if status != b"100"
        )
        return Outcome(200 in statuses, (tuple(inbox.posts), statuses))

    async def _settle(self, busy: Callable[[], bool]) -> None:
        """Run the loop until ``busy`` is false, and two turns longer.

        In these two turns the callbacks of ``call_soon`` run. Raises :class:`ViolationError` after
        :data:`TURNS_MAX` turns.
        """
        for _ in range(TURNS_MAX):
            if not busy():
                break
            await asyncio.sleep(0)
        else:
            raise ViolationError("the connection waits for itself")
        for _ in range(2):
            await asyncio.sleep(0)

    def close(self) -> None:
        """Drain the endpoint and close the loop."""
        self._loop.run_until_complete(self._endpoint.drain(0.1))
        self._loop.close()


# --- answers of peers -----------------------------------------------------------------------------


class _Owner:
    def __init__(self) -> None:
        self.answers: list[tuple[int, str, float | None]] = []
        self.losses = 0

    def answered(self, _send: object, answer: PeerAnswer) -> None:
        self.answers.append((answer.status, answer.reason, answer.retry_after))

    def on_connection_lost(self, _unanswered: object, _why: str, *, silent: bool) -> None:
        self.losses += 1


def read_answers(pieces: Pieces) -> Outcome:
    """Feed the sending side with the answers to two requests.

    The outcome has the answers that the sending side reports. Raises :class:`ViolationError` if it
    reports more than two answers, or the end of the connection twice.
    """
    owner, transport = _Owner(), _Transport()
    exchange = Exchange(cast("Any", owner))
    exchange.connection_made(cast("asyncio.Transport", transport))
    for number in (1, 2):
        exchange.post(cast("Any", number), b"")
    for piece in pieces:
        if transport.ended or not exchange.unanswered:
            break
        exchange.data_received(piece)
    if not transport.ended:
        exchange.eof_received()
        exchange.connection_lost(None)
    if owner.losses > 1 or len(owner.answers) > 2:
        raise ViolationError(
            f"{len(owner.answers)} answers to two requests, {owner.losses} ends of one connection"
        )
    answers = tuple(
        (status, reason, retry_after is not None) for status, reason, retry_after in owner.answers
    )
    return Outcome(bool(answers), answers)


class ReceiptPosts:
    """Feeds the client that posts a receipt with an answer."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()

    def read(self, pieces: Pieces) -> Outcome:
        """Feed the answer to one receipt; the outcome has status and reason, or ``failed``.

        Raises :class:`ViolationError` if the connection ended and the caller got no result.
        """
        return self._loop.run_until_complete(self._read(pieces))

    async def _read(self, pieces: Pieces) -> Outcome:
        transport = _Transport()
        exchange = StatusExchange()
        exchange.connection_made(cast("asyncio.Transport", transport))
        asked = asyncio.ensure_future(exchange.ask(b"", 60.0))
        await asyncio.sleep(0)
        for piece in pieces:
            if transport.ended:
                break
            exchange.data_received(piece)
        if not transport.ended:
            exchange.eof_received()
        exchange.connection_lost(None)
        for _ in range(TURNS_MAX):
            if asked.done():
                break
            await asyncio.sleep(0)
        else:
            raise ViolationError("the connection ended, and who waits for the answer is not told")
        try:
            answer = asked.result()
        except LostError:
            return Outcome(False, "failed")
        return Outcome(True, (answer.status, answer.reason))

    def close(self) -> None:
        """Close the event loop of this object."""
        self._loop.close()
