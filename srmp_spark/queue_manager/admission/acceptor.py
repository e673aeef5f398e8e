"""Decide, store and only then answer every message that was admitted, of every transport.

    admitted → Receiver.receive → Refused ──────────────────────────────▶ 400, 503
                                → Pending → Journal.submit → Committed
                                  → Receiver.committed → Ok ────────────▶ 200

The engine is :class:`.Receiver`. Everything before the commit is done in one call, in the loop. The
messages that the journal collects for one transaction are one batch of the acceptor. One callback
answers the batch in the order of submission. A commit that fails ends the process, and then nothing
is answered.

**Internal faults are of two kinds, and the type states which.** The engine judges a message before
it changes anything. An exception until then stays inside that request: the request is answered 503,
the exception is logged once with the place where it was raised, and nothing else notices it. Once
the engine has changed history, queue end or stream, the row must reach the journal. Otherwise the
sender's repeat would be answered 200 without a row. So a failure between the two, a
:class:`MemoryAheadError`, ends the process unanswered, like a failed commit.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from srmp_spark.errors import MemoryAheadError, ProcessMustEndError
from srmp_spark.message import Arrival, Message
from srmp_spark.queue_manager.admission.faults import FaultLog
from srmp_spark.queue_manager.admission.refusal_log import NAME_MAX, RefusalLog
from srmp_spark.queue_manager.admission.requester import Requester, answer
from srmp_spark.rows.group import FORM_OF, Form, Record
from srmp_spark.srmp.receiving.effects import Accepted, Committed, Pending, Refused, StreamMark
from srmp_spark.store.answered_together import AnsweredTogether

if TYPE_CHECKING:
    from srmp_spark.queue_manager.admission.gate import Gate
    from srmp_spark.queue_manager.core import Core
    from srmp_spark.srmp.receiving.decisions import Reason, Undecided
    from srmp_spark.srmp.receiving.incoming_streams import IncomingStream

log = logging.getLogger(__name__)

_Waiting = tuple[Pending, Requester, int, Arrival]
"""A message whose commit is awaited: the engine's result, the requester that waits for the answer,
the number of bytes of the post, and the arrival.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Effects:
    """The callbacks of the acceptor: what the queue manager does about messages besides rows."""

    arm_receipts: Callable[[], object]
    """Called when a stream receipt may have become due earlier."""
    stored: Callable[[str, int, int, int, int], object]
    """Called after each commit, for each queue that got rows, with the name of the queue, first and
    last sequence, bytes, and arrival time of the first row in microseconds since 1970.
    """
    moved: Callable[[Undecided], object]
    """Called when a message arrived again at another place in its stream.

    It adds to the transaction that is being collected.
    """
    discarded: Callable[[Undecided, Reason], object]
    """Called with the reason when a message must not be kept.

    It adds to the transaction that is being collected.
    """
    measure_disk: Callable[[], object]
    """Called when more bytes were accepted than :attr:`.Gate.room`. It sets the room again, and
    closes the gate if there is none.
    """


