"""Turn a whole POST into an answer: decode, ask the engine, store, and only then answer 200.

    POST → decode → Receiver.receive → Refused ──────────────────────────────▶ 400, 503
                                     → Pending → Journal.submit → Committed
                                       → Receiver.committed → Ok ────────────▶ 200

The engine is :class:`.Receiver`. Everything before the commit is done in one call, in the loop. The
messages that the journal collects for one transaction are one batch of the acceptor. One callback
answers the batch in the order of submission. A commit that fails ends the process, and then nothing
is answered.

**Every row can be decoded.** Readers decode the same bytes that are decoded before the engine sees
a message: the bytes of the stored post after its head. The Content-Type is the one that
:func:`content_type_of` finds in that head (:class:`RequestHead` has it from there,
``api/messages.py`` calls it). A message that cannot be decoded is refused, so no 200 stands for a
row that cannot be read.

**Internal faults are of two kinds, and the type states which.** The engine judges a message before
it changes anything. An exception until then stays inside that request: the request is answered 503,
the exception is logged once with the place where it was raised, and nothing else notices it. Once
the engine has changed history, queue end or stream, the row must reach the journal. Otherwise the
sender's repeat would be answered 200 without a row. So a failure between the two, a
:class:`MemoryAheadError`, ends the process unanswered, like a failed commit.
"""

from __future__ import annotations

import logging
import re
import sys
import time
from collections.abc import Callable
from functools import lru_cache, partial
from typing import TYPE_CHECKING, NamedTuple

from srmp_spark.clock import Clock
from srmp_spark.errors import MemoryAheadError, ProcessMustEndError, RemoteProtocolError
from srmp_spark.message import Arrival, Message
from srmp_spark.queue_manager.metrics import Metrics
from srmp_spark.queue_manager.srmp_port.faults import Faults
from srmp_spark.queue_manager.srmp_port.http_limits import RETRY_AFTER_SECONDS
from srmp_spark.queue_manager.srmp_port.inbox import Requester, Sender
from srmp_spark.queue_manager.srmp_port.request_head import TARGETS_REMEMBERED, without_credentials
from srmp_spark.queue_manager.srmp_port.signatures import Signatures
from srmp_spark.queue_manager.trust.writers import Caller, Writers
from srmp_spark.rows.group import FORM_OF, Form, Record
from srmp_spark.srmp.codec.decoder import decode_parts
from srmp_spark.srmp.codec.http_head import check_target
from srmp_spark.srmp.forward.forwarding import hops_of
from srmp_spark.srmp.receiving.effects import Accepted, Committed, Pending, Refused, StreamMark
from srmp_spark.store.journal import Journal

if TYPE_CHECKING:
    from srmp_spark.queue_manager.srmp_port.request_head import RequestHead
    from srmp_spark.srmp.codec.mime import Parts
    from srmp_spark.srmp.receiving.decisions import Reason, Undecided
    from srmp_spark.srmp.receiving.incoming_streams import IncomingStream
    from srmp_spark.srmp.receiving.receiver import Receiver

log = logging.getLogger(__name__)

GATE_SECTION = "docs/GUARANTEES.md promise 2"
"""Reference in each 503 of the gate. Trouble of the queue manager is never answered 400."""
TOLD_MAX = 1_000
"""Most refusals that the log explains. Later ones are counted in the metrics only."""
NAME_MAX, TEXT_MAX = 200, 500
"""Most characters of a destination, and of a reason, in the log.

Both are cut there, because a sender chooses them.
"""

_RELIABLE = re.compile(rb"(?:https?://[^/]*)?/wsrm(?=[/\\])", re.IGNORECASE)
"""Matches a request target of WS-ReliableMessaging, which earlier releases served on the SRMP port.
"""


class Gate(NamedTuple):
    """The reason why no message is accepted at present. Messages may be accepted later."""

    reason: str
    """A short name for metrics and answers, for example ``disk-full``."""
    message: str


_Waiting = tuple[Pending, Requester, int, Arrival]
"""A message whose commit is awaited: the engine's result, the requester that waits for the answer,
the number of bytes of the post, and the arrival.
"""


@lru_cache(TARGETS_REMEMBERED)
def _checked_target(target: bytes) -> str:
    if _RELIABLE.match(target):
        message = "WS-ReliableMessaging has a port of its own: serve --listen-wsrm"
        raise RemoteProtocolError(message, status_hint=404, section="docs/INTERFACE.md section 2")
    return check_target(target)


