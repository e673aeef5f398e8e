"""A dialogue with the receiving engine that reads like the specification.

    assert (
        Playbook()
        >> post(stream_message(1))
        << row("private$/ledger", 1)
        >> synced()
        << ok()
        >> tick(0.5)
        << stream_receipt(last_ordinal=1)
    )

A ``>>`` step is an input, a ``<<`` step is an expected output. :mod:`.dialogue` explains the
notation.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from srmp_spark.message import Arrival, Message, StreamId, StreamPosition
from srmp_spark.names import ORDER_QUEUE, LocalHosts
from srmp_spark.srmp.receiving.decisions import DecisionKind, Reason
from srmp_spark.srmp.receiving.effects import Accepted, Pending, Refused
from srmp_spark.srmp.receiving.history import MessageIdHistory
from srmp_spark.srmp.receiving.incoming_streams import IncomingStreams
from srmp_spark.srmp.receiving.receiver import Receiver, ReceiverSettings
from srmp_spark.srmp.receiving.stream_effects import SendStreamReceipt
from tests.kit.dialogue import Dialogue, Input, Output
from tests.kit.sim_clock import SimClock
from tests.kit.sim_disk import SimDecision, SimDisk, SimRow, SimTransaction

SENDER = "2744e4e1-2b48-43e8-b441-42745f280d53"
IDENTITY = "32221eda-9376-46df-b6ed-783091123831"
STREAM = 4_839_986_701_558_349_830
"""The stream number (ordinal) of the document's example 4.4."""
RECEIPTS_URL = "http://machine1/MSMQ/private$/order_queue$"

QUEUES = {"private$/orders": False, "private$/ledger": True}


# --- messages -------------------------------------------------------------------------------------


def user_message(
    uniquifier: int = 1,
    *,
    queue: str = "private$/orders",
    lineage: str = SENDER,
    **fields: Any,  # noqa: ANN401  # any field of Message
) -> Message:
    """Return a regular message; ``fields`` are those of :class:`~srmp_spark.message.Message`."""
    values: dict[str, Any] = {
        "destination": f"http://machine2/msmq/{queue}",
        "action": "MSMQ:",
        "has_msmq": True,
    } | fields
    return Message(lineage=lineage, uniquifier=uniquifier, **values)


def stream_message(
    current: int,
    previous: int | None = None,
    *,
    stream: int = STREAM,
    guid: str = SENDER,
    start: bool | None = None,
    uniquifier: int | None = None,
    **fields: Any,  # noqa: ANN401  # any field of Message
) -> Message:
    """Return the message at position ``current`` of a stream.

    ``stream`` and ``guid`` identify the stream. The first message of a stream carries ``<start>``,
    unless ``start`` says otherwise. If ``previous`` is absent, the message names the position
    before ``current``.
    """
    start = current == 1 if start is None else start
    position = StreamPosition(
        StreamId(guid, stream),
        current,
        current - 1 if previous is None else previous,
        start,
        RECEIPTS_URL if start else None,
    )
    values: dict[str, Any] = {
        "queue": "private$/ledger",
        "durable": True,
        "priority": 0,
        "stream": position,
    } | fields
    return user_message(100 + current if uniquifier is None else uniquifier, **values)


# --- inputs ---------------------------------------------------------------------------------------


def post(
    message: Message, *, sender_name: str | None = None, peer: str = "192.0.2.1:1801"
) -> Input:
    """Return the step in which a message arrives.

    With an empty ``peer`` the message was created locally (transport ``api``). With a
    ``sender_name`` it arrives over HTTPS.
    """
    name = (
        f"stream {message.stream.id.ordinal}@{message.stream.current}"
        if message.stream
        else f"message {message.uniquifier}"
    )
    return Input(f"post {name}", lambda playbook: playbook.receive(message, sender_name, peer))


def synced() -> Input:
    """Return the step that begins and ends a commit of every waiting message."""
    return Input("synced", lambda playbook: playbook.commit())


def commit_begins() -> Input:
    """Return the step that begins a commit of the messages that wait now.

    Messages that are posted later are not part of this transaction.
    """
    return Input("commit begins", lambda playbook: playbook.begin_commit())


def commit_ends() -> Input:
    """Return the step in which the sync of the begun transaction returns."""
    return Input("commit ends", lambda playbook: playbook.end_commit())


def tick(seconds: float) -> Input:
    """Return the step in which time passes, in seconds."""
    return Input(f"tick {seconds}", lambda playbook: playbook.tick(seconds))


def delivered() -> Input:
    """Return the step in which the peer answers 200 to the last stream receipt."""
    return Input("delivered", lambda playbook: playbook.receipt_delivered())


