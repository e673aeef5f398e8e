"""Send to one service by WS-ReliableMessaging: a sequence and its numbered messages.

    post ─▶ waiting ─▶ a number, written with its serial ─▶ synced ─▶ Source.enqueue
            expires here
    ─▶ poll ─▶ POST ─▶ acknowledged ─▶ done
       room, window and resends are decided by the source alone

A *serial* is the number of a message in its outgoing queue; a *number* is its number in the
sequence. Two rules ensure that neither a kill nor a lost answer loses or duplicates a message.
First, a number is written before its message is sent (:meth:`ReliableWire.take_change`, in the
dispatcher's next transaction). So after a restart the same message is sent under the same number,
and the destination recognizes the repeat. Second, the destination may no longer know the sequence.
Then a message that the destination may have accepted is never numbered again by a guess. The queue
is held, and an operator decides between ``resend`` and ``drop``. A message is sent again
automatically only if the service certainly did not accept it. A fault as the answer to the message
proves this, or a Final acknowledgement.

Requests are sent one after the other over one connection. Each answer acknowledges, so more
connections gain nothing, and numbers arrive in their order.
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import Callable
from typing import Any

from srmp_spark.queue_manager.posting.http_answer import PeerAnswer
from srmp_spark.queue_manager.sender.reliable.reliable_limits import (
    CREATING_SECONDS,
    END_TRIES,
    FALLS_AT_ONCE,
    IDLE_SECONDS,
    LOST_AGAIN,
    LOST_PERHAPS,
    LOST_WITH,
    NO_SEQUENCE,
    SILENT_ANSWERS,
    TROUBLE_SECONDS,
    settings_of,
)
from srmp_spark.queue_manager.sender.reliable.session_book import SessionBook
from srmp_spark.queue_manager.sender.reliable.session_source import envelope_of, restored_source
from srmp_spark.queue_manager.sender.reliable.session_status import status_of
from srmp_spark.queue_manager.sender.reliable.soap_connection import (
    NoAnswerError,
    SoapAnswer,
    SoapClientConnection,
    read_answer,
)
from srmp_spark.queue_manager.sender.reliable.wire_owner import Change, WireOwner
from srmp_spark.srmp.sending.outgoing_effects import QueueKey, Send
from srmp_spark.srmp.sending.outgoing_queue import RECEIVED_NOTHING
from srmp_spark.store.outbox.tables.sessions import SessionRow, runs_of, serials_of
from srmp_spark.wsrm.codec.elements import ABSENT, SoapFault
from srmp_spark.wsrm.codec.faults import FaultCode, code_of
from srmp_spark.wsrm.codec.versions import Versions
from srmp_spark.wsrm.limits import RESEND_LAST
from srmp_spark.wsrm.sending.source import RmSource
from srmp_spark.wsrm.sending.source_effects import (
    Acknowledged,
    Control,
    Event,
    Output,
    SequenceEnded,
    Suspicious,
)
from srmp_spark.wsrm.sending.source_states import OVER, RmSourceState

# An acknowledgement counts as an answer with status 200.
_TAKEN = PeerAnswer(200, "", None)
_REFUSES_MESSAGE = (FaultCode.UNKNOWN_SEQUENCE, FaultCode.SEQUENCE_CLOSED)
"""Faults that, as the answer to a message, state that the message was not accepted."""

log = logging.getLogger(__name__)


class ReliableWire:
    """Sends the messages of one destination in reliable sequences.

    ``now`` is in seconds of the monotonic clock. The messages and their numbers are in a
    :class:`.session_book.SessionBook`, and the protocol is in a
    :class:`~srmp_spark.wsrm.sending.source.RmSource`.
    """

    def __init__(
        self,
        key: QueueKey,
        url: str,
        owner: WireOwner,
        connection: SoapClientConnection,
        *,
        poll_interval: float,
        late_at: Callable[[], int],
        row: SessionRow | None = None,
    ) -> None:
        """Start the task of a destination.

        ``owner`` receives the events. ``late_at`` returns the time against which expiry is checked,
        in microseconds since 1970. ``poll_interval`` is in seconds. ``row`` is the sequence as the
        last process saved it, or ``None``.
        """
        self.key = key
        self.source: RmSource | None = None
        self._url = url
        self._owner = owner
        self._connection = connection
        self._poll_interval = poll_interval
        self._late_at = late_at
        self._versions = Versions()
        self._begun_at = 0
        self._lost_because = ""
        self._book = SessionBook()
        self._planned: Change | None = None
        self._writing: Change | None = None
        self._dirty = False
        self._silent = 0
        self._falls = 0
        """Number of sequences that the service has lost since its last acknowledgement."""
        self._trouble: str | None = None
        self._retry_at = 0.0
        """Time before which nothing is sent after trouble, in seconds of the monotonic clock."""
        self._saved_buffer_remaining = ABSENT
        """The BufferRemaining (free room of the destination, in messages) that was saved last."""
        self._wake = asyncio.Event()
        self._used_at = time.monotonic()
        self._is_open = True
        if row is not None:
            self._restore(row)
        self._task = asyncio.get_running_loop().create_task(self._run())

    def _restore(self, row: SessionRow) -> None:
        self._book.restore(serials_of(row.numbers))
        self._begun_at = row.begun_at
        if row.lost:
            self._lost_because = row.lost
            asyncio.get_running_loop().call_soon(
                self._owner.on_trouble, self.key, self._lost_because
            )
        if not row.create_id:
            return
        self._versions = Versions.load(row.versions)
        self.source = restored_source(row, self._book.in_flight(), self._url, self._poll_interval)

    def __repr__(self) -> str:
        return (
            f"<ReliableWire {self._url} {self.source!r} {self._book!r} lost={self._lost_because!r}>"
        )

    # --- what the dispatcher does -----------------------------------------------------------------

    def post(self, send: Send) -> None:
        """Send a message. Its end is reported once, later, to the owner.

        A message that already has a number keeps it, and is sent again under it. If the sequence
        was lost, the message and all held ones get numbers of a new sequence.
        """
        number = self._book.number_of(send)
        now = time.monotonic()
        if send.serial in self._book.acknowledged_on_hold:
            self._book.ending.append(send)
            asyncio.get_running_loop().call_soon(self._tell_taken)
        elif number is None or self.source is None:
            self._book.wait(send)
            if self._lost_because:
                # An operator who resumes a held queue decides that all its messages are sent again.
                self._forget_sequence()
            if self.source is not None and self.source.state is RmSourceState.CREATING:
                self.source.hurry(now)
                self._retry_at = 0.0
        else:
            self._book.sends[number] = send
            self.source.resend(number, now)
        self._used_at = now
        self._wake.set()

    def close(self, why: str) -> None:
        """Send nothing more until messages are posted again; numbers stay assigned.

        All messages that are not acknowledged are reported as failed, with the reason ``why``, or
        the reason why the sequence is lost.
        """
        also: list[Send] = []
        if self._planned is not None:
            also += self._planned.numbered
            self._planned = self._planned._replace(numbered=())
        if self._writing is not None and not self._writing.is_held:
            also += self._writing.numbered
            self._writing = self._writing._replace(is_held=True)
        for send, left in self._book.take_all(also):
            self._owner.on_failure(send, self._lost_because or why, left)

    def reset(self) -> None:
        """Continue in a new sequence, because an operator decided so.

        All messages that are not acknowledged are sent again, even those that may have been
        accepted.
        """
        self._forget_sequence()
        self._wake.set()

    def give_up(self) -> None:
        """Discard all numbers and the record of taken messages, because an operator decided so.

        Taken messages are explained in :mod:`.session_book`.
        """
        self._book.acknowledged_on_hold.clear()
        self.reset()

    def hurry(self) -> None:
        """Make the next attempt now, and send all messages in flight again.

        Called when an operator decided so.
        """
        if self.source is not None:
            now = time.monotonic()
            self.source.hurry(now)
            for number in self._book.sends:
                self.source.resend(number, now)
        self._retry_at = 0.0
        self._wake.set()

    @property
    def is_over(self) -> bool:
        """Return whether the wire can be dropped.

        Such a wire has no messages (waiting, sent or taken), no sequence, no sequence that was
        reported as lost, and no change that must still be stored in the outbox.
        """
        return (
            self.source is None
            and not self._book.waiting
            and not self._book.sends
            and not self._book.acknowledged_on_hold
            and not self._lost_because
            and self._planned is None
            and self._writing is None
            and not self._dirty
        )

    def end(self) -> asyncio.Task[None]:
        """Close the connection, cancel the task, and report nothing.

        Return the cancelled task, which is about to end.
        """
        self._is_open = False
        self._task.cancel()
        self._connection.close()
        return self._task

    def status(self) -> dict[str, Any]:
        """Return the sequence as ``status.outgoing`` shows it (INTERFACE.md section 3)."""
        return status_of(self.source, is_lost=bool(self._lost_because))

    # --- what must be written before it counts ----------------------------------------------------

    def take_change(self) -> SessionRow | None:
        """Return the row to be written now, or ``None`` if the stored row is to be deleted.

        Call :meth:`stored` when the row is written. Until then no other change is planned.
        """
        self._dirty = False
        self._writing, self._planned = self._planned, None
        change = self._writing or Change()
        source = self.source
        serials = self._book.saved()
        if source is None:
            row = SessionRow(
                "",
                "",
                self._versions.dump(),
                0,
                runs_of(serials),
                lost=self._lost_because,
                begun_at=self._begun_at,
            )
            return row if self._lost_because or serials else None
        serials |= {
            source.assigned + 1 + index: send.serial for index, send in enumerate(change.numbered)
        }
        is_ending = change.ends or source.is_ending
        # A sequence that ends is written with the numbers of its messages alone: the LastMessage of
        # 1.0 gets the next number again.
        assigned = (source.last_number - 1 if source.last_number else source.assigned) + len(
            change.numbered
        )
        return SessionRow(
            source.create_id,
            source.identifier,
            self._versions.dump(),
            assigned,
            runs_of(serials),
            source.polling.buffer_remaining,
            is_ending,
            "",
            self._begun_at,
        )

    def stored(self) -> None:
        """Note that the row of :meth:`take_change` is on stable storage.

        Numbered messages may be sent from now on.
        """
        change, self._writing = self._writing, None
        source = self.source
        if change is not None and source is not None:
            for send in change.numbered:
                self._book.give(source.enqueue()[0], send, is_held=change.is_held)
            if change.ends:
                self._handle_events(source.end(time.monotonic()))
        if self._is_open:
            self._wake.set()

    def _plan(self, change: Change) -> None:
        self._planned = change
        self._owner.on_change(self.key)

    def _note(self) -> None:
        """Let the row be written in the dispatcher's next transaction."""
        if not self._dirty:
            self._dirty = True
            self._owner.on_change(self.key)

    # --- the loop ---------------------------------------------------------------------------------

    async def _run(self) -> None:
        # Check the flag too, because asyncio.wait_for of Python 3.11 may swallow the cancellation.
        while self._is_open:
            self._wake.clear()
            try:
                has_sent = await self._turn()
            except Exception as error:
                # This is a bug. Its message is sent again, and the others must not wait for it.
                log.exception("wsrm.failed destination=%s", self.key.destination)
                self._in_trouble(f"please report this: {error!r}")
                has_sent = False
            if not has_sent:
                await self._sleep()

    async def _sleep(self) -> None:
        # While a write is in progress, :meth:`stored` wakes this task.
        is_written = self._planned is None and self._writing is None
        times = [idle_at] if is_written and (idle_at := self._idle_at()) is not None else []
        if (
            (source := self.source) is not None
            and not self._writes_first()
            and (source.identifier or self._book.waiting)
        ):
            when = source.next_timer()
            if when is not None:
                times.append(when)
            if self._retry_at:
                times = [max(self._retry_at, min(times, default=0.0))]
        seconds = max(0.0, min(times) - time.monotonic()) if times else None
        try:
            await asyncio.wait_for(self._wake.wait(), seconds)
        except asyncio.TimeoutError:
            return

    async def _turn(self) -> bool:
        """Plan changes, then send the messages that are due.

        Return whether something was sent and there is no trouble.
        """
        now = time.monotonic()
        self._make_plans(now)
        source = self.source
        if source is None or self._writes_first() or now < self._retry_at:
            return False
        self._retry_at = 0.0
        if source.state is RmSourceState.CREATING and not self._book.waiting:
            return False
        outputs = source.poll(now, self._has, new_max=1)
        for output in outputs:
            if source is not self.source or not await self._send(source, output):
                return False
        if source is self.source and source.state in OVER and source.next_timer() is None:
            self._forget_sequence()
        return bool(outputs)

    def _writes_first(self) -> bool:
        """Return whether a new sequence must still be written before CreateSequence is sent."""
        changes = [each for each in (self._planned, self._writing) if each is not None]
        return any(each.begins for each in changes)

    def _has(self, number: int) -> bool:
        return number in self._book.sends or (
            self.source is not None and number == self.source.last_number
        )

    def _idle_at(self) -> float | None:
        """Return the time at which an idle sequence ends, or ``None`` if the sequence is in use.

        The time is in seconds of the monotonic clock. A sequence that the service has not created
        yet is kept longer.
        """
        source = self.source
        if (
            source is None
            or self._book.waiting
            or self._book.sends
            or not source.is_idle
            or source.is_ending
        ):
            return None
        return self._used_at + (
            CREATING_SECONDS if source.state is RmSourceState.CREATING else IDLE_SECONDS
        )

    def _make_plans(self, now: float) -> None:
        if self._planned is not None or self._writing is not None or self._lost_because:
            return
        source, idle_at = self.source, self._idle_at()
        if source is None:
            if self._book.waiting:
                self._versions = Versions.load(self._book.waiting[0].stored.reliable)
                self._begun_at = time.time_ns() // 1_000
                self.source = RmSource(
                    settings_of(self._url, self._versions, self._poll_interval),
                    f"urn:uuid:{uuid.uuid4()}",
                    now,
                )
                self._plan(Change(begins=True))
        elif source.state is RmSourceState.OPEN and not source.is_ending:
            if self._book.waiting and source.room:
                self._number(source)
            elif idle_at is not None and now >= idle_at:
                self._plan(Change(ends=True))
        elif source.state is RmSourceState.CREATING and idle_at is not None and now >= idle_at:
            self._forget_sequence()
        elif (
            source.state in (RmSourceState.CLOSING, RmSourceState.TERMINATING)
            and source.control_tries >= END_TRIES
        ):
            log.info(
                "wsrm.end_unanswered destination=%s sequence=%s",
                self.key.destination,
                source.identifier,
            )
            self._forget_sequence()

    def _number(self, source: RmSource) -> None:
        """Plan numbers for waiting messages, as many as the source has room for.

        Messages that have expired get no number and are reported as expired. If the next message
        needs other versions of the protocols, the end of the sequence is planned.
        """
        late_at = self._late_at()
        numbered: list[Send] = []
        while self._book.waiting and len(numbered) < source.room:
            send = self._book.waiting[0]
            message = send.stored.message
            until = (
                message.expires_at
                if message.time_to_reach_queue is None
                else message.time_to_reach_queue
            )
            if until is not None and until < late_at:
                self._owner.on_expired(self._book.waiting.pop(0))
                continue
            if send.stored.reliable != self._versions.dump():
                break
            numbered.append(self._book.waiting.pop(0))
        if numbered:
            self._plan(Change(numbered=tuple(numbered)))
        elif (
            self._book.waiting
            and self._book.waiting[0].stored.reliable != self._versions.dump()
            and source.is_idle
        ):
            # The next messages are in other versions, so they need a sequence of their own after
            # this one.
            self._plan(Change(ends=True))

    # --- sending ----------------------------------------------------------------------------------

    async def _send(self, source: RmSource, output: Output) -> bool:
        """Send one message and handle its answer. Return ``False`` if there is trouble.

        A message that was acknowledged meanwhile, or whose queue is held, is not sent; this counts
        as no trouble.
        """
        number = 0
        if isinstance(output, Control):
            message = output.message
        else:
            number = output.number
            if number not in source.in_flight:
                # The message was acknowledged meanwhile.
                return True
            send = self._book.sends.get(number)
            if send is None and not output.is_last:
                # The message is on hold meanwhile.
                return True
            message = envelope_of(source, output, send)
            source.left(number, time.monotonic())
            if send is not None:
                self._owner.on_left(send)
        was_in_doubt = number in self._book.doubt
        if number:
            self._book.doubt.add(number)
        try:
            answer = await self._connection.post(message)
        except NoAnswerError as error:
            if number and not error.left and not was_in_doubt:
                self._book.doubt.discard(number)
            self._in_trouble(str(error))
            return False
        return self._answered(source, number, answer, was_in_doubt=was_in_doubt or answer.twice)

    def _answered(
        self, source: RmSource, number: int, answer: SoapAnswer, *, was_in_doubt: bool
    ) -> bool:
        if source is not self.source or not self._is_open:
            return True
        message, problem = read_answer(answer)
        fault = (
            message.content
            if message is not None and isinstance(message.content, SoapFault)
            else None
        )
        if number and fault is not None and code_of(fault) in _REFUSES_MESSAGE and not was_in_doubt:
            self._book.doubt.discard(number)
        before = len(source.in_flight), source.state
        if message is not None:
            for ack in message.acknowledgements:
                if ack.is_final and ack.identifier == source.identifier:
                    self._book.not_taken(ack.ranges)
            self._handle_events(source.received(message, time.monotonic()))
        if source is not self.source:
            return False
        if source.state in OVER:
            return True
        if source.state is RmSourceState.CREATING and fault is None:
            self._in_trouble(NO_SEQUENCE % (problem or f"answered {answer.status}"))
            return False
        if problem is not None:
            if number and answer.status in RECEIVED_NOTHING and not was_in_doubt:
                self._book.doubt.discard(number)
            self._in_trouble(problem)
            return False
        progress = (len(source.in_flight), source.state) != before or (
            message is not None and bool(message.acknowledgements)
        )
        self._silent = 0 if progress else self._silent + 1
        if self._silent >= SILENT_ANSWERS:
            self._in_trouble(f"{self._silent} answers without an acknowledgement: {LOST_PERHAPS}")
            return False
        if self._trouble is not None and not self._falls:
            self._trouble = None
            self._owner.on_trouble(self.key, None)
        return True

    def _handle_events(self, events: list[Event]) -> None:
        source = self.source
        assert source is not None
        for event in events:
            if isinstance(event, Acknowledged):
                self._falls = 0
                for first, last in event.ranges:
                    for number in range(first, last + 1):
                        self._book.doubt.discard(number)
                        self._finish(number)
            elif isinstance(event, Suspicious):
                log.warning(
                    'wsrm.suspicious destination=%s reason="%s"', self.key.destination, event.reason
                )
            elif isinstance(event, SequenceEnded):
                if event.fault is not None:
                    self._fell(source, event.fault)
            else:
                log.info(
                    "wsrm.sequence_begins destination=%s sequence=%s",
                    self.key.destination,
                    event.identifier,
                )
                self._note()
        if source.polling.buffer_remaining != self._saved_buffer_remaining:
            self._saved_buffer_remaining = source.polling.buffer_remaining
            self._note()
        self._used_at = time.monotonic()

    def _finish(self, number: int) -> None:
        """Report to the owner that the message of ``number`` is acknowledged.

        A message whose queue is on hold is only recorded as taken, and is reported when it is
        posted again.
        """
        send = self._book.sends.pop(number, None)
        if send is not None:
            self._owner.on_answer(send, _TAKEN)
            self._book.finish(number)
        elif self._book.take(number):
            self._note()

    def _tell_taken(self) -> None:
        """Report to the owner the messages that were acknowledged while they were on hold."""
        ending, self._book.ending = self._book.ending, []
        for send in ending:
            self._owner.on_answer(send, _TAKEN)
            self._book.acknowledged_on_hold.discard(send.serial)
            self._note()

    # --- trouble ----------------------------------------------------------------------------------

    def _in_trouble(self, why: str) -> None:
        """Report the failure ``why``, and pause until the source's next attempt is due.

        The pause is at least TROUBLE_SECONDS and at most RESEND_LAST. While the sequence is being
        created, waiting messages are returned to the engine.
        """
        if self._trouble != why:
            self._trouble = why
            log.info('wsrm.trouble destination=%s reason="%s"', self.key.destination, why)
        self._owner.on_trouble(self.key, why)
        now = time.monotonic()
        when = self.source.next_timer() if self.source is not None else None
        self._retry_at = max(now + TROUBLE_SECONDS, min(when or 0.0, now + RESEND_LAST))
        if self.source is not None and self.source.state is RmSourceState.CREATING:
            self._give_back(why)

    def _give_back(self, why: str) -> None:
        """Return the waiting messages, which have no number, to the engine as failed.

        The engine waits and hands out the messages again.
        """
        waiting, self._book.waiting = self._book.waiting, []
        for send in reversed(waiting):
            self._owner.on_failure(send, why, False)

    def _fell(self, source: RmSource, fault: SoapFault) -> None:
        """Handle that the destination no longer knows the sequence, or never created it.

        If messages are in doubt, the queue is held for an operator; otherwise a new sequence
        begins.
        """
        why = f"{fault.subcode.rpartition('}')[2] or 'Fault'}: {fault.reason[:200]}"
        if not source.identifier:
            log.warning('wsrm.refused destination=%s reason="%s"', self.key.destination, why)
            self._forget_sequence()
            self._owner.on_trouble(self.key, why)
            self._give_back(why)
            return
        doubtful = self._book.doubtful()
        log.warning(
            "wsrm.sequence_lost destination=%s sequence=%s unacknowledged=%d in_doubt=%d "
            'reason="%s"',
            self.key.destination,
            source.identifier,
            len(self._book.serials),
            len(doubtful),
            why,
        )
        if not doubtful:
            self._fell_again(why)
            return
        self._book.serials = {number: self._book.serials[number] for number in doubtful}
        self._lost_because = LOST_WITH % (why, len(doubtful))
        self.source = None
        # The owner closes this wire, so all held messages are returned to the engine.
        self._owner.on_lost(self.key, self._lost_because)
        self._planned = None
        # Note the change last: a lost sequence begins again with the first message that is posted.
        self._note()

    def _fell_again(self, why: str) -> None:
        """Begin a new sequence for all messages, because none is in doubt.

        From FALLS_AT_ONCE lost sequences on, the messages are returned to the engine first, which
        waits.
        """
        self._forget_sequence()
        self._falls += 1
        is_again = self._falls >= FALLS_AT_ONCE
        self._trouble = LOST_AGAIN % (self._falls, why) if is_again else why
        self._owner.on_trouble(self.key, self._trouble)
        if is_again:
            self._give_back(self._trouble)

    def _forget_sequence(self) -> None:
        """Forget the sequence, without telling the service; the next message begins another one.

        Numbered messages that are not acknowledged get new numbers in that sequence.
        """
        changes = [
            each for each in (self._planned, self._writing) if each is not None and not each.is_held
        ]
        self._book.begin_anew([send for change in changes for send in change.numbered])
        self._writing = Change() if self._writing is not None else None
        self._planned = self.source = None
        self._lost_because, self._silent = "", 0
        self._note()
        self._wake.set()