class Acceptor:
    """Leads each message through decoding, engine and journal to its answer.

    The engine is :class:`.Receiver`.
    """

    def __init__(
        self,
        receiver: Receiver,
        journal: Journal,
        metrics: Metrics,
        clock: Clock,
        signatures: Signatures,
        *,
        arm_receipts: Callable[[], object],
        stored: Callable[[str, int, int, int, int], object],
        moved: Callable[[Undecided], object],
        discarded: Callable[[Undecided, Reason], object],
        writers: Writers | None = None,
    ) -> None:
        """Create the acceptor of one queue manager.

        ``arm_receipts`` is called when a stream receipt may have become due earlier. ``stored`` is
        called after each commit, for each queue that got rows, with the name of the queue, first
        and last sequence, bytes, and arrival time of the first row in microseconds since 1970.
        ``moved`` is called when a message arrived again at another place in its stream.
        ``discarded`` is called with the reason when a message must not be kept. Both add to the
        transaction that is being collected. ``writers`` states who may write to which queue; with
        ``None`` every client may.
        """
        self._receiver = receiver
        self._journal = journal
        self._metrics = metrics
        self._signatures = signatures
        self._writers = writers
        self.faults = Faults()
        """Internal faults that affected one request only, so that each is logged once."""
        self._told: set[tuple[str, str, str]] = set()
        self._utc = clock.utc
        self._monotonic = clock.monotonic
        self._arm_receipts = arm_receipts
        self._stored = stored
        self._moved = moved
        self._discarded = discarded
        self._batch: list[_Waiting] = []
        self._collecting: object = None
        """The transaction of the journal to which ``_batch`` belongs."""
        self.gate: Gate | None = None
        """The closed gate, or ``None``. While it is set, every request is answered 503."""
        self.unwritten_bytes = 0
        """Bytes of accepted posts that are not on the disk yet.

        The free space of the disk does not show them.
        """
        self.room = sys.maxsize
        """Bytes that may be accepted before :attr:`look` measures the disk again."""
        self.look: Callable[[], object] = lambda: None
        """Measures the free space of the disk.

        Sets :attr:`room`, and the gate if there is no room.
        """

    def __repr__(self) -> str:
        return f"<Acceptor batch={len(self._batch)} gate={self.gate.reason if self.gate else None}>"

    # --- from the SRMP port -----------------------------------------------------------------------

    def check_target(self, target: bytes) -> None:
        """Raise :class:`RemoteProtocolError` if a request target cannot be a queue (bad input 19).

        Its status is 400, or 404 for a target of WS-ReliableMessaging. Whether the queue exists is
        not checked.
        """
        _checked_target(target)

    def accept(self, connection: Sender, head: RequestHead, post: bytes, head_length: int) -> None:
        """Decode and judge one whole request of the SRMP port, and answer it now or later.

        A message that is accepted is answered when it is on stable storage. ``post`` is the whole
        request, of which the first ``head_length`` bytes are its head. Raises
        :class:`ProcessMustEndError` as :meth:`take`.
        """
        if self._is_closed_to(connection):
            return
        headers = head.headers
        content = post[head_length:]
        try:
            message, parts = decode_parts(headers.get(b"content-type", b""), content)
            if message.signature != "none":
                message = self._signatures.checked(message, content, parts)
        except RemoteProtocolError as error:
            self._refuse_malformed(connection, head.target.decode("latin-1"), error)
            return
        if self._is_no_writer(connection, message, headers.get(b"authorization", b"")):
            return
        if head.has_credentials:
            post, head_length = without_credentials(post, head_length)
        if b"via" in headers:
            refused = self._receiver.refuses_hops(message, hops_of(headers[b"via"]))
            if refused is not None:
                connection.refuse(
                    refused.status, refused.reason, refused.section, refused.retry_after
                )
                return
        arrival = Arrival(self._utc(), connection.scheme, connection.peer, connection.sender_name)
        if b"srmp-probe" in headers:
            self._probe(connection, message)
        else:
            self.take(message, arrival, post, head_length, connection)

    def accept_decoded(
        self,
        sender: Sender,
        message: Message,
        parts: Parts,
        post: bytes,
        head_length: int,
        destination: str,
    ) -> None:
        """Judge a message that a gateway has decoded from ``post``, and answer it now or later.

        The signature is judged in this call, because only the main process has the keys. ``parts``
        states where the parts of the message lie after the head. ``destination`` is the destination
        in log lines about a refusal. Raises :class:`ProcessMustEndError` as :meth:`take`.
        """
        if self._is_closed_to(sender):
            return
        if message.signature != "none":
            try:
                message = self._signatures.checked(message, post[head_length:], parts)
            except RemoteProtocolError as error:
                self._refuse_malformed(sender, destination, error)
                return
        if self._is_no_writer(sender, message, b""):
            return
        arrival = Arrival(self._utc(), sender.scheme, sender.peer, sender.sender_name)
        self.take(message, arrival, post, head_length, sender)

    def _is_closed_to(self, sender: Sender) -> bool:
        """Answer ``sender`` 503 if the gate is closed. Return whether it is."""
        gate = self.gate
        if gate is not None:
            sender.refuse(503, gate.reason, GATE_SECTION, RETRY_AFTER_SECONDS)
        return gate is not None

    def _refuse_malformed(
        self, sender: Sender, destination: str, error: RemoteProtocolError
    ) -> None:
        self.tell(
            error.status_hint, "malformed", destination, sender.peer, sender.sender_name, str(error)
        )
        sender.refuse(error.status_hint, "malformed", error.section)

    def _is_no_writer(self, sender: Sender, message: Message, authorization: bytes) -> bool:
        """Refuse ``sender`` if it may not write to the queue of ``message``.

        Return whether it was refused. This access check replaces the one of [MC-MQSRM] 3.1.5.1.12.
        It precedes the engine, so no state changes when it refuses.
        """
        if self._writers is None:
            return False
        queue = self._receiver.judge(message)
        if isinstance(queue, Refused):
            return False  # The engine gives the reason.
        refused = self.refuses_writer(
            queue.name, Caller(sender.peer, sender.sender_name, authorization)
        )
        if refused is not None:
            sender.refuse(refused.status, refused.reason, refused.section)
        return refused is not None

    def refuses_writer(self, queue: str, caller: Caller) -> Refused | None:
        """Return the refusal if ``caller`` may not write to ``queue``, or ``None`` if it may.

        Every transport calls this. Nothing is answered by it.
        """
        return None if self._writers is None else self._writers.refuses(queue, caller)

    def _probe(self, connection: Sender, message: Message) -> None:
        """Judge a message of ``srmp-spark doctor`` without storing it.

        Answer 204, or the refusal.
        """
        found = self._receiver.judge(message)
        if isinstance(found, Refused):
            connection.refuse(found.status, found.reason, found.section, found.retry_after)
        else:
            connection.refuse(204, "probe", found.name)

    # --- from anywhere ----------------------------------------------------------------------------

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
            self.tell(
                outcome.status,
                outcome.reason,
                message.destination,
                arrival.peer,
                arrival.sender_name,
                outcome.message,
            )
        requester.refuse(outcome.status, outcome.reason, outcome.section, outcome.retry_after)
        return outcome

    def tell(
        self,
        status: int,
        reason: str,
        destination: str,
        peer: str,
        sender_name: str | None,
        text: str,
    ) -> None:
        """Log why a message was refused, once for each reason, destination and sender.

        For a 403 it is once for each text. At most TOLD_MAX refusals are logged. The log must
        explain a refusal, because a 400 makes its sender delete the message, and no other place
        records the reason.
        """
        key = (
            (reason, text, "")
            if status == 403
            else (reason, destination[:NAME_MAX], sender_name or peer.rpartition(":")[0])
        )
        if key in self._told or len(self._told) >= TOLD_MAX:
            return
        self._told.add(key)
        hint = (
            "the sender deletes it; try srmp-spark doctor --url URL --queue QUEUE"
            if status == 400
            else "the sender keeps it"
        )
        log.warning(
            "accept.refused status=%d reason=%s destination=%r peer=%s sender_name=%r "
            'because="%s" hint="%s"',
            status,
            reason,
            destination[:NAME_MAX],
            peer,
            sender_name,
            text[:TEXT_MAX],
            hint,
        )

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
        answered after the commit, and the bytes of both count. The method calls :attr:`look` when
        more bytes were taken than :attr:`look` allowed.
        """
        journal = self._journal
        collecting = journal.collecting
        callback = None
        if collecting is not self._collecting:
            self._collecting = collecting
            self._batch = []
            callback = partial(self._committed, self._batch)
        size = len(record.post)
        self._batch.append((outcome, requester, size, record.arrival))
        if isinstance(outcome, Accepted):
            row = (outcome.queue, outcome.sequence, record)
            journal.submit(row, callback, owed=outcome.owed, undecided=outcome.undecided)
        else:
            journal.submit(None, callback, must_commit=outcome.needs_commit)
            if outcome.moved is not None:
                self._moved(outcome.moved)
            if outcome.discarded is not None:
                self._discarded(outcome.discarded, outcome.discarded_for)
        self.unwritten_bytes += size
        self.room -= size
        if self.room < 0:
            self.look()

    def _committed(self, batch: list[_Waiting], proof: Committed) -> None:
        """Answer the requesters of one batch with 200, because the journal has committed it."""
        oks = self._receiver.committed([waiting[0] for waiting in batch], proof, self._monotonic())
        self.unwritten_bytes -= sum([waiting[2] for waiting in batch])
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
            self._stored(queue, first, last, size, at)
        for accepted, count in transports.items():
            metrics.accepted[accepted] += count
        if marked:
            self._arm_receipts()

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
