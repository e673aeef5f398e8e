"""A walk through a queue of another machine: one peek for each message, many of them in flight.

Theory of operation. A round is several peeks that are sent together. While one round is answered
the next one is already in flight, so neither machine waits for the other. The other machine may
execute the calls in any order and in several threads. But each call moves the cursor on, and a
cursor only moves forwards: by priority and arrival ([MS-MQDMPR] 3.1.7.1.14). So a message can be
returned when no call in flight can find a message before it. A call that is sent after a round was
fully answered finds only messages after that round. With two rounds in flight this is true one
round later. So the messages are returned in the order of the queue.

A connection that allows one call at a time gets one. The same is done if the machine answers
ILLEGAL_CURSOR_ACTION, because another call waits at the cursor for a message to arrive. The
messages of that round are returned, and the refused calls are made again.
"""

from __future__ import annotations

import contextlib
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from srmp_spark.errors import RemoteLostError, RemoteProtocolError, RemoteReadError
from srmp_spark.mqrr.actions import Action
from srmp_spark.mqrr.client.queue_calls import NOTHING
from srmp_spark.mqrr.lookup_identifier import not_ascending
from srmp_spark.mqrr.ndr.receive import StartReceiveResponse
from srmp_spark.mqrr.packets.message_packet import MessagePacket
from srmp_spark.mqrr.packets.sections import join_sections, whole_packet
from srmp_spark.mqrr.status import Status

PEEKS_OF_A_ROUND = 16
"""Peeks of one round.

The peeks of a round share one round trip and one activation of the other machine.
"""
ROUNDS_AT_ONCE = 2
"""Rounds in flight: one is answered while the other is being sent.

At most two rounds of messages of 4 MB wait in memory: the one that was just received, and the one
before it that is not yet returned.
"""
Later = Callable[[], StartReceiveResponse]
"""A call in flight, as a function that waits for its answer."""
Unreadable = Callable[[RemoteProtocolError], object]


class Shown(NamedTuple):
    """One message that a peek or a read of a remote queue returned."""

    packet: MessagePacket
    sequence_id: int
    """Low seven bytes of the message's lookup identifier."""
    arrived_at: int
    """Time of arrival in seconds since 1970, UTC, by the other machine's clock."""
    raw: bytes
    """The packet as received. Only its first part if less than the whole packet was requested."""


def shown(answer: StartReceiveResponse) -> Shown:
    """Parse the message of a successful answer.

    Raises :class:`RemoteProtocolError` if the message is broken; read it again then.
    """
    if not answer.sections:
        raise RemoteProtocolError("a message without sections", section="[MS-MQRR] 2.2.6")
    packet = join_sections(answer.sections)
    raw = answer.sections[0].data if packet.missing else whole_packet(answer.sections)[0]
    return Shown(packet, answer.sequence_id, answer.arrive_time, raw)


def _shown_or_why_not(answer: StartReceiveResponse) -> Shown | RemoteProtocolError:
    try:
        return shown(answer)
    except RemoteProtocolError as error:
        return error


def walk(
    peek: Callable[[Action, int], Sequence[Later]],
    calls_at_once: int,
    refused: Callable[[int], RemoteReadError],
    unreadable: Unreadable | None,
) -> Iterator[Shown]:
    """Yield the messages that ``peek`` finds, in the order of the queue.

    ``peek(action, count)`` sends ``count`` calls with one cursor. ``refused`` builds the error for
    a status that is not a success. ``unreadable`` is called for a broken message, which is then
    skipped; without ``unreadable`` the error is raised. Raises the errors that ``refused`` builds,
    :class:`RemoteReadError`, :class:`RemoteLostError` and :class:`RemoteProtocolError`.
    """
    size = min(PEEKS_OF_A_ROUND, calls_at_once // ROUNDS_AT_ONCE) or 1
    rounds = ROUNDS_AT_ONCE if size > 1 else 1
    under_way = deque([deque(peek(Action.PEEK_CURRENT, 1))])
    held, ended, broken = _InOrder(), False, None
    try:
        while under_way and broken is None:
            alone = sum(map(len, under_way)) == 1
            answers: list[StartReceiveResponse] = []
            while under_way[0]:
                answers.append(under_way[0].popleft()())
            del under_way[0]
            if not alone and any(
                each.status == Status.MQ_ERROR_ILLEGAL_CURSOR_ACTION for each in answers
            ):
                answers = [
                    each for each in answers if each.status != Status.MQ_ERROR_ILLEGAL_CURSOR_ACTION
                ]
                size = rounds = 1
            for each in answers:
                if each.status != Status.MQ_OK and each.status not in NOTHING:
                    raise refused(each.status)
            found = [each for each in answers if each.status == Status.MQ_OK]
            ended = ended or len(found) < len(answers)
            while not ended and len(under_way) < rounds:
                under_way.append(deque(peek(Action.PEEK_NEXT, size)))
            broken = held.add(found, unreadable)
            if broken is None:
                yield from held.ready(all_of_them=not under_way)
    finally:
        # The other answers are discarded, so that the next call does not wait behind them.
        for later in (each for calls in under_way for each in calls):
            with contextlib.suppress(RemoteReadError, RemoteLostError):
                later()
    if broken is not None:
        yield from held.ready(all_of_them=True)
        raise broken


class _InOrder:
    """Holds messages until no call in flight can find a message before them.

    A *place* is the position of a message in the queue (priority, then arrival).
    """

    def __init__(self) -> None:
        self._held: list[Shown] = []
        self._highest = _BEFORE_ALL
        """Highest place of all rounds that were added."""
        self._safe = _BEFORE_ALL
        """Highest place of all rounds but the last one.

        Calls in flight find only messages after this place.
        """

    def add(
        self, found: list[StartReceiveResponse], unreadable: Unreadable | None
    ) -> RemoteProtocolError | None:
        """Add the answers of a round; return the error with which the walk ends, or ``None``.

        The walk ends at a broken message (without ``unreadable``), or if the cursor does not
        ascend.
        """
        told, self._safe = self._safe, self._highest
        held = set(map(_place, self._held))
        for each in map(_shown_or_why_not, found):
            if isinstance(each, Shown):
                place = _place(each)
                # These calls were sent when all rounds before the last one were answered. So each
                # of them finds one message after those rounds.
                if place <= told or place in held:
                    return not_ascending(_named(place), _named(max(told, place)))
                held.add(place)
                self._held.append(each)
                self._highest = max(self._highest, place)
            elif unreadable is None:
                return each
            else:
                unreadable(each)
        return None

    def ready(self, *, all_of_them: bool) -> list[Shown]:
        """Remove and return the messages that no call in flight can precede, in order.

        With ``all_of_them`` all messages that are held are returned.
        """
        self._held.sort(key=_place)
        count = len(self._held) if all_of_them else bisect_right(self._held, self._safe, key=_place)
        ready, self._held = self._held[:count], self._held[count:]
        return ready


_BEFORE_ALL = (-256, -1)


def _place(each: Shown) -> tuple[int, int]:
    return -each.packet.priority, each.sequence_id


def _named(place: tuple[int, int]) -> str:
    return f"{place[1]} of priority {-place[0]}"
