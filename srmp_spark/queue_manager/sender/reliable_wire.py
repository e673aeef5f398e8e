"""What goes to one service by WS-ReliableMessaging: its sequence, the messages that have numbers in it, and those that wait.

    post ─▶ waiting ─▶ a number, written with its serial ─▶ synced ─▶ Source.enqueue ─▶ poll ─▶ POST ─▶ acknowledged ─▶ done
             expires here                                             room, window, resends: the source's word alone

Two rules make that neither a kill nor a lost answer loses or doubles anything. A number is written before its message leaves
(:meth:`ReliableWire.take_change`, in the dispatcher's next transaction), so after a restart the same message goes under the same
number, and the destination knows it. And where the destination knows the sequence no more, a message that it may have taken is
never numbered again by a guess: the queue is held, and an operator says ``resend`` or ``drop``. What the service has refused with
the very fault that says so, or has told in a Final acknowledgement that it has not, it has not: that goes on by itself.

Requests go one after the other over one connection. Each answer acknowledges, so nothing is gained by more, and numbers arrive
in their order.
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from bisect import insort
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from srmp_spark.errors import ConfigurationError, RemoteProtocolError
from srmp_spark.queue_manager.http_answer import PeerAnswer
from srmp_spark.queue_manager.sender.soap_connection import NoAnswerError, SoapAnswer, SoapConnection
from srmp_spark.srmp.outgoing_effects import QueueKey, Send
from srmp_spark.srmp.outgoing_queue import RECEIVED_NOTHING
from srmp_spark.srmp.outgoing_reliable import HANDED_OUT_MAX
from srmp_spark.srmp.serial_runs import SerialRuns
from srmp_spark.store.outbox.sessions import SessionRow, runs_of, serials_of
from srmp_spark.wsrm.decoder import decode
from srmp_spark.wsrm.elements import ABSENT, Fault, SoapMessage
from srmp_spark.wsrm.faults import FaultCode, code_of
from srmp_spark.wsrm.limits import RESEND_LAST
from srmp_spark.wsrm.polling_states import PollingState
from srmp_spark.wsrm.source import Source, SourceRow
from srmp_spark.wsrm.source_effects import Acknowledged, Control, Ended, Event, Output, SourceSettings, Suspicious, Transmit
from srmp_spark.wsrm.source_states import OVER, SourceState
from srmp_spark.wsrm.versions import Versions

IDLE_SECONDS = 10.0
"""A sequence in which nothing is to be sent is closed and terminated: below the ten minutes after which WCF drops one, and early
enough that a service does not keep sessions of batches that are long over. The next message begins another one."""
CREATING_SECONDS = 600.0
"""And one that was never answered for is forgotten when nothing waits for it."""
END_TRIES = 4
"""CloseSequence or TerminateSequence without its answer: everything is acknowledged by then, so nothing depends on it."""
SILENT_ANSWERS = 4
"""Complete answers without an acknowledgement of what was asked for, until ``status`` tells: CXF answers 200 and nothing about a
sequence that it does not know."""
TROUBLE_SECONDS = 0.5
"""The shortest pause after any trouble."""
WINDOW = HANDED_OUT_MAX // 2
"""Messages on their way at most where the destination says nothing of its room."""

_TAKEN = PeerAnswer(200, "", None)
"""What being acknowledged counts as."""
_REFUSES_MESSAGE = (FaultCode.UNKNOWN_SEQUENCE, FaultCode.SEQUENCE_CLOSED)
"""As the answer to a message these say that it was not taken."""

log = logging.getLogger(__name__)


class Owner(Protocol):
    """Whom a wire tells."""

    def on_answer(self, send: Send, answer: PeerAnswer) -> object:
        """It is acknowledged."""

    def on_failure(self, send: Send, why: str, left: bool) -> object:  # noqa: FBT001  # as of the other roads
        """It is not, and goes back to the engine; ``left``: the destination may have it."""

    def on_expired(self, send: Send) -> object:
        """Its time was over before it had a number."""

    def on_left(self, send: Send) -> object:
        """It goes out now, perhaps again."""

    def on_trouble(self, key: QueueKey, why: str | None) -> object:
        """Why nothing is taken; ``None``: it is again."""

    def on_lost(self, key: QueueKey, why: str) -> object:
        """The sequence is lost with messages that may have been taken: hold the queue."""

    def on_change(self, key: QueueKey) -> object:
        """There is something to write: :meth:`ReliableWire.take_change`."""


class _Change(NamedTuple):
    """What a write makes true."""

    numbered: tuple[Send, ...] = ()
    ends: bool = False
    begins: bool = False
    is_withdrawn: bool = False
    """The queue was held meanwhile: they keep their numbers, and are posted again."""


class ReliableWire:
    """One destination."""

    def __init__(
        self, key: QueueKey, url: str, owner: Owner, connection: SoapConnection, *, poll_interval: float,
        late_at: Callable[[], int], row: SessionRow | None = None,
    ) -> None:  # fmt: skip
        """``late_at``: the time by which messages expire. ``row``: the sequence as it was saved."""
        self.key = key
        self.source: Source | None = None
        self._url = url
        self._owner = owner
        self._connection = connection
        self._poll_interval = poll_interval
        self._late_at = late_at
        self._versions = Versions()
        self._begun_at = 0
        self._lost = ""
        self._waiting: list[Send] = []
        """Without a number, by serial."""
        self._sends: dict[int, Send] = {}
        """By number; those of a queue that is on hold are not here."""
        self._serials: dict[int, int] = {}
        """Of every number whose message is not finished."""
        self._numbers: dict[int, int] = {}
        self._doubt: set[int] = set()
        """Numbers that the destination may have."""
        self._planned: _Change | None = None
        self._writing: _Change | None = None
        self._dirty = False
        self._hushed = False
        """Restarted while polling: what the destination says now comes first."""
        self._silent = 0
        self._trouble: str | None = None
        self._retry_at = 0.0
        """In trouble nothing leaves before."""
        self._told = ABSENT
        """The BufferRemaining that was noted last."""
        self._wake = asyncio.Event()
        self._used_at = time.monotonic()
        self._is_open = True
        if row is not None:
            self._restore(row)
        self._task = asyncio.get_running_loop().create_task(self._run())

    def _restore(self, row: SessionRow) -> None:
        self._serials = serials_of(row.numbers)
        self._numbers = {serial: number for number, serial in self._serials.items()}
        self._begun_at = row.begun_at
        if row.lost:
            self._lost = row.lost
            return
        try:
            self._versions = Versions.load(row.versions)
        except ConfigurationError as error:
            self._lost = f"its versions cannot be read: {error}"
            return
        state = SourceState.OPEN if row.identifier else SourceState.CREATING
        in_flight = SerialRuns()
        for number in sorted(self._serials):
            in_flight.append(number, number)
        self._doubt = set(self._serials)
        now = time.monotonic()
        self.source = Source.restored(self._settings(), SourceRow(
            row.create_id, row.identifier, state, row.assigned, row.assigned, tuple(in_flight), row.buffer_remaining, 0, False
        ), now)  # fmt: skip
        self._hushed = row.buffer_remaining == 0
        if row.ending:
            self.source.end(now)

    def _settings(self) -> SourceSettings:
        rm, soap, addressing = self._versions
        return SourceSettings(
            to=self._url, soap=soap, addressing=addressing, rm=rm, window=WINDOW, poll_interval=self._poll_interval
        )

    def __repr__(self) -> str:
        return f"<ReliableWire {self._url} {self.source!r} waiting={len(self._waiting)} lost={self._lost!r}>"

    # --- what the dispatcher does -----------------------------------------------------------------------------------------

    def post(self, send: Send) -> None:
        """Send it; its end is told once, later."""
        number = self._numbers.get(send.serial)
        now = time.monotonic()
        if number is None or self.source is None:
            insort(self._waiting, send, key=lambda each: each.serial)
            if self._lost:
                self._forget_sequence()  # whoever lets a held queue go on decides that it all goes again
            if self.source is not None and self.source.state is SourceState.CREATING:
                self.source.hurry(now)
                self._retry_at = 0.0
        elif number <= self.source.sent and number not in self.source.in_flight:
            self._sends[number] = send
            asyncio.get_running_loop().call_soon(self._finish, number)
        else:
            self._sends[number] = send
            self.source.resend(number, now)
        self._used_at = now
        self._wake.set()

    def close(self, why: str) -> None:
        """Send nothing more until it is posted again; numbers stay what they are."""
        held = [(send, number in self._doubt) for number, send in self._sends.items()]
        held += [(send, False) for send in self._waiting]
        if self._planned is not None:
            held += [(send, False) for send in self._planned.numbered]
            self._planned = self._planned._replace(numbered=())
        if self._writing is not None and not self._writing.is_withdrawn:
            held += [(send, False) for send in self._writing.numbered]
            self._writing = self._writing._replace(is_withdrawn=True)
        self._sends.clear()
        self._waiting = []
        for send, left in sorted(held, key=lambda each: -each[0].serial):
            self._owner.on_failure(send, why, left)

    def reset(self) -> None:
        """An operator's word: go on in a new sequence. What is not acknowledged goes again, also what may have been taken."""
        self._forget_sequence()
        self._wake.set()

    def hurry(self) -> None:
        """An operator's word: do not wait for the next attempt."""
        if self.source is not None:
            now = time.monotonic()
            self.source.hurry(now)
            for number in self._sends:
                self.source.resend(number, now)
        self._retry_at = 0.0
        self._wake.set()

    @property
    def is_over(self) -> bool:
        """Nothing is in it, and nothing has to be written."""
        return (
            self.source is None and not self._waiting and not self._sends and not self._lost
            and self._planned is None and self._writing is None and not self._dirty
        )  # fmt: skip

    def end(self) -> asyncio.Task[None]:
        """Send nothing more and report nothing; the task that is about to end."""
        self._is_open = False
        self._task.cancel()
        self._connection.close()
        return self._task

    def status(self) -> dict[str, Any]:
        """For ``status.outgoing``."""
        source = self.source
        return {
            "sequence": None if source is None else source.identifier or None,
            "state": "lost" if self._lost else "none" if source is None else source.state.name.lower(),
            "numbered": 0 if source is None else source.assigned,
            "in_flight": 0 if source is None else len(source.in_flight),
            "buffer_remaining": None if source is None or source.polling.buffer_remaining == ABSENT
            else source.polling.buffer_remaining,
            "polling": source is not None and source.polling.state is PollingState.POLLING,
        }  # fmt: skip

    # --- what must be written before it counts ------------------------------------------------------------------------------

    def take_change(self) -> SessionRow | None:
        """What is to be written now; ``None``: there is no sequence. :meth:`stored` says that it is."""
        self._dirty = False
        self._writing, self._planned = self._planned, None
        change = self._writing or _Change()
        source = self.source
        if source is None:
            if not self._lost:
                return None
            return SessionRow(
                "", "", self._versions.dump(), 0, runs_of(self._serials), lost=self._lost, begun_at=self._begun_at
            )
        serials = dict(self._serials)
        serials |= {source.assigned + 1 + index: send.serial for index, send in enumerate(change.numbered)}
        is_ending = change.ends or source.row().is_ending
        # What ends is written with the numbers of its messages alone: 1.0's LastMessage gets the next one again.
        assigned = (source.last_number - 1 if source.last_number else source.assigned) + len(change.numbered)
        return SessionRow(
            source.create_id, source.identifier, self._versions.dump(), assigned, runs_of(serials),
            source.polling.buffer_remaining, is_ending, "", self._begun_at,
        )  # fmt: skip

    def stored(self) -> None:
        """What :meth:`take_change` gave is on stable storage."""
        change, self._writing = self._writing, None
        source = self.source
        if change is not None and source is not None:
            for send in change.numbered:
                number, _ = source.enqueue()
                self._serials[number], self._numbers[send.serial] = send.serial, number
                if not change.is_withdrawn:
                    self._sends[number] = send
            if change.ends:
                self._heard(source.end(time.monotonic()))
        if self._is_open:
            self._wake.set()

    def _plan(self, change: _Change) -> None:
        self._planned = change
        self._owner.on_change(self.key)

    def _note(self) -> None:
        """Write the row again, whenever there is time."""
        if not self._dirty:
            self._dirty = True
            self._owner.on_change(self.key)

    # --- the loop ---------------------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        while True:
            self._wake.clear()
            try:
                has_sent = await self._turn()
            except Exception as error:  # a bug; what it was about goes again, and the others must not wait for it
                log.exception("wsrm.failed destination=%s", self.key.destination)
                self._pause(f"please report this: {error!r}")
                has_sent = False
            if not has_sent:
                await self._sleep()

    async def _sleep(self) -> None:
        times = [self._used_at + self._patience] if self._may_idle() else []
        source = self.source
        if source is not None and not self._writes_first() and (source.state is not SourceState.CREATING or self._waiting):
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
        """One look: plan, send. Whether something was sent, and there is no trouble."""
        now = time.monotonic()
        self._make_plans(now)
        source = self.source
        if source is None or self._writes_first() or now < self._retry_at:
            return False
        self._retry_at = 0.0
        if source.state is SourceState.CREATING and not self._waiting:
            return False
        outputs = source.poll(now, self._has)
        for output in outputs:
            if source is not self.source or not await self._send(source, output):
                return False
        if source is self.source and source.state in OVER and source.next_timer() is None:
            self._forget_sequence()
        return bool(outputs)

    def _writes_first(self) -> bool:
        """A new sequence is written before CreateSequence leaves."""
        changes = [each for each in (self._planned, self._writing) if each is not None]
        return any(each.begins for each in changes)

    def _has(self, number: int) -> bool:
        return not self._hushed and (number in self._sends or (self.source is not None and number == self.source.last_number))

    def _may_idle(self) -> bool:
        source = self.source
        if source is None or self._waiting or self._sends or not source.is_idle:
            return False
        return source.state in (SourceState.OPEN, SourceState.CREATING) and not source.row().is_ending

    @property
    def _patience(self) -> float:
        """Seconds until an unused sequence ends. One that nobody answers for is asked for again under its MessageID."""
        is_creating = self.source is not None and self.source.state is SourceState.CREATING
        return CREATING_SECONDS if is_creating else IDLE_SECONDS

    def _make_plans(self, now: float) -> None:
        if self._planned is not None or self._writing is not None or self._lost:
            return
        source = self.source
        if source is None:
            if self._waiting:
                self._versions = Versions.load(self._waiting[0].stored.reliable)
                self._begun_at = time.time_ns() // 1_000
                self.source = Source(self._settings(), f"urn:uuid:{uuid.uuid4()}", now)
                self._plan(_Change(begins=True))
        elif source.state is SourceState.OPEN and not source.row().is_ending:
            if self._waiting and source.room:
                self._number(source)
            elif self._may_idle() and now >= self._used_at + IDLE_SECONDS:
                self._plan(_Change(ends=True))
        elif source.state is SourceState.CREATING and self._may_idle() and now >= self._used_at + CREATING_SECONDS:
            self._forget_sequence()
        elif source.state in (SourceState.CLOSING, SourceState.TERMINATING) and source.control_tries >= END_TRIES:
            log.info("wsrm.end_unanswered destination=%s sequence=%s", self.key.destination, source.identifier)
            self._forget_sequence()

    def _number(self, source: Source) -> None:
        """As many of those that wait as there is room for get their numbers; who is too late does not."""
        late_at = self._late_at()
        numbered: list[Send] = []
        while self._waiting and len(numbered) < source.room:
            send = self._waiting[0]
            message = send.stored.message
            until = message.expires_at if message.time_to_reach_queue is None else message.time_to_reach_queue
            if until is not None and until < late_at:
                self._owner.on_expired(self._waiting.pop(0))
                continue
            if send.stored.reliable != self._versions.dump():
                break
            numbered.append(self._waiting.pop(0))
        if numbered:
            self._plan(_Change(numbered=tuple(numbered)))
        elif self._waiting and self._waiting[0].stored.reliable != self._versions.dump() and source.is_idle:
            self._plan(_Change(ends=True))  # the next ones are in other versions: in a sequence of theirs, after these

    # --- sending ----------------------------------------------------------------------------------------------------------

    async def _send(self, source: Source, output: Output) -> bool:
        """Send one message and hear its answer; whether there is no trouble."""
        number = 0
        if isinstance(output, Control):
            message = output.message
        else:
            number = output.number
            if number not in source.in_flight:
                return True  # acknowledged meanwhile
            send = self._sends.get(number)
            if send is None and not output.is_last:
                return True  # on hold meanwhile
            message = self._message(source, output, send)
            source.left(number, time.monotonic())
            if send is not None:
                self._owner.on_left(send)
        was_in_doubt = number in self._doubt
        if number:
            self._doubt.add(number)
        try:
            answer = await self._connection.post(message)
        except NoAnswerError as error:
            if number and not error.left and not was_in_doubt:
                self._doubt.discard(number)
            self._in_trouble(source, str(error))
            return False
        return self._answered(source, number, answer, was_in_doubt=was_in_doubt or answer.twice)

    def _message(self, source: Source, transmit: Transmit, send: Send | None) -> SoapMessage:
        if send is None:
            return source.envelope(transmit, "", b"", f"{source.create_id}/LastMessage")
        message = send.message
        message_id = uuid.uuid5(uuid.UUID(message.lineage), str(message.uniquifier))
        return source.envelope(transmit, message.action, bytes(message.body), f"urn:uuid:{message_id}")

    def _answered(self, source: Source, number: int, answer: SoapAnswer, *, was_in_doubt: bool) -> bool:
        if source is not self.source:
            return True
        message, problem = _read(answer)
        fault = message.content if message is not None and isinstance(message.content, Fault) else None
        if number and fault is not None and code_of(fault) in _REFUSES_MESSAGE and not was_in_doubt:
            self._doubt.discard(number)
        before = len(source.in_flight), source.state
        if message is not None:
            if any(ack.is_final and ack.identifier == source.identifier for ack in message.acknowledgements):
                has = {
                    n
                    for ack in message.acknowledgements
                    for first, last in ack.ranges
                    for n in self._serials
                    if first <= n <= last
                }
                self._doubt &= has
            self._heard(source.received(message, time.monotonic()))
        if source is not self.source:
            return False
        if source.state in OVER:
            return True
        if problem is not None:
            if number and answer.status in RECEIVED_NOTHING and not was_in_doubt:
                self._doubt.discard(number)
            self._in_trouble(source, problem)
            return False
        progress = (len(source.in_flight), source.state) != before or (message is not None and bool(message.acknowledgements))
        self._silent = 0 if progress else self._silent + 1
        if self._silent >= SILENT_ANSWERS:
            self._in_trouble(
                source, f"{self._silent} answers without an acknowledgement: the service may have lost the sequence. If it stays "
                "so: `srmp-spark streams reset` goes on in a new one, and what it took of the last messages it gets twice",
            )  # fmt: skip
            return False
        if self._trouble is not None:
            self._trouble = None
            self._owner.on_trouble(self.key, None)
        return True

    def _heard(self, events: list[Event]) -> None:
        source = self.source
        assert source is not None
        for event in events:
            if isinstance(event, Acknowledged):
                for first, last in event.ranges:
                    for number in range(first, last + 1):
                        self._doubt.discard(number)
                        self._finish(number)
            elif isinstance(event, Suspicious):
                log.warning('wsrm.suspicious destination=%s reason="%s"', self.key.destination, event.reason)
            elif isinstance(event, Ended):
                if event.fault is not None:
                    self._fell(source, event.fault)
            else:
                log.info("wsrm.sequence_begins destination=%s sequence=%s", self.key.destination, event.identifier)
                self._note()
        if self._hushed and source.polling.state is not PollingState.POLLING:
            self._hushed = False
            for number in self._sends:
                source.resend(number, time.monotonic())
        if source.polling.buffer_remaining != self._told:
            self._told = source.polling.buffer_remaining
            self._note()
        self._used_at = time.monotonic()

    def _finish(self, number: int) -> None:
        """It is acknowledged. One that is on hold is finished when it is posted again."""
        send = self._sends.pop(number, None)
        if send is not None:
            self._owner.on_answer(send, _TAKEN)
            self._numbers.pop(self._serials.pop(number, 0), None)

    # --- trouble ----------------------------------------------------------------------------------------------------------

    def _in_trouble(self, source: Source, why: str) -> None:
        self._pause(why)
        if source.state is SourceState.CREATING:
            self._give_back(why)

    def _pause(self, why: str) -> None:
        """Nothing leaves until the source wants to send something again anyway."""
        if self._trouble != why:
            self._trouble = why
            log.info('wsrm.trouble destination=%s reason="%s"', self.key.destination, why)
        self._owner.on_trouble(self.key, why)
        now = time.monotonic()
        when = self.source.next_timer() if self.source is not None else None
        self._retry_at = max(now + TROUBLE_SECONDS, min(when or 0.0, now + RESEND_LAST))

    def _give_back(self, why: str) -> None:
        """Nothing has a number: the engine waits, and hands them out again."""
        waiting, self._waiting = self._waiting, []
        for send in reversed(waiting):
            self._owner.on_failure(send, why, False)  # noqa: FBT003  # as of the other roads

    def _fell(self, source: Source, fault: Fault) -> None:
        """The destination knows the sequence no more, or never made it."""
        why = f"{fault.subcode.rpartition('}')[2] or 'Fault'}: {fault.reason[:200]}"
        if not source.identifier:
            log.warning('wsrm.refused destination=%s reason="%s"', self.key.destination, why)
            self._forget_sequence()
            self._owner.on_trouble(self.key, why)
            self._give_back(why)
            return
        doubtful = sorted(self._doubt & set(self._serials))
        log.warning(
            'wsrm.sequence_lost destination=%s sequence=%s unacknowledged=%d in_doubt=%d reason="%s"',
            self.key.destination, source.identifier, len(self._serials), len(doubtful), why,
        )  # fmt: skip
        if not doubtful:
            self._forget_sequence()
            return
        self._serials = {number: self._serials[number] for number in doubtful}
        self._lost = (
            f"the service has lost the sequence ({why}) with {len(doubtful)} messages of which nobody knows whether it took them: "
            "`srmp-spark streams resend` sends them again, `drop` gives them up"
        )
        self.source = None
        self._planned = None
        self._owner.on_lost(self.key, self._lost)
        self._note()  # in this order: a sequence that is lost begins anew with the first message that is posted

    def _forget_sequence(self) -> None:
        """The next message begins another one; what has a number and is not acknowledged begins with it."""
        again = [*self._sends.values(), *self._waiting]
        if self._planned is not None:
            again += self._planned.numbered
        if self._writing is not None:
            again += self._writing.numbered
            self._writing = _Change()
        self._waiting = sorted(again, key=lambda each: each.serial)
        self._sends.clear()
        self._serials.clear()
        self._numbers.clear()
        self._doubt.clear()
        self._planned = None
        self._lost = ""
        self._silent = 0
        self._hushed = False
        self.source = None
        self._note()
        self._wake.set()


def _read(answer: SoapAnswer) -> tuple[SoapMessage | None, str | None]:
    """The message in an answer, if there is one, and what is wrong with the answer, if something is."""
    message: SoapMessage | None = None
    problem = None if answer.status in (200, 202) else f"{answer.status} {answer.reason}".strip()
    if answer.body.strip():
        try:
            message = decode(answer.body)
        except RemoteProtocolError as error:
            problem = f"{problem}: " if problem else "an answer that is no SOAP message: "
            problem += str(error)[:200]
        else:
            if isinstance(message.content, Fault):
                fault = message.content
                problem = f"{answer.status} {fault.subcode.rpartition('}')[2]} {fault.reason}".strip()[:300]
    return message, problem
