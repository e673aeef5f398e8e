"""Receives and peeks: search, wait, lock and end.

The document is [MS-MQRR] 3.1.4.7 to 3.1.4.9, 3.1.4.13 to 3.1.4.15 and 3.1.5.1. Theory of operation:
:mod:`.requests` (a request), :mod:`.position_states` (a message), :mod:`.cursors`. This module
keeps the three consistent: whatever happens, a message is locked exactly as long as a request or a
commit in progress exists that will end its lock. No request belongs to a transaction
(:mod:`.transactions`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from srmp_spark.mqrr.actions import LOOKUPS, RECEIVES, Action
from srmp_spark.mqrr.lookup_identifier import sequence_of
from srmp_spark.mqrr.ndr.methods import RR_ACK, EndReceiveRequest, StatusResponse
from srmp_spark.mqrr.ndr.receive import (
    NO_TRANSACTION,
    StartReceiveRequest,
    StartReceiveResponse,
    failure,
)
from srmp_spark.mqrr.packets.sections import cut_sections
from srmp_spark.mqrr.server.cursors import CursorEvent, CursorState
from srmp_spark.mqrr.server.effects import (
    AnswerCall,
    CallId,
    Effect,
    ReadMessage,
    RemovalReason,
    ServedMessage,
    Take,
)
from srmp_spark.mqrr.server.limits import (
    CATCH_UP_S,
    CLEANUP_S,
    INFINITE_TIMEOUT,
    REQUESTS_MAX,
    WAITING_MAX,
)
from srmp_spark.mqrr.server.position_states import PositionEvent, PositionState
from srmp_spark.mqrr.server.positions import ArrivedRun, in_order
from srmp_spark.mqrr.server.requests import (
    BodyLimits,
    ReceiveRequest,
    RequestEvent,
    RequestState,
    fits_together,
)
from srmp_spark.mqrr.server.shared_queue import OpenQueue, SharedQueue, Waiter
from srmp_spark.mqrr.server.transactions import refuse_receive
from srmp_spark.mqrr.status import Status
from srmp_spark.timers import Timers


class _Storing(NamedTuple):
    """One :class:`Take` that is not stored yet."""

    call: CallId | None
    """The call that is answered when the removal is stored."""
    descriptor: OpenQueue
    request: ReceiveRequest
    found: int
    """LookupIdentifier of the message."""


class Receiving:
    """Processes the requests of all handles.

    ``now`` and all timers are in seconds on the monotonic clock. Answers and orders are emitted as
    effects (:mod:`.effects`). An open queue, which a handle stands for, is a *descriptor*
    (:class:`.OpenQueue`).
    """

    def __init__(
        self,
        emit: Callable[[Effect], None],
        new_number: Callable[[], int],
        on_settled: Callable[[OpenQueue], None],
    ) -> None:
        """Create an object without requests.

        ``emit`` accepts each effect. ``new_number`` returns the number of each order to the owner.
        ``on_settled`` is called with each closed handle when all of its requests are settled.
        """
        self._emit = emit
        self._new_number = new_number
        self._on_settled = on_settled
        self._readings: dict[int, tuple[OpenQueue, ReceiveRequest]] = {}
        self._storings: dict[int, _Storing] = {}
        self._timers: Timers[tuple[OpenQueue, ReceiveRequest]] = Timers()
        """Ends of waits and of locks."""

    # --- R_StartReceive, R_StartTransactionalReceive ----------------------------------------------

    def start(
        self, descriptor: OpenQueue, call: CallId, asked: StartReceiveRequest, now: float
    ) -> None:
        """Process R_StartReceive or R_StartTransactionalReceive.

        The call is answered at once if it fails, otherwise when a message was read or the wait has
        ended.
        """
        status = self._start(descriptor, call, asked, now)
        if status is not Status.MQ_OK:
            self._emit(AnswerCall(call, failure(status).encode(call.syntax)))

    def _start(
        self, descriptor: OpenQueue, call: CallId, asked: StartReceiveRequest, now: float
    ) -> Status:
        """Start the request; return MQ_OK, or the status of a call that fails at once."""
        try:
            action = Action(asked.action)
        except ValueError:
            return Status.MQ_ERROR_INVALID_PARAMETER
        if not fits_together(action, asked) or asked.request_id in descriptor.requests:
            return Status.MQ_ERROR_INVALID_PARAMETER
        if not descriptor.may_read or (action in RECEIVES and not descriptor.may_receive):
            return Status.MQ_ERROR_ACCESS_DENIED
        # Number 0 means no cursor, so ``get`` returns ``None`` for it.
        cursor = descriptor.cursors.get(asked.cursor)
        if asked.cursor and cursor is None:
            return Status.STATUS_INVALID_HANDLE
        if asked.transaction not in (None, NO_TRANSACTION):
            return refuse_receive(descriptor, action)
        if len(descriptor.requests) + len(descriptor.unsettled) >= REQUESTS_MAX:
            return Status.MQ_ERROR_INSUFFICIENT_RESOURCES
        request = ReceiveRequest(
            call=call,
            id=asked.request_id,
            action=action,
            lookup_id=asked.lookup_id,
            cursor=cursor,
            limits=BodyLimits(asked.max_body_size, asked.max_compound_message_size),
            may_wait=asked.timeout_ms > 0,
            called_at=now,
            deadline=None
            if asked.timeout_ms == INFINITE_TIMEOUT
            else now + asked.timeout_ms / 1000,
        )
        status = self._look(descriptor, request)
        if status is Status.MQ_OK:
            descriptor.requests[request.id] = request
        return status

    def _look(self, descriptor: OpenQueue, request: ReceiveRequest) -> Status:
        """Find a message for the request or let it wait; return MQ_OK or an error's status."""
        queue, cursor = descriptor.queue, request.cursor
        is_held = request.receives and queue.view.holds_receivers()
        if is_held and (cursor is not None or request.action in LOOKUPS):
            # Such a reader names the message. It must not take the message for received.
            return Status.MQ_ERROR_SHARING_VIOLATION
        if (
            cursor is not None
            and (status := descriptor.at_cursor(cursor, request.action)) is not Status.MQ_OK
        ):
            return status
        if request.action in LOOKUPS:
            sought = queue.by_lookup_id(request.action, request.lookup_id)
            if sought.lookup_id is None:
                return sought.status
            found: int | None = sought.lookup_id
        elif cursor is None:
            found = None if is_held else queue.head()
        elif cursor.state is CursorState.READ and request.action is not Action.PEEK_NEXT:
            if queue.state_of(cursor.position) is not PositionState.AVAILABLE:
                return Status.MQ_ERROR_MESSAGE_ALREADY_RECEIVED
            found = cursor.position
        else:
            found = queue.available_after(cursor.position)
        if found is not None:
            self._found(descriptor, request, found)
            return Status.MQ_OK
        if request.may_wait:
            return self._wait(descriptor, request)
        # A reader that was notified of a message in the queue must find that message.
        if queue.view.is_behind():
            request.deadline = request.called_at + CATCH_UP_S
            return self._wait(descriptor, request)
        return request.nothing

    def _wait(self, descriptor: OpenQueue, request: ReceiveRequest) -> Status:
        queue = descriptor.queue
        if len(queue.waiting) >= WAITING_MAX:
            return Status.MQ_ERROR_INSUFFICIENT_RESOURCES
        if request.cursor is not None:
            request.cursor.move(
                CursorEvent.WAIT_TO_RECEIVE if request.receives else CursorEvent.WAIT_TO_PEEK
            )
        queue.waiting.append(Waiter(descriptor, request))
        if request.deadline is not None:
            self._timers.set((descriptor, request), request.deadline)
        return Status.MQ_OK

    def _found(self, descriptor: OpenQueue, request: ReceiveRequest, lookup_id: int) -> None:
        request.move(RequestEvent.FOUND)
        self._timers.set((descriptor, request), None)
        request.found = lookup_id
        if request.cursor is not None:
            request.cursor_was = request.cursor.place
            request.cursor.move(
                CursorEvent.TAKEN if request.receives else CursorEvent.SHOWN, lookup_id
            )
        if request.receives:
            descriptor.queue.move(lookup_id, PositionEvent.BEGIN)
        reading = self._new_number()
        self._readings[reading] = descriptor, request
        assert request.call is not None, "a request whose caller is gone waits for nothing"
        self._emit(
            ReadMessage(
                reading, descriptor.queue.view, sequence_of(lookup_id), request.call.connection
            )
        )

    # --- results of reading a message -------------------------------------------------------------

    def read(self, reading: int, message: ServedMessage, now: float) -> None:
        """Answer the request of the :class:`.ReadMessage` number ``reading`` with ``message``."""
        descriptor, request = self._readings.pop(reading)
        if request.state is not RequestState.READING:
            return
        call, request.call = request.call, None
        # Without a call, the caller is gone and the message goes back to the queue.
        if call is None or request.found is None:
            self._fail(descriptor, request)
            return
        limits = request.limits
        sections = cut_sections(
            message.packet,
            srmp=message.srmp,
            max_body_size=limits.body,
            max_compound_message_size=limits.compound_message,
        )
        # The response of a peek has a sequence too, although 3.1.4.7 does not mention peeks: a
        # reader rebuilds the lookup identifier from the response.
        response = StartReceiveResponse(
            message.arrived_at, sequence_of(request.found), sections, Status.MQ_OK
        )
        if request.receives:
            request.move(RequestEvent.HANDED_OVER)
            self._timers.set((descriptor, request), now + CLEANUP_S)
        else:
            request.move(RequestEvent.SHOWN)
            del descriptor.requests[request.id]
        self._emit(AnswerCall(call, response.encode(call.syntax)))

    def not_read(self, reading: int, status: Status) -> None:
        """Fail the request of the :class:`.ReadMessage` with the number ``reading``.

        Its message cannot be read. The caller gets ``status``.
        """
        descriptor, request = self._readings.pop(reading)
        if request.state is RequestState.READING:
            self._answer(request, status)
            self._fail(descriptor, request)

    def vanished(self, reading: int) -> None:
        """Search again for a request whose message left the queue before it was read.

        The search is the same as if the call were received now.
        """
        descriptor, request = self._readings.pop(reading)
        if request.state is not RequestState.READING or request.found is None:
            return
        if descriptor.queue.state_of(request.found) not in (
            PositionState.GONE,
            PositionState.STORING,
        ):
            descriptor.queue.move(request.found, PositionEvent.VANISHED)
        request.vanished()
        # Without a call, the caller is gone and does not wait.
        cancelled = request.call is None
        status = (
            Status.MQ_ERROR_OPERATION_CANCELLED if cancelled else self._look(descriptor, request)
        )
        # The request does not wait, neither at its cursor nor otherwise, so it ends here.
        if status is not Status.MQ_OK:
            self._give_up(descriptor, request, RequestEvent.CANCELLED, status)

    def _fail(self, descriptor: OpenQueue, request: ReceiveRequest) -> None:
        request.move(RequestEvent.FAILED)
        del descriptor.requests[request.id]
        if request.receives:
            self._give_back(descriptor, request, None)

    # --- R_CancelReceive, time-outs, callers that are gone ----------------------------------------

    def cancel(self, descriptor: OpenQueue, request_id: int) -> Status:
        """End the wait of a request, which is answered MQ_ERROR_OPERATION_CANCELLED.

        Return MQ_OK, or STATUS_NOT_FOUND if no request with this identifier waits at this handle.
        """
        request = descriptor.requests.get(request_id)
        if request is None or request.state is not RequestState.WAITING:
            return Status.STATUS_NOT_FOUND
        self._stop_waiting(
            descriptor, request, RequestEvent.CANCELLED, Status.MQ_ERROR_OPERATION_CANCELLED
        )
        return Status.MQ_OK

    def call_cancelled(self, descriptor: OpenQueue, request: ReceiveRequest) -> None:
        """End the wait of a request, called because its caller no longer wants to wait.

        The call is answered. A request that does not wait stays unchanged.
        """
        if request.state is RequestState.WAITING:
            self._stop_waiting(
                descriptor, request, RequestEvent.CANCELLED, Status.MQ_ERROR_OPERATION_CANCELLED
            )

    def call_gone(self, descriptor: OpenQueue, request: ReceiveRequest) -> None:
        """End the wait of a request, called because its caller is gone; its call gets no answer.

        Other readers get the message.
        """
        request.call = None
        self.call_cancelled(descriptor, request)

    def _stop_waiting(
        self, descriptor: OpenQueue, request: ReceiveRequest, event: RequestEvent, status: Status
    ) -> None:
        descriptor.queue.stop_waiting(request)
        if request.cursor is not None:
            request.cursor.give_up()
        self._give_up(descriptor, request, event, status)

    def _give_up(
        self, descriptor: OpenQueue, request: ReceiveRequest, event: RequestEvent, status: Status
    ) -> None:
        del descriptor.requests[request.id]
        self._timers.set((descriptor, request), None)
        self._answer(request, status)
        request.move(event)

    def _answer(self, request: ReceiveRequest, status: Status) -> None:
        call, request.call = request.call, None
        if call is not None:
            self._emit(AnswerCall(call, failure(status).encode(call.syntax)))

    # --- R_EndReceive, R_EndTransactionalReceive --------------------------------------------------

    def end(self, descriptor: OpenQueue, call: CallId, asked: EndReceiveRequest) -> None:
        """Process R_EndReceive or R_EndTransactionalReceive.

        A call that removes a message is answered when the removal is stored.
        """
        status = self._end(descriptor, call, asked)
        if status is not None:
            self._emit(AnswerCall(call, StatusResponse(status).encode(call.syntax)))

    def _end(self, descriptor: OpenQueue, call: CallId, asked: EndReceiveRequest) -> Status | None:
        """End the request; return the status to answer now, or ``None``.

        ``None`` means that ``call`` is answered when the removal is stored.
        """
        if not any(each.receives for each in descriptor.requests.values()):
            return Status.MQ_ERROR_INVALID_HANDLE
        request = descriptor.requests.get(asked.request_id)
        if request is None or request.state is not RequestState.HELD or request.found is None:
            return Status.MQ_ERROR_INVALID_PARAMETER
        del descriptor.requests[request.id]
        self._timers.set((descriptor, request), None)
        if descriptor.queue.state_of(request.found) is PositionState.GONE:
            request.move(RequestEvent.CLOSED)
            return Status.MQ_ERROR_MESSAGE_NOT_FOUND
        if asked.ack != RR_ACK:
            request.move(RequestEvent.REFUSED)
            return None if self._give_back(descriptor, request, call) else Status.MQ_OK
        self._acknowledge(descriptor, request, request.found, call, RemovalReason.RECEIVED)
        return None

    def move(
        self, descriptor: OpenQueue, call: CallId, request: ReceiveRequest, lookup_id: int
    ) -> None:
        """Process R_MoveMessage for an available message.

        ``call`` is answered when the move is stored.
        """
        request.found = lookup_id
        request.move(RequestEvent.FOUND)
        # The other queue is the reader of this request.
        request.move(RequestEvent.HANDED_OVER)
        descriptor.queue.move(lookup_id, PositionEvent.BEGIN)
        self._acknowledge(descriptor, request, lookup_id, call, RemovalReason.MOVED)

    def _acknowledge(
        self,
        descriptor: OpenQueue,
        request: ReceiveRequest,
        found: int,
        call: CallId,
        reason: RemovalReason,
    ) -> None:
        request.move(RequestEvent.ACKNOWLEDGED)
        queue = descriptor.queue
        purged = queue.state_of(found) is PositionState.PURGE_PENDING
        queue.move(found, PositionEvent.TAKE)
        self._take(descriptor, request, found, call, RemovalReason.PURGED if purged else reason)

    def _take(
        self,
        descriptor: OpenQueue,
        request: ReceiveRequest,
        found: int,
        call: CallId | None,
        reason: RemovalReason,
    ) -> None:
        """Order to store that a message has left its queue; ``call`` is answered after that."""
        storing = self._new_number()
        self._storings[storing] = _Storing(call, descriptor, request, found)
        descriptor.unsettled.add(request)
        to = request.to if reason is RemovalReason.MOVED else None
        self._emit(Take(storing, descriptor.queue.view, sequence_of(found), reason, to))

    def stored(self, storing: int) -> None:
        """Complete the removal of a message (a :class:`Take`) that is now on stable storage.

        The call that waited for it is answered.
        """
        call, descriptor, request, found = self._storings.pop(storing)
        descriptor.queue.move(found, PositionEvent.STORED)
        if request.state is RequestState.STORING:
            request.move(RequestEvent.STORED)
        self._settle(descriptor, request)
        if call is not None:
            self._emit(AnswerCall(call, StatusResponse(Status.MQ_OK).encode(call.syntax)))

    def not_stored(self, storing: int, status: Status) -> None:
        """Undo the removal of a message (a :class:`Take`) that could not be stored.

        The message is available in its queue as before, and no reader has it. The call that waited
        gets ``status``.
        """
        call, descriptor, request, found = self._storings.pop(storing)
        descriptor.queue.move(found, PositionEvent.NOT_STORED)
        if request.state is RequestState.STORING:
            request.move(RequestEvent.NOT_STORED)
        if call is not None:
            self._emit(AnswerCall(call, StatusResponse(status).encode(call.syntax)))
        self.satisfy(descriptor.queue, ((found, found),))
        self._settle(descriptor, request)

    def _settle(self, descriptor: OpenQueue, request: ReceiveRequest) -> None:
        descriptor.unsettled.discard(request)
        if descriptor.closed and not descriptor.unsettled:
            self._on_settled(descriptor)

    # --- locks ------------------------------------------------------------------------------------

    def _give_back(
        self, descriptor: OpenQueue, request: ReceiveRequest, call: CallId | None
    ) -> bool:
        """End the lock of a request's message; return whether the message is removed instead.

        Usually the message is available again. It is removed if a purge waited for its lock. Then
        the removal is stored now, and ``call`` is answered after that.
        """
        queue, found = descriptor.queue, request.found
        if found is None or queue.state_of(found) is PositionState.GONE:
            return False
        if queue.move(found, PositionEvent.RETURN) is PositionState.AVAILABLE:
            self.satisfy(queue, ((found, found),))
            return False
        self._take(descriptor, request, found, call, RemovalReason.PURGED)
        return True

    def satisfy(self, queue: SharedQueue, fresh: Sequence[tuple[int, int]]) -> None:
        """Give available messages to requests that wait, the request that waits longest first.

        ``fresh`` are closed runs of lookup identifiers of messages that just became available. A
        request without a cursor gets the first available message of the queue. A request that waits
        at a cursor gets one of the fresh messages, wherever it is; messages that the cursor had
        passed are not found.
        """
        for waiter in tuple(queue.waiting):
            descriptor, request = waiter.descriptor, waiter.request
            if request.state is not RequestState.WAITING or (
                request.receives and queue.view.holds_receivers()
            ):
                continue
            found = queue.head() if request.cursor is None else queue.first_of(fresh)
            if found is not None:
                queue.stop_waiting(request)
                self._found(descriptor, request, found)

    def add_arrived(self, queue: SharedQueue, runs: Iterable[ArrivedRun]) -> None:
        """Add messages that arrived in the queue, and give them to waiting requests.

        When all messages of the queue are known, requests that do not want to wait are answered.
        """
        runs = tuple(runs)
        queue.add_arrived(runs)
        if queue.waiting:
            self.satisfy(queue, in_order(runs))
        if queue.view.is_behind():
            return
        for waiter in tuple(queue.waiting):
            if not waiter.request.may_wait:
                self._stop_waiting(
                    waiter.descriptor,
                    waiter.request,
                    RequestEvent.TIMED_OUT,
                    waiter.request.nothing,
                )

    def close(self, descriptor: OpenQueue, status: Status) -> None:
        """End all requests and locks of a handle that is closed, run down or no longer usable.

        Calls that wait are answered with ``status``.
        """
        for request in tuple(descriptor.requests.values()):
            was = request.state
            self._timers.set((descriptor, request), None)
            descriptor.queue.stop_waiting(request)
            if request.cursor is not None:
                request.cursor.give_up()
            self._answer(request, status)
            request.move(RequestEvent.CLOSED)
            if request.receives and was in (RequestState.READING, RequestState.HELD):
                self._give_back(descriptor, request, None)
        descriptor.requests.clear()

    # --- timers -----------------------------------------------------------------------------------

    def timer(self) -> float | None:
        """Return the time at which to call :meth:`handle_timer`, or ``None`` if no timer runs."""
        return self._timers.next()

    def handle_timer(self, now: float) -> None:
        """Process all timers up to ``now``.

        Waits end, and locks end that no R_EndReceive ended within CLEANUP_S.
        """
        # One at a time: the end of a lock may give its message to a reader whose wait ends now too.
        while due := self._timers.due(now, at_most=1):
            ((descriptor, request),) = due
            if request.state is RequestState.WAITING:
                status = Status.MQ_ERROR_IO_TIMEOUT if request.may_wait else request.nothing
                self._stop_waiting(descriptor, request, RequestEvent.TIMED_OUT, status)
            else:
                del descriptor.requests[request.id]
                request.move(RequestEvent.CLEANED_UP)
                self._give_back(descriptor, request, None)