def failed(*, permanent: bool = False) -> Input:
    """Return the step in which the delivery of the last stream receipt fails.

    ``permanent`` says that the peer answered 400. Otherwise the receipt got no answer or another
    one.
    """
    return Input(
        f"failed permanent={permanent}", lambda playbook: playbook.receipt_failed(permanent)
    )


def restart(*, commit_survives: bool = False) -> Input:
    """Return the step in which the power fails and returns: only synced data is left.

    ``commit_survives`` says whether the transaction in progress reached the disk.
    """
    return Input("restart", lambda playbook: playbook.restart(commit_survives))


def leaves(queue: str, to: int, reason: Reason = Reason.RECEIVED) -> Input:
    """Return the step in which the rows of a queue up to sequence ``to`` leave the queue.

    The decision is stored with the next commit ([MC-MQSRM] 3.1.7.3).
    """
    return Input(
        f"{queue} up to {to} {reason.name}", lambda playbook: playbook.decide(queue, to, reason)
    )


def operator(text: str, act: Callable[[Receiver], object]) -> Input:
    """Return the step ``text`` in which an operator does ``act`` to the engine."""

    def apply(playbook: Playbook) -> None:
        act(playbook.receiver)

    return Input(text, apply)


# --- outputs --------------------------------------------------------------------------------------


def row(queue: str, sequence: int) -> Output:
    """Return the output that the message becomes this row. No answer is sent yet."""
    return Output(f"row {queue} {sequence}")


def repeated(kind: str) -> Output:
    """Return the output that the message is a repeat: it gets no row, and 200 will follow.

    ``kind`` is a :data:`~srmp_spark.srmp.receiving.stream_effects.RepeatKind`.
    """
    return Output(f"repeated {kind}")


def refused(status: int, reason: str) -> Output:
    """Return the output that the message is refused at once with ``status`` for ``reason``."""
    return Output(f"refused {status} {reason}")


def owed_receipt(url: str) -> Output:
    """Return the output that a delivery receipt for ``url`` is stored with the row."""
    return Output(f"owed delivery receipt to {url}")


def told(kind: DecisionKind, decision: str, about: str, *, to: str) -> Output:
    """Return the output that a receipt about a decision is sent to the URL ``to``.

    ``about`` is the message's number, or its place ``stream@position``.
    """
    return Output(f"{kind} {decision} of {about} to {to}")


def ok(count: int = 1) -> Output:
    """Return the output that ``count`` messages are answered 200."""
    return Output(f"200 for {count}")


def stream_receipt(last_ordinal: int, *, stream: int = STREAM, to: str = RECEIPTS_URL) -> Output:
    """Return the output that a stream receipt for ``last_ordinal`` is sent to the URL ``to``."""
    return Output(f"stream receipt {stream} last_ordinal={last_ordinal} to {to}")


def given_up(last_ordinal: int) -> Output:
    """Return the output that the engine gives up a stream receipt, which the peer refused.

    The engine warns. ``last_ordinal`` is that of the receipt.
    """
    return Output(f"stream receipt given up last_ordinal={last_ordinal}")


# --- the conversation -----------------------------------------------------------------------------


