"""A walk through a queue of another machine: a peek for each message, many of them under way, told in the order of the queue.

Theory of operation. A round is some peeks that leave together. While one round is answered the next one is on its way already,
so neither machine waits for the other. The other machine may carry out its calls in any order, by several threads, but each
moves the cursor on, and a cursor only goes on: by priority and arrival ([MS-MQDMPR] 3.1.7.1.14). So a message is told when no
call can still find one before it: a call that leaves after a round was answered whole finds what is behind all of that round.
With two rounds under way that is one round later.

A connection that takes one call at a time gets one. So does a machine that answers ILLEGAL_CURSOR_ACTION, because another call
waits at the cursor for what is about to come: what that call found is told, the refused ones are made again.
"""

from __future__ import annotations

import contextlib
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from srmp_spark.errors import RemoteLostError, RemoteProtocolError, RemoteReadError
from srmp_spark.mqrr.actions import Action
from srmp_spark.mqrr.lookup_identifier import not_ascending
from srmp_spark.mqrr.ndr.receive import StartReceiveResponse
from srmp_spark.mqrr.packets.message_packet import MessagePacket
from srmp_spark.mqrr.packets.sections import join_sections, whole_packet
from srmp_spark.mqrr.status import Status

PEEKS_OF_A_ROUND = 16
"""One round trip, and one turn of the other machine, for all of them."""
ROUNDS_AT_ONCE = 2
"""One is answered while the other is on its way. What waits here at most is two rounds of messages of 4 MB: one that just came,
and the one before it, which is not told yet."""
EMPTY = (Status.MQ_ERROR_IO_TIMEOUT, Status.MQ_ERROR_MESSAGE_NOT_FOUND)
"""Both are "nothing more": which one depends on whether a cursor was used."""

Later = Callable[[], StartReceiveResponse]
"""A call that was made: waits for its answer."""
Unreadable = Callable[[RemoteProtocolError], object]


class Shown(NamedTuple):
    """A message that a read returned."""

    packet: MessagePacket
    sequence_id: int
    """The low seven bytes of its lookup identifier."""
    arrived_at: int
    """Seconds since 1970, UTC, by the other machine's clock."""
    raw: bytes
    """The packet as it came; its first part, if less than all of it was asked for."""


def shown(answer: StartReceiveResponse) -> Shown:
    """The message of a good answer. Raises :class:`RemoteProtocolError` for one that does not hold together: read it again."""
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
    """The messages that ``peek`` (so many calls with one cursor) finds. ``refused`` makes the error of a status.

    ``unreadable`` is told of a message that does not hold together, which is passed over then; without it that is raised.
    Raises what ``refused`` gives, :class:`RemoteReadError`, :class:`RemoteLostError`.
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
                if each.status != Status.MQ_OK and each.status not in EMPTY:
                    raise refused(each.status)
            found = [each for each in answers if each.status == Status.MQ_OK]
            ended = ended or len(found) < len(answers)
            while not ended and len(under_way) < rounds:
                under_way.append(deque(peek(Action.PEEK_NEXT, size)))
            broken = held.add(found, unreadable)
            if broken is None:
                yield from held.ready(all_of_them=not under_way)
    finally:
        for later in (
            each for calls in under_way for each in calls
        ):  # nobody wants the rest: the next call is not behind it
            with contextlib.suppress(RemoteReadError, RemoteLostError):
                later()
    if broken is not None:
        yield from held.ready(all_of_them=True)
        raise broken


class _InOrder:
    """Messages that are not told yet."""

    def __init__(self) -> None:
        self._held: list[Shown] = []
        self._highest = _BEFORE_ALL
        """Of the rounds that were added …"""
        self._safe = _BEFORE_ALL
        """… but the last one: what is under way finds what is behind this."""

    def add(
        self, found: list[StartReceiveResponse], unreadable: Unreadable | None
    ) -> RemoteProtocolError | None:
        """Add the answers of a round. Return what is wrong with the one that ends the walk: it does not hold together, or the
        cursor does not go on."""
        told, self._safe = self._safe, self._highest
        held = set(map(_place, self._held))
        for each in map(_shown_or_why_not, found):
            if isinstance(each, Shown):
                place = _place(each)
                # These calls left when all before the last round was answered: they find what is behind that, each once.
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
        """Those that no call under way can find one before, in order."""
        self._held.sort(key=_place)
        count = len(self._held) if all_of_them else bisect_right(self._held, self._safe, key=_place)
        ready, self._held = self._held[:count], self._held[count:]
        return ready


_BEFORE_ALL = (-256, -1)


def _place(each: Shown) -> tuple[int, int]:
    return -each.packet.priority, each.sequence_id


def _named(place: tuple[int, int]) -> str:
    return f"{place[1]} of priority {-place[0]}"