class Acceptor:
    """Leads each admitted message through engine and journal to its answer.

    The engine is :class:`.Receiver`.
    """

    def __init__(
        self,
        core: Core,
        gate: Gate,
        refusal_log: RefusalLog,
        effects: Effects,
    ) -> None:
        """Create the acceptor of one queue manager."""
        self._receiver = core.receiver
        self._journal = core.journal
        self._gate = gate
        self._metrics = core.metrics
        self.faults = FaultLog()
        """Internal faults that affected one request only, so that each is logged once."""
        self._log = refusal_log
        self._monotonic = core.clock.monotonic
        self._effects = effects
        self._waiting = AnsweredTogether(core.journal, self._committed)

    def __repr__(self) -> str:
        return f"<Acceptor {self._waiting!r}>"

    def take(
        self,
        message: Message,
        arrival: Arrival,
        post: bytes,
        head_length: int,
        requester: Requester,
        *,
        form: Form | None = None,
    ) -> Refused | Pending:
        """Let the engine decide about a decoded message, and answer ``requester`` now or later.

        A refusal is answered now. An accepted message is handed to the journal, and answered when
        it is on stable storage. ``message`` is the result of decoding ``post``, with its signature
        checked. ``form`` is the form in which the row is stored, if ``post`` is not an SRMP post.
        Return the engine's result. Raises :class:`ProcessMustEndError` when the process is about to
        end; then nothing may be answered.
        """
        now = self._monotonic()
        try:
            record = Record(arrival, post, head_length, form or FORM_OF[message.signature])
            outcome = self._receiver.receive(message, arrival, now)
        except MemoryAheadError as error:
            log.exception(
                "accept.fatal id=%s destination=%r", message.id, message.destination[:200]
            )
            raise self._journal.abandon("taking a message", error) from error
        except Exception as error:
            outcome = self.faults.refusal(
                error, f"{message.signature} {'stream' if message.stream else 'single'} message"
            )
        if not isinstance(outcome, Refused):
            self._submit_or_end(outcome, record, requester, message.destination)
            return outcome
        if outcome.status in (400, 403):
            self._log.tell(
                outcome.status,
                outcome.reason,
                message.destination,
                arrival.peer,
                arrival.sender_name,
                outcome.message,
            )
        answer(requester, outcome)
        return outcome

    def move_in(self, queue: str, record: Record, requester: Requester) -> int:
        """Store a row of another local queue as a row of ``queue``, and return its sequence.

        The row is only handed to the journal; ``requester`` is answered after the commit. Raises
        :class:`ProcessMustEndError` as :meth:`take`.
        """
        try:  # The row is marked as received in its queue, so memory is ahead of the disk already.
            outcome = self._receiver.move_in(queue)
        except Exception as error:
            log.exception("accept.fatal queue=%s", queue)
            raise self._journal.abandon("moving a message", error) from error
        self._submit_or_end(outcome, record, requester, queue)
        return outcome.sequence

    def insert(self, queue: str, message: Message, record: Record, requester: Requester) -> None:
        """Store ``message`` as a row of ``queue``, because another protocol has accepted it.

        The row is only handed to the journal; ``requester`` is answered after the commit. Raises
        :class:`ProcessMustEndError` as :meth:`take`.
        """
        self._submit_or_end(
            self._receiver.insert_in(queue, message, record.arrival), record, requester, queue
        )

    def _submit_or_end(
        self, outcome: Pending, record: Record, requester: Requester, to: str
    ) -> None:
        """Hand a message that the engine has accepted to the journal.

        Raises :class:`ProcessMustEndError` if that fails, because memory is ahead of the disk then.
        """
        try:
            self._submit(outcome, record, requester)
        except ProcessMustEndError:  # The journal has failed before and logged it.
            raise
        except Exception as error:
            log.exception("accept.fatal to=%r", to[:NAME_MAX])
            raise self._journal.abandon("taking a message", error) from error

    def _submit(self, outcome: Pending, record: Record, requester: Requester) -> None:
        """Hand the row of an accepted message to the journal.

        A repeated message has no row, and only waits for the commit of its original. Both are
        answered after the commit, and the bytes of both count. The disk is measured again when more
        bytes were accepted than it had room for.
        """
        journal = self._journal
        size = len(record.post)
        callback = self._waiting.add((outcome, requester, size, record.arrival))
        if isinstance(outcome, Accepted):
            row = (outcome.queue, outcome.sequence, record)
            journal.submit(row, callback, owed=outcome.owed, undecided=outcome.undecided)
        else:
            journal.submit(None, callback, must_commit=outcome.needs_commit)
            if outcome.moved is not None:
                self._effects.moved(outcome.moved)
            if outcome.discarded is not None:
                self._effects.discarded(outcome.discarded, outcome.discarded_for)
        gate = self._gate
        gate.unwritten_bytes += size
        gate.room -= size
        if gate.room < 0:
            self._effects.measure_disk()

    def _committed(self, batch: list[_Waiting], proof: Committed) -> None:
        """Answer the requesters of one batch with 200, because the journal has committed it."""
        oks = self._receiver.committed([waiting[0] for waiting in batch], proof, self._monotonic())
        self._gate.unwritten_bytes -= sum([waiting[2] for waiting in batch])
        try:
            self._count(batch)
        except Exception:
            # The messages are stored, so their senders must be answered even if the count is wrong.
            log.exception("accept.count_failed messages=%d", len(batch))
        now = time.perf_counter()
        observe = self._metrics.accept_seconds.observe
        for (_, requester, _, _), ok in zip(batch, oks, strict=True):
            try:
                requester.acknowledge(ok)
            except Exception:
                # A bug in one connection must not leave the others without an answer.
                log.exception("accept.answer_failed answer=%r", requester)
            observe(now - requester.read_at)

    def _count(self, batch: list[_Waiting]) -> None:
        """Report the messages of a committed batch to catalogue, metrics, log and receipts."""
        metrics = self._metrics
        rows: dict[str, list[int]] = {}
        transports: dict[tuple[str, str], int] = {}
        marked = False
        for pending, _, size, arrival in batch:
            if pending.mark is not None:
                marked = True
                if pending.mark.stream.moved_from is not None:
                    self._tell_move(pending.mark.stream)
            queue = pending.queue
            if not isinstance(pending, Accepted):
                if pending.kind == "expired" or pending.kind == "invalid-signature":
                    metrics.refuse(200, pending.kind)
                else:
                    if (
                        pending.kind == "stale"
                        and pending.mark is not None
                        and pending.mark.stream.take_stale()
                    ):
                        _tell_stale(pending.mark, arrival)
                    metrics.duplicates[queue, pending.kind] += 1
                continue
            key: tuple[str, str] = queue, arrival.transport
            transports[key] = transports.get(key, 0) + 1
            found = rows.get(queue)
            if found is None:
                rows[queue] = [pending.sequence, pending.sequence, size, arrival.at]
            else:
                # A batch holds the rows of a queue without a gap, because the engine assigns
                # sequences in this order.
                found[1] = pending.sequence
                found[2] += size
        for queue, (first, last, size, at) in rows.items():
            self._effects.stored(queue, first, last, size, at)
        for accepted, count in transports.items():
            metrics.accepted[accepted] += count
        if marked:
            self._effects.arm_receipts()

    def _tell_move(self, stream: IncomingStream) -> None:
        """Log a warning if a stream is now sent from another address than before, at most seldom.

        Over plain HTTP an address proves nothing, but it is the only evidence. An operator may know
        whether the sender moved.
        """
        before = stream.take_move(self._monotonic())
        if before is not None:
            log.warning(
                "stream.other_address queue=%s stream_id=%s before=%s now=%s: the sender "
                "moved, or another writes in its name",
                stream.queue,
                stream.id,
                before,
                stream.peer,
            )


def _tell_stale(mark: StreamMark, arrival: Arrival) -> None:
    """Log a warning about messages of a stream that is older than the live one.

    Such messages are answered 200 and not kept, and an honest sender does not know that.
    """
    log.warning(
        "stream.stale queue=%s stream_id=%s live=%s peer=%s: these are late copies, or "
        "the sender continues an old count and its messages are discarded; if so: "
        "srmp-spark streams drop",
        mark.stream.queue,
        mark.stream.id._replace(ordinal=mark.ordinal),
        mark.stream.id,
        arrival.peer,
    )
