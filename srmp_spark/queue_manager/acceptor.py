"""From a whole POST to an answer: decode, ask the engine, store, and only then 200.

    POST → decode → Receiver.receive → Refused ──────────────────────────────▶ 400, 503
                                     → Pending → Journal.submit → Committed
                                       → Receiver.committed → Ok ────────────▶ 200

Everything before the commit is done in one call, in the loop. The journal calls back in the order of submission, so the
requests that wait are one queue, first in first out. A commit that fails ends the process; nothing is answered then.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple, Protocol

from srmp_spark.clock import Clock
from srmp_spark.errors import RemoteProtocolError
from srmp_spark.message import Arrival, Message
from srmp_spark.queue_manager.http_limits import RETRY_AFTER_SECONDS
from srmp_spark.queue_manager.metrics import Metrics
from srmp_spark.rows.group import Record
from srmp_spark.srmp.decoder import decode
from srmp_spark.srmp.effects import Accepted, Committed, Ok, Pending, Refused
from srmp_spark.srmp.http_head import check_target
from srmp_spark.store.journal import Journal

if TYPE_CHECKING:
    from srmp_spark.queue_manager.request_head import RequestHead
    from srmp_spark.queue_manager.srmp_endpoint import SrmpConnection
    from srmp_spark.srmp.receiver import Receiver

TARGETS_REMEMBERED = 1_024
"""Request targets whose check is not repeated; a sender uses one for each of its queues."""


class Answer(Protocol):
    """Who waits for the outcome of a message: a connection, or a call of the API."""

    @property
    def read_at(self) -> float:
        """When its last byte was read, ``time.perf_counter``."""

    def acknowledge(self, ok: Ok) -> None:
        """It is stored."""

    def refuse(self, status: int, reason: str, section: str, retry_after: int | None = None) -> None:
        """It is not."""


class Gate(NamedTuple):
    """Why nothing is accepted at present, though it may be later."""

    reason: str
    """Short, for metrics: ``disk-full``."""
    message: str


@lru_cache(TARGETS_REMEMBERED)
def _checked_target(target: bytes) -> str:
    return check_target(target)


class Acceptor:
    """Engine, journal and the requests between them."""

    def __init__(
        self,
        receiver: Receiver,
        journal: Journal,
        metrics: Metrics,
        clock: Clock,
        *,
        arm_receipts: Callable[[], object],
        stored: Callable[[str, int, int, int], object],
    ) -> None:
        """``arm_receipts`` is called when a stream receipt may have become due earlier, ``stored`` with queue, sequence,
        bytes and arrival time of each row that is committed."""
        self._receiver = receiver
        self._journal = journal
        self._metrics = metrics
        self._clock = clock
        self._arm_receipts = arm_receipts
        self._stored = stored
        self._waiting: deque[tuple[Pending, Answer, int, Arrival]] = deque()
        self.gate: Gate | None = None
        """While set, everything is answered 503."""

    def __repr__(self) -> str:
        return f"<Acceptor waiting={len(self._waiting)} gate={self.gate.reason if self.gate else None}>"

    # --- from the SRMP port -----------------------------------------------------------------------------------------------

    def check_target(self, target: bytes) -> None:
        """Raise :class:`RemoteProtocolError` (400) for a request target that can be no queue: bad input 19."""
        _checked_target(target)

    def accept(self, connection: SrmpConnection, head: RequestHead, post: bytes, head_length: int) -> None:
        """A whole request."""
        if self.gate is not None:
            connection.refuse(503, self.gate.reason, "DESIGN 3.2", RETRY_AFTER_SECONDS)
            return
        headers = head.headers
        try:
            message = decode(headers.get(b"content-type", b""), post[head_length:])
        except RemoteProtocolError as error:
            connection.refuse(error.status_hint, "malformed", error.section)
            return
        arrival = Arrival(self._clock.utc(), "http", connection.peer)
        if b"srmp-probe" in headers:
            self._probe(connection, message)
        else:
            self.take(message, arrival, post, head_length, connection)

    def _probe(self, connection: SrmpConnection, message: Message) -> None:
        """``srmp-spark doctor``: judge like any message, keep nothing, and never answer 200."""
        found = self._receiver.judge(message)
        if isinstance(found, Refused):
            connection.refuse(found.status, found.reason, found.section, found.retry_after)
        else:
            connection.refuse(204, "probe", found.name)

    # --- from anywhere ------------------------------------------------------------------------------------------------------

    def take(self, message: Message, arrival: Arrival, post: bytes, head_length: int, answer: Answer) -> Refused | Pending:
        """Decide about a decoded message and see it to its answer."""
        outcome = self._receiver.receive(message, arrival, self._clock.monotonic())
        if isinstance(outcome, Refused):
            answer.refuse(outcome.status, outcome.reason, outcome.section, outcome.retry_after)
            return outcome
        self._waiting.append((outcome, answer, len(post), arrival))
        if isinstance(outcome, Accepted):
            self._journal.submit(
                (outcome.queue, outcome.sequence, Record(arrival, post, head_length)), self._committed, owed=outcome.owed
            )
        else:
            self._journal.submit(None, self._committed, must_commit=outcome.needs_commit)
        return outcome

    def _committed(self, proof: Committed) -> None:
        """One message's turn; called by the journal once for each, in the order of submission."""
        pending, answer, size, arrival = self._waiting.popleft()
        (ok,) = self._receiver.committed((pending,), proof, self._clock.monotonic())
        metrics = self._metrics
        if isinstance(pending, Accepted):
            self._stored(pending.queue, pending.sequence, size, arrival.at)
            metrics.accepted[pending.queue, arrival.transport] += 1
        else:
            metrics.duplicates[pending.queue, pending.kind] += 1
        if pending.mark is not None:
            self._arm_receipts()
        answer.acknowledge(ok)
        metrics.accept_seconds.observe(time.perf_counter() - answer.read_at)
