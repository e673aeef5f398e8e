"""A dialogue with the sending engine that reads like the specification.

    assert (
        SendingPlaybook()
        >> enqueue(2)
        << sends(1, start=True)
        >> answer(200)
        << sends(2, previous=1)
        >> answer(200)
        >> stream_receipt(2)
        << delivered(1, 2)
    )

A ``>>`` step is an input, a ``<<`` step is an expected output. :mod:`.dialogue` explains the
notation. Serials and message identifiers both count from 1, so ``sends(2)`` is also the message
with the identifier 2. The playbook reads rows and commits changes as soon as the engine requests
it. After :func:`hold_commits` it commits only at a :func:`committed` step.
"""

from __future__ import annotations

from collections.abc import Callable

from srmp_spark.message import (
    CLASS_ACK_RECEIVE,
    CLASS_NACK_Q_PURGED,
    CLASS_ORDER_ACK,
    Message,
    Receipt,
    StreamId,
)
from srmp_spark.srmp.codec.message_types import ORDERING_ACK_ACTION
from srmp_spark.srmp.sending.outgoing_effects import (
    Delivered,
    Kind,
    Load,
    OutgoingChanges,
    QueueKey,
    Send,
)
from srmp_spark.srmp.sending.outgoing_states import SenderSettings
from srmp_spark.srmp.sending.sender import Sender
from tests.kit.dialogue import Dialogue, Input, Output
from tests.kit.oracle import Oracle
from tests.kit.sim_clock import SimClock
from tests.kit.sim_outbox import OutboxTransaction, SimOutbox

IDENTITY = "0a11ce00-0000-4000-8000-00000000000a"
DESTINATION = "http://machine2/msmq/private$/ledger"
RECEIPTS_URL = "http://machine1/MSMQ/PRIVATE$/order_queue$"
READ_MAX = 1_000
"""Most messages that a dialogue reads at once; the store has the limit in bytes."""


# --- inputs ---------------------------------------------------------------------------------------


def enqueue(
    count: int = 1,
    *,
    kind: Kind = "stream",
    time_to_reach_queue: float | None = None,
    final: bool = False,
) -> Input:
    """Return the step in which an application sends ``count`` messages.

    ``time_to_reach_queue`` is in seconds from now. With ``final`` the messages request final
    receipts.
    """
    text = f"enqueue {count} {kind}"
    return Input(text, lambda playbook: playbook.enqueue(count, kind, time_to_reach_queue, final))


def answer(status: int, *, retry_after: float | None = None, nth: int = 0) -> Input:
    """Return the step in which the peer answers a message in flight with ``status``.

    ``nth`` is 0 for the oldest message, 1 for the next one, and so on. ``retry_after`` are the
    seconds of the header field.
    """
    return Input(f"answer {status}", lambda playbook: playbook.answer(status, retry_after, nth))


def peer_is_down(down: bool = True) -> Input:
    """Return the step that makes connections to the peer impossible, or possible again."""
    return Input("peer down" if down else "peer up", lambda playbook: playbook.peer_is_down(down))


def answer_withdraws(status: int) -> Input:
    """Return the step in which the peer answers the oldest message and others are withdrawn.

    The others are all other messages in flight. They were prepared for sending, but not sent.
    """
    return Input(f"answer {status} withdraws", lambda playbook: playbook.answer_withdraws(status))


def no_answer(*, left: bool = True) -> Input:
    """Return the step in which the sending of the oldest message fails.

    ``left=False`` says that no connection could be made, so that no byte was sent.
    """
    return Input(f"no answer, left={left}", lambda playbook: playbook.no_answer(left))


def once_more() -> Input:
    """Return the step in which the oldest message in flight is sent again automatically.

    The peer closed a kept connection without an answer, so the message is sent over a new
    connection. The outcome of the first attempt is in doubt.
    """
    return Input("once more", lambda playbook: playbook.sender.doubted(playbook.under_way[0]))


def stream_receipt(
    last_ordinal: int, *, stream: int = 0, guid: str = IDENTITY, to: str = RECEIPTS_URL
) -> Input:
    """Return the step in which a stream receipt for ``last_ordinal`` arrives.

    ``stream`` counts the streams backwards: 0 is the live one, -1 the one before. ``to`` is the URL
    that the receipt is sent to.
    """
    return Input(
        f"receipt {last_ordinal}",
        lambda playbook: playbook.receipt(last_ordinal, stream, guid, to, None),
    )


def final_receipt(
    ordinal: int,
    *,
    positive: bool = True,
    stream: int = 0,
    guid: str = IDENTITY,
    to: str = RECEIPTS_URL,
) -> Input:
    """Return the step in which a final stream receipt for position ``ordinal`` arrives.

    ``positive`` says that an application received the message. ``stream`` counts as in
    :func:`stream_receipt`.
    """
    text = f"final {ordinal} {positive}"
    return Input(text, lambda playbook: playbook.receipt(ordinal, stream, guid, to, positive))


