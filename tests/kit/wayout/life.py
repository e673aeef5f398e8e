"""Simulates, for one seed, the sending side with many destinations, some of them in trouble.

The rules state what the trouble of one destination must not do to another. Everything is drawn from
the seed. Each batch has rows for a few destinations. There are so many destinations in all that
records of queues must be forgotten. Then the trouble ends. Three rules must hold:

- No batch is refused, and each of its rows is accepted by its destination once. Otherwise the row
  is a dead letter: because it was refused (400), because an operator dropped the waiting rows, or
  in a *crowd* because there was no room for one more destination.
- The rows of one queue of a good destination arrive in order, and none is sent twice as a whole.
  The order of a stream holds at every destination.
- A row for a good destination arrives within :data:`LATE_S`, unless its line is slow. Another
  row's 400, another destination's trouble, and a first address that swallows packets are no
  reason to wait.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field
from random import Random

from srmp_spark.errors import ApiError
from srmp_spark.message import Message
from srmp_spark.queue_manager.sender.crossing import Operate
from srmp_spark.queue_manager.sender.operations import operate
from srmp_spark.queue_manager.sender.process import IN_FLIGHT
from srmp_spark.srmp.sending.outgoing_effects import Kind, QueueKey
from srmp_spark.srmp.sending.outgoing_states import SenderSettings
from tests.kit.wayout.peers import Manner, Net, Peer
from tests.kit.wayout.rig import WRITE_S, Limits, Rig, simulated
from tests.kit.wayout.virtual_loop import VirtualLoop, run_virtual

LATE_S = 5.0
"""Longest time in seconds until a row arrives at a good destination.

The time is twice the time after which a slow connection is evicted, and the time of the answer.
"""
BATCHES_MAX = 25
TROUBLE_S_MAX = 300.0
END_S = 7_200.0
"""Longest time, in seconds, after the trouble until all rows must be sent.

Several retransmission time-outs fit into it.
"""
DROP_SHARE = 0.15
"""Share of the batches that are committed at the same time as an operator's drop."""
LARGE_BYTES_MAX = 4_000_000
POISON_SHARE = 0.25
ROOM = {
    "queue_manager.sender.dispatcher.DESTINATIONS_MAX": 24,
    "queue_manager.sender.dispatcher.FORGOTTEN_AT_ONCE": 2,
    "queue_manager.sender.dispatcher.BATCH_RECORDS_MAX": 40,
    "srmp.sending.sender.RECORDS_MAX": 44,
    "srmp.sending.outgoing_room.OTHERS_MAX": 24,
}
"""Dotted name of a limit below ``srmp_spark`` → value that is small enough to be reached.

Records of queues must be forgotten, but there is room for all destinations.
"""
CROWD = {**ROOM, "srmp.sending.outgoing_room.OTHERS_MAX": 4}
TROUBLES = ("refused", "never", "silent", "503", "late")


@dataclass(slots=True)
class Destination:
    """One queue manager that messages are sent to: its host name, address and simulated peer."""

    host: str
    address: str
    peer: Peer
    trouble: str = ""
    """Kind of trouble, or empty for none.

    The value is one of :data:`TROUBLES`, ``line`` for a slow line, or ``two`` for a host whose
    first address swallows packets.
    """

    @property
    def is_good(self) -> bool:
        """Return whether rows for this destination must arrive in time and once."""
        return self.trouble in ("", "two")


@dataclass(slots=True)
class _Row:
    key: QueueKey
    destination: Destination
    name: str
    committed_at: float


@dataclass(slots=True)
class Life:
    """One run of the sending side with messages."""

    seed: int
    problems: list[str] = field(default_factory=list)
    marks: Counter[str] = field(default_factory=Counter)
    """Event name → how many times the event happened."""

    def run(self, planted: AbstractContextManager[object] | None = None) -> Life:
        """Run the simulation with the bug ``planted``, if there is one. Return this object.

        The problems are in ``problems``, one text each.
        """
        return _Living(self).run(planted or nullcontext())


