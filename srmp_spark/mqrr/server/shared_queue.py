"""One queue that remote readers share: its handles, locks and waiting requests.

The document is [MS-MQDMPR] 3.1.7.1.5 and 3.1.7.3.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from srmp_spark.mqrr.actions import Action
from srmp_spark.mqrr.lookup_identifier import sequence_of
from srmp_spark.mqrr.ndr.methods import ACCESS_MOVE, ACCESS_RECEIVE, SHARE_DENY_NONE
from srmp_spark.mqrr.server.cursors import Cursor, CursorState
from srmp_spark.mqrr.server.effects import QueueView
from srmp_spark.mqrr.server.position_states import TRANSITIONS, PositionEvent, PositionState
from srmp_spark.mqrr.server.positions import START, ArrivedRun, Positions
from srmp_spark.mqrr.server.requests import ReceiveRequest
from srmp_spark.mqrr.status import Status
from srmp_spark.transitions import next_state


@dataclass(slots=True, eq=False)
class OpenQueue:
    """OpenQueueDescriptor: an open queue, as one context handle stands for it."""

    queue: SharedQueue
    access: int
    share: int
    cursors: dict[int, Cursor] = field(default_factory=dict)
    requests: dict[int, ReceiveRequest] = field(default_factory=dict)
    """PendingRequestTable, by dwRequestId: requests from their call to their end."""
    unsettled: set[ReceiveRequest] = field(default_factory=set)
    """Requests that the reader has ended; the store has not decided yet."""
    closed: bool = False
    move_context: int | None = None
    """Number by which R_MoveMessage names this handle; ``None`` if it was not opened for moves."""
    stale: Status | None = None
    """Reason why this handle can only be closed; ``None`` if it can be used."""

    @property
    def may_receive(self) -> bool:
        """Return whether the handle was opened with RECEIVE_ACCESS."""
        return self.access == ACCESS_RECEIVE

    @property
    def may_read(self) -> bool:
        """Return whether the handle was opened with an access other than MQ_MOVE_ACCESS."""
        return self.access != ACCESS_MOVE

    def at_cursor(self, cursor: Cursor, action: Action) -> Status:
        """Return MQ_OK if ``action`` is possible at a cursor, else the status of the error.

        The cursor may have been closed since it was found, or another call may wait at it.
        """
        if self.cursors.get(cursor.handle) is not cursor:
            return Status.MQ_ERROR_OPERATION_CANCELLED
        if cursor.is_waiting or (action is Action.PEEK_NEXT and cursor.state is CursorState.UNREAD):
            return Status.MQ_ERROR_ILLEGAL_CURSOR_ACTION
        return Status.MQ_OK


@dataclass(slots=True, eq=False)
class Waiter:
    """One request that waits for a message, and its handle."""

    descriptor: OpenQueue
    request: ReceiveRequest


@dataclass(slots=True, frozen=True)
class Sought:
    """The result of a search: a message's lookup identifier, or the status why there is none."""

    lookup_id: int | None = None
    status: Status = Status.MQ_OK


class SharedQueue:
    """One queue that remote readers share.

    An identifier of a message is its lookup identifier (:mod:`srmp_spark.mqrr.lookup_identifier`).
    Identifiers ascend from the head of the queue to its tail.
    """

    __slots__ = ("_positions", "_states", "descriptors", "view", "waiting")

    def __init__(self, view: QueueView, positions: Positions | None = None) -> None:
        self.view = view
        self.descriptors: list[OpenQueue] = []
        self.waiting: list[Waiter] = []
        """Waiting requests in the order of their calls."""
        self._positions = Positions() if positions is None else positions
        """Messages that are ``AVAILABLE``, and some that left the queue without being noticed.

        Locked messages are not among them, so that no search has to skip locked messages one by
        one.
        """
        self._states: dict[int, PositionState] = {}
        """States of messages that are neither ``AVAILABLE`` nor ``GONE``."""

    # --- open handles -----------------------------------------------------------------------------

    def conflict(self, access: int, share: int) -> bool:
        """Return whether open handles forbid another handle with ``access`` and ``share``.

        The rules are the three cases of 3.1.7.1.5.
        """
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

    # --- messages ---------------------------------------------------------------------------------

    def add_arrived(self, runs: Iterable[ArrivedRun]) -> None:
        """Add messages that arrived, each run after all messages of its priority.

        Raises :class:`LocalProtocolError` as :meth:`.Positions.add` does.
        """
        self._positions.add(runs)

    def state_of(self, lookup_id: int) -> PositionState:
        """Return the state of the message with this lookup identifier; GONE if there is none.

        ``lookup_id`` may be any number. If the message has left the queue without being noticed,
        the call records that first.
        """
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
        """Change the state of a message and return the new state.

        The caller has just called :meth:`state_of`, or knows that the message is not gone. Raises
        :class:`LocalProtocolError` if the event cannot happen in its state.
        """
        state = self._states.get(lookup_id, PositionState.AVAILABLE)
        target = next_state(TRANSITIONS, state, event, "a message")
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
        """Return the identifiers of messages that a reader holds or that are being stored."""
        return tuple(self._states)

    def available_after(self, lookup_id: int) -> int | None:
        """Return the identifier of the first available message after ``lookup_id``, or ``None``.

        This is Seek Available Message Position, forward (3.1.7.3.2).
        """
        self._positions.drop_through(self.view.floor())
        at = self._positions.following(lookup_id)
        # Messages that have left the queue are skipped once, because ``state_of`` removes them.
        while at is not None and self.state_of(at) is not PositionState.AVAILABLE:
            at = self._positions.following(at)
        return at

    def available_before(self, lookup_id: int) -> int | None:
        """Return the identifier of the last available message before ``lookup_id``, or ``None``.

        This is Seek Available Message Position, backward (3.1.7.3.2).
        """
        self._positions.drop_through(self.view.floor())
        at = self._positions.preceding(lookup_id)
        while at is not None and self.state_of(at) is not PositionState.AVAILABLE:
            at = self._positions.preceding(at)
        return at

    def head(self) -> int | None:
        """Return the identifier of the first available message of the queue, or ``None``."""
        return self.available_after(START)

    def first_of(self, runs: Iterable[tuple[int, int]]) -> int | None:
        """Return the first available message in ``runs``, closed runs of identifiers, or ``None``.

        The runs are in ascending order. The result is a lookup identifier.
        """
        for first, last in runs:
            found = self.available_after(first - 1)
            if found is not None and found <= last:
                return found
        return None

    def by_lookup_id(self, action: Action, lookup_id: int) -> Sought:
        """Return the message for an action by lookup identifier, or the status why there is none.

        This is Seek Available Message Position With Id (3.1.7.3.3). Nothing is locked. For a locked
        message, a receive gets NOT_FOUND and a peek gets TRANSACTION_USAGE, so only a peek can
        distinguish locked from gone. At the end of the queue the status is NOT_FOUND; the document
        would return MQ_OK without a message.
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

    # --- waiting requests -------------------------------------------------------------------------

    def stop_waiting(self, request: ReceiveRequest) -> None:
        """Remove ``request`` from the waiting requests, if it is among them."""
        self.waiting = [each for each in self.waiting if each.request is not request]

    def __repr__(self) -> str:
        name, opened, locked = self.view.name, len(self.descriptors), len(self._states)
        return f"<SharedQueue {name} open={opened} locked={locked} waiting={len(self.waiting)}>"