class Playbook(Dialogue):
    """A dialogue and the receiving engine that takes part in it, with a simulated disk.

    ``queues`` maps names to whether the queue is transactional.
    """

    def __init__(
        self, settings: ReceiverSettings | None = None, queues: dict[str, bool] | None = None
    ) -> None:
        super().__init__()
        self.clock = SimClock()
        self.disk = SimDisk()
        self._settings = settings or ReceiverSettings()
        self._queues = QUEUES if queues is None else queues
        self._waiting: list[Pending] = []
        self._syncing: list[Pending] = []
        self._last_receipt: SendStreamReceipt | None = None
        self._deciding: list[SimDecision] = []
        self.receiver = self._new_receiver()

    def describe(self) -> str:
        """Return the engine's state as text."""
        return repr(self.receiver)

    def _new_receiver(self) -> Receiver:
        receiver = Receiver(
            IDENTITY,
            LocalHosts(frozenset({"machine2"})),
            MessageIdHistory.load(self.disk.history.values()),
            IncomingStreams.load(self.disk.streams.values(), self.disk.accepted_gaps.values()),
            self._settings,
        )
        receiver.add_queue(ORDER_QUEUE, end=self.disk.end(ORDER_QUEUE))
        for name, transactional in self._queues.items():
            receiver.add_queue(name, transactional, self.disk.end(name))
        return receiver

    def receive(self, message: Message, sender_name: str | None, peer: str) -> None:
        """Carry out the step of :func:`post`."""
        arrival = Arrival(
            self.clock.utc(),
            "api" if not peer else "https" if sender_name else "http",
            peer,
            sender_name,
        )
        outcome = self.receiver.receive(message, arrival, self.clock.now)
        if isinstance(outcome, Refused):
            self.heard.append(refused(outcome.status, outcome.reason))
            return
        self._waiting.append(outcome)
        if isinstance(outcome, Accepted):
            self.heard.append(row(outcome.queue, outcome.sequence))
            self.heard += [owed_receipt(owed.url) for owed in outcome.owed]
        else:
            self.heard.append(repeated(outcome.kind))

    def begin_commit(self) -> None:
        """Carry out the step of :func:`commit_begins`."""
        self._syncing, self._waiting = self._waiting, []
        accepted = [pending for pending in self._syncing if isinstance(pending, Accepted)]
        rows = [SimRow(pending.queue, pending.sequence, "") for pending in accepted]
        owed = [receipt for pending in accepted for receipt in pending.owed]
        asking = [pending.undecided for pending in accepted if pending.undecided is not None]
        moved = [
            each.moved
            for each in self._syncing
            if not isinstance(each, Accepted) and each.moved is not None
        ]
        decided, self._deciding = self._deciding, []
        self.disk.begin(SimTransaction(rows, owed, self.receiver.changes(), asking, moved, decided))

    def end_commit(self) -> None:
        """Carry out the step of :func:`commit_ends`."""
        proof = self.disk.finish()
        answers = self.receiver.committed(self._syncing, proof, self.clock.now)
        self._syncing = []
        if answers:
            self.heard.append(ok(len(answers)))
        while self.disk.decisions:
            self.disk.expand()
        self._tell()

    def decide(self, queue: str, to: int, reason: Reason) -> None:
        """Carry out the step of :func:`leaves`."""
        first = (
            max(
                [
                    self.disk.received.get(queue, 0),
                    *(each.last for each in self._deciding if each.queue == queue),
                ]
            )
            + 1
        )
        self._deciding.append(SimDecision(queue, first, to, reason, self.clock.utc()))

    def _tell(self) -> None:
        """Send every decision receipt that may be sent now, as if the peer answered 200."""
        for key, owed in list(self.disk.told.items()):
            receipt = owed.receipt
            place = receipt.stream_id
            if place is not None and self.receiver.awaits_stream_receipt(
                receipt.counted_by, place, receipt.position
            ):
                continue
            about = (
                str(receipt.uniquifier) if place is None else f"{place.ordinal}@{receipt.position}"
            )
            self.heard.append(told(receipt.kind, receipt.reason.decision, about, to=receipt.url))
            self.disk.decision_delivered(key, owed)

    def commit(self) -> None:
        """Carry out the step of :func:`synced`."""
        self.begin_commit()
        self.end_commit()

    def tick(self, seconds: float) -> None:
        """Carry out the step of :func:`tick`.

        The method calls the engine's timer exactly when the timer is due, as a service does.
        """
        until = self.clock.now + seconds
        while (when := self.receiver.next_timer()) is not None and when <= until + 1e-9:
            self.clock.now = max(self.clock.now, when)
            for receipt in self.receiver.due(self.clock.now):
                self._last_receipt = receipt
                self.heard.append(
                    stream_receipt(
                        receipt.last_ordinal, stream=receipt.stream_id.ordinal, to=receipt.url
                    )
                )
        self.clock.now = until

    def receipt_delivered(self) -> None:
        """Carry out the step of :func:`delivered`."""
        assert self._last_receipt is not None, "no stream receipt has left yet"
        queue, stream_id, _, last_ordinal, _, _ = self._last_receipt
        self.receiver.receipt_delivered(
            queue, stream_id.guid, stream_id, last_ordinal, self.clock.now
        )
        self._tell()

    def receipt_failed(self, permanent: bool) -> None:
        """Carry out the step of :func:`failed`."""
        assert self._last_receipt is not None, "no stream receipt has left yet"
        queue, stream_id = self._last_receipt[:2]
        warning = self.receiver.receipt_failed(queue, stream_id.guid, self.clock.now, permanent)
        if warning is not None:
            self.heard.append(given_up(warning.last_ordinal))

    def restart(self, commit_survives: bool) -> None:
        """Carry out the step of :func:`restart`."""
        self.disk.crash(commit_survives)
        self._waiting, self._syncing, self._deciding = [], [], []
        self.receiver = self._new_receiver()
        while self.disk.decisions:
            self.disk.expand()
        self._tell()