class _Living:
    def __init__(self, life: Life) -> None:
        self._life = life
        self._random = random = Random(f"way out {life.seed}")
        self._net = Net(self._receipt)
        self._is_crowd = random.random() < 0.2
        self._destinations = self._drawn()
        self._rows: list[_Row] = []
        self._without_room: set[str] = set()
        self._dropped: set[QueueKey] = set()
        self._rig: Rig
        self._number = 0

    def _drawn(self) -> list[Destination]:
        random = self._random
        found = []
        for number in range(random.randint(3, 40)):
            address = f"10.1.{number}.1"
            peer = self._net.peers[address] = Peer(Manner(answer_s=random.uniform(0.005, 0.2)))
            host, trouble = address, ""
            if random.random() < 0.1:
                host, trouble = f"two{number}.example", "two"
                self._net.peers[f"10.2.{number}.1"] = Peer(Manner(connects="never"))
            if random.random() < 0.3:
                peer.manner.status = lambda row: 400 if row.endswith("poison") else 200
            found.append(Destination(host, address, peer, trouble))
        troubled = random.sample(
            found,
            min(len(found) - 1, random.randint(5, 9) if self._is_crowd else random.randint(0, 3)),
        )
        for destination in troubled:
            destination.host, destination.trouble = (
                destination.address,
                random.choice((*TROUBLES, "line", "line")),
            )
            _make_bad(destination.peer.manner, destination.trouble, random)
        return found

    def _receipt(self, peer: Peer, message: Message) -> None:
        self._rig.receipt(peer, message)

    def _resolve(self, host: str, _port: int) -> Sequence[str]:
        number = host.removeprefix("two").partition(".")[0]
        return (f"10.2.{number}.1", f"10.1.{number}.1")

    def run(self, planted: AbstractContextManager[object]) -> Life:
        limits = Limits(self._random.choice((16, 40, 1_000)), CROWD if self._is_crowd else ROOM)
        with simulated(self._net, limits, self._resolve), planted:
            _, bugs = run_virtual(self._net.connect, self._main)
        self._life.problems += [f"nobody caught {bug}" for bug in bugs]
        return self._life

    async def _main(self, loop: VirtualLoop) -> None:
        try:
            await asyncio.wait_for(self._live(loop), TROUBLE_S_MAX + 2 * END_S)
        except asyncio.TimeoutError:
            self._life.problems.append("a commit or a decision is never answered")

    async def _live(self, loop: VirtualLoop) -> None:
        random = self._random
        settings = SenderSettings(in_flight_max=IN_FLIGHT, resend_table=(30.0, 30.0, 300.0))
        rig = self._rig = Rig(loop, self._net, settings=settings)
        trouble_s = random.uniform(60.0, TROUBLE_S_MAX)
        times = sorted(
            random.uniform(0.0, trouble_s) for _ in range(random.randint(1, BATCHES_MAX))
        )
        begun = loop.time()
        for number, at in enumerate(times):
            await asyncio.sleep(max(0.0, begun + at - loop.time()))
            if random.random() < DROP_SHARE and self._rows:
                row = random.choice(self._rows)
                await asyncio.gather(self._drop(row.key), self._commit(number, row))
            else:
                await self._commit(number)
        await asyncio.sleep(max(0.0, begun + trouble_s - loop.time()))
        for destination in self._destinations:
            if destination.trouble in TROUBLES:
                good = Manner(
                    status=destination.peer.manner.status
                    if destination.trouble != "503"
                    else (lambda row: 200)
                )
                destination.peer.manner = good
        end = loop.time() + END_S
        while not rig.is_idle and loop.time() < end:
            await asyncio.sleep(1.0)
        self._judge()
        await rig.dispatcher.transports.stop()

    async def _drop(self, key: QueueKey) -> None:
        """Drop the rows that wait for the destination of ``key``, as an operator does.

        The drop runs alongside a commit that may be for the same destination.
        """
        self._dropped.add(key)
        self._dropped.add(QueueKey(key.destination, "plain" if key.kind == "stream" else "stream"))
        self._life.marks["drop"] += 1
        await asyncio.sleep(self._random.uniform(0.0, 4 * WRITE_S))
        command = Operate("drop", key.destination)
        # The operation is refused if nothing waits for the destination.
        with suppress(ApiError):
            await operate(self._rig.dispatcher, self._rig.loop, command)

    async def _commit(self, number: int, beside: _Row | None = None) -> None:
        """Commit batch ``number`` with rows for some random destinations.

        ``beside`` is a row of the destination that is being dropped at the same time. The batch
        often has a row for that destination, too.
        """
        random = self._random
        rows: dict[QueueKey, list[str]] = {}
        if beside is not None and random.random() < 0.8:
            rows[beside.key] = [self._row(beside.key, beside.destination)]
        for destination in random.sample(
            self._destinations, min(len(self._destinations), random.randint(1, 4))
        ):
            kind: Kind = random.choice(("stream", "plain"))
            key = QueueKey(f"http://{destination.host}/msmq/private$/q", kind)
            if key not in rows:
                rows[key] = [
                    self._row(key, destination) for _ in range(random.choice((1, 1, 2, 5, 12)))
                ]
        outcome = await self._rig.commit(rows)
        if isinstance(outcome, Exception):
            self._life.problems.append(f"batch {number} was refused: {outcome}")
            for names in rows.values():
                self._rows = [row for row in self._rows if row.name not in names]
            return
        self._without_room.update(name for key in outcome.without_room for name in rows[key])

    def _row(self, key: QueueKey, destination: Destination) -> str:
        random = self._random
        self._number += 1
        name = f"{self._number}"
        if random.random() < POISON_SHARE:
            name += "-poison"
        elif destination.trouble == "line" and random.random() < 0.5:
            name += "-large"
            self._net.sizes[name] = random.randint(1_000_000, LARGE_BYTES_MAX)
        self._rows.append(_Row(key, destination, name, self._rig.loop.time()))
        return name

    # --- rules ------------------------------------------------------------------------------------

    def _judge(self) -> None:
        life, dead = self._life, self._rig.outbox.dead
        if self._without_room and not self._is_crowd:
            life.problems.append(f"no room for {sorted(self._without_room)}, though there was some")
        for row in self._rows:
            life.problems += self._wrong_with(row)
            life.marks[f"{row.destination.trouble or 'good'}-{row.key.kind}"] += 1
        queues: dict[QueueKey, list[_Row]] = {}
        for row in self._rows:
            queues.setdefault(row.key, []).append(row)
        for key, rows in queues.items():
            if not rows[0].destination.is_good and key.kind == "plain":
                # A row without an answer is sent again, after rows that were answered.
                continue
            wanted = [row.name for row in rows if row.name not in dead]
            names = set(wanted)
            arrived = [name for name, _ in rows[0].destination.peer.taken if name in names]
            if arrived != wanted and len(arrived) == len(wanted):
                life.problems.append(
                    f"{key.kind} rows to {key.destination} arrived out of order: {arrived}"
                )
        if len(queues) > ROOM["queue_manager.sender.dispatcher.DESTINATIONS_MAX"]:
            life.marks["more-than-records"] += 1

    def _wrong_with(self, row: _Row) -> list[str]:
        life, destination, name = self._life, row.destination, row.name
        letter = self._rig.outbox.dead.get(name)
        if letter is not None:
            life.marks[f"dead-{letter.reason}"] += 1
            expected = {
                "no-room": name in self._without_room,
                "refused": name in destination.peer.refused,
                "dropped": row.key in self._dropped,
            }
            if not expected.get(letter.reason):
                return [f"{name} is a dead letter: {letter.reason}"]
            is_taken = any(taken == name for taken, _ in destination.peer.taken)
            return (
                [f"{name} was taken, and is a dead letter without doubt"]
                if is_taken and not letter.in_doubt
                else []
            )
        times = [at for taken, at in destination.peer.taken if taken == name]
        seen = destination.peer.seen.get(name, 0)
        if not times:
            return [
                (
                    f"{name} was committed and is nowhere: left {seen} times, "
                    f"{destination.trouble or 'good'}"
                )
            ]
        if row.destination.trouble not in TROUBLES and seen > 1:
            return [f"{name} was sent {seen} times as a whole, {destination.trouble or 'good'}"]
        if row.key.kind == "stream" and len(times) > 1:
            return [f"{name} was taken {len(times)} times"]
        late = times[0] - row.committed_at
        if destination.is_good and late > LATE_S:
            return [f"{name} was late: {late:.1f} s to a good destination"]
        return []


def _make_bad(manner: Manner, trouble: str, random: Random) -> None:
    if trouble in ("refused", "never"):
        manner.connects = trouble
    elif trouble == "silent":
        manner.answers = False
    elif trouble == "503":
        manner.status = lambda row: 503
    elif trouble == "late":
        manner.answer_s = random.uniform(3.0, 25.0)
    else:
        manner.bytes_per_s = random.uniform(50_000, 300_000)
