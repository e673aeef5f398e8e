"""The sending half of a seed: one life of a sending queue manager, with its crashes.

The destination is a foreign peer or a queue manager of srmp-spark. As in :mod:`.simulation`,
everything is drawn from the seed. The run has a part with faults and a part without faults, and
then no message may be left. The oracle judges the destination's queue. In addition the simulation
checks these rules:

- A message that is sent again has its earlier identifier and place, and it is stored
  (:meth:`.sim_outbox.SimSender.watch`).
- Every committed message arrives or becomes a dead letter. Both happen only if the dead letter says
  that the delivery is in doubt. The rule also holds for every row of a batch that was answered 200.
  A batch whose answer was lost is committed again, perhaps with more rows, because Spark plans a
  micro-batch again.
- The dead letters are the messages that the peer refused, that expired, whose final receipt was
  negative, or that an operator discarded.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random

from srmp_spark.message import Message
from srmp_spark.srmp.codec.encoder import encode
from srmp_spark.srmp.sending.outgoing_effects import Kind, QueueKey
from srmp_spark.srmp.sending.outgoing_states import SenderSettings
from srmp_spark.srmp.waits import RESEND_TABLE_S
from tests.kit import sim_destination, sim_queue_manager
from tests.kit.oracle import Oracle
from tests.kit.sim_clock import SimClock
from tests.kit.sim_destination import SimDestination
from tests.kit.sim_disk import SimDisk
from tests.kit.sim_net import Answer, NetFaults, SimNet
from tests.kit.sim_outbox import SimOutbox, SimSender
from tests.kit.sim_queue_manager import SimQueueManager, queue_url

MESSAGES_MAX = 24
SAFETY_S_MAX = 200.0
LIVENESS_S_MAX = 3 * RESEND_TABLE_S[-1]
STEPS_MAX = 20_000
CRASH_PROBABILITY_MAX = 0.02
DOWN_S_MAX = 60.0
CLOCK_JUMP_US_MAX = 3_600_000_000
ANSWER_LOST_SHARE = 0.1
"""Share of the answers to commits that are lost while there are faults."""
COMMIT_AGAIN_S_MAX = 10.0
ON_THE_WIRE_SHARE = 1 / 16
BOUNDARY = "MSMQ - SOAP boundary, 4711"
QUEUES = {"private$/orders": False, "private$/ledger": True}


class SendingSimulation:
    """One run of the sending half. The destination is ``foreign`` or ``queue_manager``."""

    def __init__(
        self,
        seed: int,
        *,
        sender_class: type[SimSender] = SimSender,
        log: Callable[[str], None] | None = None,
    ) -> None:
        self.random = random = Random(f"out {seed}")
        self.clock = SimClock()
        self.oracle = Oracle()
        faults = NetFaults.drawn(random)
        self.net = SimNet(self.clock, random, faults)
        self.on_the_wire = random.random() < ON_THE_WIRE_SHARE
        self.crash_probability = (
            random.uniform(0.0, CRASH_PROBABILITY_MAX) if random.random() < 0.8 else 0.0
        )
        self.heal_at = self.clock.now + random.uniform(20.0, SAFETY_S_MAX)
        self.foreign: SimDestination | None = None
        self.queue_manager: SimQueueManager | None = None
        self.disk = SimDisk()
        if random.random() < 0.6:
            copies = faults.duplicate > 0 or faults.late_copy > 0
            self.foreign = SimDestination(
                self.clock, random, self.oracle, self._post_receipt, copies
            )
            self._destination = sim_destination.HOST
        else:
            self.queue_manager = SimQueueManager(
                self.clock, self.disk, random, self._post_receipt, queues=QUEUES
            )
            self._destination = sim_queue_manager.HOST
        settings = SenderSettings(
            in_flight_max=random.choice((1, 1, 2, 8)),
            unacknowledged_max=random.choice((65_536, 65_536, 3)),
            stream_length_max=random.choice((2**32 - 1, 2**32 - 1, 4)),
        )
        self.outbox = SimOutbox(self.oracle)
        self.sender = sender_class(
            self.clock, self.outbox, random, self.oracle, self._post_message, settings
        )
        self.final_receipts = (
            self.foreign is not None and settings.stream_length_max > 4 and random.random() < 0.3
        )
        self.submitted = 0
        self._batches = 0
        self._open = 0
        """Number of batches that have no answer yet."""
        self._answered: list[str] = []
        """Rows of the batches that were answered 200."""
        self.steps = 0
        self._log = log
        self._schedule()

    def _schedule(self) -> None:
        random, clock = self.random, self.clock
        span = self.heal_at - clock.now
        left = random.randint(1, MESSAGES_MAX)
        while left > 0:
            count = min(random.choice((1, 1, 1, 2, 5, 12)), left)
            left -= count
            kind: Kind = random.choice(("stream", "stream", "stream", "plain"))
            time_to_reach_queue = random.choice((None, None, None, random.uniform(1.0, span)))
            clock.after(
                random.uniform(0.0, span),
                self._submit,
                kind,
                count,
                time_to_reach_queue,
                random.random() < 0.2,
            )
        for act in (
            self._pause,
            self._retry,
            self._reset,
            self._drop,
            self._set_wall_clock,
            self._foreign_down,
        ):
            if random.random() < 0.15:
                clock.after(random.uniform(0.0, span), act)

    def _url(self, kind: Kind) -> str:
        if self.foreign is not None:
            return f"http://{self._destination}/msmq/{kind}"
        return queue_url("private$/ledger" if kind == "stream" else "private$/orders")

    def _submit(
        self, kind: Kind, count: int, time_to_reach_queue: float | None, poisonous: bool
    ) -> None:
        self._batches += 1
        self._open += 1
        self._commit(
            f"batch {self._batches}", kind, self._rows(kind, count, poisonous), time_to_reach_queue
        )

    def _rows(self, kind: Kind, count: int, poisonous: bool) -> list[str]:
        rows = []
        for _ in range(count):
            self.submitted += 1
            poison = poisonous and self.foreign is not None and self.random.random() < 0.5
            rows.append(f"{kind}-{self.submitted}{'-poison' if poison else ''}")
        return rows

    def _commit(
        self, batch: str, kind: Kind, rows: list[str], time_to_reach_queue: float | None
    ) -> None:
        """Commit the batch again and again until it is answered 200, perhaps with more rows."""
        random = self.random

        def answered(status: int | None) -> None:
            if status == 200 and (self.net.faults is None or random.random() >= ANSWER_LOST_SHARE):
                self._open -= 1
                self._answered.extend(rows)
                return
            again = rows
            if random.random() < 0.5:
                self.sender.marks["out-replanned"] += 1
                again = rows + self._rows(kind, random.randint(1, 3), poisonous=False)
            self.clock.after(
                random.uniform(0.1, COMMIT_AGAIN_S_MAX),
                self._commit,
                batch,
                kind,
                again,
                time_to_reach_queue,
            )

        finals = self.final_receipts and kind == "stream"
        self.sender.submit(
            self._url(kind), kind, batch, rows, time_to_reach_queue, finals, answered
        )

    # --- faults -----------------------------------------------------------------------------------

    def _pause(self) -> None:
        if self.sender.up and self.sender.sender.pause(self._url("stream"), "stream"):
            self.sender.marks["out-pause"] += 1
            self.sender.work()
        self.clock.after(self.random.uniform(0.0, DOWN_S_MAX), self._resume)

    def _resume(self) -> None:
        """Resume the paused queue, and try again later until the change is stored.

        The loop acts like an operator who sees in ``status`` whether the queue is still paused.
        """
        row = self.outbox.queues.get(QueueKey(self._url("stream"), "stream"))
        if self.sender.up and self.sender.sender.resume(self._url("stream"), "stream"):
            self.sender.work()
        if row is not None and row.paused:
            self.clock.after(DOWN_S_MAX, self._resume)

    def _retry(self) -> None:
        if self.sender.up and self.sender.sender.retry(self._url("stream"), "stream"):
            self.sender.marks["out-retry"] += 1
            self.sender.work()

    def _reset(self) -> None:
        """Begin a new stream, as an operator does.

        Nothing happens if the destination is a foreign peer, because only a queue manager of
        srmp-spark recognises messages by their identifiers.
        """
        if (
            self.foreign is None
            and self.sender.up
            and self.sender.sender.reset(self._url("stream"))
        ):
            self.sender.marks["out-reset"] += 1
            self.sender.work()

    def _drop(self) -> None:
        kind: Kind = self.random.choice(("stream", "plain"))
        if self.sender.up and self.sender.sender.drop(self._url(kind), kind, self.clock.utc()):
            self.sender.work()

    def _set_wall_clock(self) -> None:
        self.clock.utc_offset_us += self.random.randint(-CLOCK_JUMP_US_MAX, CLOCK_JUMP_US_MAX)

    def _foreign_down(self) -> None:
        if self.foreign is not None:
            self.foreign.down_until = self.clock.now + self.random.uniform(0.0, DOWN_S_MAX)

    # --- the net ----------------------------------------------------------------------------------

    def _post_message(self, message: Message, answered: Answer) -> None:
        self._note(f"sends {message.body.decode()} {message.uniquifier} {message.stream}")
        if self.queue_manager is None:
            assert self.foreign is not None
            self.net.post("out", self.foreign.receive, message, answered)
        elif self.on_the_wire:
            self.net.post(
                "out", self.queue_manager.receive, encode(message, boundary=BOUNDARY), answered
            )
        else:
            self.net.post("out", self.queue_manager.receive, message, answered)

    def _post_receipt(self, message: Message, answered: Answer) -> None:
        self._note(f"receipt {message.receipt}")
        self.net.post("back", self.sender.receive, message, answered)

    def _note(self, text: str) -> None:
        if self._log is not None:
            self._log(f"{self.clock.now:14.3f} out: {text}")

    @property
    def marks(self) -> Counter[str]:
        """Return the number of each interesting event, of the sender and of a foreign peer."""
        return (
            self.sender.marks + self.foreign.marks
            if self.foreign is not None
            else self.sender.marks
        )

    # --- the run ----------------------------------------------------------------------------------

    def run(self) -> list[str]:
        """Run the whole life, and return the faults that the oracle's verdict does not cover.

        A fault is a text.
        """
        random, clock, probability = self.random, self.clock, self.crash_probability
        while clock.now < self.heal_at and self.steps < STEPS_MAX and clock.step():
            self.steps += 1
            if probability and random.random() < probability:
                self._crash()
        self.net.faults = None
        if self.foreign is not None:
            self.foreign.bad_days = None
        self._note("the faults end")
        deadline = clock.now + LIVENESS_S_MAX
        while self._is_busy and clock.now <= deadline and self.steps < STEPS_MAX and clock.step():
            self.steps += 1
        problems = (
            []
            if self.sender.idle
            else [f"still to send: {self.sender.sender!r} {list(self.sender.sender)}"]
        )
        while self.steps < STEPS_MAX and clock.step():
            self.steps += 1
        if self.steps >= STEPS_MAX:
            problems.append(f"no end after {STEPS_MAX} steps: {list(self.sender.sender)}")
        return problems + self.sender.problems + self._judge()

    @property
    def _is_busy(self) -> bool:
        return not (self.sender.up and self.sender.idle) or self._open > 0

    def _crash(self) -> None:
        random = self.random
        survives = random.random() < 0.5
        if self.queue_manager is not None and random.random() < 0.4:
            if self.queue_manager.up:
                self.queue_manager.crash(survives)
                self.clock.after(random.uniform(0.1, DOWN_S_MAX), self.queue_manager.start)
        elif self.sender.up:
            self._note(f"crash, transaction survives: {survives}")
            self.sender.crash(survives)
            self.clock.after(random.uniform(0.1, DOWN_S_MAX), self._restart)

    def _restart(self) -> None:
        self._note("restart")
        self.sender.start()

    def _judge(self) -> list[str]:
        """Return a fault, as text, for each message with a wrong fate.

        A message must have arrived or be a justified dead letter.
        """
        if self.queue_manager is not None:
            for rows in self.disk.rows.values():
                for row in rows:
                    if row.queue in QUEUES:
                        self.oracle.landed(row.key)
        landed = self.oracle.landed_keys
        problems = []
        refused, not_received = (
            (self.foreign.refused, self.foreign.not_received) if self.foreign else (set(), set())
        )
        problems += [
            f"{key} was committed and is nowhere"
            for key in self._answered
            if key not in landed and key not in self.outbox.dead
        ]
        for key in self.oracle.sent_keys:
            letter = self.outbox.dead.get(key)
            if letter is None and key not in landed:
                problems.append(f"{key} neither arrived nor is it a dead letter")
            elif letter is not None:
                problems += self._judge_letter(
                    key, letter.reason, key in landed, letter.in_doubt, key in refused
                )
            if key in not_received and letter is None:
                problems.append(f"{key} was not received, but is no dead letter")
        return problems

    @staticmethod
    def _judge_letter(
        key: str, reason: str, landed: bool, in_doubt: bool, refused: bool
    ) -> list[str]:
        if landed and not in_doubt and reason != "not-received":
            return [f"{key} arrived and is a dead letter ({reason}) without doubt"]
        if reason == "refused" and not refused:
            return [f"{key} is a dead letter as refused, but was not"]
        if reason not in ("refused", "expired", "not-received", "dropped"):
            return [f"{key} is a dead letter: {reason}"]
        return []
