"""A dialogue with the receiving engine that reads like the specification: ``>>`` goes in, ``<<`` must come out.

    assert (
        Playbook()
        >> post(stream_message(1))
        << row("private$/ledger", 1)
        >> synced()
        << ok()
        >> tick(0.5)
        << stream_receipt(last_ordinal=1)
    )

:mod:`.dialogue` says what the notation means.
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
"""The stream identifier of the document's example 4.4."""
RECEIPTS_URL = "http://machine1/MSMQ/private$/order_queue$"

QUEUES = {"private$/orders": False, "private$/ledger": True}


# --- messages -----------------------------------------------------------------------------------------------------------


def user_message(
    uniquifier: int = 1,
    *,
    queue: str = "private$/orders",
    lineage: str = SENDER,
    **fields: Any,  # noqa: ANN401  # any field of Message
) -> Message:
    """A regular message; ``fields`` are those of :class:`~srmp_spark.message.Message`."""
    values: dict[str, Any] = {
        "destination": f"http://machine2/msmq/{queue}",
        "action": "MSMQ:",
        "has_msmq": True,
    } | fields
    return Message(lineage=lineage, uniquifier=uniquifier, **values)


def stream_message(current: int, previous: int | None = None, *, stream: int = STREAM, guid: str = SENDER,
                   start: bool | None = None, uniquifier: int | None = None,
                   **fields: Any) -> Message:  # fmt: skip  # noqa: ANN401  # any field of Message
    """Position ``current`` of a stream; the first one carries ``<start>``, an absent ``previous`` is ``current`` - 1."""
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


# --- what goes in -------------------------------------------------------------------------------------------------------


def post(
    message: Message, *, sender_name: str | None = None, peer: str = "192.0.2.1:1801"
) -> Input:
    """A message arrives; without a ``peer`` it was made here (transport ``api``)."""
    name = (
        f"stream {message.stream.id.ordinal}@{message.stream.current}"
        if message.stream
        else f"message {message.uniquifier}"
    )
    return Input(f"post {name}", lambda playbook: playbook.receive(message, sender_name, peer))


def synced() -> Input:
    """Everything that waits is committed."""
    return Input("synced", lambda playbook: playbook.commit())


def commit_begins() -> Input:
    """What waits now is in the transaction; what is posted later is not."""
    return Input("commit begins", lambda playbook: playbook.begin_commit())


def commit_ends() -> Input:
    """The sync of that transaction returned."""
    return Input("commit ends", lambda playbook: playbook.end_commit())


def tick(seconds: float) -> Input:
    """Time passes."""
    return Input(f"tick {seconds}", lambda playbook: playbook.tick(seconds))


def delivered() -> Input:
    """The peer answered 200 to the last stream receipt."""
    return Input("delivered", lambda playbook: playbook.receipt_delivered())


def failed(*, permanent: bool = False) -> Input:
    """The last stream receipt was not delivered; ``permanent``: the peer answered 400."""
    return Input(
        f"failed permanent={permanent}", lambda playbook: playbook.receipt_failed(permanent)
    )


def restart(*, commit_survives: bool = False) -> Input:
    """Power off and on: only what was synced is left."""
    return Input("restart", lambda playbook: playbook.restart(commit_survives))


def leaves(queue: str, to: int, reason: Reason = Reason.RECEIVED) -> Input:
    """The rows of a queue up to ``to`` leave it; it is stored with the next commit ([MC-MQSRM] 3.1.7.3)."""
    return Input(
        f"{queue} up to {to} {reason.name}", lambda playbook: playbook.decide(queue, to, reason)
    )


def operator(text: str, act: Callable[[Receiver], object]) -> Input:
    """Somebody does ``act`` to the engine."""

    def apply(playbook: Playbook) -> None:
        act(playbook.receiver)

    return Input(text, apply)


# --- what comes out -----------------------------------------------------------------------------------------------------


def row(queue: str, sequence: int) -> Output:
    """The message becomes this row (nothing is answered yet)."""
    return Output(f"row {queue} {sequence}")


def repeated(kind: str) -> Output:
    """No row; 200 will follow (:data:`~srmp_spark.srmp.receiving.stream_effects.RepeatKind`)."""
    return Output(f"repeated {kind}")


def refused(status: int, reason: str) -> Output:
    """Answered at once."""
    return Output(f"refused {status} {reason}")


def owed_receipt(url: str) -> Output:
    """A delivery receipt is stored with the row."""
    return Output(f"owed delivery receipt to {url}")


def told(kind: DecisionKind, decision: str, about: str, *, to: str) -> Output:
    """A receipt about a decision leaves; ``about`` is the message's number, or its place ``stream@position``."""
    return Output(f"{kind} {decision} of {about} to {to}")


def ok(count: int = 1) -> Output:
    """200 leaves, for ``count`` messages."""
    return Output(f"200 for {count}")


def stream_receipt(last_ordinal: int, *, stream: int = STREAM, to: str = RECEIPTS_URL) -> Output:
    """A stream receipt leaves."""
    return Output(f"stream receipt {stream} last_ordinal={last_ordinal} to {to}")


def given_up(last_ordinal: int) -> Output:
    """A warning: the peer does not want the receipt."""
    return Output(f"stream receipt given up last_ordinal={last_ordinal}")


# --- the conversation ---------------------------------------------------------------------------------------------------


class Playbook(Dialogue):
    """The dialogue and the engine that holds it."""

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
        """The engine."""
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
        """:func:`post`."""
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
        """:func:`commit_begins`."""
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
        """:func:`commit_ends`."""
        proof = self.disk.finish()
        answers = self.receiver.committed(self._syncing, proof, self.clock.now)
        self._syncing = []
        if answers:
            self.heard.append(ok(len(answers)))
        while self.disk.decisions:
            self.disk.expand()
        self._tell()

    def decide(self, queue: str, to: int, reason: Reason) -> None:
        """:func:`leaves`."""
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
        """Whatever may be told now; the peer answers 200."""
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
        """:func:`synced`."""
        self.begin_commit()
        self.end_commit()

    def tick(self, seconds: float) -> None:
        """:func:`tick`: the timer is asked exactly when it said, as a service does."""
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
        """:func:`delivered`."""
        assert self._last_receipt is not None, "no stream receipt has left yet"
        queue, stream_id, _, last_ordinal, _, _ = self._last_receipt
        self.receiver.receipt_delivered(
            queue, stream_id.guid, stream_id, last_ordinal, self.clock.now
        )
        self._tell()

    def receipt_failed(self, permanent: bool) -> None:
        """:func:`failed`."""
        assert self._last_receipt is not None, "no stream receipt has left yet"
        queue, stream_id = self._last_receipt[:2]
        warning = self.receiver.receipt_failed(queue, stream_id.guid, self.clock.now, permanent)
        if warning is not None:
            self.heard.append(given_up(warning.last_ordinal))

    def restart(self, commit_survives: bool) -> None:
        """:func:`restart`."""
        self.disk.crash(commit_survives)
        self._waiting, self._syncing, self._deciding = [], [], []
        self.receiver = self._new_receiver()
        while self.disk.decisions:
            self.disk.expand()
        self._tell()
