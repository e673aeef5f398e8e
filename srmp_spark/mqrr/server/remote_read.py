"""The RemoteRead server: calls in, effects out ([MS-MQRR] 3.1.4).

    effects = server.call(connection, received, now)       a CallReceived of the RPC layer
    effects = server.opened(opening, view, positions, now) the result of an effect
    effects = server.add_arrived(view, runs, now)          messages arrived
    server.timer(), server.handle_timer(now)

``connection`` names the transport connection of a call. The name is returned with the answer and
not used otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

from srmp_spark.errors import LimitExceededError
from srmp_spark.mqrr.actions import RECEIVES
from srmp_spark.mqrr.errors import BadStubError
from srmp_spark.mqrr.lookup_identifier import sequence_of
from srmp_spark.mqrr.ndr.methods import (
    ACCESS_MOVE,
    ACCESS_PEEK,
    ACCESS_RECEIVE,
    METHODS,
    SHARE_DENY_NONE,
    SHARE_DENY_SHARE,
    CloseQueueResponse,
    CursorResponse,
    EndReceiveRequest,
    EnlistRequest,
    HandleNumberRequest,
    HandleRequest,
    MoveMessageRequest,
    OpenForMoveResponse,
    OpenRequest,
    Parameters,
    PortResponse,
    SetClassRequest,
    StatusResponse,
)
from srmp_spark.mqrr.ndr.receive import StartReceiveRequest, failure
from srmp_spark.mqrr.ndr.stub import NULL_HANDLE
from srmp_spark.mqrr.rpc.associations import Association
from srmp_spark.mqrr.rpc.server_events import CallReceived
from srmp_spark.mqrr.server.cursors import Cursor
from srmp_spark.mqrr.server.effects import (
    AnswerCall,
    CallId,
    Effect,
    FaultCall,
    FindQueue,
    LookOn,
    Purge,
    QueueView,
    ReleaseQueue,
    ServedMessage,
)
from srmp_spark.mqrr.server.limits import CURSORS_MAX, LOCKS_OF_A_TURN, OPEN_MAX
from srmp_spark.mqrr.server.moving import Moving
from srmp_spark.mqrr.server.position_states import PositionEvent, PositionState
from srmp_spark.mqrr.server.positions import ArrivedRun, Positions
from srmp_spark.mqrr.server.receiving import Receiving
from srmp_spark.mqrr.server.requests import RequestState
from srmp_spark.mqrr.server.shared_queue import OpenQueue, SharedQueue
from srmp_spark.mqrr.server.transactions import refuse_class, refuse_enlistment
from srmp_spark.mqrr.status import Status

RightTo = Literal["peek", "receive", "purge"]
"""Rights of a caller to a queue. A caller that moves a message needs the right to receive it."""


@dataclass(slots=True, eq=False)
class _Opening:
    call: CallId
    association: Association[OpenQueue]
    access: int
    share: int
    abandoned: bool = False


@dataclass(slots=True, eq=False)
class _Purging:
    call: CallId
    queue: SharedQueue
    left: list[int]
    """Locked messages that are not yet examined, the last one first.

    The messages were locked when the purge was called.
    """
    pending: set[int] = field(default_factory=set)
    """Messages that this purge has marked for removal at the end of their locks.

    Messages that an executed purge has marked too are not among them.
    """
    spared: list[int] = field(default_factory=list)
    """Sequences of the locked messages, both ``pending`` ones and others."""


class RemoteReadServer:
    """Processes the remote read calls of all clients of one queue manager.

    ``now`` and all timers are in seconds on the monotonic clock. The owner is the code that
    executes the effects (:mod:`.effects`) and reports their results with ``opening``, ``reading``,
    ``storing`` or ``purging``: the number that the effect carries.
    """

    def __init__(
        self,
        port: int,
        *,
        new_move_context: Callable[[], int],
        allows: Callable[[str | None, RightTo, str], bool] = lambda *_: True,
    ) -> None:
        """Create a server without open queues.

        ``port`` is the answer of R_GetServerPort at every port. ``new_move_context`` returns a
        random number of 64 bits. ``allows`` returns whether a caller has a right to a queue, by the
        queue's name.
        """
        self._port = port
        self._allows = allows
        self._queues: dict[QueueView, SharedQueue] = {}
        self._openings: dict[int, _Opening] = {}
        self._purgings: dict[int, _Purging] = {}
        self._cursors = 0
        self._numbers = 0
        self._effects: list[Effect] = []
        self._receiving = Receiving(self._effects.append, self._new_number, self._settled)
        self._moving = Moving(self._receiving, new_move_context)

    # --- calls ------------------------------------------------------------------------------------

    def call(self, connection: Hashable, received: CallReceived, now: float) -> list[Effect]:
        """Process a call of RemoteRead and return the effects.

        Never raises for bytes that a client sends.
        """
        call = CallId(connection, received.call_id, received.syntax)
        try:
            asked = METHODS[received.opnum].decode_request(received.stub, received.syntax)
        except BadStubError:
            return [FaultCall(call, Status.RPC_X_BAD_STUB_DATA)]
        self._dispatch(call, asked, received, now)
        return self._take_effects()

    def _dispatch(
        self,
        call: CallId,
        asked: Any,  # noqa: ANN401  # one of the requests of METHODS
        received: CallReceived,
        now: float,
    ) -> None:
        opnum, association = received.opnum, received.association
        if isinstance(asked, OpenRequest):
            self._open(call, asked, received, for_move=opnum == 11)
        elif isinstance(asked, EnlistRequest):
            self._answer(call, StatusResponse(refuse_enlistment(asked)))
        elif not hasattr(asked, "handle"):
            self._answer(call, PortResponse(self._port))
        else:
            descriptor = association.find(asked.handle)
            if descriptor is None:
                self._effects.append(FaultCall(call, Status.NCA_S_FAULT_CONTEXT_MISMATCH))
            elif opnum == 3:
                self._close_queue(call, asked, association)
            elif descriptor.stale is not None:
                self._refuse(opnum, call, descriptor.stale)
            elif self._is_denied(opnum, asked, received.identity, descriptor):
                self._refuse(opnum, call, Status.MQ_ERROR_ACCESS_DENIED)
            elif isinstance(asked, StartReceiveRequest):
                self._receiving.start(descriptor, call, asked, now)
            elif isinstance(asked, MoveMessageRequest):
                status = self._moving.move(association, descriptor, call, asked)
                if status is not None:
                    self._answer(call, StatusResponse(status))
            elif isinstance(asked, EndReceiveRequest):
                self._receiving.end(descriptor, call, asked)
            else:
                self._call_on(opnum, call, asked, descriptor)

    def _call_on(self, opnum: int, call: CallId, asked: Any, descriptor: OpenQueue) -> None:  # noqa: ANN401
        """Process the calls on an open queue that are answered at once, and R_PurgeQueue."""
        if opnum == 4:
            self._answer(call, self._create_cursor(descriptor))
        elif isinstance(asked, HandleNumberRequest):
            status = (
                self._close_cursor(descriptor, asked.number)
                if opnum == 5
                else self._receiving.cancel(descriptor, asked.number)
            )
            self._answer(call, StatusResponse(status))
        elif isinstance(asked, HandleRequest):
            self._purge(call, descriptor)
        else:
            assert isinstance(asked, SetClassRequest), "there are no others"
            self._answer(call, StatusResponse(refuse_class(descriptor, asked)))

    def _answer(self, call: CallId, response: Parameters) -> None:
        self._effects.append(AnswerCall(call, response.encode(call.syntax)))

    def _is_denied(self, opnum: int, asked: Any, caller: str | None, descriptor: OpenQueue) -> bool:  # noqa: ANN401
        """Return whether the caller lacks the right to this call on the queue of ``descriptor``.

        The handle may have been opened by another account of the same client.
        """
        right: RightTo
        if isinstance(asked, StartReceiveRequest):
            right = "receive" if asked.action in RECEIVES else "peek"
        elif isinstance(asked, MoveMessageRequest):
            right = "receive"
        elif opnum == 6 and descriptor.may_receive:
            right = "purge"
        else:
            # Other calls only end operations that the account was allowed to begin.
            return False
        return not self._allows(caller, right, descriptor.queue.view.name)

    def _refuse(self, opnum: int, call: CallId, status: Status) -> None:
        response: Parameters = StatusResponse(status)
        if opnum in (7, 13):
            response = failure(status)
        elif opnum == 4:
            response = CursorResponse(0, status)
        self._answer(call, response)

    # --- R_OpenQueue, R_OpenQueueForMove, R_CloseQueue --------------------------------------------

    def _open(
        self, call: CallId, asked: OpenRequest, received: CallReceived, *, for_move: bool
    ) -> None:
        access = (ACCESS_MOVE,) if for_move else (ACCESS_RECEIVE, ACCESS_PEEK)
        share = (SHARE_DENY_NONE,) if for_move else (SHARE_DENY_NONE, SHARE_DENY_SHARE)
        if asked.access not in access or asked.share not in share:
            self._effects.append(FaultCall(call, Status.MQ_ERROR_INVALID_PARAMETER))
        else:
            opening = self._new_number()
            self._openings[opening] = _Opening(
                call, received.association, asked.access, asked.share
            )
            receive = asked.access == ACCESS_RECEIVE
            self._effects.append(
                FindQueue(opening, asked.queue, receive, for_move, received.identity)
            )

    def knows(self, view: QueueView) -> bool:
        """Return whether the queue is open already, so that :meth:`opened` needs no positions."""
        return view in self._queues

    def opened(
        self, opening: int, view: QueueView, positions: Positions | None, now: float
    ) -> list[Effect]:
        """Complete the opening of a queue that the owner found, and return the effects.

        The opening can still fail, for example because of another handle's share mode.

        The owner holds the queue if the handle may receive. ``positions`` are all messages in the
        queue; from now on they belong to the server. Later messages are reported with
        :meth:`add_arrived`. For a queue that is already open ``positions`` is ignored.
        """
        asked = self._openings.pop(opening)
        receive = asked.access == ACCESS_RECEIVE
        queue = self._queues.get(view)
        if queue is None:
            queue = SharedQueue(view, positions)
        status = self._why_not(asked, queue)
        if status is None:
            descriptor = OpenQueue(queue, asked.access, asked.share)
            try:
                handle = asked.association.open(descriptor)
            except LimitExceededError:
                status = Status.MQ_ERROR_INSUFFICIENT_RESOURCES
            else:
                self._queues[view] = queue
                queue.descriptors.append(descriptor)
                answer: Parameters = HandleRequest(handle)
                if asked.access == ACCESS_MOVE:
                    answer = OpenForMoveResponse(
                        self._moving.opened(asked.association, descriptor), handle
                    )
                self._answer(asked.call, answer)
        if status is not None:
            self._effects += (FaultCall(asked.call, status), ReleaseQueue(view, receive))
        self._receiving.handle_timer(now)
        return self._take_effects()

    @staticmethod
    def _why_not(asked: _Opening, queue: SharedQueue) -> Status | None:
        if asked.abandoned or asked.association.connections <= 0:
            # The client is gone and receives no answer.
            return Status.MQ_ERROR_OPERATION_CANCELLED
        if queue.conflict(asked.access, asked.share):
            return Status.MQ_ERROR_SHARING_VIOLATION
        return (
            Status.MQ_ERROR_INSUFFICIENT_RESOURCES if len(queue.descriptors) >= OPEN_MAX else None
        )

    def not_opened(self, opening: int, status: Status) -> list[Effect]:
        """Fail the opening of a queue and return the effects.

        The queue does not exist, or another receiver holds it; ``status`` is sent to the client.
        """
        self._effects.append(FaultCall(self._openings.pop(opening).call, status))
        return self._take_effects()

    def _close_queue(
        self, call: CallId, asked: HandleRequest, association: Association[OpenQueue]
    ) -> None:
        descriptor = association.close(asked.handle)
        assert descriptor is not None, "it was found"
        self._answer(call, CloseQueueResponse(NULL_HANDLE, Status.MQ_OK))
        self._close(descriptor)

    def run_down(self, descriptors: Iterable[OpenQueue], now: float) -> list[Effect]:
        """Close the handles of a client whose last connection was closed; return the effects.

        The document is [MS-MQRR] 3.1.6.
        """
        for descriptor in descriptors:
            self._close(descriptor)
        self._receiving.handle_timer(now)
        return self._take_effects()

    def _close(self, descriptor: OpenQueue) -> None:
        queue = descriptor.queue
        descriptor.closed = True
        self._moving.closed(descriptor)
        if descriptor in queue.descriptors:
            queue.descriptors.remove(descriptor)
        self._receiving.close(descriptor, Status.MQ_ERROR_OPERATION_CANCELLED)
        descriptor.cursors.clear()
        if not descriptor.unsettled:
            self._settled(descriptor)

    def _settled(self, descriptor: OpenQueue) -> None:
        """Order to close the queue of a closed handle whose requests are all settled."""
        queue = descriptor.queue
        if not queue.descriptors and not queue.locked() and self._queues.get(queue.view) is queue:
            del self._queues[queue.view]
        self._effects.append(ReleaseQueue(queue.view, descriptor.may_receive))

    # --- cursors, R_PurgeQueue --------------------------------------------------------------------

    def _create_cursor(self, descriptor: OpenQueue) -> CursorResponse:
        if len(descriptor.cursors) >= CURSORS_MAX:
            return CursorResponse(0, Status.MQ_ERROR_INSUFFICIENT_RESOURCES)
        # Number 0 means no cursor. The numbers wrap after four billion cursors, when the first ones
        # have long been closed.
        self._cursors = self._cursors % 0xFFFFFFFF + 1
        descriptor.cursors[self._cursors] = Cursor(self._cursors)
        return CursorResponse(self._cursors, Status.MQ_OK)

    def _close_cursor(self, descriptor: OpenQueue, number: int) -> Status:
        cursor = descriptor.cursors.pop(number, None)
        if cursor is None:
            return Status.MQ_ERROR_INVALID_HANDLE
        for request in tuple(descriptor.requests.values()):
            if request.cursor is cursor and request.state is RequestState.WAITING:
                self._receiving.cancel(descriptor, request.id)
        return Status.MQ_OK

    def _purge(self, call: CallId, descriptor: OpenQueue) -> None:
        if not descriptor.may_receive:
            self._answer(call, StatusResponse(Status.STATUS_ACCESS_DENIED))
            return
        purging = self._new_number()
        self._purgings[purging] = _Purging(
            call, descriptor.queue, list(reversed(descriptor.queue.locked()))
        )
        self._look_at_locks(purging)

    def _look_at_locks(self, purging: int) -> None:
        """Examine the next locked messages of a purge, at most LOCKS_OF_A_TURN.

        Messages that are still locked are spared.

        A spared message is marked for removal at the end of its lock. Then order the next turn
        (:class:`.LookOn`), or the purge itself (:class:`.Purge`). A message that was locked after
        the call of the purge is not spared. A message that is available again by now is purged.
        """
        done = self._purgings[purging]
        queue, left = done.queue, done.left
        others = [
            each.pending
            for each in self._purgings.values()
            if each.queue is queue and each is not done
        ]
        for _ in range(min(LOCKS_OF_A_TURN, len(left))):
            lookup_id = left.pop()
            was = queue.state_of(lookup_id)
            if was is PositionState.GONE or was is PositionState.AVAILABLE:
                continue
            if was is PositionState.LOCKED or any(lookup_id in pending for pending in others):
                done.pending.add(lookup_id)
            queue.move(lookup_id, PositionEvent.PURGE)
            done.spared.append(sequence_of(lookup_id))
        self._effects.append(
            LookOn(purging) if left else Purge(purging, queue.view, tuple(done.spared))
        )

    def look_on(self, purging: int) -> list[Effect]:
        """Continue a purge in the next turn of the loop, and return the effects."""
        self._look_at_locks(purging)
        return self._take_effects()

    def purged(self, purging: int, status: Status = Status.MQ_OK) -> list[Effect]:
        """Complete a purge that the owner executed, and return the effects.

        With MQ_OK it is on stable storage that only locked messages are left in the queue. With any
        other ``status`` nothing was purged: locked messages stay in the queue when their locks end,
        unless another purge has marked them.
        """
        done = self._purgings.pop(purging)
        others = [each for each in self._purgings.values() if each.queue is done.queue]
        if status is Status.MQ_OK:
            for each in others:
                each.pending -= done.pending
        else:
            for lookup_id in done.pending.difference(*(each.pending for each in others)):
                if done.queue.state_of(lookup_id) is PositionState.PURGE_PENDING:
                    done.queue.move(lookup_id, PositionEvent.PURGE_FAILED)
        self._answer(done.call, StatusResponse(status))
        return self._take_effects()

    # --- reports of the owner ---------------------------------------------------------------------

    def read(self, reading: int, message: ServedMessage, now: float) -> list[Effect]:
        """Answer the request ``reading`` with the message that was read; return the effects."""
        self._receiving.read(reading, message, now)
        return self._take_effects()

    def not_read(self, reading: int, status: Status) -> list[Effect]:
        """Fail the request ``reading`` with ``status``, and return the effects.

        The message cannot be read, which only its owner can repair.
        """
        self._receiving.not_read(reading, status)
        return self._take_effects()

    def vanished(self, reading: int) -> list[Effect]:
        """Search for another message for the request ``reading``; return the effects.

        The message of this request left the queue before it was read.
        """
        self._receiving.vanished(reading)
        return self._take_effects()

    def stored(self, storing: int) -> list[Effect]:
        """Complete the removal of a message (a :class:`Take`), and return the effects.

        The removal is on stable storage now.
        """
        self._receiving.stored(storing)
        return self._take_effects()

    def not_stored(self, storing: int, status: Status) -> list[Effect]:
        """Undo the removal of a message (a :class:`Take`), and return the effects.

        The message could not be removed; ``status`` is sent to the client.
        """
        self._receiving.not_stored(storing, status)
        return self._take_effects()

    def add_arrived(self, view: QueueView, runs: Iterable[ArrivedRun], now: float) -> list[Effect]:
        """Add messages that arrived in a queue, and return the effects."""
        self._receiving.handle_timer(now)
        queue = self._queues.get(view)
        if queue is not None:
            self._receiving.add_arrived(queue, runs)
        return self._take_effects()

    def end_use(
        self, view: QueueView, status: Status, *, receivers_only: bool = False
    ) -> list[Effect]:
        """End the use of a queue that was deleted or has another receiver; return the effects.

        With ``receivers_only`` another receiver holds the queue, and only handles that may receive
        are concerned. The handles can only be closed from now on, and the locks of their messages
        end. Waiting calls are answered with ``status``.
        """
        queue = self._queues.get(view)
        for descriptor in () if queue is None else tuple(queue.descriptors):
            if descriptor.stale is None and (descriptor.may_receive or not receivers_only):
                descriptor.stale = status
                self._receiving.close(descriptor, status)
        return self._take_effects()

    # --- reports of the RPC layer -----------------------------------------------------------------

    def call_cancelled(self, connection: Hashable, number: int) -> list[Effect]:
        """End the wait of a call whose caller no longer wants to wait; return the effects.

        The call is answered all the same.
        """
        for descriptor, request in self._waiting_for(connection, {number}):
            self._receiving.call_cancelled(descriptor, request)
        return self._take_effects()

    def calls_gone(self, connection: Hashable, numbers: Iterable[int]) -> list[Effect]:
        """Abandon the calls of callers that are gone, and return the effects.

        The calls are not answered, and other readers get their messages.
        """
        gone = set(numbers)
        for opening in self._openings.values():
            opening.abandoned |= (
                opening.call.connection == connection and opening.call.number in gone
            )
        for descriptor, request in self._waiting_for(connection, gone):
            self._receiving.call_gone(descriptor, request)
        return self._take_effects()

    def _waiting_for(self, connection: Hashable, numbers: set[int]) -> list[tuple[OpenQueue, Any]]:
        return [
            (descriptor, request)
            for queue in self._queues.values()
            for descriptor in queue.descriptors
            for request in descriptor.requests.values()
            if request.call is not None
            and request.call.connection == connection
            and request.call.number in numbers
        ]

    # --- timers -----------------------------------------------------------------------------------

    def timer(self) -> float | None:
        """Return the time at which to call :meth:`handle_timer`, or ``None`` if no timer runs."""
        return self._receiving.timer()

    def handle_timer(self, now: float) -> list[Effect]:
        """Process all timers up to ``now`` and return the effects."""
        self._receiving.handle_timer(now)
        return self._take_effects()

    def _new_number(self) -> int:
        self._numbers += 1
        return self._numbers

    def _take_effects(self) -> list[Effect]:
        effects = self._effects[:]
        self._effects.clear()
        return effects

    def __repr__(self) -> str:
        return f"<RemoteReadServer queues={list(self._queues.values())}>"
