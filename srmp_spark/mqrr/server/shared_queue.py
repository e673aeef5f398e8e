"""One queue as its remote readers share it: who has it open, what is locked, who waits ([MS-MQDMPR] 3.1.7.1.5, 3.1.7.3)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from srmp_spark.mqrr.actions import Action
from srmp_spark.mqrr.lookup_identifier import sequence_of
from srmp_spark.mqrr.ndr.methods import ACCESS_MOVE, ACCESS_RECEIVE, SHARE_DENY_NONE
from srmp_spark.mqrr.server.cursors import Cursor, CursorState
from srmp_spark.mqrr.server.effects import QueueView
from srmp_spark.mqrr.server.position_states import PositionEvent, PositionState, moved
from srmp_spark.mqrr.server.positions import START, Came, Positions
from srmp_spark.mqrr.server.requests import Request
from srmp_spark.mqrr.status import Status


@dataclass(slots=True, eq=False)
class OpenQueue:
    """OpenQueueDescriptor: what a context handle stands for."""

    queue: SharedQueue
    access: int
    share: int
    cursors: dict[int, Cursor] = field(default_factory=dict)
    requests: dict[int, Request] = field(default_factory=dict)
    """PendingRequestTable, by dwRequestId: from the call to the end."""
    unsettled: set[Request] = field(default_factory=set)
    """Ended by the reader; the store or a transaction has not decided yet."""
    closed: bool = False
    move_context: int | None = None
    """What R_MoveMessage calls it by; of a handle that was opened to move messages there."""
    stale: Status | None = None
    """Why nothing can be done with it any more but closing it."""

    @property
    def may_receive(self) -> bool:
        """RECEIVE_ACCESS."""
        return self.access == ACCESS_RECEIVE

    @property
    def may_read(self) -> bool:
        """Any but MQ_MOVE_ACCESS."""
        return self.access != ACCESS_MOVE

    def at_cursor(self, cursor: Cursor, action: Action) -> Status:
        """Whether ``action`` can be done at a cursor: it may have been closed since it was found, and another call may wait."""
        if self.cursors.get(cursor.handle) is not cursor:
            return Status.MQ_ERROR_OPERATION_CANCELLED
        if cursor.is_waiting or (action is Action.PEEK_NEXT and cursor.state is CursorState.UNREAD):
            return Status.MQ_ERROR_ILLEGAL_CURSOR_ACTION
        return Status.MQ_OK


@dataclass(slots=True, eq=False)
class Waiter:
    """A request that waits, and whose it is."""

    descriptor: OpenQueue
    request: Request


@dataclass(slots=True, frozen=True)
class Sought:
    """A message, or why there is none."""

    lookup_id: int | None = None
    status: Status = Status.MQ_OK


class SharedQueue:
    """One queue."""

    __slots__ = ("_positions", "_states", "descriptors", "view", "waiting")

    def __init__(self, view: QueueView, positions: Positions | None = None) -> None:
        self.view = view
        self.descriptors: list[OpenQueue] = []
        self.waiting: list[Waiter] = []
        """In the order in which they came."""
        self._positions = Positions() if positions is None else positions
        """Messages that are ``AVAILABLE``, and some that have left the queue and that nobody has come upon. What somebody holds
        is not here: however much it is, nobody passes by it message by message."""
        self._states: dict[int, PositionState] = {}
        """Of messages that are neither ``AVAILABLE`` nor ``GONE``."""

    # --- who has it open ----------------------------------------------------------------------------------------------------

    def conflict(self, access: int, share: int) -> bool:
        """Whether those who have it open forbid this: the three cases of 3.1.7.1.5."""
        receives, exclusive = access == ACCESS_RECEIVE, share != SHARE_DENY_NONE
        present = {
            (each.may_receive, each.share != SHARE_DENY_NONE)
            for each in self.descriptors
            if each.stale is None
        }
        if (True, True) in present:
            return exclusive or receives
        if (False, True) in present:
            return receives
        return (True, False) in present and exclusive

    @property
    def has_receivers(self) -> bool:
        """Whether a living handle may receive."""
        return any(each.may_receive and each.stale is None for each in self.descriptors)

    # --- what is in it ------------------------------------------------------------------------------------------------------

    def came(self, runs: Iterable[Came]) -> None:
        """Messages came, behind all of their priority that are here."""
        self._positions.add(runs)

    def state_of(self, lookup_id: int) -> PositionState:
        """Of any identifier."""
        found = self._states.get(lookup_id)
        if (
            found is not None
            and found is not PositionState.STORING
            and self.view.has_left(sequence_of(lookup_id))
        ):
            self.move(lookup_id, PositionEvent.VANISHED)
            return PositionState.GONE
        if found is not None:
            return found
        if lookup_id not in self._positions:
            return PositionState.GONE
        if self.view.has_left(sequence_of(lookup_id)):
            self._positions.remove(lookup_id)
            return PositionState.GONE
        return PositionState.AVAILABLE

    def move(self, lookup_id: int, event: PositionEvent) -> PositionState:
        """The next state of a message, which :meth:`state_of` has just told or which is not gone."""
        target = moved(self._states.get(lookup_id, PositionState.AVAILABLE), event)
        if target is PositionState.AVAILABLE or target is PositionState.GONE:
            self._states.pop(lookup_id, None)
        else:
            self._states[lookup_id] = target
        if target is PositionState.AVAILABLE:
            self._positions.put_back(lookup_id)
        else:
            self._positions.remove(lookup_id)
        return target

    def locked(self) -> tuple[int, ...]:
        """What somebody holds, or is being stored."""
        return tuple(self._states)

    def available_after(self, lookup_id: int) -> int | None:
        """Seek Available Message Position, forward (3.1.7.3.2)."""
        self._positions.drop_through(self.view.floor())
        at = self._positions.following(lookup_id)
        while (
            at is not None and self.state_of(at) is not PositionState.AVAILABLE
        ):  # it has left, and is passed by once
            at = self._positions.following(at)
        return at

    def available_before(self, lookup_id: int) -> int | None:
        """The same, backward; never past the head."""
        self._positions.drop_through(self.view.floor())
        at = self._positions.preceding(lookup_id)
        while at is not None and self.state_of(at) is not PositionState.AVAILABLE:
            at = self._positions.preceding(at)
        return at

    def head(self) -> int | None:
        """The first message that is available."""
        return self.available_after(START)

    def first_of(self, runs: Iterable[tuple[int, int]]) -> int | None:
        """The first available message of closed runs of identifiers, ascending."""
        for first, last in runs:
            found = self.available_after(first - 1)
            if found is not None and found <= last:
                return found
        return None

    def by_lookup_id(self, action: Action, lookup_id: int) -> Sought:
        """Seek Available Message Position With Id (3.1.7.3.3).

        A message that is locked is NOT_FOUND for who wants to receive it, and TRANSACTION_USAGE for who wants to look: only a
        peek tells locked from gone. The end of the queue is NOT_FOUND, where the text would return no message with MQ_OK.
        """
        state = self.state_of(lookup_id)
        if state is PositionState.GONE:
            return Sought(status=Status.MQ_ERROR_MESSAGE_NOT_FOUND)
        if action in (Action.LOOKUP_PEEK_CURRENT, Action.LOOKUP_RECEIVE_CURRENT):
            if state is PositionState.AVAILABLE:
                return Sought(lookup_id)
            if action is Action.LOOKUP_PEEK_CURRENT and state is not PositionState.PURGE_PENDING:
                return Sought(status=Status.MQ_ERROR_TRANSACTION_USAGE)
            return Sought(status=Status.MQ_ERROR_MESSAGE_NOT_FOUND)
        backward = action in (Action.LOOKUP_PEEK_PREV, Action.LOOKUP_RECEIVE_PREV)
        found = self.available_before(lookup_id) if backward else self.available_after(lookup_id)
        return (
            Sought(found) if found is not None else Sought(status=Status.MQ_ERROR_MESSAGE_NOT_FOUND)
        )

    # --- who waits ------------------------------------------------------------------------------------------------------------

    def stop_waiting(self, request: Request) -> None:
        """It waits no longer."""
        self.waiting = [each for each in self.waiting if each.request is not request]

    def __repr__(self) -> str:
        name, opened, locked = self.view.name, len(self.descriptors), len(self._states)
        return f"<SharedQueue {name} open={opened} locked={locked} waiting={len(self.waiting)}>"
