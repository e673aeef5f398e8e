"""The RemoteRead server: calls in, effects out ([MS-MQRR] 3.1.4).

    effects = server.call(connection, received, now)       a CallReceived of the RPC layer
    effects = server.opened(opening, view, positions, now) what the owner did of what the effects said
    effects = server.came(view, runs, now)                 messages came
    server.timer(), server.handle_timer(now)

``connection`` names the transport connection of a call; it comes back in what is to be answered, and nothing is done with it.
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
    Answer,
    CallId,
    Close,
    Effect,
    Fault,
    LookOn,
    Message,
    Open,
    Purge,
    QueueView,
)
from srmp_spark.mqrr.server.limits import CURSORS_MAX, LOCKS_OF_A_TURN, OPEN_MAX
from srmp_spark.mqrr.server.moving import Moving
from srmp_spark.mqrr.server.position_states import PositionEvent, PositionState
from srmp_spark.mqrr.server.positions import Came, Positions
from srmp_spark.mqrr.server.receiving import Receiving
from srmp_spark.mqrr.server.requests import RequestState
from srmp_spark.mqrr.server.shared_queue import OpenQueue, SharedQueue
from srmp_spark.mqrr.status import Status

OPNUMS = frozenset(METHODS)
RightTo = Literal["peek", "receive", "purge"]
"""What a caller may do with a queue; who moves a message has the right to receive it."""


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
    """Messages that were locked when the purge was asked for and were not looked at, the first one last."""
    pending: set[int] = field(default_factory=set)
    """Messages that are to be removed when their locks end, because of this purge and of none that was carried out."""
    spared: list[int] = field(default_factory=list)
    """Their sequences, and those of others that somebody has."""


class RemoteReadServer:
    """All clients of one queue manager."""

    def __init__(
        self,
        port: int,
        *,
        new_move_context: Callable[[], int],
        coordinator: bool = False,
        allows: Callable[[str | None, RightTo, str], bool] = lambda *_: True,
    ) -> None:
        """``port`` is what R_GetServerPort returns, wherever it is asked. ``new_move_context``: a random number of 64 bits.
        ``coordinator``: somebody calls :meth:`outcome`. ``allows``: whether a caller has a right to a queue, by its name."""
        self._port = port
        self._allows = allows
        self._queues: dict[QueueView, SharedQueue] = {}
        self._openings: dict[int, _Opening] = {}
        self._purgings: dict[int, _Purging] = {}
        self._cursors = 0
        self._numbers = 0
        self._effects: list[Effect] = []
        self._receiving = Receiving(self._effects.append, self._new_number, coordinator=coordinator)
        self._receiving.settled = self._settled
        self._moving = Moving(self._receiving, new_move_context)

    # --- calls --------------------------------------------------------------------------------------------------------------

    def call(self, connection: Hashable, received: CallReceived, now: float) -> list[Effect]:
        """A call of RemoteRead. Never raises for what a client sends."""
        call = CallId(connection, received.call_id, received.syntax)
        try:
            asked = METHODS[received.opnum].decode_request(received.stub, received.syntax)
        except BadStubError:
            return [Fault(call, Status.RPC_X_BAD_STUB_DATA)]
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
            self._answer(call, StatusResponse(self._receiving.enlist(asked, now)))
        elif not hasattr(asked, "handle"):
            self._answer(call, PortResponse(self._port))
        else:
            descriptor = association.find(asked.handle)
            if descriptor is None:
                self._effects.append(Fault(call, Status.NCA_S_FAULT_CONTEXT_MISMATCH))
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
                self._receiving.end(descriptor, call, asked, transactional=opnum == 15)
            else:
                self._call_on(opnum, call, asked, descriptor)

    def _call_on(self, opnum: int, call: CallId, asked: Any, descriptor: OpenQueue) -> None:  # noqa: ANN401
        """The calls on an open queue that are answered at once, and R_PurgeQueue."""
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
            self._answer(
                call, StatusResponse(self._receiving.transactions.set_class(descriptor, asked))
            )

    def _answer(self, call: CallId, response: Parameters) -> None:
        self._effects.append(Answer(call, response.encode(call.syntax)))

    def _is_denied(self, opnum: int, asked: Any, caller: str | None, descriptor: OpenQueue) -> bool:  # noqa: ANN401
        """Whether the caller has no right to this call: a handle may be another account's, of one client."""
        right: RightTo
        if isinstance(asked, StartReceiveRequest):
            right = "receive" if asked.action in RECEIVES else "peek"
        elif isinstance(asked, MoveMessageRequest):
            right = "receive"
        elif opnum == 6 and descriptor.may_receive:
            right = "purge"
        else:
            return False  # it ends what the account was allowed to begin
        return not self._allows(caller, right, descriptor.queue.view.name)

    def _refuse(self, opnum: int, call: CallId, status: Status) -> None:
        response: Parameters = StatusResponse(status)
        if opnum in (7, 13):
            response = failure(status)
        elif opnum == 4:
            response = CursorResponse(0, status)
        self._answer(call, response)

    # --- R_OpenQueue, R_OpenQueueForMove, R_CloseQueue ----------------------------------------------------------------------

    def _open(
        self, call: CallId, asked: OpenRequest, received: CallReceived, *, for_move: bool
    ) -> None:
        access = (ACCESS_MOVE,) if for_move else (ACCESS_RECEIVE, ACCESS_PEEK)
        share = (SHARE_DENY_NONE,) if for_move else (SHARE_DENY_NONE, SHARE_DENY_SHARE)
        if asked.access not in access or asked.share not in share:
            self._effects.append(Fault(call, Status.MQ_ERROR_INVALID_PARAMETER))
        else:
            opening = self._new_number()
            self._openings[opening] = _Opening(
                call, received.association, asked.access, asked.share
            )
            receive = asked.access == ACCESS_RECEIVE
            self._effects.append(Open(opening, asked.queue, receive, for_move, received.identity))

    def knows(self, view: QueueView) -> bool:
        """Whether the queue is open, so that :meth:`opened` needs no positions."""
        return view in self._queues

    def opened(
        self, opening: int, view: QueueView, positions: Positions | None, now: float
    ) -> list[Effect]:
        """The queue was found, and is held if it is to be received from. ``positions``: all that is in it, and the server's
        from now on; what comes is told by :meth:`came`. For a queue that is open already they are not looked at."""
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
            self._effects += (Fault(asked.call, status), Close(view, receive))
        self._receiving.handle_timer(now)
        return self._take_effects()

    @staticmethod
    def _why_not(asked: _Opening, queue: SharedQueue) -> Status | None:
        if asked.abandoned or asked.association.connections <= 0:
            return Status.MQ_ERROR_OPERATION_CANCELLED  # nobody hears it
        if queue.conflict(asked.access, asked.share):
            return Status.MQ_ERROR_SHARING_VIOLATION
        return (
            Status.MQ_ERROR_INSUFFICIENT_RESOURCES if len(queue.descriptors) >= OPEN_MAX else None
        )

    def not_opened(self, opening: int, status: Status) -> list[Effect]:
        """There is no such queue, or somebody else receives from it."""
        self._effects.append(Fault(self._openings.pop(opening).call, status))
        return self._take_effects()

    def _close_queue(
        self, call: CallId, asked: HandleRequest, association: Association[OpenQueue]
    ) -> None:
        descriptor = association.close(asked.handle)
        assert descriptor is not None, "it was found"
        self._answer(call, CloseQueueResponse(NULL_HANDLE, Status.MQ_OK))
        self._close(descriptor)

    def run_down(self, descriptors: Iterable[OpenQueue], now: float) -> list[Effect]:
        """The last connection of a client is gone, and these are its handles (3.1.6)."""
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
        """A closed handle has nothing left that could still become of it."""
        queue = descriptor.queue
        if not queue.descriptors and not queue.locked() and self._queues.get(queue.view) is queue:
            del self._queues[queue.view]
        self._effects.append(Close(queue.view, descriptor.may_receive))

    # --- cursors, R_PurgeQueue ----------------------------------------------------------------------------------------------

    def _create_cursor(self, descriptor: OpenQueue) -> CursorResponse:
        if len(descriptor.cursors) >= CURSORS_MAX:
            return CursorResponse(0, Status.MQ_ERROR_INSUFFICIENT_RESOURCES)
        # 0 is no cursor; four billion later the first ones are long closed
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
        """Spare the next of what was locked. What is locked after the call of a purge is not spared, and what is there again by
        now is purged."""
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
        """Go on with a purge in the next turn of the loop."""
        self._look_at_locks(purging)
        return self._take_effects()

    def purged(self, purging: int, status: Status = Status.MQ_OK) -> list[Effect]:
        """It is on stable storage that the queue is empty but for what is locked; or it could not be emptied.

        Then nothing was purged, and what is locked stays in the queue when its lock ends, unless another purge wants it.
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

    # --- what the owner says ------------------------------------------------------------------------------------------------

    def read(self, reading: int, message: Message, now: float) -> list[Effect]:
        """The message that was to be read."""
        self._receiving.read(reading, message, now)
        return self._take_effects()

    def not_read(self, reading: int, status: Status) -> list[Effect]:
        """It cannot be read, which only its owner can mend."""
        self._receiving.not_read(reading, status)
        return self._take_effects()

    def vanished(self, reading: int) -> list[Effect]:
        """It has left the queue in between."""
        self._receiving.vanished(reading)
        return self._take_effects()

    def stored(self, storing: int) -> list[Effect]:
        """What was to be taken has left its queues, on stable storage."""
        self._receiving.stored(storing)
        return self._take_effects()

    def not_stored(self, storing: int, status: Status) -> list[Effect]:
        """It has not, none of it."""
        self._receiving.not_stored(storing, status)
        return self._take_effects()

    def came(self, view: QueueView, runs: Iterable[Came], now: float) -> list[Effect]:
        """Messages are in the queue that were not."""
        self._receiving.handle_timer(now)
        queue = self._queues.get(view)
        if queue is not None:
            self._receiving.came(queue, runs)
        return self._take_effects()

    def lost(
        self, view: QueueView, status: Status, *, receivers_only: bool = False
    ) -> list[Effect]:
        """The queue was deleted, or somebody else receives from it now (``receivers_only``): nothing can be done with these
        handles any more but closing them, and what was locked through them is not."""
        queue = self._queues.get(view)
        for descriptor in () if queue is None else tuple(queue.descriptors):
            if descriptor.stale is None and (descriptor.may_receive or not receivers_only):
                descriptor.stale = status
                self._receiving.close(descriptor, status)
        return self._take_effects()

    def outcome(self, transaction: bytes, *, committed: bool) -> list[Effect]:
        """A transaction has ended. ``OutcomeStored`` or ``OutcomeNotStored`` follows a commit, as soon as it is stored; at
        once, and ``OutcomeNotStored``, of one that was aborted because its time was over."""
        self._receiving.outcome(transaction, committed=committed)
        return self._take_effects()

    # --- what the RPC layer says of calls -----------------------------------------------------------------------------------

    def call_cancelled(self, connection: Hashable, number: int) -> list[Effect]:
        """A caller does not want to wait any more; it is answered all the same."""
        for descriptor, request in self._waiting_for(connection, {number}):
            self._receiving.call_cancelled(descriptor, request)
        return self._take_effects()

    def calls_gone(self, connection: Hashable, numbers: Iterable[int]) -> list[Effect]:
        """Nobody waits for the answers of these calls any more."""
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

    # --- time ---------------------------------------------------------------------------------------------------------------

    def timer(self) -> float | None:
        """When :meth:`handle_timer` is to be called; ``None``: not at all."""
        return self._receiving.timer()

    def handle_timer(self, now: float) -> list[Effect]:
        """Time is over for some."""
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