def tick(seconds: float) -> Input:
    """Return the step in which time passes, in seconds."""
    return Input(f"tick {seconds}", lambda playbook: playbook.tick(seconds))


def restart() -> Input:
    """Return the step in which the power fails and returns: only committed data is left."""
    return Input("restart", lambda playbook: playbook.restart())


def hold_commits() -> Input:
    """Return the step after which nothing is committed before a :func:`committed` step."""
    return Input("hold commits", lambda playbook: playbook.hold())


def committed() -> Input:
    """Return the step that commits all changes."""
    return Input("committed", lambda playbook: playbook.commit())


def operator(text: str, act: Callable[[Sender], object]) -> Input:
    """Return the step ``text`` in which an operator does ``act`` to the engine."""
    return Input(text, lambda playbook: playbook.operator(act))


# --- outputs --------------------------------------------------------------------------------------


def sends(
    number: int,
    *,
    position: int | None = None,
    previous: int | None = None,
    start: bool = False,
    again: bool = False,
    kind: Kind = "stream",
) -> Output:
    """Return the output that a message is sent.

    ``number`` is the message's identifier. In a stream ``position`` is its position (default:
    ``number``), and ``previous`` the position before it (default: ``position`` - 1). ``again`` says
    that the message was sent before.
    """
    if kind == "plain":
        return Output(f"sends {number}{' again' if again else ''}")
    position = number if position is None else position
    previous = position - 1 if previous is None else previous
    return Output(
        f"sends {number} as {position} after {previous}{' start' if start else ''}"
        f"{' again' if again else ''}"
    )


def delivered(first: int, last: int | None = None) -> Output:
    """Return the output that the delivery of the messages ``first`` to ``last`` is stored."""
    return Output(f"delivered {first}-{first if last is None else last}")


def dead(
    first: int,
    reason: str,
    *,
    last: int | None = None,
    status: int | None = None,
    in_doubt: bool = False,
) -> Output:
    """Return the output that the messages ``first`` to ``last`` are stored as dead letters.

    ``status`` is that of the peer's answer. ``in_doubt`` says that the peer may have the messages.
    """
    status_text = f" {status}" if status else ""
    return Output(
        f"dead {first}-{first if last is None else last} "
        f"{reason}{status_text}{' in doubt' if in_doubt else ''}"
    )


def verdict(text: str) -> Output:
    """Return the output that a receipt made no progress.

    ``text`` is the engine's verdict about the receipt.
    """
    return Output(f"verdict {text}")


# --- the conversation -----------------------------------------------------------------------------


class SendingPlaybook(Dialogue):
    """A dialogue and the sending engine that takes part in it, with a simulated outbox."""

    def __init__(self, settings: SenderSettings | None = None) -> None:
        super().__init__()
        self.clock = SimClock()
        self.disk = SimOutbox(Oracle())
        self.settings = settings or SenderSettings()
        self.under_way: list[Send] = []
        self.ordinals: list[int] = []
        """The ordinals of all streams that were begun, in order."""
        self._number = 0
        self._new: list[tuple[QueueKey, int, Message]] = []
        self._new_finals: list[tuple[QueueKey, int, int]] = []
        self._held = self._down = False
        self.sender = self._load()

    def describe(self) -> str:
        """Return the state of the engine and its queues as text."""
        return f"{self.sender!r} {list(self.sender)}"

    def _load(self) -> Sender:
        return Sender.load(
            IDENTITY,
            self.settings,
            self.disk.queues.values(),
            self.disk.proof(),
            finals=self.disk.runs_of_finals(),
            last_stream_ordinal=self.disk.last_stream_ordinal,
        )

    def enqueue(
        self, count: int, kind: Kind, time_to_reach_queue: float | None, final: bool
    ) -> None:
        """Carry out the step of :func:`enqueue`."""
        at = self.clock.utc()
        until = None if time_to_reach_queue is None else at + int(time_to_reach_queue * 1_000_000)
        enqueued = self.sender.enqueue(
            DESTINATION, kind, count, at, receipts_url=RECEIPTS_URL, final_receipts=final
        )
        for serial in range(enqueued.first, enqueued.last + 1):
            self._number += 1
            message = Message(
                destination=DESTINATION,
                lineage=IDENTITY,
                uniquifier=self._number,
                has_msmq=True,
                source_qm=IDENTITY,
                body=f"{kind} {self._number}".encode(),
                time_to_reach_queue=until,
                dead_letter=final,
            )
            self._new.append((enqueued.key, serial, message))
        if final:
            self._new_finals.append((enqueued.key, enqueued.first, enqueued.last))
        self._work()

    def answer(self, status: int, retry_after: float | None, nth: int) -> None:
        """Carry out the step of :func:`answer`."""
        send = self.under_way.pop(nth)
        self.sender.answered(send, status, self.clock.now, self.clock.utc(), retry_after)
        self._work()

    def _is_not_reached(self, load: Load) -> None:
        more: Load | None = load
        if not self.sender.must_see(load, self.clock.utc()):
            self.sender.not_reached(load, self.clock.now)
            return
        rows_max = 1
        while more is not None:
            more = self.sender.seen(
                more, self.disk.read(more, rows_max), self.clock.now, self.clock.utc()
            )
            rows_max = READ_MAX

    def peer_is_down(self, down: bool) -> None:
        """Carry out the step of :func:`peer_is_down`."""
        self._down = down

    def answer_withdraws(self, status: int) -> None:
        """Carry out the step of :func:`answer_withdraws`."""
        send, *withdrawn = self.under_way
        self.under_way = []
        for each in reversed(withdrawn):
            self.sender.never_left(each)
        self.sender.answered(send, status, self.clock.now, self.clock.utc())
        for each in reversed(withdrawn):
            self.sender.withdrawn(each)
        self._work()

    def no_answer(self, left: bool) -> None:
        """Carry out the step of :func:`no_answer`."""
        self.sender.failed(self.under_way.pop(0), self.clock.now, left=left)
        self._work()

    def receipt(self, last: int, stream: int, guid: str, to: str, decision: bool | None) -> None:
        """Carry out the step of :func:`stream_receipt` or :func:`final_receipt`.

        ``decision`` is ``None`` for a stream receipt, else whether the final receipt is positive.
        """
        stream_id = StreamId(guid, self.ordinals[stream - 1])
        if decision is None:
            receipt, message_class = (
                Receipt("stream", stream_id=stream_id, last_ordinal=last),
                CLASS_ORDER_ACK,
            )
        else:
            receipt = Receipt(
                "final_stream",
                stream_id=stream_id,
                last_ordinal=last,
                lineage=IDENTITY,
                uniquifier=last,
                decision="positive" if decision else "negative",
            )
            message_class = CLASS_ACK_RECEIVE if decision else CLASS_NACK_Q_PURGED
        message = Message(
            to, ORDERING_ACK_ACTION, has_msmq=True, message_class=message_class, receipt=receipt
        )
        found = self.sender.receipt(message, self.clock.now, self.clock.utc())
        if found not in ("progress", "final"):
            self.heard.append(verdict(str(found)))
        self._work()

    def tick(self, seconds: float) -> None:
        """Carry out the step of :func:`tick`."""
        until = self.clock.now + seconds
        while (when := self.sender.next_timer()) is not None and when <= until + 1e-9:
            self.clock.now = max(self.clock.now, when)
            self.sender.due(self.clock.now, self.clock.utc())
            self._work()
        self.clock.now = until

    def restart(self) -> None:
        """Carry out the step of :func:`restart`."""
        self.disk.crash(survives=False)
        self._new, self._new_finals, self.under_way = [], [], []
        self.sender = self._load()
        self._work()

    def hold(self) -> None:
        """Carry out the step of :func:`hold_commits`."""
        self._held = True

    def operator(self, act: Callable[[Sender], object]) -> None:
        """Carry out the step of :func:`operator`."""
        act(self.sender)
        self._work()

    def commit(self) -> None:
        """Carry out the step of :func:`committed`."""
        self._commit()
        self._work()

    def _commit(self) -> None:
        changes: OutgoingChanges = self.sender.changes()
        self.disk.begin(OutboxTransaction(self._new, changes, self._number, self._new_finals))
        self._new, self._new_finals = [], []
        for outcome in self.sender.committed(changes, self.disk.finish()):
            if isinstance(outcome, Delivered):
                self.heard.append(delivered(outcome.run.first, outcome.run.last))
            else:
                run, reason, status, in_doubt, _ = outcome.letter
                self.heard.append(
                    dead(run.first, reason, last=run.last, status=status, in_doubt=in_doubt)
                )

    def _work(self) -> None:
        """Commit, read and send like the dispatcher of the product, until nothing is left to do."""
        while True:
            effects = self.sender.poll(self.clock.now, self.clock.utc())
            for effect in effects:
                if isinstance(effect, Load) and self._down:
                    self._is_not_reached(effect)
                elif isinstance(effect, Load):
                    self.sender.loaded(effect, self.disk.read(effect, READ_MAX))
                else:
                    self._leaves(effect)
            commit = self.sender.has_changes and not self._held
            if commit:
                self._commit()
            if not effects and not commit:
                return

    def _leaves(self, send: Send) -> None:
        self.under_way.append(send)
        message, place = send.message, send.message.stream
        if place is None:
            self.heard.append(sends(message.uniquifier, again=send.again, kind="plain"))
            return
        if place.id.ordinal not in self.ordinals:
            self.ordinals.append(place.id.ordinal)
        self.heard.append(
            sends(
                message.uniquifier,
                position=place.current,
                previous=place.previous,
                start=place.start,
                again=send.again,
            )
        )
